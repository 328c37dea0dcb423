"""Which pods of one quota are over it: the older ones fill the guarantee first.

Order: creation, then the lower priority, then what they hold, then their names: nos' order, made
total. Pods that are no victims come before all others: they may use ``min`` alone, so whoever
claims a guarantee back always finds somebody who may be evicted. Cumulative: from the first pod
that crosses ``min`` on, all are over-quota. First fit: a pod that does not fit is over-quota and
is not added up, so a smaller later one may be inside.

The cumulative boundary is kept between changes and moves only past the pods whose side changes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Literal

from hami.domain.units import PodUid
from hami.policy.quota.elastic.book.ranks import Ranks, place_of
from hami.policy.quota.elastic.model import Amounts, Member

SortKey = tuple[bool, str, int, tuple[tuple[str, int], ...], str, str, str]


def sort_key(member: Member) -> SortKey:
    held = tuple(sorted(member.vector.items()))
    return (
        member.preemptible,
        member.created,
        member.priority,
        held,
        member.name,
        member.namespace,
        member.uid,
    )


class Order:
    """The pods of one quota, oldest first, and where over-quota begins."""

    def __init__(self, guarantee: Amounts, mode: Literal["cumulative", "firstFit"]) -> None:
        self._mode = mode
        self._guarantee = guarantee
        self._keys: list[SortKey] = []
        self._members: list[Member] = []
        self._ranks: Ranks[SortKey] = Ranks()
        self._inside: dict[str, int] = {}
        """Sums of the members before ``_boundary``, of the resources that are guaranteed."""
        self._boundary = 0
        self._misfits: frozenset[PodUid] | None = frozenset()
        """First fit: who is over quota; None when that is to be worked out again."""
        self._told: SortKey | None = None
        """The first over-quota member's key when ``moved`` was last asked; None: nobody's."""
        self._told_misfits: frozenset[PodUid] = frozenset()

    # Changes.

    def guarantee(self, guarantee: Amounts) -> None:
        """Another ``min``; the labels follow."""
        if guarantee != self._guarantee:
            self._guarantee = guarantee
            self._inside, self._boundary, self._misfits = {}, 0, None

    def add(self, member: Member) -> None:
        key = sort_key(member)
        at = place_of(key, self._keys)
        self._keys.insert(at, key)
        self._members.insert(at, member)
        self._ranks.add(key, member)
        self._misfits = None
        if at < self._boundary:
            self._boundary += 1
            self._count(member, 1)

    def remove(self, member: Member) -> None:
        key = sort_key(member)
        at = bisect_left(self._keys, key)
        del self._keys[at], self._members[at]
        self._ranks.remove(key, member)
        self._misfits = None
        if at < self._boundary:
            self._boundary -= 1
            self._count(member, -1)

    # Questions.

    @property
    def members(self) -> Sequence[Member]:
        """Oldest first; not to be kept."""
        return self._members

    def over(self) -> Iterator[Member]:
        """Who is over quota now, newest first; the book may change while it is read."""
        if self._mode == "cumulative":
            return reversed(self._members[self._settled() :])
        misfits = self._fitted()
        return iter([m for m in reversed(self._members) if m.uid in misfits])

    def least_important(self, *, over: bool, below: int | None = None) -> Iterator[Member]:
        """By priority, and inside it the newest first; the book may change while it is read.

        ``over``: who is over quota now alone; ``below``: lower priorities than this alone.
        """
        if over and self._mode == "firstFit":
            misfits = self._fitted()
            return (m for m in self._ranks.lowest_first(below=below) if m.uid in misfits)
        boundary = self._settled() if over else 0
        if boundary == len(self._keys):
            return iter(())
        return self._ranks.lowest_first(self._keys[boundary] if over else None, below)

    def is_over(self, member: Member) -> bool:
        if self._mode == "firstFit":
            return member.uid in self._fitted()
        boundary = self._settled()
        return boundary < len(self._keys) and sort_key(member) >= self._keys[boundary]

    def moved(self) -> Iterator[Member]:
        """Who has changed sides since this was last asked."""
        if self._mode == "firstFit":
            misfits, told = self._fitted(), self._told_misfits
            self._told_misfits = misfits
            changed = misfits ^ told
            return iter([m for m in self._members if m.uid in changed] if changed else ())
        boundary = self._settled()
        then = bisect_left(self._keys, self._told) if self._told else len(self._keys)
        self._told = self._keys[boundary] if boundary < len(self._keys) else None
        return iter(self._members[min(boundary, then) : max(boundary, then)])

    # The boundary.

    def _settled(self) -> int:
        """Sums never shrink from pod to pod, so the boundary is where they first exceed."""
        while self._boundary and self._exceeds():
            self._boundary -= 1
            self._count(self._members[self._boundary], -1)
        while self._boundary < len(self._members):
            self._count(self._members[self._boundary], 1)
            if self._exceeds():
                self._count(self._members[self._boundary], -1)
                break
            self._boundary += 1
        return self._boundary

    def _exceeds(self) -> bool:
        return any(self._inside.get(r, 0) > least for r, least in self._guarantee.items())

    def _count(self, member: Member, sign: int) -> None:
        for resource, amount in member.vector.items():
            if resource in self._guarantee:
                self._inside[resource] = self._inside.get(resource, 0) + sign * amount

    def _fitted(self) -> frozenset[PodUid]:
        if self._misfits is None:
            self._misfits = frozenset(self._first_fit())
        return self._misfits

    def _first_fit(self) -> Iterator[PodUid]:
        left = dict(self._guarantee)
        for member in self._members:
            asked = [(r, n) for r, n in member.vector.items() if r in left]
            if any(amount > left[resource] for resource, amount in asked):
                yield member.uid
                continue
            for resource, amount in asked:
                left[resource] -= amount
