"""The devices of this node: what NVML says of its GPUs, as the configuration wants them offered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import msgspec

from hami.domain.devices import Device
from hami.domain.errors import ConfigError
from hami.domain.extra import NO_EXTRA
from hami.domain.units import CorePercent, DeviceId, MemoryMiB, VendorKey, mib_down
from hami_nvidia.devices.links import plain_bus_id, topology
from hami_nvidia.mig.allowlist import offered_profiles, profile_named, registered_model
from hami_nvidia.mig.static_devices import StaticDevices, cut_gpus, mixed_devices, single_devices
from hami_nvidia.nvml.interface import Gpu, Nvml, NvmlAway, NvmlFailed, NvmlUnreadable
from hami_nvidia.schedule.mig_placement import MIG_MODE, MIG_PROFILES
from hami_nvidia.schedule.topology import PAIR_SCORES
from hami_nvidia.settings.node_settings import NodeSettings

VENDOR = VendorKey("NVIDIA")


@dataclass(frozen=True, slots=True, kw_only=True)
class Discovery:
    """The devices in the order of their indexes; ``reports``: what a person should know of them."""

    devices: tuple[Device, ...]
    reports: tuple[str, ...] = ()


def discover(
    nvml: Nvml,
    settings: NodeSettings,
    *,
    known: Sequence[Device] = (),
    ailing: Mapping[DeviceId, str] = MappingProxyType({}),
) -> Discovery:
    """Every device that is offered through our scheduler, healthy or not.

    ``known`` is the former answer: a GPU of it that does not answer now is still there, unhealthy,
    and so are all while there is no driver. ``ailing`` says which are ill, and why.

    Raises:
        ConfigError: mode and MIG strategy exclude each other.
        NvmlAway: there is no driver and none was known, unless that is not an error here.
        MigLayoutRefused: the strategy ``single`` cannot offer the node's MIG devices.
    """
    try:
        found = _found(nvml, settings)
    except NvmlAway as away:
        if not known and settings.fail_on_init_error:
            raise
        return Discovery(
            devices=tuple(msgspec.structs.replace(device, healthy=False) for device in known),
            reports=(str(away),),
        )
    listed = {device.id for device in found.devices}
    lost = [
        msgspec.structs.replace(device, healthy=False)
        for device in known
        if device.id not in listed
        and device.id.startswith("GPU-")
        and _still_offered(device, found, settings)
    ]
    devices = [
        msgspec.structs.replace(device, healthy=False) if device.id in ailing else device
        for device in found.devices
    ]
    return Discovery(
        devices=tuple(sorted([*devices, *lost], key=lambda device: (device.index, device.id))),
        reports=(
            *found.reports,
            *(f"{device.id} does not answer any more; it is not healthy" for device in lost),
        ),
    )


def static_devices(nvml: Nvml, settings: NodeSettings) -> StaticDevices:
    """With the strategy ``mixed``: the MIG devices that kubelet hands out, by resource.

    Raises:
        NvmlFailed: NVML cannot be asked.
    """
    if settings.mig_strategy != "mixed":
        return StaticDevices(by_resource={})
    gpus = _offered(nvml.gpus(), settings)
    cut = cut_gpus(nvml, gpus)
    static = mixed_devices(VENDOR, cut, {gpu.uuid: numa_node(gpu, settings) for gpu in gpus})
    return replace(
        static,
        by_resource={
            resource: kept
            for resource, devices in static.by_resource.items()
            if (kept := tuple(d for d in devices if d.id not in settings.filter_uuids))
        },
    )


def unusable(gpu: Gpu, settings: NodeSettings) -> str:
    """Why no container can be given this GPU as it is now; empty when one can.

    A program cannot use a whole GPU while it is cut, nor an instance while it is not.
    """
    cut = gpu.mig is not None and gpu.mig.enabled
    if settings.mode == MIG_MODE and not cut:
        return "MIG is off on it; the agent turns it on when the GPU is idle"
    if settings.mode != MIG_MODE and settings.mig_strategy == "none" and cut:
        return (
            "MIG is on on it; turn it off (nvidia-smi -mig 0), or let the agent use it with "
            "operatingmode mig or --mig-strategy"
        )
    return ""


def numa_node(gpu: Gpu, settings: NodeSettings) -> int:
    """0 where the kernel does not say, and where there is only one."""
    if gpu.numa is not None:
        return gpu.numa
    device = settings.sys_root / "bus/pci/devices" / plain_bus_id(gpu.pci_bus_id)
    return max(_number(device / "numa_node"), 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """``answering``: the UUIDs of all GPUs that do, offered or not."""

    devices: tuple[Device, ...]
    answering: frozenset[DeviceId]
    reports: tuple[str, ...]


def _found(nvml: Nvml, settings: NodeSettings) -> _Found:
    _check(settings)
    listed = nvml.gpus()
    answering = {gpu.uuid for gpu in listed if isinstance(gpu, Gpu)}
    reports = [gpu.problem for gpu in listed if isinstance(gpu, NvmlUnreadable)]
    gpus = _offered(listed, settings)
    cut = () if settings.mig_strategy == "none" else cut_gpus(nvml, gpus)
    devices: list[Device] = []
    if settings.mig_strategy == "single" and cut:
        numas = {gpu.uuid: numa_node(gpu, settings) for gpu in gpus}
        parts = single_devices(VENDOR, gpus, cut, numas)
        devices += [part for part in parts if part.id not in settings.filter_uuids]
    else:
        apart = {each.gpu.uuid for each in cut}
        for gpu in gpus:
            if gpu.uuid in apart:
                continue
            try:
                device = _whole_device(nvml, gpu, settings, reports)
            except NvmlAway:
                raise
            except NvmlFailed as failed:
                reports.append(str(failed))
                answering.discard(gpu.uuid)
                continue
            devices += [device] if device is not None else []
        devices = _linked(nvml, gpus, devices, settings, reports)
    return _Found(devices=tuple(devices), answering=frozenset(answering), reports=tuple(reports))


def _check(settings: NodeSettings) -> None:
    if settings.mode == MIG_MODE and settings.mig_strategy != "none":
        raise ConfigError(
            f"operatingmode {MIG_MODE} and migStrategy {settings.mig_strategy} exclude each other: "
            f"in this mode the agent cuts the GPUs itself; set migStrategy to none"
        )


def _offered(listed: Sequence[Gpu | NvmlUnreadable], settings: NodeSettings) -> list[Gpu]:
    """Without those that do not answer and those that the operator keeps back."""
    return [
        gpu
        for gpu in listed
        if isinstance(gpu, Gpu)
        and gpu.uuid not in settings.filter_uuids
        and gpu.index not in settings.filter_indexes
    ]


def _still_offered(device: Device, found: _Found, settings: NodeSettings) -> bool:
    """A GPU that answers and is not among the devices is kept back, not lost."""
    return (
        device.id not in found.answering
        and device.id not in settings.filter_uuids
        and device.index not in settings.filter_indexes
        and device.mode == settings.mode
    )


def _whole_device(
    nvml: Nvml, gpu: Gpu, settings: NodeSettings, reports: list[str]
) -> Device | None:
    if settings.mode == MIG_MODE:
        device = _cut_device(nvml, gpu, settings, reports)
    else:
        device = _shared_device(gpu, settings, reports)
    problem = unusable(gpu, settings)
    if device is None or not problem:
        return device
    reports.append(f"{gpu.uuid} ({gpu.name}): {problem}")
    return msgspec.structs.replace(device, healthy=False)


def _shared_device(gpu: Gpu, settings: NodeSettings, reports: list[str]) -> Device | None:
    if gpu.memory_bytes is not None:
        memory = mib_down(gpu.memory_bytes)
    elif settings.preconfigured_memory_mib:
        memory = MemoryMiB(settings.preconfigured_memory_mib)
    else:
        reports.append(
            f"{gpu.uuid} ({gpu.name}) has no memory of its own, so it is not offered; say how much "
            f"its containers may use with preConfiguredDeviceMemory"
        )
        return None
    return Device(
        id=gpu.uuid,
        vendor=VENDOR,
        index=gpu.index,
        model=registered_model(gpu.name),
        slots=settings.split_count,
        memory_mib=MemoryMiB(int(memory * settings.memory_scaling)),
        cores=CorePercent(int(settings.core_scaling * 100)),
        numa=numa_node(gpu, settings),
        mode=settings.mode,
    )


def _cut_device(nvml: Nvml, gpu: Gpu, settings: NodeSettings, reports: list[str]) -> Device | None:
    """A GPU in mode ``mig``, with what it can be cut into. Nothing of it is scaled.

    While MIG is off NVML does not know the profiles: the GPU is there, and not healthy.
    """
    model = registered_model(gpu.name)
    if gpu.mig is None:
        reports.append(
            f"{gpu.uuid} ({gpu.name}) cannot be cut into MIG instances, so it is not offered in "
            f"mode {MIG_MODE}; keep it back with filterdevices, or change the node's mode"
        )
        return None
    kinds = nvml.instance_profiles(gpu.uuid)
    profiles = offered_profiles(model, kinds, settings.mig_allowlist)
    if profiles is None or (kinds and not profiles):
        reports.append(
            f"{gpu.uuid}: migProfileAllowlist names no MIG profile for {model!r}, so it is not "
            f"offered; add an entry with that model"
        )
        return None
    counts = [kind.count for p in profiles if (kind := profile_named(p.name, kinds)) is not None]
    return Device(
        id=gpu.uuid,
        vendor=VENDOR,
        index=gpu.index,
        model=model,
        slots=max(counts, default=1),
        memory_mib=mib_down(gpu.memory_bytes or 0),
        numa=numa_node(gpu, settings),
        mode=MIG_MODE,
        healthy=bool(profiles),
        extra=NO_EXTRA.with_(MIG_PROFILES, profiles) if profiles else NO_EXTRA,
    )


def _linked(
    nvml: Nvml,
    gpus: Sequence[Gpu],
    devices: list[Device],
    settings: NodeSettings,
    reports: list[str],
) -> list[Device]:
    """With their pair scores, where there are pairs."""
    if not settings.topology_score or len(devices) < 2:
        return devices
    offered = {device.id for device in devices}
    found = topology(nvml, [gpu for gpu in gpus if gpu.uuid in offered])
    reports += found.reports
    return [
        msgspec.structs.replace(
            device, extra=device.extra.with_(PAIR_SCORES, found.scores[device.id])
        )
        for device in devices
    ]


def _number(path: Path) -> int:
    """What a file of sysfs says; -1, as the kernel has it, where it says nothing."""
    try:
        return int(path.read_text("ascii"))
    except (OSError, ValueError):
        return -1
