"""Quotas that take from each other in turns have to wait, longer and longer; others never do."""

from __future__ import annotations

from pathlib import Path

import pytest

from hami.scheduler.reclaim.eviction_rounds import CALM, FIRST, FREE, LONGEST, EvictionRounds
from hami.scheduler.reclaim.preemption import WOKEN_AT_ONCE

from ..builders import Clock


class Teams:
    """They evict one pod at a time, as soon as they may."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.rounds = EvictionRounds(self.clock)
        self.evicted = 0

    def takes(self, quota: str, other: str) -> bool:
        if self.rounds.back_off(quota, [other]) is not None:
            return False
        self.rounds.takes(quota, [other])
        self.rounds.loses(other)
        self.evicted += 1
        return True

    def evictions(self, *ring: str, seconds: int) -> int:
        """Each takes from the next, ten times a second."""
        before, end = self.evicted, self.clock.now + seconds
        while self.clock.now < end:
            for quota, other in zip(ring, ring[1:] + ring[:1], strict=True):
                self.takes(quota, other)
            self.clock.now += 0.1
        return self.evicted - before


@pytest.mark.parametrize("ring", ["ab", "abc", "abcdef"])
def test_rounds_of_any_length_slow_down(ring: str) -> None:
    teams = Teams()
    first = teams.evictions(*ring, seconds=40)
    assert first <= len(ring) * (FREE + 5)
    teams.evictions(*ring, seconds=1800)
    assert teams.evictions(*ring, seconds=int(2 * LONGEST)) <= 3 * len(ring)


def test_a_thousand_claims_on_one_lender_are_no_round() -> None:
    teams = Teams()
    assert all(teams.takes("a", "lender") for _ in range(1000))


def test_who_takes_from_one_and_loses_to_another_once_goes_on() -> None:
    teams = Teams()
    assert teams.takes("a", "b")
    assert teams.takes("c", "a")
    assert all(teams.takes("a", "b") for _ in range(100))


def test_it_says_who_how_often_and_what_helps() -> None:
    teams = Teams()
    while teams.takes("a", "b"):
        teams.takes("b", "a")
    found = teams.rounds.back_off("a", ["b"])
    assert found is not None
    assert found.until - teams.clock.now == FIRST
    assert found.text(5) == (
        f"a has taken from b and lost again in {FREE + 1} rounds, so nobody is evicted for it in "
        f"the next 5 s; guarantee the same resources in the min of both"
    )
    assert teams.takes("a", "c"), "what another has is not kept from it"


def test_other_quotas_are_tried_at_once_and_what_went_on_is_not_forgotten() -> None:
    teams = Teams()
    teams.evictions("a", "b", seconds=60)
    assert not teams.takes("a", "b")
    teams.rounds.try_again()
    assert teams.takes("a", "b")
    teams.takes("b", "a")
    assert teams.evictions("a", "b", seconds=40) <= 4


def test_calm_ends_it() -> None:
    teams = Teams()
    teams.evictions("a", "b", seconds=60)
    teams.clock.now += LONGEST + CALM
    for _ in range(FREE):
        assert teams.takes("a", "b")
        assert teams.takes("b", "a")


def test_the_documented_figures_are_those_that_are_kept() -> None:
    document = (Path(__file__).parents[3] / "docs/quota.md").read_text()
    text = " ".join(document.split())
    for words in (
        f"after {FREE} rounds",
        f"{FIRST:g} s, {2 * FIRST:g} s and so on up to {LONGEST / 60:g} min",
        f"or {CALM / 60:g} minutes were calm",
        f"once and {WOKEN_AT_ONCE} at a time",
    ):
        assert words in text, words
