"""The table as a scrape shows it: every container once, whatever came and went in between.

A container that was started anew has two slices for a moment, and a pod may have a successor of the
same name. What is in force is the newest slice's, and so is what counts up: a counter that falls
back is a restart to Prometheus. What is held and done is the sum: two processes hold two memories.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from hami.domain.units import DeviceId, VendorKey
from hami.monitor.table import (
    DeviceFigures,
    MigIdentity,
    NodeTable,
    SliceDevice,
    SliceFigures,
    VendorFigures,
)

Values = tuple[object, ...]
"""What a row is known by: the values of its labels."""

N = TypeVar("N", int, float)


@dataclass(frozen=True, slots=True)
class ShownDevice:
    """A device, with what belongs to no slice."""

    figures: DeviceFigures
    strangers: int
    stranger_bytes: int


def shown_devices(table: NodeTable) -> dict[Values, ShownDevice]:
    """By node, index, id and model."""
    counts: dict[tuple[VendorKey, DeviceId], list[int]] = {}
    for stranger in table.strangers:
        held = counts.setdefault((stranger.vendor, stranger.device_id), [0, 0])
        held[0] += 1
        held[1] += stranger.used_bytes or 0
    found: dict[Values, ShownDevice] = {}
    for device in table.devices:
        shown = ShownDevice(device, *counts.get((device.vendor, device.id), (0, 0)))
        # Ids are unique within a vendor only: the first is shown.
        found.setdefault((table.node, device.index, device.id, device.model), shown)
    return found


def shown_slices(slices: Iterable[SliceFigures]) -> dict[Values, SliceFigures]:
    """By namespace, pod, container and vendor; without those whose pod's name is not known."""
    found: dict[Values, SliceFigures] = {}
    twice: dict[Values, list[SliceFigures]] = {}
    for each in slices:
        if not each.pod:
            continue
        key = (each.namespace, each.pod, each.container, each.vendor)
        first = found.setdefault(key, each)
        if first is not each:
            twice.setdefault(key, [first]).append(each)
    return found | {key: _together(several) for key, several in twice.items()}


def shown_held(slices: Iterable[SliceFigures]) -> dict[Values, SliceDevice]:
    """Devices of containers, by namespace, pod, container, index and id."""
    found: dict[Values, SliceDevice] = {}
    for each in slices:
        for device in each.devices:
            key = (each.namespace, each.pod, each.container, device.index, device.device_id)
            found.setdefault(key, device)
    return found


def shown_instances(slices: Iterable[SliceFigures]) -> dict[Values, MigIdentity]:
    """MIG instances of containers, by what their metric has as labels."""
    return {
        (
            each.namespace, each.pod, each.container, own.index, own.device_id, own.uuid,
            own.profile, own.gpu_instance_id, own.compute_instance_id,
        ): own
        for each in slices
        for own in each.mig
    }  # fmt: skip


def shown_vendors(table: NodeTable) -> dict[Values, VendorFigures]:
    """By node and vendor."""
    return {(table.node, vendor.vendor): vendor for vendor in table.vendors}


def _together(slices: Sequence[SliceFigures]) -> SliceFigures:
    """The newest, with what the ones before it still hold."""
    *former, newest = sorted(slices, key=lambda each: (each.created_at, each.generation, each.id))
    devices = {(device.index, device.device_id): device for device in newest.devices}
    for each in former:
        for device in each.devices:
            key = (device.index, device.device_id)
            devices[key] = _added(devices[key], device) if key in devices else device
    return replace(
        newest,
        devices=tuple(devices.values()),
        processes=tuple(process for each in slices for process in each.processes),
    )


def _added(device: SliceDevice, former: SliceDevice) -> SliceDevice:
    return replace(
        device,
        used_bytes=device.used_bytes + former.used_bytes,
        charged_bytes=device.charged_bytes + former.charged_bytes,
        context_bytes=device.context_bytes + former.context_bytes,
        module_bytes=device.module_bytes + former.module_bytes,
        buffer_bytes=device.buffer_bytes + former.buffer_bytes,
        internal_bytes=_sum(device.internal_bytes, former.internal_bytes),
        utilisation=_sum(device.utilisation, former.utilisation),
        last_active_at=max(device.last_active_at, former.last_active_at),
    )


def _sum(one: N | None, other: N | None) -> N | None:
    return one if other is None else other if one is None else one + other
