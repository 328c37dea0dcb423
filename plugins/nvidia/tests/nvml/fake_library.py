"""``libnvidia-ml`` in Python, at the level of ctypes: what the real ``pynvml`` calls.

Behind it is the simulated NVML, so that ``DriverNvml`` over this library must say the same as the
simulated one: its handles, structures, sizes and error numbers are what is tested. One method is
one function of NVML's header, by its name there; one that returns nothing returns NVML's 0.
"""
# ruff: noqa: N802, RET503

from __future__ import annotations

import ctypes
import importlib.util
import sys
import time
from functools import partial, wraps
from types import ModuleType
from typing import Any

from hami_nvidia.nvml.driver import DriverNvml
from hami_nvidia.nvml.interface import (
    GpuLost,
    InUse,
    NotSupported,
    NvmlAway,
    NvmlFailed,
    NvmlUnreadable,
    Recovery,
    Span,
)

from ..stand_in.nvml import SimulatedNvml

_NUMBERS = {
    "Not Found": 6,
    "Invalid Argument": 2,
    "In use": 19,
    "Insufficient Resources": 23,
    "Insufficient Permissions": 4,
}
_RECOVERY = {Recovery.NONE: 0, Recovery.RESET: 1, Recovery.REBOOT: 2, Recovery.DRAIN: 3}


def fresh_pynvml() -> ModuleType:
    """The real module, imported for one test: it keeps its library in a variable of the module."""
    name = f"pynvml_{time.monotonic_ns()}"
    source = importlib.util.find_spec("pynvml").origin
    spec = importlib.util.spec_from_file_location(name, source)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # it looks itself up there while it is imported
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[name]
    return module


def driver_over(nvml: SimulatedNvml) -> tuple[DriverNvml, FakeLibrary]:
    api = fresh_pynvml()
    library = FakeLibrary(nvml, api)
    api.nvmlLib = library
    return DriverNvml(api=api), library


def number_of(error: NvmlFailed) -> int:
    match error:
        case NvmlAway():
            return 9
        case GpuLost():
            return 15
        case NotSupported():
            return 3
    return next((number for text, number in _NUMBERS.items() if text in str(error)), 999)


def _returning(method: Any) -> Any:
    """A function of NVML's: 0, or the number of what went wrong."""

    @wraps(method)
    def called(self: FakeLibrary, *arguments: Any) -> int:
        name = method.__name__
        self.calls.append(name)
        if name in self.missing:
            raise AssertionError(f"{name} is not in this library")
        if name in self.failing:
            return self.failing[name]
        if not self.sessions and name not in ("nvmlInitWithFlags", "nvmlShutdown"):
            return 1
        try:
            return method(self, *arguments) or 0
        except NvmlFailed as error:
            return number_of(error)

    return called


