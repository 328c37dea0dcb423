"""Who may be evicted, and in which order: the first is missed least.

Order: a pod whose budget allows it, then (to give back a guarantee) one whose quota keeps its
``min`` without it, then the quota that borrows most for its ``min``, then the lowest priority,
the newest, the last by name. What is taken changes the first three, so they are looked at again
for every pod; and they only ever get worse, so nobody is looked at who is not next.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count

from hami.domain.units import PodUid
from hami.policy.quota.elastic.book.order import sort_key
from hami.policy.quota.elastic.model import Member

Debt = tuple[float, int]
"""How much a quota borrows: for its ``min``, and as a number."""


@dataclass(slots=True, kw_only=True)
class Exempt:
    """Pods that no plan may evict.

    ``spoken_for``: already victims, whose place another claimant waits for. ``again`` becomes the
    moment at which the first of those met here has run for long enough.
    """

    now: float
    min_runtime: float
    spoken_for: Collection[PodUid] = ()
    again: float | None = None

    def __contains__(self, member: Member) -> bool:
        if not member.preemptible or member.uid in self.spoken_for:
            return True
        if member.since is None or self.now - member.since >= self.min_runtime:
            return False
        end = member.since + self.min_runtime
        self.again = end if self.again is None else min(self.again, end)
        return True


def least_important_first(newest_first: Iterable[Member]) -> list[Member]:
    """By priority; what came newest first stays so."""
    return sorted(newest_first, key=lambda member: member.priority)


def newest_first(members: Iterable[Member]) -> list[Member]:
    return sorted(members, key=sort_key, reverse=True)


@dataclass(slots=True, eq=False, kw_only=True)
class Source:
    """The pods of one quota, or of one priority plan, that may come into question.

    ``debt``: how much it borrows now; None when nothing more may be taken from it. ``members``:
    least important first; asked only when it is its turn.
    """

    key: str
    debt: Callable[[], Debt | None]
    members: Callable[[], Iterable[Member]]
    _left: Iterator[Member] | None = None
    _worse: list[Member] = field(default_factory=list)

    def next(self, harm: Callable[[Member], int | None], most: int) -> Member | None:
        """The first that does at most this harm; who does more is kept for later."""
        if self._left is None:
            self._left = iter(self.members())
        for member in self._left:
            harmed = harm(member)
            if harmed is None:
                continue
            if harmed <= most:
                return member
            self._worse.append(member)
        return None

    def turn(self) -> bool:
        """Begin anew with those that were kept; False when there are none."""
        if self._left is None:
            return True
        worse, self._worse = self._worse, []
        self._left = iter(worse)
        return bool(worse)


HARM = range(4)


def in_order(sources: Iterable[Source], harm: Callable[[Member], int | None]) -> Iterator[Member]:
    """Candidates, each to be taken (or not) before the next is asked for.

    ``harm``: how bad it is to take a pod now, from ``HARM``; None: it may not be taken.
    """
    open_ = list(sources)
    for most in HARM:
        order = count()
        heap = [
            (*_first(debt), source.key, next(order), source)
            for source in open_
            if source.turn() and (debt := source.debt()) is not None
        ]
        heapq.heapify(heap)
        while heap:
            ratio, amount, _, _, source = heapq.heappop(heap)
            debt = source.debt()
            if debt is None:
                continue
            if _first(debt) > (ratio, amount):
                heapq.heappush(heap, (*_first(debt), source.key, next(order), source))
                continue
            member = source.next(harm, most)
            if member is not None:
                yield member
                heapq.heappush(heap, (*_first(debt), source.key, next(order), source))


def _first(debt: Debt) -> Debt:
    """For a heap, in which the least comes first."""
    return -debt[0], -debt[1]
