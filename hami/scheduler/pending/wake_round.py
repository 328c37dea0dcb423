"""One look at every pending pod that something new has come free for, the most urgent first."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from hami.domain.units import PodUid
from hami.scheduler.pending.equivalence import EquivalenceClass, PendingPod, Urgency
from hami.scheduler.pending.pending_pods import PendingPods


@dataclass(frozen=True, slots=True)
class Attempt:
    """A pod to be tried on these nodes; ``alone``: that says nothing of others of its kind."""

    waiting: PendingPod
    kind: EquivalenceClass
    nodes: int
    alone: bool = False


class Round:
    """One such look.

    It goes on where it stopped, whatever has changed meanwhile.
    """

    def __init__(self, pods: PendingPods, now: float, first: Iterable[PodUid] = ()) -> None:
        """``now``: monotonic seconds. ``first``: for whom something is held, so that they may fit
        where others of their kind do not.
        """
        self._first = first
        self._pods = pods
        self._now = now
        self._left: dict[EquivalenceClass, int] = {}
        self.again: float | None = None
        """When the first of those may be woken who are left alone for now."""

    def refuse(self, attempt: Attempt) -> None:
        """No pod of this kind is tried on these nodes any more."""
        if not attempt.alone:
            self._left[attempt.kind] &= ~attempt.nodes

    def steps(self) -> Iterator[Attempt | None]:
        """None for a step that found nobody: every step is short."""
        pods, change = self._pods, self._pods.change
        for uid in self._first:
            waiting = pods.pods.get(uid)
            if waiting is not None and waiting.kind is not None and waiting.woken_at is None:
                nodes = waiting.offered & pods.freed_for(waiting)
                if waiting.not_before > self._now:
                    nodes &= ~waiting.vain
                yield Attempt(waiting, waiting.kind, nodes, alone=True) if nodes else None
        heap: list[tuple[Urgency, int, EquivalenceClass]] = []
        for order, kind in enumerate(pods.kinds):
            if kind.queue and (nodes := pods.new_for(kind)):
                self._left[kind] = nodes
                heap.append((kind.queue[0].urgency, order, kind))
            else:
                kind.tried = max(kind.tried, change)
            yield None
        heapq.heapify(heap)
        waits: set[EquivalenceClass] = set()
        while heap:
            least, order, kind = heapq.heappop(heap)
            if kind.absent and kind.coming:
                continue  # One at a time, until one of them comes.
            waiting, behind = kind.first(least)
            nodes = self._nodes_for(waiting, kind, waits) if waiting is not None else 0
            yield Attempt(waiting, kind, nodes) if waiting is not None and nodes else None
            if behind is not None and self._left[kind]:
                heapq.heappush(heap, (behind, order, kind))
            elif kind not in waits:
                kind.tried = max(kind.tried, change)

    def _nodes_for(
        self, waiting: PendingPod, kind: EquivalenceClass, waits: set[EquivalenceClass]
    ) -> int:
        if waiting.woken_at is not None:
            return 0
        nodes = self._left[kind] & waiting.offered
        if nodes:
            nodes &= self._pods.freed_for(waiting)
        if nodes & waiting.vain and waiting.not_before > self._now:
            waits.add(kind)
            self.again = min(self.again or waiting.not_before, waiting.not_before)
            nodes &= ~waiting.vain
        return nodes
