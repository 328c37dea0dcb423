"""Static MIG: devices that somebody else cut, handed out whole under the strategies of NVIDIA.

``single``: every GPU of the node is cut alike, and each MIG device is a device like any other.
``mixed``: MIG devices have a resource for each profile, beside the GPUs that are not cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hami.domain.devices import Device
from hami.domain.errors import HamiError
from hami.domain.units import DeviceId, MemoryMiB, VendorKey
from hami_nvidia.mig.allowlist import registered_model
from hami_nvidia.nvml.interface import Gpu, MigDevice, Nvml

RESOURCE_PREFIX = "nvidia.com/mig-"


class MigLayoutRefused(HamiError):
    """The node's MIG devices do not suit the strategy; the operator must cut them anew."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutGpu:
    """A GPU in MIG mode with its MIG devices."""

    gpu: Gpu
    parts: tuple[MigDevice, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticDevices:
    """``by_resource``: devices that kubelet hands out; ``reports``: what is left out and why."""

    by_resource: Mapping[str, tuple[Device, ...]]
    reports: tuple[str, ...] = ()


def cut_gpus(nvml: Nvml, gpus: Sequence[Gpu]) -> tuple[CutGpu, ...]:
    """Those of the GPUs that are in MIG mode."""
    return tuple(
        CutGpu(gpu=gpu, parts=tuple(nvml.mig_devices(gpu.uuid)))
        for gpu in gpus
        if gpu.mig is not None and gpu.mig.enabled
    )


def single_devices(
    vendor: VendorKey, gpus: Sequence[Gpu], cut: Sequence[CutGpu], numas: Mapping[DeviceId, int]
) -> tuple[Device, ...]:
    """Each MIG device as a device of its own, not shared.

    Raises:
        MigLayoutRefused: the GPUs are not all cut, or not alike.
    """
    if len(cut) != len(gpus):
        whole = sorted({gpu.uuid for gpu in gpus} - {each.gpu.uuid for each in cut})
        raise MigLayoutRefused(
            f"--mig-strategy=single: all devices on the node must be configured with the same "
            f"migEnabled value, and MIG is off on {', '.join(whole)}; turn it on there or use mixed"
        )
    for each in cut:
        if not each.parts:
            raise MigLayoutRefused(
                f"--mig-strategy=single: device {each.gpu.uuid} has no MIG devices configured; "
                f"create some, for example with nvidia-smi mig -cgi ... -C"
            )
    profiles = sorted({part.profile for each in cut for part in each.parts})
    if len(profiles) > 1:
        raise MigLayoutRefused(
            f"--mig-strategy=single: more than one MIG device type present on node: "
            f"{', '.join(profiles)}; use mixed or cut all GPUs alike"
        )
    return _devices(vendor, [(each.gpu, part) for each in cut for part in each.parts], numas)


def mixed_devices(
    vendor: VendorKey, cut: Sequence[CutGpu], numas: Mapping[DeviceId, int]
) -> StaticDevices:
    """MIG devices by resource: ``1g.5gb+me`` is ``nvidia.com/mig-1g.5gb.me``.

    A part of a GPU instance (``1c.2g.10gb``) has no resource, as with NVIDIA's plugin.
    """
    found: dict[str, list[tuple[Gpu, MigDevice]]] = {}
    reports = []
    for each in cut:
        if not each.parts:
            reports.append(f"{each.gpu.uuid} is in MIG mode and has no MIG devices: not offered")
        for part in each.parts:
            if "c." in part.profile:
                reports.append(
                    f"{part.uuid} ({part.profile}) is a part of a GPU instance: not offered"
                )
                continue
            resource = RESOURCE_PREFIX + part.profile.replace("+", ".")
            found.setdefault(resource, []).append((each.gpu, part))
    return StaticDevices(
        by_resource={
            resource: _devices(vendor, found[resource], numas) for resource in sorted(found)
        },
        reports=tuple(reports),
    )


def _devices(
    vendor: VendorKey, parts: Sequence[tuple[Gpu, MigDevice]], numas: Mapping[DeviceId, int]
) -> tuple[Device, ...]:
    return tuple(
        Device(
            id=part.uuid,
            vendor=vendor,
            index=number,
            model=f"{registered_model(gpu.name)} MIG {part.profile}",
            slots=1,
            memory_mib=MemoryMiB(part.memory_mib),
            numa=numas.get(gpu.uuid, 0),
        )
        for number, (gpu, part) in enumerate(parts)
    )