class FakeLibrary:
    """``failing``: functions that fail, with NVML's number; ``missing``: an old library's gaps."""

    def __init__(self, nvml: SimulatedNvml, api: ModuleType) -> None:
        self._nvml, self._api = nvml, api
        self._things: list[tuple] = [()]
        self.failing: dict[str, int] = {}
        self.missing: set[str] = set()
        self.sessions = 0
        self.calls: list[str] = []
        self.samples: list[tuple[int, int, int]] = []
        self.grows = 0
        self.says_not_found = True
        self.listed: dict[str, list[tuple[int, int]]] = {}

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml"):
            if name in object.__getattribute__(self, "missing"):
                raise AttributeError(name)
            return partial(_returning(getattr(type(self), name)), self)
        return object.__getattribute__(self, name)

    # Handles.

    def _put(self, ref: Any, *thing: Any) -> None:
        if thing not in self._things:
            self._things.append(thing)
        pointer = getattr(ref, "_obj", ref)
        address = ctypes.cast(ctypes.pointer(pointer), ctypes.POINTER(ctypes.c_void_p))
        address.contents.value = self._things.index(thing)

    def _thing(self, handle: Any) -> tuple:
        return self._things[ctypes.cast(handle, ctypes.c_void_p).value]

    def _gpu(self, handle: Any) -> str:
        return self._thing(handle)[1]

    def _of(self, handle: Any) -> Any:
        uuid = self._gpu(handle)
        for gpu in self._nvml.gpus():
            if not isinstance(gpu, NvmlUnreadable) and gpu.uuid == uuid:
                return gpu
        raise GpuLost("lost")

    def _mig(self, handle: Any) -> Any:
        kind, gpu, uuid = self._thing(handle)
        if kind != "mig":
            raise NotSupported("no MIG device")
        return next(d for d in self._nvml.mig_devices(gpu) if d.uuid == uuid)

    # Sessions.

    def nvmlInitWithFlags(self, flags):
        self._nvml._state("init")
        self.sessions += 1

    def nvmlShutdown(self):
        self.sessions -= 1

    # GPUs.

    def nvmlDeviceGetCount_v2(self, count):
        count._obj.value = len(self._nvml.gpus())

    def nvmlDeviceGetHandleByIndex_v2(self, index, device):
        gpu = self._nvml.gpus()[index.value]
        if isinstance(gpu, NvmlUnreadable):
            raise GpuLost(gpu.problem)
        self._put(device, "gpu", gpu.uuid)

    def nvmlDeviceGetHandleByUUID(self, uuid, device):
        text = uuid.value.decode()
        for gpu in self._nvml.gpus():
            if isinstance(gpu, NvmlUnreadable):
                continue
            if gpu.uuid == text:
                return self._put(device, "gpu", text)
            if any(mig.uuid == text for mig in self._nvml.mig_devices(gpu.uuid)):
                return self._put(device, "mig", gpu.uuid, text)
        if text in self._nvml._gpus:
            raise GpuLost(text)
        raise NvmlFailed("Not Found")

    def nvmlDeviceGetUUID(self, handle, buffer, size):
        thing = self._thing(handle)
        buffer.value = thing[-1].encode()

    def nvmlDeviceGetName(self, handle, buffer, size):
        name = self._of(handle).name
        if self._thing(handle)[0] == "mig" and "old names" not in self.missing:
            name += f" MIG {self._mig(handle).profile}"
        buffer.value = name.encode()

    def nvmlDeviceGetMinorNumber(self, handle, minor):
        minor._obj.value = self._of(handle).minor

    def nvmlDeviceGetPciInfo_v3(self, handle, info):
        info._obj.busId = self._of(handle).pci_bus_id.encode()

    def nvmlDeviceGetMemoryInfo(self, handle, memory):
        if (total := self._of(handle).memory_bytes) is None:
            return 3
        memory._obj.total, memory._obj.used = total, total // 4

    def nvmlDeviceGetNumGpuCores(self, handle, cores):
        if (found := self._of(handle).cores) is None:
            return 3
        cores._obj.value = found

    def nvmlDeviceGetCudaComputeCapability(self, handle, major, minor):
        if (found := self._of(handle).capability) is None:
            return 3
        major._obj.value, minor._obj.value = found

    def nvmlDeviceGetFieldValues(self, handle, count, values):
        recovery = self._nvml.probe(self._gpu(handle))
        value = values._obj[0]
        value.nvmlReturn = 3 if recovery is Recovery.UNKNOWN else 0
        value.value.uiVal = _RECOVERY.get(recovery, 0)

    def nvmlDeviceGetComputeRunningProcesses_v3(self, handle, count, processes):
        return self._running(handle, count, processes)

    def _running(self, handle, count, processes):
        if "compute" in self.listed:
            return self._listed("compute", count, processes)
        if self._thing(handle)[-1] not in self._nvml.state.read().busy:
            count._obj.value = 0
            return 0
        if processes is None:
            count._obj.value = 1
            return 7
        processes[0].pid, processes[0].usedGpuMemory = 1, 0
        count._obj.value = 1

    def nvmlDeviceGetMPSComputeRunningProcesses_v3(self, handle, count, processes):
        return self._listed("mps", count, processes)

    def nvmlDeviceGetMPSComputeRunningProcesses_v2(self, handle, count, processes):
        return self._listed("mps", count, processes)

    def nvmlDeviceGetUtilizationRates(self, handle, rates):
        self._of(handle)
        rates._obj.gpu, rates._obj.memory = 70, 30

    def nvmlDeviceGetProcessUtilization(self, handle, samples, count, since):
        """``samples``: pid, microseconds, percent. The list grows by ``grows`` before it is read."""
        found = [one for one in self.samples if one[1] > since.value]
        if not found:
            count._obj.value = 0
            return 6 if self.says_not_found else 0
        if samples is None or count._obj.value < len(found) + self.grows:
            count._obj.value = len(found)
            if samples is not None:
                self.grows -= 1
            return 7
        count._obj.value = len(found)
        for place, (pid, at, percent) in enumerate(found):
            samples[place].pid, samples[place].timeStamp = pid, at
            samples[place].smUtil = percent

    def _listed(self, kind, count, processes):
        found = self.listed.get(kind, [])
        room, count._obj.value = count._obj.value, len(found)
        if found and (processes is None or room < len(found)):
            return 7
        for place, (pid, used) in enumerate(found):
            processes[place].pid, processes[place].usedGpuMemory = pid, used

    def nvmlDeviceGetComputeRunningProcesses_v2(self, handle, count, processes):
        return self._running(handle, count, processes)

    def nvmlDeviceGetGraphicsRunningProcesses_v2(self, handle, count, processes):
        return 13

    def nvmlDeviceGetGraphicsRunningProcesses_v3(self, handle, count, processes):
        return self._listed("graphics", count, processes) if "graphics" in self.listed else 3

    # MIG.

    def nvmlDeviceGetMigMode(self, handle, current, pending):
        if (
            self._thing(handle)[0] == "mig"
            or (mode := self._nvml.mig_mode(self._gpu(handle))) is None
        ):
            return 3
        current._obj.value, pending._obj.value = mode.enabled, mode.pending

    def nvmlDeviceSetMigMode(self, handle, mode, status):
        """What hinders the activation is said on the side."""
        try:
            self._nvml.set_mig(self._gpu(handle), enabled=bool(mode))
        except InUse as failed:
            status._obj.value = number_of(failed)
            return
        found = self._nvml.mig_mode(self._gpu(handle))
        status._obj.value = 0 if found.enabled == bool(mode) else 16

    def nvmlDeviceGetMaxMigDeviceCount(self, handle, count):
        count._obj.value = 0 if self._of(handle).mig is None else 7
        if self._thing(handle)[0] == "mig":
            return 2

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle, index, device):
        gpu, number = self._gpu(handle), index.value
        devices = self._nvml.mig_devices(gpu)
        if number >= len(devices):
            return 6
        self._put(device, "mig", gpu, devices[number].uuid)

    def nvmlDeviceGetGpuInstanceId(self, handle, id):
        id._obj.value = self._mig(handle).gpu_instance

    def nvmlDeviceGetComputeInstanceId(self, handle, id):
        id._obj.value = self._mig(handle).compute_instance

    def nvmlDeviceGetAttributes_v2(self, handle, attributes):
        mig = self._mig(handle)
        slices = int(mig.profile.partition("g")[0])
        attributes._obj.memorySizeMB = mig.memory_mib
        attributes._obj.gpuInstanceSliceCount = attributes._obj.computeInstanceSliceCount = slices

    def nvmlDeviceGetGpuInstanceProfileInfoV(self, handle, number, info):
        found = [p for p in self._nvml.instance_profiles(self._gpu(handle)) if p.number == number]
        if not found:
            return 3
        self._fill(info._obj, found[0])
        info._obj.name = f"MIG {found[0].name}".encode()

    def nvmlDeviceGetGpuInstanceProfileInfo(self, handle, number, info):
        found = [p for p in self._nvml.instance_profiles(self._gpu(handle)) if p.number == number]
        if not found:
            return 3
        self._fill(info._obj, found[0])

    def _fill(self, info, profile):
        info.id, info.sliceCount, info.instanceCount = profile.id, profile.slices, profile.count
        info.multiprocessorCount, info.memorySizeMB = profile.multiprocessors, profile.memory_mib

    def _profile(self, gpu, id):
        return next(p for p in self._nvml.instance_profiles(gpu) if p.id == id)

    def nvmlDeviceGetGpuInstancePossiblePlacements_v2(self, handle, id, placements, count):
        spans = self._profile(self._gpu(handle), id).spans
        count._obj.value = len(spans)
        for place, span in enumerate(spans if placements is not None else ()):
            placements[place].start, placements[place].size = span.start, span.size

    def nvmlDeviceGetGpuInstances(self, handle, id, room, count):
        gpu = self._gpu(handle)
        found = [i for i in self._nvml.instances(gpu) if i.profile_id == id]
        count._obj.value = len(found)
        for place, instance in enumerate(found):
            slot = self._api.c_nvmlGpuInstance_t()
            self._put(slot, "gi", gpu, instance.id)
            room[place] = slot

    def _instance(self, handle):
        _, gpu, id = self._thing(handle)
        for instance in self._nvml.instances(gpu):
            if instance.id == id:
                return gpu, instance
        raise NvmlFailed("Not Found")

    def nvmlGpuInstanceGetInfo(self, handle, info):
        _, instance = self._instance(handle)
        info._obj.id, info._obj.profileId = instance.id, instance.profile_id
        info._obj.placement.start, info._obj.placement.size = (
            instance.span.start,
            instance.span.size,
        )

    def nvmlDeviceGetGpuInstanceById(self, handle, id, instance):
        gpu = self._gpu(handle)
        self._put(instance, "gi", gpu, id)
        self._instance(instance._obj)

    def nvmlDeviceCreateGpuInstanceWithPlacement(self, handle, id, placement, instance):
        gpu = self._gpu(handle)
        span = Span(start=placement._obj.start, size=placement._obj.size)
        made = self._nvml.create_instance(gpu, self._profile(gpu, id), span)
        self._put(instance, "gi", gpu, made)

    def nvmlGpuInstanceDestroy(self, handle):
        gpu, instance = self._instance(handle)
        self._nvml.destroy_instance(gpu, instance.id)

    def nvmlGpuInstanceGetComputeInstanceProfileInfo(self, handle, number, engine, info):
        """Compute profiles have ids of their own, here 100 more than their slices."""
        gpu, instance = self._instance(handle)
        slices = {0: 1, 1: 2, 2: 3, 3: 4, 4: 7, 7: 1}.get(number)
        if slices is None or slices > self._profile(gpu, instance.profile_id).slices:
            return 3
        info._obj.id, info._obj.sliceCount = 100 + slices + 50 * (number == 7), slices
        info._obj.instanceCount = 7

    def nvmlGpuInstanceGetComputeInstances(self, handle, id, room, count):
        gpu, instance = self._instance(handle)
        whole = 100 + self._profile(gpu, instance.profile_id).slices
        ids = instance.compute_ids if id == whole else ()
        count._obj.value = len(ids)
        for place, compute in enumerate(ids):
            slot = self._api.c_nvmlComputeInstance_t()
            self._put(slot, "ci", gpu, instance.id, compute)
            room[place] = slot

    def nvmlGpuInstanceCreateComputeInstance(self, handle, id, compute):
        gpu, instance = self._instance(handle)
        if id != 100 + self._profile(gpu, instance.profile_id).slices:
            return 2
        made = self._nvml.create_compute(gpu, instance.id)
        self._put(compute, "ci", gpu, instance.id, made)

    def nvmlGpuInstanceGetComputeInstanceById(self, handle, id, compute):
        gpu, instance = self._instance(handle)
        if id not in instance.compute_ids:
            return 6
        self._put(compute, "ci", gpu, instance.id, id)

    def nvmlComputeInstanceGetInfo_v2(self, handle, info):
        info._obj.id = self._thing(handle)[-1]

    def nvmlComputeInstanceDestroy(self, handle):
        _, gpu, instance, compute = self._thing(handle)
        self._nvml.destroy_compute(gpu, instance, compute)

    # Links.

    def nvmlDeviceGetTopologyCommonAncestor(self, one, other, level):
        level._obj.value = self._nvml.ancestor(self._gpu(one), self._gpu(other))

    def _link(self, handle, number):
        links = self._nvml.links(self._gpu(handle))
        if number >= 18:
            raise NvmlFailed("Invalid Argument")
        return links[number] if number < len(links) else None

    def nvmlDeviceGetNvLinkState(self, handle, number, active):
        active._obj.value = self._link(handle, number) is not None

    def nvmlDeviceGetNvLinkRemotePciInfo_v2(self, handle, number, info):
        info._obj.busId = self._link(handle, number).remote_bus_id.encode()

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle, number, kind):
        kind._obj.value = 2 if self._link(handle, number).switch else 0

    # Events.

    def nvmlEventSetCreate(self, events):
        self._put(events, "events", time.monotonic_ns())
        self._watched, self._watch = [], self._nvml.watch([])

    def nvmlDeviceGetSupportedEventTypes(self, handle, types):
        types._obj.value = 0x8 | 0x100

    def nvmlDeviceRegisterEvents(self, handle, types, events):
        assert types.value == 0x8
        self._watched.append(self._gpu(handle))
        self._watch = self._nvml.watch(self._watched)

    def nvmlEventSetWait_v2(self, events, data, milliseconds):
        event = self._watch.wait(milliseconds.value / 1000)
        if event is None:
            return 10
        found = data._obj
        if event.uuid is not None:
            self._put(found.device, "gpu", event.uuid)
            pointer = self._api.c_nvmlDevice_t()
            self._put(pointer, "gpu", event.uuid)
            found.device = pointer
        found.eventType, found.eventData = 0x8, event.xid
        none = 0xFFFFFFFF
        found.gpuInstanceId = none if event.gpu_instance is None else event.gpu_instance
        found.computeInstanceId = none if event.compute_instance is None else event.compute_instance

    def nvmlEventSetFree(self, events):
        pass

    def nvmlErrorString(self, number):
        return f"error {number}".encode()
