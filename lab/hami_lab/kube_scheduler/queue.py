"""kube-scheduler's scheduling queue, without its clock: who is next, who waits, what wakes whom.

A pod is *active* (may be tried now), in *back-off* (may be tried later), *unschedulable* (only an
event of the cluster makes it worth another try), *gated*, or *in flight*. Times are seconds of
any monotonic clock.
"""

from __future__ import annotations

import heapq
import itertools
import math
from dataclasses import dataclass
from enum import Enum, auto

from hami.domain.units import PodUid

_WINDOW = 1.0
"""Seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long kube-scheduler waits, in seconds (its configuration's names in brackets).

    ``first`` (podInitialBackoffSeconds) doubles with each attempt up to ``most``
    (podMaxBackoffSeconds). After ``flush`` an unschedulable pod is tried again anyway. ``eager``:
    an empty active queue takes refused pods out of their back-off, as kube-scheduler does since
    1.33; and back-offs end together in windows of a second, so that priority decides among them.
    """

    first: float = 1.0
    most: float = 10.0
    flush: float = 300.0
    eager: bool = True

    def delay(self, attempts: int) -> float:
        """The back-off after so many attempts."""
        return min(self.most, self.first * 2.0 ** min(max(attempts - 1, 0), 60))

    def ready_at(self, now: float, attempts: int) -> float:
        """When a back-off that begins now is over."""
        end = now + self.delay(attempts)
        window = min(_WINDOW, self.first)
        return math.floor(end / window) * window if self.eager and window else end


class Place(Enum):
    """Where a pod of the queue stands."""

    ACTIVE = auto()
    BACKOFF = auto()
    AFTER_ERROR = auto()
    UNSCHEDULABLE = auto()
    GATED = auto()
    IN_FLIGHT = auto()


@dataclass(slots=True, kw_only=True)
class Entry:
    """One pod in the queue. ``order`` counts arrivals: older pods of a priority come first.

    ``woken``: something happened while it was in flight. ``version`` tells heap items of a former
    place from the current one.
    """

    uid: PodUid
    priority: int
    order: int
    place: Place = Place.ACTIVE
    attempts: int = 0
    ready_at: float = 0.0
    since: float = 0.0
    woken: bool = False
    version: int = 0


_Item = tuple[float, int, int, int, PodUid]


class SchedulingQueue:
    """Pods by uid; one method per thing that can happen to them."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._entries: dict[PodUid, Entry] = {}
        self._heaps: dict[Place, list[_Item]] = {
            Place.ACTIVE: [],
            Place.BACKOFF: [],
            Place.AFTER_ERROR: [],
        }
        self._unschedulable: dict[PodUid, Entry] = {}  # oldest refusal first
        self._arrivals = itertools.count()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, uid: PodUid) -> bool:
        return uid in self._entries

    def place(self, uid: PodUid) -> Place | None:
        entry = self._entries.get(uid)
        return entry.place if entry else None

    def add(self, uid: PodUid, priority: int, *, gated: bool = False) -> None:
        """A pod appeared, or changed its priority or its gates."""
        entry = self._entries.get(uid)
        if entry is None:
            entry = Entry(uid=uid, priority=priority, order=next(self._arrivals))
            self._entries[uid] = entry
            self._put(entry, Place.GATED if gated else Place.ACTIVE)
            return
        changed = entry.priority != priority
        entry.priority = priority
        if entry.place is Place.GATED and not gated:
            self._put(entry, Place.ACTIVE)
        elif gated and entry.place not in (Place.IN_FLIGHT, Place.GATED):
            self._put(entry, Place.GATED)
        elif changed and entry.place is Place.ACTIVE:
            self._put(entry, Place.ACTIVE)

    def remove(self, uid: PodUid) -> None:
        """It is gone, bound or finished."""
        self._entries.pop(uid, None)
        self._unschedulable.pop(uid, None)

    def pop(self, now: float) -> Entry | None:
        """The next pod to try, in flight from here on; None when there is none yet."""
        self._advance(now)
        entry = self._first(Place.ACTIVE)
        if entry is None and self._pace.eager:
            entry = self._first(Place.BACKOFF)
        if entry is None:
            return None
        self._put(entry, Place.IN_FLIGHT)
        entry.attempts += 1
        entry.woken = False
        return entry

    def refused(self, uid: PodUid, now: float) -> None:
        """No node takes it: it waits for an event, or backs off when one came meanwhile."""
        if (entry := self._in_flight(uid)) is not None:
            entry.since = now
            entry.ready_at = self._pace.ready_at(now, entry.attempts)
            self._put(entry, Place.BACKOFF if entry.woken else Place.UNSCHEDULABLE)

    def failed(self, uid: PodUid, now: float) -> None:
        """Trying it went wrong (an extender's error, a failed binding): later again."""
        if (entry := self._in_flight(uid)) is not None:
            entry.ready_at = self._pace.ready_at(now, entry.attempts)
            self._put(entry, Place.AFTER_ERROR)

    def wake(self, uid: PodUid, now: float) -> None:
        """The pod itself changed in a way that may let it fit."""
        entry = self._entries.get(uid)
        if entry is None:
            return
        if entry.place is Place.IN_FLIGHT:
            entry.woken = True
        elif entry.place is Place.UNSCHEDULABLE:
            over = now >= entry.ready_at
            self._put(entry, Place.ACTIVE if over else Place.BACKOFF)

    def wake_all(self, now: float) -> None:
        """The cluster changed in a way that may let any pod fit."""
        for entry in self._entries.values():
            if entry.place is Place.IN_FLIGHT:
                entry.woken = True
        for uid in list(self._unschedulable):
            self.wake(uid, now)

    def next_at(self, now: float) -> float | None:
        """When :meth:`pop` may answer with a pod, if nothing happens before; None: never."""
        self._advance(now)
        resting = self._first(Place.BACKOFF)
        if self._first(Place.ACTIVE) or (resting and self._pace.eager):
            return now
        times = [e.ready_at for e in (resting, self._first(Place.AFTER_ERROR)) if e]
        if self._unschedulable:
            times.append(next(iter(self._unschedulable.values())).since + self._pace.flush)
        return min(times, default=None)

    def _in_flight(self, uid: PodUid) -> Entry | None:
        entry = self._entries.get(uid)
        return entry if entry and entry.place is Place.IN_FLIGHT else None

    def _advance(self, now: float) -> None:
        """Back-offs and flushes whose time has come."""
        for place in (Place.BACKOFF, Place.AFTER_ERROR):
            while (entry := self._first(place)) and now >= entry.ready_at:
                self._put(entry, Place.ACTIVE)
        stale = []
        for entry in self._unschedulable.values():
            if now < entry.since + self._pace.flush:
                break
            stale.append(entry)
        for entry in stale:
            self._put(entry, Place.ACTIVE)

    def _put(self, entry: Entry, place: Place) -> None:
        entry.place = place
        entry.version += 1
        self._unschedulable.pop(entry.uid, None)
        if place is Place.UNSCHEDULABLE:
            self._unschedulable[entry.uid] = entry
        elif place in self._heaps:
            at = 0.0 if place is Place.ACTIVE else entry.ready_at
            item = (at, -entry.priority, entry.order, entry.version, entry.uid)
            heapq.heappush(self._heaps[place], item)

    def _first(self, place: Place) -> Entry | None:
        """The first entry of a heap; items of pods that have left it are dropped."""
        heap = self._heaps[place]
        while heap:
            _, _, order, version, uid = heap[0]
            entry = self._entries.get(uid)
            if entry and (entry.order, entry.version) == (order, version):
                return entry
            heapq.heappop(heap)
        return None
