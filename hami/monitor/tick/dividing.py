"""What each slice may have of a device's time until the next tick, and who is in its way.

The decision is :mod:`hami.policy.compute`'s; here are its facts: what the driver saw, and what the
slices' own programs say of their launches and their waiting since the tick before.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from hami.domain.units import DeviceId
from hami.monitor.files.held_slice import HeldSlice
from hami.monitor.tick.attribution import SliceUse
from hami.policy.compute.demand import WHOLE, ComputeDemand, Entitlement, Seen
from hami.policy.compute.shares import FLOOR, Contender, divide
from hami.slices.limits_page import DeviceLimit, PageLimits
from hami.slices.usage_region import BucketUsage

OTHERS, HIGHER = 1, 2
"""``enum hami_contention``."""
_SECOND = 1.0
"""What programs are told they used is of the last second, however often they are told: the library
compares it with what it charged in as long (``hami_observed_device.utilisation``)."""


@dataclass(slots=True)
class Handed:
    """What one slice is told, by its devices' places; times in 1/100 percent."""

    utilisation: list[int]
    shares: list[int]
    contention: list[int]


@dataclass(slots=True)
class _Before:
    """What was known of one slice at the tick before."""

    at: float
    buckets: Sequence[BucketUsage]
    used: list[tuple[float, SliceUse | None]]
    """What was measured until when, in the last second."""
    demands: dict[DeviceId, ComputeDemand] = field(default_factory=dict)


class Dividing:
    """Of one vendor's devices. One caller at a time.

    ``floor``: what a slice keeps while it waits for one of higher priority, in 1/100 percent.
    """

    def __init__(self, floor: int = FLOOR) -> None:
        self._floor = floor
        self._before: dict[str, _Before] = {}
        self._begun = False

    def divided(
        self,
        slices: Sequence[HeldSlice],
        uses: Mapping[str, SliceUse],
        counted: Collection[DeviceId],
        now: float,
    ) -> Mapping[str, Handed]:
        """By slice id. A device in ``counted`` has no time to divide: each slice has its own part.

        ``now`` in seconds of a clock that is never set.
        """
        handed: dict[str, Handed] = {}
        later: dict[str, _Before] = {}
        on_device: dict[DeviceId, dict[str, tuple[int, HeldSlice]]] = {}
        for held in slices:
            if held.limits is None:
                continue
            devices = held.limits.devices
            used = self._used(held.id, uses.get(held.id), now)
            later[held.id] = _Before(now, held.region.buckets, used)
            handed[held.id] = Handed(
                [_mean(used, place) for place in range(len(devices))],
                [0] * len(devices),
                [0] * len(devices),
            )
            for place, limit in enumerate(devices):
                on_device.setdefault(DeviceId(limit.uuid), {})[held.id] = (place, held)
        for device, here in on_device.items():
            if device not in counted:
                self._divide(device, here, uses, handed, later, now)
        if not self._begun:
            # Who wants what shows at the next tick: until then, what a former monitor handed out.
            for held in slices:
                if held.id in handed:
                    handed[held.id].shares = held.handed_before()
        self._begun = True
        self._before = later
        return handed

    def _divide(
        self,
        device: DeviceId,
        here: Mapping[str, tuple[int, HeldSlice]],
        uses: Mapping[str, SliceUse],
        handed: Mapping[str, Handed],
        later: Mapping[str, _Before],
        now: float,
    ) -> None:
        contenders: dict[str, Contender] = {}
        for id, (place, held) in here.items():
            limits = held.limits
            assert limits is not None
            contenders[id] = Contender(
                entitlement=_entitlement(limits, limits.devices[place]),
                seen=self._seen(id, place, held, uses.get(id), now),
            )
        before = {
            id: known.demands[device]
            for id in here
            if (known := self._before.get(id)) is not None and device in known.demands
        }
        division = divide(contenders, before, floor=self._floor)
        computing = {
            id: contenders[id].entitlement.priority
            for id, one in division.demands.items()
            if one.computes
        }
        first = min(computing.values(), default=math.inf)
        for id, (place, _) in here.items():
            handed[id].shares[place] = division.shares[id]
            later[id].demands[device] = division.demands[id]
            others = OTHERS if len(computing) > (id in computing) else 0
            higher = HIGHER if first < contenders[id].entitlement.priority else 0
            handed[id].contention[place] = others | higher

    def _used(
        self, id: str, use: SliceUse | None, now: float
    ) -> list[tuple[float, SliceUse | None]]:
        before = self._before.get(id)
        # What a tick found that ended almost a second ago is of the second before: none is on time.
        since = now - 0.9 * _SECOND
        lately = [] if before is None else [one for one in before.used if one[0] > since]
        return [*lately, (now, use)]

    def _seen(self, id: str, place: int, held: HeldSlice, use: SliceUse | None, now: float) -> Seen:
        percent = use.percents.get(place, 0.0) if use is not None else 0.0
        before = self._before.get(id)
        if before is None or now <= before.at:
            return Seen(use=round(percent * 100))
        was, bucket = before.buckets[place], held.region.buckets[place]
        passed = (now - before.at) * 1e9
        charged = bucket.charged_ns - was.charged_ns
        waited = max(0, bucket.waited_ns - was.waited_ns)
        return Seen(
            use=round(percent * 100),
            waited=min(WHOLE, int(waited * WHOLE / passed)),
            launched=True if charged > 0 else _counts_launches(held, place),
        )


def _counts_launches(held: HeldSlice, place: int) -> bool | None:
    """False: there were none; None: nobody counts them, for there is no limit."""
    limits = held.limits
    assert limits is not None
    counts = limits.policy != "disable" and 0 < limits.devices[place].cores < 100
    return False if counts else None


def _mean(used: Sequence[tuple[float, SliceUse | None]], place: int) -> int:
    """In 1/100 percent."""
    percents = [use.percents.get(place, 0.0) if use is not None else 0.0 for _, use in used]
    return round(100 * sum(percents) / len(percents))


def _entitlement(limits: PageLimits, limit: DeviceLimit) -> Entitlement:
    return Entitlement.of_page(
        cores=limit.cores,
        cores_limit=limit.cores_limit,
        policy=limits.policy,
        priority=limits.priority,
    )
