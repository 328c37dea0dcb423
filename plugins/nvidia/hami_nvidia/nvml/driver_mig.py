"""MIG in NVML's own terms: profiles, GPU instances, compute instances and MIG devices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ctypes import byref, c_uint
from typing import Any

from hami.domain.units import DeviceId, MemoryMiB
from hami_nvidia.nvml.driver_session import text_of
from hami_nvidia.nvml.interface import GpuInstance, InstanceProfile, MigDevice, Span, profile_name

_MIG_IN_A_NAME = " MIG "
"""``NVIDIA A100-SXM4-40GB MIG 1g.5gb``: how newer drivers call a MIG device."""


def instance_profiles(api: Any, handle: Any, memory_bytes: int | None) -> Sequence[InstanceProfile]:
    """Profiles whose placements cannot be read are left out: nothing could be created of them."""
    profiles = []
    for number, info in _profile_infos(api, handle):
        spans = _spans(api, handle, info.id)
        if spans:
            memory = MemoryMiB(int(info.memorySizeMB))
            told = text_of(getattr(info, "name", "")).removeprefix("MIG ")
            profiles.append(
                InstanceProfile(
                    number=number,
                    id=info.id,
                    name=told or profile_name(info.sliceCount, memory, memory_bytes),
                    slices=info.sliceCount,
                    memory_mib=memory,
                    multiprocessors=info.multiprocessorCount,
                    count=info.instanceCount,
                    spans=spans,
                )
            )
    return profiles


def instances(api: Any, handle: Any) -> Sequence[GpuInstance]:
    """Those of every profile, whoever made them."""
    found: dict[int, GpuInstance] = {}
    for _, profile in _profile_infos(api, handle):
        room = (api.c_nvmlGpuInstance_t * max(profile.instanceCount, 1))()
        count = c_uint(0)
        try:
            api.nvmlDeviceGetGpuInstances(handle, profile.id, room, byref(count))
        except api.NVMLError as error:
            if error.value in _none(api):
                continue
            raise
        for instance in room[: count.value]:
            info = api.nvmlGpuInstanceGetInfo(instance)
            found[info.id] = GpuInstance(
                id=info.id,
                profile_id=info.profileId,
                span=Span(start=info.placement.start, size=info.placement.size),
                compute_ids=_compute_ids(api, instance),
            )
    return [found[id] for id in sorted(found)]


def create_instance(api: Any, handle: Any, profile: InstanceProfile, span: Span) -> int:
    placement = api.c_nvmlGpuInstancePlacement_t(span.start, span.size)
    made = api.nvmlDeviceCreateGpuInstanceWithPlacement(handle, profile.id, byref(placement))
    return int(api.nvmlGpuInstanceGetInfo(made).id)


def create_compute(api: Any, handle: Any, instance: int) -> int:
    """The first profile with as many slices as the GPU instance has; engines shared."""
    whole = api.nvmlDeviceGetGpuInstanceById(handle, instance)
    wanted = api.nvmlGpuInstanceGetInfo(whole).profileId
    slices = next(
        (info.sliceCount for _, info in _profile_infos(api, handle) if info.id == wanted), 0
    )
    for profile in _compute_profiles(api, whole):
        if profile.sliceCount == slices:
            made = api.nvmlGpuInstanceCreateComputeInstance(whole, profile.id)
            return int(api.nvmlComputeInstanceGetInfo(made).id)
    raise api.NVMLError(api.NVML_ERROR_NOT_SUPPORTED)


def mig_handles(api: Any, handle: Any) -> Iterator[Any]:
    """The MIG devices of a GPU; none for a GPU without MIG, or for a MIG device."""
    try:
        most = api.nvmlDeviceGetMaxMigDeviceCount(handle)
    except api.NVMLError as error:
        if error.value in _none(api):
            return
        raise
    for number in range(most):
        try:
            yield api.nvmlDeviceGetMigDeviceHandleByIndex(handle, number)
        except api.NVMLError as error:
            if error.value not in _none(api):
                raise


def mig_devices(api: Any, handle: Any, memory_bytes: int | None) -> Sequence[MigDevice]:
    devices = []
    for device in mig_handles(api, handle):
        attributes = api.nvmlDeviceGetAttributes(device)
        memory = MemoryMiB(int(attributes.memorySizeMB))
        devices.append(
            MigDevice(
                uuid=DeviceId(text_of(api.nvmlDeviceGetUUID(device))),
                gpu_instance=api.nvmlDeviceGetGpuInstanceId(device),
                compute_instance=api.nvmlDeviceGetComputeInstanceId(device),
                profile=_device_profile(api, device, attributes, memory_bytes),
                memory_mib=memory,
            )
        )
    return devices


def _device_profile(api: Any, device: Any, attributes: Any, memory_bytes: int | None) -> str:
    told = text_of(api.nvmlDeviceGetName(device)).partition(_MIG_IN_A_NAME)[2]
    if told:
        return told
    whole, part = attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount
    name = profile_name(whole, int(attributes.memorySizeMB), memory_bytes)
    return name if whole == part else f"{part}c.{name}"


def _profile_infos(api: Any, handle: Any) -> Iterator[tuple[int, Any]]:
    """Every profile that the GPU has now, by NVML's number."""
    for number in range(api.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            yield number, _profile_info(api, handle, number)
        except api.NVMLError as error:
            if error.value not in _none(api):
                raise


def _profile_info(api: Any, handle: Any, number: int) -> Any:
    """With its name where the driver is new enough to tell it."""
    try:
        return api.nvmlDeviceGetGpuInstanceProfileInfo(handle, number, version=2)
    except api.NVMLError as error:
        if error.value not in (
            api.NVML_ERROR_FUNCTION_NOT_FOUND,
            api.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        ):
            raise
    return api.nvmlDeviceGetGpuInstanceProfileInfo(handle, number, version=1)


def _compute_profiles(api: Any, instance: Any) -> Iterator[Any]:
    for number in range(api.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        try:
            yield api.nvmlGpuInstanceGetComputeInstanceProfileInfo(
                instance, number, api.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED, version=1
            )
        except api.NVMLError as error:
            if error.value not in _none(api):
                raise


def _compute_ids(api: Any, instance: Any) -> tuple[int, ...]:
    ids: set[int] = set()
    for profile in _compute_profiles(api, instance):
        room = (api.c_nvmlComputeInstance_t * max(profile.instanceCount, 1))()
        count = c_uint(0)
        try:
            api.nvmlGpuInstanceGetComputeInstances(instance, profile.id, room, byref(count))
        except api.NVMLError as error:
            if error.value in _none(api):
                continue
            raise
        ids |= {api.nvmlComputeInstanceGetInfo(each).id for each in room[: count.value]}
    return tuple(sorted(ids))


def _spans(api: Any, handle: Any, profile_id: int) -> tuple[Span, ...]:
    count = c_uint(0)
    try:
        api.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile_id, None, byref(count))
        room = (api.c_nvmlGpuInstancePlacement_t * max(count.value, 1))()
        api.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile_id, room, byref(count))
    except api.NVMLError as error:
        if error.value in _none(api):
            return ()
        raise
    return tuple(Span(start=each.start, size=each.size) for each in room[: count.value])


def _none(api: Any) -> tuple[int, ...]:
    """Errors that mean: there is no such thing on this GPU."""
    return (
        api.NVML_ERROR_NOT_SUPPORTED,
        api.NVML_ERROR_INVALID_ARGUMENT,
        api.NVML_ERROR_NOT_FOUND,
        api.NVML_ERROR_FUNCTION_NOT_FOUND,
    )
