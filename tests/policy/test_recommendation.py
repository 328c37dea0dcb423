"""What a container could ask for: the rules of ``docs/recommend.md``, and their laws."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.policy.recommendation import DeviceUse, Recommendation, recommend
from hami.policy.recommendation import NoRecommendation as No

MIB = 1 << 20
GIB = 1 << 30


def a_use(**more: Any) -> DeviceUse:
    """Four GiB and 30 %, of which it uses what suits it, for an hour and more."""
    values = {
        "memory_limit_mib": 4096, "device_memory_mib": 81920, "guarantee": 30, "used_bytes": 3 * GIB,
        "max_used_bytes": 3413 * MIB, "p95_utilisation": 25.0, "minutes": 60, "waited_minutes": 0,
        "age_minutes": 100.0,
    }  # fmt: skip
    return DeviceUse(**(values | more))


def gives(memory: int | None = None, cores: int | None = None) -> Recommendation:
    return Recommendation(memory_mib=memory, cores=cores)


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        pytest.param({}, No.FITS, id="it fits"),
        pytest.param({"max_used_bytes": GIB, "used_bytes": GIB}, gives(1280), id="a fifth on top, in steps of 256 MiB"),
        pytest.param({"max_used_bytes": 0, "used_bytes": 0}, gives(256), id="an idle one keeps a step"),
        pytest.param({"max_used_bytes": 4096 * MIB}, gives(5120), id="at its limit"),
        pytest.param({"max_used_bytes": 4096 * MIB, "device_memory_mib": 4500}, No.FITS, id="a device has no more, and a little is not worth it"),
        pytest.param({"max_used_bytes": 4096 * MIB, "device_memory_mib": 4900}, gives(4900), id="all of the device"),
        pytest.param({"max_used_bytes": GIB, "used_bytes": 2 * GIB}, gives(2048), id="never below what is used now"),
        pytest.param({"max_used_bytes": 3100 * MIB}, No.FITS, id="less by less than a tenth"),
        pytest.param({"memory_limit_mib": 100, "max_used_bytes": 80 * MIB, "used_bytes": 0}, No.FITS, id="rounding up alone gives nothing"),
        pytest.param({"memory_limit_mib": 0}, No.FITS, id="no limit of memory"),
        pytest.param({"p95_utilisation": 10.0}, gives(None, 15), id="less compute, in steps of 5 %"),
        pytest.param({"p95_utilisation": 0.0}, gives(None, 5), id="never no guarantee"),
        pytest.param({"p95_utilisation": 20.001}, gives(None, 25), id="24 % and a bit"),
        pytest.param({"p95_utilisation": 90.0}, No.FITS, id="what others left idle is not needed"),
        pytest.param({"p95_utilisation": 30.0, "waited_minutes": 30}, No.FITS, id="half of the time is not most"),
        pytest.param({"p95_utilisation": 30.0, "waited_minutes": 31}, gives(None, 40), id="who waits most of the time gets more"),
        pytest.param({"p95_utilisation": 5.0, "waited_minutes": 31}, No.FITS, id="and never less"),
        pytest.param({"p95_utilisation": 99.0, "waited_minutes": 60}, gives(None, 100), id="a device has no more compute"),
        pytest.param({"p95_utilisation": None, "max_used_bytes": GIB, "used_bytes": 0}, gives(1280), id="no figures of compute"),
        pytest.param({"guarantee": 0, "max_used_bytes": GIB, "used_bytes": 0}, gives(1280), id="nothing guaranteed"),
        pytest.param({"guarantee": 0, "memory_limit_mib": 0}, No.UNLIMITED, id="unlimited"),
        pytest.param({"p95_utilisation": None, "memory_limit_mib": 0}, No.NO_FIGURES, id="no figures of what is limited"),
        pytest.param({"minutes": 29}, No.SHORT, id="too short"),
        pytest.param({"age_minutes": 29.9}, No.RESTARTED, id="restarted"),
        pytest.param({"guarantee": 100, "memory_limit_mib": 81920}, No.WHOLE_DEVICE, id="a whole device"),
        pytest.param({"guarantee": 100, "memory_limit_mib": 4096}, gives(None, 30), id="all compute of one is no whole device"),
    ],
)  # fmt: skip
def test_one_device(use, expected):
    assert recommend([a_use(**use)]) == expected


@pytest.mark.parametrize(
    ("uses", "expected"),
    [
        pytest.param([], No.NO_FIGURES, id="none"),
        pytest.param([{"max_used_bytes": GIB, "used_bytes": 0}, {"max_used_bytes": 2 * GIB, "used_bytes": 0}], gives(2560), id="the highest decides"),
        pytest.param([{}, {"max_used_bytes": GIB}], No.FITS, id="also that nothing changes"),
        pytest.param([{}, {"memory_limit_mib": 8192}], gives(4096), id="they get the same"),
        pytest.param([{"p95_utilisation": 10.0}, {"p95_utilisation": 22.0, "guarantee": 60}], gives(None, 30), id="one that needs more than another has"),
        pytest.param([{}, {"minutes": 1}], No.SHORT, id="one of them not known"),
        pytest.param([{"max_used_bytes": GIB, "used_bytes": 0}, {"memory_limit_mib": 0}], No.FITS, id="one of them unlimited"),
        pytest.param([{"max_used_bytes": 4096 * MIB, "device_memory_mib": 4900}, {}], gives(4900), id="within the smallest device"),
    ],
)  # fmt: skip
def test_several(uses, expected):
    assert recommend([a_use(**use) for use in uses]) == expected


known = st.builds(
    DeviceUse,
    memory_limit_mib=st.integers(0, 40960),
    device_memory_mib=st.sampled_from([16384, 40960, 81920]),
    guarantee=st.integers(0, 100),
    used_bytes=st.integers(0, 40 * GIB),
    max_used_bytes=st.integers(0, 40 * GIB),
    p95_utilisation=st.none() | st.floats(0, 100),
    minutes=st.integers(30, 60),
    waited_minutes=st.integers(0, 60),
    age_minutes=st.floats(30, 1e6),
)
several = st.lists(known, min_size=1, max_size=4)


def having(uses: list[DeviceUse], given: Recommendation) -> list[DeviceUse]:
    """The same containers after a resize, with the same figures."""
    return [
        replace(
            use,
            memory_limit_mib=given.memory_mib or use.memory_limit_mib,
            guarantee=given.cores or use.guarantee,
        )
        for use in uses
    ]


@given(several)
def test_who_takes_it_gets_no_other(uses):
    found = recommend(uses)
    if isinstance(found, Recommendation):
        assert isinstance(recommend(having(uses, found)), No)


@given(several)
def test_it_lies_between_what_is_used_and_the_device(uses):
    found = recommend(uses)
    if not isinstance(found, Recommendation):
        return
    smallest = min(use.device_memory_mib for use in uses)
    if found.memory_mib is not None:
        used = max(max(use.used_bytes, use.max_used_bytes) for use in uses)
        assert min(-(-used // MIB), smallest) <= found.memory_mib <= smallest
    if found.cores is not None:
        assert 1 <= found.cores <= 100
        # Of what it was guaranteed; the rest was idle share.
        assert found.cores >= max(min(use.p95_utilisation, use.guarantee) for use in uses)


def after(uses: list[DeviceUse]) -> list[tuple[int, int]]:
    """Memory and compute of each, once the recommendation is taken."""
    found = recommend(uses)
    taken = having(uses, found) if isinstance(found, Recommendation) else uses
    return [(use.memory_limit_mib, use.guarantee) for use in taken]


def fully_known(use: DeviceUse) -> DeviceUse:
    """Within its limit, as a library enforces it, and of one size, as one template makes it."""
    return replace(
        use,
        p95_utilisation=use.p95_utilisation or 0.0,
        memory_limit_mib=8192,
        guarantee=40,
        device_memory_mib=40960,
    )


@given(
    several.map(lambda uses: [fully_known(use) for use in uses]),
    st.integers(0, 8 * GIB),
    st.floats(0, 100),
    st.integers(0, 60),
)
def test_whoever_uses_more_is_given_no_less(uses, memory, compute, waited):
    first = uses[0]
    more = replace(
        first,
        max_used_bytes=first.max_used_bytes + memory,
        p95_utilisation=min(100.0, first.p95_utilisation + compute),
        waited_minutes=max(first.waited_minutes, waited),
    )
    for (mem, cores), (mem_more, cores_more) in zip(
        after(uses), after([more, *uses[1:]]), strict=True
    ):
        assert mem_more >= mem
        assert cores_more >= cores


@given(st.lists(known.filter(lambda use: use.guarantee), min_size=2, max_size=4), st.randoms())
def test_the_order_says_nothing(uses, random):
    shuffled = list(uses)
    random.shuffle(shuffled)
    found, other = recommend(uses), recommend(shuffled)
    if isinstance(found, Recommendation) or isinstance(other, Recommendation):
        assert found == other
