"""What each container used in the last hour, minute by minute, in bounded memory.

A container keeps its hour over restarts, and loses it once it is in no table any more. Pure: time
comes in, in seconds of a clock that never goes back.
"""

from __future__ import annotations

from array import array

import msgspec

from hami.domain.units import PodUid, VendorKey
from hami.monitor.table import NodeTable, SliceDevice, SliceFigures

MINUTES = 60
_MINUTE_SECONDS = 60.0
_UNKNOWN = -1

_Key = tuple[PodUid, str, VendorKey, int]
"""Pod, container, vendor, and the device's place in the container."""


class HourOfUse(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """``minutes`` are those that something is known of.

    ``p95_utilisation``: in 95 % of the minutes, the mean compute of the minute was not above it;
    None where the utilisation was never known. ``waited_minutes``: in so many of them its threads
    waited for compute for more than half a minute, summed.
    """

    minutes: int
    max_used_bytes: int
    p95_utilisation: float | None
    waited_minutes: int = 0


class _Hour:
    """The minutes of one device of one container, as a ring; a minute without a tick is unknown."""

    __slots__ = ("count", "means", "minute", "most", "total", "waited", "waiting", "waits")

    def __init__(self, minute: int) -> None:
        self.minute = minute
        self.most = array("q", [_UNKNOWN]) * MINUTES
        self.means = array("d", [_UNKNOWN]) * MINUTES
        self.waits = array("b", [0]) * MINUTES
        self.total = 0.0
        self.count = 0
        self.waiting = 0.0
        self.waited: float | None = None

    def advance(self, minute: int) -> None:
        """Make ``minute`` the present one."""
        for passed in range(max(self.minute + 1, minute - MINUTES + 1), minute + 1):
            at = passed % MINUTES
            self.most[at], self.means[at], self.waits[at] = _UNKNOWN, _UNKNOWN, 0
            self.total, self.count, self.waiting = 0.0, 0, 0.0
        self.minute = max(self.minute, minute)

    def add(self, device: SliceDevice) -> None:
        at = self.minute % MINUTES
        self.most[at] = max(self.most[at], device.used_bytes)
        if device.utilisation is not None:
            self.total += device.utilisation
            self.count += 1
            self.means[at] = self.total / self.count
        if device.waited_seconds != self.waited:
            self._wait(device.waited_seconds, at)

    def _wait(self, waited: float, at: int) -> None:
        """Its counter stands at ``waited``; one lower than before is a new slice's, from 0."""
        if self.waited is not None:
            self.waiting += waited - self.waited if waited > self.waited else waited
        self.waited = waited
        self.waits[at] = self.waiting > _MINUTE_SECONDS / 2

    def use(self) -> HourOfUse:
        means = sorted(mean for mean in self.means if mean != _UNKNOWN)
        # The first of these ascending values that 95 % of them are not above.
        p95 = means[-(-len(means) * 95 // 100) - 1] if means else None
        return HourOfUse(
            minutes=MINUTES - self.most.count(_UNKNOWN),
            max_used_bytes=max(self.most),
            p95_utilisation=p95,
            waited_minutes=sum(self.waits),
        )


class UsageHistory:
    """Belongs to the loop; 10 000 slices take some 15 MB.

    ``last_hour`` may be asked in a thread: it then may see a part of the tick that comes in.
    """

    def __init__(self) -> None:
        self._hours: dict[_Key, _Hour] = {}

    def observe(self, table: NodeTable, now: float) -> None:
        """Take in one tick; ``now`` in seconds."""
        minute = int(now // _MINUTE_SECONDS)
        kept: dict[_Key, _Hour] = {}
        for figures in table.slices:
            for device in figures.devices:
                key = _key(figures, device)
                hour = kept.get(key) or self._hours.get(key) or _Hour(minute)
                kept[key] = hour
                hour.advance(minute)
                hour.add(device)
        self._hours = kept

    def last_hour(self, figures: SliceFigures, device: SliceDevice) -> HourOfUse | None:
        """None for a device of a slice that no tick has shown."""
        hour = self._hours.get(_key(figures, device))
        return None if hour is None else hour.use()


def _key(figures: SliceFigures, device: SliceDevice) -> _Key:
    return figures.pod_uid, figures.container, figures.vendor, device.index
