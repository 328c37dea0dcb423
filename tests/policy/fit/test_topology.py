"""The best combination of connected devices, held against plain enumeration."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.policy.fit.topology import best_connected, least_connected


def total(scores, chosen):
    return sum(scores[a][b] for a, b in combinations(chosen, 2))


matrices = st.integers(1, 8).flatmap(
    lambda n: st.lists(
        st.lists(st.sampled_from([-5, 0, 10, 50, 100, 300]), min_size=n, max_size=n),
        min_size=n,
        max_size=n,
    )
)


@given(matrices, st.data())
def test_the_search_finds_what_enumeration_finds_first(scores, data):
    count = data.draw(st.integers(0, len(scores)))
    expected = max(combinations(range(len(scores)), count), key=lambda c: total(scores, c))
    assert best_connected(scores, count) == expected


TRIANGLE = [[0, 100, 200], [100, 0, 150], [200, 150, 0]]


def test_one_device_is_the_least_connected():
    assert least_connected(TRIANGLE) == 1


def test_a_pair_is_the_best_connected():
    assert best_connected(TRIANGLE, 2) == (0, 2)


def test_negative_scores_are_compared_like_any_other():
    negative = [[0, -5, -3], [-5, 0, -1], [-3, -1, 0]]
    assert least_connected(negative) == 0
    assert best_connected(negative, 2) == (1, 2)


def test_no_scores_take_the_first():
    assert best_connected([[0] * 3] * 3, 2) == (0, 1)


def test_more_than_sixteen_devices_still_find_a_clique():
    clique = {2, 7, 11, 19}
    scores = [[100 if a in clique and b in clique else 1 for b in range(24)] for a in range(24)]
    assert set(best_connected(scores, 4)) == clique


@pytest.mark.parametrize("count", [-1, 4])
def test_an_impossible_count_is_an_error(count):
    with pytest.raises(ValueError, match=f"cannot take {count} of 3"):
        best_connected(TRIANGLE, count)
