"""A region of HAMi's library as a row of the table."""

from __future__ import annotations

from collections.abc import Mapping

from hami.domain.units import CorePercent, DeviceId, VendorKey
from hami.monitor.compat.feedback import KernelWords
from hami.monitor.compat.region import Region, RegionDevice
from hami.monitor.compat.region_files import RegionPlace
from hami.monitor.table import ProcessFigures, SliceDevice, SliceFigures

_WHOLE = 100


def slice_of(
    place: RegionPlace,
    region: Region,
    *,
    vendor: VendorKey,
    namespace: str,
    pod: str,
    known: Mapping[str, DeviceId],
) -> SliceFigures:
    """What the container has and does; ``namespace`` and ``pod`` are of the pod with this UID.

    ``known`` are the vendor's devices on this node by the uuid that the driver prints. Others that
    a region names are not shown: what a container writes is no label.
    """
    shown = [
        (index, known[device.uuid], device)
        for index, device in enumerate(region.devices)
        if device.uuid in known
    ]
    lost = len([device for device in region.devices if device.uuid]) - len(shown)
    return SliceFigures(
        id=f"hami-core-{place.folder}",
        vendor=vendor,
        namespace=namespace,
        pod=pod,
        pod_uid=place.pod_uid,
        container=place.container,
        generation=0,
        created_at=0.0,
        library=region.layout.version,
        source="hami-core",
        priority=region.priority,
        devices=tuple(_device(region, *each) for each in shown),
        processes=tuple(
            ProcessFigures(
                pid=0,
                slot=process.slot,
                used_bytes=tuple([process.used[index] for index, _, _ in shown]),
                utilisation=tuple(
                    float(process.utilisation[index])
                    for index, _, _ in shown
                    if process.utilisation
                ),
            )
            for process in region.processes
        ),
        problem=_problem(lost, region.unreadable),
    )


def kernel_words(region: Region) -> KernelWords:
    """What the feedback of the two words is decided from."""
    return KernelWords(
        devices=tuple(device.uuid for device in region.devices if device.uuid),
        priority=region.priority,
        recent_kernel=region.recent_kernel,
        utilization_switch=region.utilization_switch,
    )


def _device(region: Region, index: int, id: DeviceId, device: RegionDevice) -> SliceDevice:
    cores = device.sm_limit % _WHOLE
    return SliceDevice(
        index=index,
        device_id=id,
        memory_limit_bytes=device.memory_limit,
        used_bytes=device.used,
        charged_bytes=device.used,
        context_bytes=device.context,
        module_bytes=device.module,
        buffer_bytes=device.buffer,
        guarantee=CorePercent(cores),
        limit=CorePercent(cores or _WHOLE),
        utilisation=float(device.utilisation) if region.layout.has_utilisation else None,
        last_active_at=float(region.last_kernel),
    )


def _problem(lost: int, unreadable: int) -> str:
    found = []
    if lost:
        found.append(f"it names {lost} devices that are not of this node")
    if unreadable:
        found.append(f"{unreadable} of its processes make no sense")
    return "; ".join(found)
