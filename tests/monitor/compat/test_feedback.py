"""What HAMi's library is told: who waits for whom, and who is held to its compute limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.monitor.compat.feedback import Feedback, KernelWords, feedback, is_active

A, B = "GPU-a", "GPU-b"


def says(
    recent: int, priority: int = 1, on: tuple[str, ...] = (A,), switch: int = 1
) -> KernelWords:
    return KernelWords(
        devices=on, priority=priority, recent_kernel=recent, utilization_switch=switch
    )


@pytest.mark.parametrize(
    ("regions", "expected"),
    [
        pytest.param([says(2)], [(1, 0)], id="alone, it is not limited"),
        pytest.param([says(1)], [(0, 0)], id="a mark is spent after two rounds"),
        pytest.param([says(0)], [(0, 0)], id="and stays spent"),
        pytest.param([says(-1)], [(0, 0)], id="whoever waits for nobody goes on"),
        pytest.param([says(2), says(2)], [(1, 1), (1, 1)], id="two of one priority are limited"),
        pytest.param([says(2), says(0)], [(1, 0), (0, 0)], id="one that rests limits nobody"),
        pytest.param([says(2, 0), says(2, 1)], [(1, 0), (-1, 1)], id="the lower priority waits"),
        pytest.param([says(2, 0), says(-1, 1)], [(1, 0), (-1, 1)], id="and waits on"),
        pytest.param([says(1, 0), says(-1, 1)], [(0, 0), (0, 0)], id="until the higher rests"),
        pytest.param([says(2, 0, (A,)), says(2, 1, (B,))], [(1, 0), (1, 0)], id="on another device nobody waits"),
        pytest.param([says(2, 0, (A,)), says(2, 1, (A, B))], [(1, 0), (-1, 1)], id="one shared device is enough"),
        pytest.param([says(2, -1), says(2, 1)], [(1, 0), (1, 0)], id="a made-up priority blocks nobody"),
        pytest.param([says(2, 1, (A, A))], [(1, 0)], id="a device named twice counts once"),
        pytest.param([says(-7)], [(0, 0)], id="any negative word waits"),
    ],
)  # fmt: skip
def test_what_two_words_say(regions, expected):
    assert feedback(regions, {}) == [Feedback(*words) for words in expected]


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        pytest.param({A: {0: 1}}, (-1, 1), id="a slice of ours goes before it"),
        pytest.param({A: {1: 1}}, (1, 1), id="one of the same priority shares"),
        pytest.param({A: {2: 1}}, (1, 0), id="one behind it is no matter"),
        pytest.param({A: {0: 0}}, (1, 0), id="one that rests is none"),
        pytest.param({B: {0: 1}}, (1, 0), id="nor one elsewhere"),
    ],
)
def test_slices_of_ours_count(others, expected):
    assert feedback([says(2)], others) == [Feedback(*expected)]


def test_others_stay_as_they_were():
    others = {A: {1: 1}}
    feedback([says(2)], others)
    assert others == {A: {1: 1}}


@pytest.mark.parametrize(
    ("recent", "active"), [(2, True), (1, False), (0, False), (-1, False), (9, True)]
)
def test_who_computes(recent, active):
    assert is_active(says(recent)) is active


words = st.builds(
    KernelWords,
    devices=st.lists(st.sampled_from([A, B]), max_size=3).map(tuple),
    priority=st.integers(-2, 3),
    recent_kernel=st.integers(-3, 5),
    utilization_switch=st.integers(0, 1),
)


@given(st.lists(words, max_size=6))
def test_somebody_always_goes_on(regions):
    """Who waits, waits for one that computes and does not wait for anybody."""
    told = feedback(regions, {})
    for region, word in zip(regions, told, strict=True):
        if word.recent_kernel < 0:
            assert any(
                is_active(other)
                and 0 <= other.priority < region.priority
                and set(other.devices) & set(region.devices)
                for other in regions
            )


@given(st.lists(words, max_size=6), st.randoms())
def test_order_is_no_matter(regions, random):
    order = list(range(len(regions)))
    random.shuffle(order)
    told = feedback(regions, {})
    assert feedback([regions[at] for at in order], {}) == [told[at] for at in order]
