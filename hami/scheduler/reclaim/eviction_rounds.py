"""Slows quotas down that evict each other's pods in turns: a net under the rules of the plans.

Those make such rounds impossible, or so it is argued where they stand; should there be a gap, or
`quota-preemption-rules: nos`, pods must not be evicted for ever at the speed of their controllers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from hami.policy.quota.elastic import LeafKey

FREE = 3
"""Rounds that may happen by themselves, as teams take back and lend again."""

FIRST, LONGEST = 5.0, 300.0
"""Seconds of the back-off; each is twice the one before."""

CALM = 600.0
"""Seconds after the last back-off's end, or the last eviction, after which all is forgotten."""


@dataclass(slots=True)
class _Pair:
    """A quota that takes from another. ``lost``: what it had lost itself by its last turn."""

    lost: int
    last: float
    rounds: int = 0
    until: float = float("-inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackOff:
    """``quota`` takes nothing more from ``other`` before ``until``, in monotonic seconds."""

    quota: LeafKey
    other: LeafKey
    rounds: int
    until: float

    def text(self, seconds: float) -> str:
        return (
            f"{self.quota} has taken from {self.other} and lost again in {self.rounds} rounds, so "
            f"nobody is evicted for it in the next {seconds:.0f} s; guarantee the same resources "
            f"in the min of both"
        )


class EvictionRounds:
    """By the quota that claims and the quota whose pods go.

    A round is a turn in which a quota that takes has lost pods itself since the turn before. So a
    thousand claims on one lender are none, and quotas that go round in a longer circle are found.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """``clock``: monotonic seconds."""
        self._clock = clock
        self._pairs: dict[tuple[LeafKey, LeafKey], _Pair] = {}
        self._lost: dict[LeafKey, int] = {}

    def back_off(self, quota: LeafKey, others: Collection[LeafKey]) -> BackOff | None:
        """What keeps it from taking from these now; the longest."""
        now = self._clock()
        found = [
            BackOff(quota=quota, other=other, rounds=pair.rounds, until=pair.until)
            for other in others
            if (pair := self._pairs.get((quota, other))) is not None and pair.until > now
        ]
        return max(found, key=lambda one: one.until, default=None)

    def takes(self, quota: LeafKey, others: Collection[LeafKey]) -> bool:
        """It begins to evict pods of these; whether it has to wait before it does so again."""
        now, lost, waits = self._clock(), self._lost.get(quota, 0), False
        self._forget(now)
        for other in others:
            pair = self._pairs.setdefault((quota, other), _Pair(lost, now))
            pair.rounds += lost > pair.lost
            pair.lost, pair.last = lost, now
            if pair.rounds > FREE:
                seconds = FIRST * 2.0 ** min(pair.rounds - FREE - 1, 16)
                pair.until = now + min(seconds, LONGEST)
                waits = True
        return waits

    def loses(self, quota: LeafKey) -> None:
        """One of its pods was evicted for another quota."""
        self._lost[quota] = self._lost.get(quota, 0) + 1

    def try_again(self) -> None:
        """The quotas are others now. What has happened is not forgotten, should it go on."""
        for pair in self._pairs.values():
            pair.until = float("-inf")

    def _forget(self, now: float) -> None:
        for key, pair in list(self._pairs.items()):
            if max(pair.last, pair.until) + CALM < now:
                del self._pairs[key]
        if not self._pairs:
            self._lost.clear()
