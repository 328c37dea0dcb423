"""The table of the node, made of what one tick found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hami.domain.devices import Device
from hami.domain.measurements import MeasuredDevice
from hami.domain.units import MIB, CorePercent, DeviceId
from hami.monitor.files.held_slice import HeldSlice
from hami.monitor.measuring.vendor_measuring import VendorAnswer
from hami.monitor.table import (
    DeviceFigures,
    ProcessFigures,
    SliceDevice,
    SliceFigures,
)
from hami.monitor.tick.attribution import ProcessUse, SliceUse
from hami.monitor.tick.dividing import Handed
from hami.policy.compute.demand import limit_of_page
from hami.slices.c_layout import USAGE_ABI
from hami.slices.usage_region import SlotUsage

LIBRARY = str(USAGE_ABI)
_UNUSED = SliceUse()


def device_figures(
    answer: VendorAnswer, held: Mapping[DeviceId, MeasuredDevice]
) -> list[DeviceFigures]:
    """``held`` has the newest figures of each device, also of one that was left out now."""
    answered = {one.id for one in answer.measurement.devices} if answer.fresh else set()
    return [
        _device(device, held.get(device.id), device.id in answered) for device in answer.devices
    ]


def _device(device: Device, found: MeasuredDevice | None, answered: bool) -> DeviceFigures:  # noqa: FBT001
    known = found or MeasuredDevice(id=device.id)
    total = known.memory_total_bytes
    return DeviceFigures(
        vendor=device.vendor,
        id=device.id,
        index=device.index,
        model=device.model,
        memory_total_bytes=MIB * device.memory_mib if total is None else total,
        memory_used_bytes=known.memory_used_bytes,
        utilisation=known.utilisation,
        memory_utilisation=known.memory_utilisation,
        stale=not answered,
    )


def slice_figures(
    held: HeldSlice,
    use: SliceUse | None,
    handed: Handed | None,
    slots: Mapping[int, SlotUsage],
    live: Sequence[SlotUsage],
    active_at: Mapping[tuple[str, int], float],
    figures: Mapping[DeviceId, MeasuredDevice],
) -> SliceFigures:
    """``slots``: the slot of each pid. ``live``: those whose process has not ended. ``active_at``:
    when a slice last computed on the device with this place. ``figures``: what is measured of each
    device.
    """
    record, limits = held.record, held.limits
    use = use or _UNUSED
    return SliceFigures(
        id=held.id,
        vendor=record.vendor,
        namespace=record.pod.namespace,
        pod=record.pod.name,
        pod_uid=record.pod.uid,
        container=record.container,
        generation=limits.generation if limits else record.generation,
        created_at=record.created_at,
        library=LIBRARY,
        devices=_slice_devices(held, use, handed, live, active_at, figures) if limits else (),
        processes=_processes(held, use, slots, live),
        priority=limits.priority if limits else 1,
        policy=limits.policy if limits else "default",
        covered=use.covered,
        problem=held.problem,
    )


def _slice_devices(
    held: HeldSlice,
    use: SliceUse,
    handed: Handed | None,
    live: Sequence[SlotUsage],
    active_at: Mapping[tuple[str, int], float],
    figures: Mapping[DeviceId, MeasuredDevice],
) -> tuple[SliceDevice, ...]:
    limits = held.limits
    assert limits is not None
    found = []
    for place, limit in enumerate(limits.devices):
        by_slot = [slot.charged[place] for slot in live]
        charged = sum(by_slot)
        reserve = limit.context_reserve_bytes
        # A process is charged the reserve before its first context is made.
        contexts = reserve * len([one for one in by_slot if reserve and one >= reserve])
        driver = _driver_bytes(use, place)
        id = DeviceId(limit.uuid)
        measured = id in figures and figures[id].utilisation is not None
        found.append(
            SliceDevice(
                index=place,
                device_id=id,
                memory_limit_bytes=limit.memory_bytes,
                used_bytes=charged if driver is None else driver,
                charged_bytes=charged,
                context_bytes=contexts,
                buffer_bytes=charged - contexts,
                internal_bytes=None if driver is None else max(0, driver - charged),
                guarantee=CorePercent(limit.cores),
                limit=CorePercent(
                    limit_of_page(
                        cores=limit.cores, cores_limit=limit.cores_limit, policy=limits.policy
                    )
                ),
                share=handed.shares[place] / 100 if handed and handed.shares[place] else None,
                utilisation=use.percents.get(place, 0.0 if measured else None),
                waited_seconds=held.region.buckets[place].waited_ns / 1e9,
                last_active_at=active_at.get((held.id, place), 0.0),
            )
        )
    return tuple(found)


def _driver_bytes(use: SliceUse, place: int) -> int | None:
    if place in use.counted:
        return use.counted[place]
    figures = [one.bytes[place] for one in use.processes.values() if place in one.bytes]
    known = [each for each in figures if each is not None]
    return sum(known) if len(known) == len(figures) and known else None


def _processes(
    held: HeldSlice, use: SliceUse, slots: Mapping[int, SlotUsage], live: Sequence[SlotUsage]
) -> tuple[ProcessFigures, ...]:
    """Those that the driver shows, then those that only their slots name."""
    places = range(len(held.limits.devices) if held.limits else 0)
    found = [_process(one, slots.get(pid), places) for pid, one in sorted(use.processes.items())]
    shown = {slot.slot for slot in slots.values()}
    found += [
        ProcessFigures(
            pid=0,
            slot=slot.slot,
            used_bytes=tuple([slot.charged[place] for place in places]),
            bypass=slot.bypass,
        )
        for slot in live
        if slot.slot not in shown and any(slot.charged)
    ]
    return tuple(found)


def _process(one: ProcessUse, slot: SlotUsage | None, places: Sequence[int]) -> ProcessFigures:
    used = [one.bytes.get(place, 0) for place in places]
    percents = [one.percents.get(place, 0.0) for place in places]
    known = [percent for percent in percents if percent is not None]
    return ProcessFigures(
        pid=one.identity.pid,
        slot=-1 if slot is None else slot.slot,
        used_bytes=tuple(
            [
                (slot.charged[place] if slot else 0) if amount is None else amount
                for place, amount in zip(places, used, strict=True)
            ]
        ),
        utilisation=tuple(known) if len(known) == len(percents) else (),
        bypass=slot is not None and slot.bypass,
    )
