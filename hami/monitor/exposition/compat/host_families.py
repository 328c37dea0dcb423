"""The metrics that HAMi's monitor exports: names, labels, and those from before 2.9.

The earlier ones are shown with ``--legacy-metrics``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from operator import attrgetter
from typing import TypeVar

from hami.monitor.exposition.families import (
    CONTAINER_LABELS,
    DEVICE_LABELS,
    FamilyGroup,
    NodeFamily,
)
from hami.monitor.exposition.shown import ShownDevice
from hami.monitor.table import MigIdentity, SliceDevice

T = TypeVar("T")

LEGACY_DEVICE_LABELS = ("nodeid", "deviceidx", "deviceuuid", "devicetype")
LEGACY_CONTAINER_LABELS = ("podnamespace", "podname", "ctrname", "vdeviceid", "deviceuuid")

HOST_FAMILIES: tuple[NodeFamily[ShownDevice], ...] = (
    NodeFamily(
        "hami_host_gpu_memory_used_bytes",
        "Memory in use on a device, whoever uses it",
        attrgetter("figures.memory_used_bytes"),
        legacy="HostGPUMemoryUsage",
    ),
    NodeFamily(
        "hami_host_gpu_utilization_ratio",
        "Utilisation of a device in percent",
        attrgetter("figures.utilisation"),
        legacy="HostCoreUtilization",
    ),
)

CONTROLLER: FamilyGroup[ShownDevice] = FamilyGroup(
    DEVICE_LABELS[1:],
    (
        NodeFamily(
            "hami_host_gpu_memory_controller_utilization_ratio",
            "Utilisation of a device's memory controller in percent",
            attrgetter("figures.memory_utilisation"),
        ),
    ),
    lambda values, _: values[1:],
)
"""HAMi leaves the node out here."""


def _context(device: SliceDevice) -> int:
    return device.context_bytes + (device.internal_bytes or 0)


USED_FAMILIES: tuple[NodeFamily[SliceDevice], ...] = (
    NodeFamily(
        "hami_vgpu_memory_used_bytes",
        "Device memory that a container uses",
        attrgetter("used_bytes"),
        legacy="vGPU_device_memory_usage_in_bytes",
    ),
    NodeFamily(
        "hami_vgpu_memory_limit_bytes",
        "Device memory that a container may use; 0 without a limit",
        attrgetter("memory_limit_bytes"),
        legacy="vGPU_device_memory_limit_in_bytes",
    ),
    NodeFamily(
        "hami_container_device_memory_bytes",
        "The same as hami_vgpu_memory_used_bytes",
        attrgetter("used_bytes"),
    ),
    NodeFamily(
        "hami_container_device_utilization_ratio",
        "Utilisation of a device by a container in percent",
        attrgetter("utilisation"),
        legacy="Device_utilization_desc_of_container",
    ),
    NodeFamily(
        "hami_vgpu_memory_context_bytes",
        "Of what a container uses, contexts and what the driver keeps for itself",
        _context,
    ),
    NodeFamily(
        "hami_vgpu_memory_module_bytes",
        "Of what a container uses, loaded code, where the library counts it apart",
        attrgetter("module_bytes"),
    ),
    NodeFamily(
        "hami_vgpu_memory_buffer_bytes",
        "Of what a container uses, what its programs allocated",
        attrgetter("buffer_bytes"),
    ),
)


def last_kernel(now: float) -> NodeFamily[SliceDevice]:
    """At ``now``, in Unix seconds; no line for a container that was never seen to compute."""
    return NodeFamily(
        "hami_container_last_kernel_elapsed_seconds",
        "How long ago a container was last seen to compute",
        lambda device: max(now - device.last_active_at, 0.0) if device.last_active_at > 0 else None,
        legacy="Device_last_kernel_of_container",
    )


MIG: FamilyGroup[MigIdentity] = FamilyGroup(
    (*CONTAINER_LABELS, "mig_uuid", "profile", "gpu_instance_id", "compute_instance_id"),
    (
        NodeFamily(
            "hami_mig_device_info",
            "Always 1; a MIG instance that a container has of a device",
            lambda _: 1,
        ),
    ),
)


# Before 2.9.


def former(families: Iterable[NodeFamily[T]]) -> list[NodeFamily[T]]:
    """Those that had another name, under that."""
    return [replace(family, name=family.legacy) for family in families if family.legacy]


LEGACY_MIG: FamilyGroup[MigIdentity] = FamilyGroup(
    (*LEGACY_CONTAINER_LABELS, "instanceid"),
    (NodeFamily("MigInfo", "As hami_mig_device_info", lambda _: 1),),
    lambda values, own: (*values[: len(CONTAINER_LABELS)], own.gpu_instance_id),
)
LEGACY_DEVICES = (FamilyGroup(LEGACY_DEVICE_LABELS, former(HOST_FAMILIES)),)


def legacy_containers(now: float) -> tuple[FamilyGroup[SliceDevice], ...]:
    """At ``now``, in Unix seconds."""
    return (
        FamilyGroup(LEGACY_CONTAINER_LABELS, former([*USED_FAMILIES, last_kernel(now)])),
        FamilyGroup(
            (*LEGACY_CONTAINER_LABELS, "context", "module", "data", "offset"),
            (
                NodeFamily(
                    "Device_memory_desc_of_container",
                    "Device memory that a container uses; its parts in bytes are labels",
                    attrgetter("used_bytes"),
                ),
            ),
            lambda values, device: (*values, *_parts(device)),
        ),
    )


def _parts(device: SliceDevice) -> tuple[int, int, int, int]:
    """Context, module, data and the rest, which HAMi calls offset; in bytes."""
    context = _context(device)
    rest = device.used_bytes - context - device.module_bytes - device.buffer_bytes
    return context, device.module_bytes, device.buffer_bytes, max(rest, 0)
