"""The metrics that HAMi's scheduler exports: names, labels, help texts, and the form of a line.

Covers HAMi's 2.10 names and the earlier ones (``--legacy-metrics``). All but the build information
carry the label ``zone="vGPU"``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hami.domain.devices import Device, Usage
from hami.domain.kubernetes.objects import Pod
from hami.domain.units import MIB
from hami.http.metrics import escaped
from hami.wire.mig_entries import MigEntry

_ZONE = ',zone="vGPU"'


@dataclass(frozen=True, slots=True)
class DeviceRow:
    """A device with its labels, without braces; ``legacy`` is empty unless it was asked for."""

    labels: str
    legacy: str
    device: Device
    usage: Usage

    @classmethod
    def of(cls, node: str, device: Device, usage: Usage, *, legacy: bool) -> DeviceRow:
        place = (escaped(node), escaped(device.id), device.index)
        labels = (
            'node="{}",device_uuid="{}",device_index="{}"'.format(*place)
            + f',device_type="{escaped(device.model)}"{_ZONE}'
        )
        former = 'nodeid="{}",deviceuuid="{}",deviceidx="{}"'.format(*place) + _ZONE
        return cls(labels, former if legacy else "", device, usage)


def _nothing(_device: Device) -> str:
    return ""


def _former_type(device: Device) -> str:
    return f',devicetype="{escaped(device.model)}"'


def _former_cores(device: Device) -> str:
    return f',devicecores="{device.cores}"{_former_type(device)}'


def _former_limits(device: Device) -> str:
    return f',devicememorylimit="{device.memory_mib}"{_former_cores(device)}'


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFamily:
    """One metric with a line per device; a ``value`` of None makes no line.

    ``more`` and ``legacy_more`` are labels beside those that every device has.
    """

    name: str
    legacy: str
    help: str
    value: Callable[[Device, Usage], float | None]
    more: Callable[[Device], str] = _nothing
    legacy_more: Callable[[Device], str] = _former_type


def _share(device: Device, usage: Usage) -> float | None:
    return usage.memory_mib / device.memory_mib if device.memory_mib > 0 else None


DEVICE_FAMILIES = (
    DeviceFamily(
        name="hami_gpu_memory_limit_bytes",
        legacy="GPUDeviceMemoryLimit",
        help="Device memory limit for a certain GPU",
        value=lambda device, _: device.memory_mib * MIB,
    ),
    DeviceFamily(
        name="hami_gpu_core_limit_ratio",
        legacy="GPUDeviceCoreLimit",
        help="Device core limit for a certain GPU",
        value=lambda device, _: device.cores,
    ),
    DeviceFamily(
        name="hami_gpu_memory_allocated_bytes",
        legacy="GPUDeviceMemoryAllocated",
        help="Device memory allocated for a certain GPU",
        value=lambda _, usage: usage.memory_mib * MIB,
        more=lambda device: f',device_cores="{device.cores}"',
        legacy_more=_former_cores,
    ),
    DeviceFamily(
        name="hami_gpu_shared_count",
        legacy="GPUDeviceSharedNum",
        help="Number of containers sharing this GPU",
        value=lambda _, usage: usage.slots,
    ),
    DeviceFamily(
        name="hami_gpu_core_allocated_ratio",
        legacy="GPUDeviceCoreAllocated",
        help="Device core allocated for a certain GPU",
        value=lambda _, usage: usage.cores,
    ),
    DeviceFamily(
        name="hami_node_gpu_overview",
        legacy="nodeGPUOverview",
        help="GPU overview on a certain node",
        value=lambda _, usage: usage.memory_mib * MIB,
        more=lambda device: (
            f',device_cores="{device.cores}",device_memory_limit="{device.memory_mib}"'
        ),
        legacy_more=_former_limits,
    ),
    DeviceFamily(
        name="hami_node_gpu_memory_allocated_ratio",
        legacy="nodeGPUMemoryPercentage",
        help="GPU Memory Allocated Percentage on a certain GPU",
        value=_share,
        legacy_more=_nothing,
    ),
)


@dataclass(frozen=True, slots=True)
class PodRow:
    """What one container of a pod holds of one device."""

    labels: str
    legacy: str
    usage: Usage

    @classmethod
    def of(
        cls, pod: Pod, node: str, container: int, device: str, usage: Usage, *, legacy: bool
    ) -> PodRow:
        """The row of one container; ``container`` is its index, init containers first."""
        place = (
            escaped(pod.namespace), escaped(node), escaped(pod.name), container, escaped(device)
        )  # fmt: skip
        labels = (
            'namespace="{}",node="{}",pod="{}",container_index="{}",device_uuid="{}"'.format(*place)
            + _ZONE
        )
        former = (
            'podnamespace="{}",nodename="{}",podname="{}",containeridx="{}",deviceuuid="{}"'.format(
                *place
            )
            + _ZONE
        )
        return cls(labels, former if legacy else "", usage)


@dataclass(frozen=True, slots=True)
class PodFamily:
    """One metric with a line per container and device."""

    name: str
    legacy: str
    help: str
    value: Callable[[Usage], int]


POD_FAMILIES = (
    PodFamily(
        "hami_vgpu_memory_allocated_bytes",
        "vGPUMemoryAllocated",
        "vGPU memory allocated from a container",
        lambda usage: usage.memory_mib * MIB,
    ),
    PodFamily(
        "hami_vgpu_core_allocated_ratio",
        "vGPUCoreAllocated",
        "vGPU core allocated from a container",
        lambda usage: usage.cores,
    ),
)


# MIG instances.

MIG = "hami_node_gpu_mig_instance_info"
LEGACY_MIG = "nodeGPUMigInstance"
MIG_HELP = "Realized MIG instance identity and scheduler placement"


def mig_labels(entry: MigEntry, node: str, index: int) -> str:
    return (
        f'node="{escaped(node)}",device_uuid="{escaped(entry.gpu_uuid)}",device_index="{index}"'
        f',mig_uuid="{escaped(entry.mig_uuid or "")}",profile="{escaped(entry.profile)}"'
        f',gpu_instance_id="{entry.gpu_instance_id}"'
        f',compute_instance_id="{entry.compute_instance_id}"'
        f',placement_start="{entry.placement.start}",placement_size="{entry.placement.size}"'
        f"{_ZONE}"
    )


def legacy_mig_labels(entry: MigEntry, node: str, index: int) -> str:
    return (
        f'nodeid="{escaped(node)}",deviceuuid="{escaped(entry.gpu_uuid)}",deviceidx="{index}"'
        f',migname="{escaped(entry.profile)}-{entry.gpu_instance_id}"{_ZONE}'
    )


# Quota.

QUOTA_USED = "hami_resource_quota_used"
QUOTA_LIMIT = "hami_resource_quota_limit"
LEGACY_QUOTA_USED = "QuotaUsed"
QUOTA_USED_HELP = "resourcequota usage for a certain device"
QUOTA_LIMIT_HELP = "resourcequota limit for a certain device"


def quota_labels(namespace: str, resource: str) -> str:
    return f'namespace="{escaped(namespace)}",quota_name="{escaped(resource)}"{_ZONE}'


def quota_used_labels(namespace: str, resource: str, limit: int) -> str:
    return f'{quota_labels(namespace, resource)},limit="{limit}"'


def legacy_quota_labels(namespace: str, resource: str, limit: int) -> str:
    return (
        f'quotanamespace="{escaped(namespace)}",quotaName="{escaped(resource)}",limit="{limit}"'
        f"{_ZONE}"
    )
