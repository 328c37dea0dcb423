"""Calls of NVML and CUDA to be run in another process (``DriverProcess.run``)."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from typing import Any

import pynvml


def code(name: str, *args: Any) -> int:
    """The return code of a function of libnvidia-ml.so.1, called as C would."""
    return int(getattr(_nvml(), name)(*args))


def codes(*calls: tuple[Any, ...]) -> list[int]:
    return [code(*call) for call in calls]


def exported(names: Sequence[str]) -> list[str]:
    """The names that the library does not export."""
    return [name for name in names if not hasattr(_nvml(), name)]


def error_texts(numbers: Sequence[int]) -> list[str]:
    ask = _nvml().nvmlErrorString
    ask.restype = ctypes.c_char_p
    return [ask(number).decode() for number in numbers]


def initialise() -> None:
    pynvml.nvmlInit()


def shut_down() -> None:
    pynvml.nvmlShutdown()


def ask(name: str, device: str, *args: Any) -> Any:
    """Call a function of pynvml on the device with this UUID; an error is its number.

    Structures come as dictionaries, texts as str.
    """
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(device)
        return _plain(getattr(pynvml, name)(handle, *args))
    except pynvml.NVMLError as error:
        return int(error.value)


def told(name: str, *args: Any) -> Any:
    """Call a function of pynvml that needs no device; a device that it finds is its UUID."""
    try:
        found = getattr(pynvml, name)(*args)
    except pynvml.NVMLError as error:
        return int(error.value)
    if isinstance(found, ctypes._Pointer):
        return pynvml.nvmlDeviceGetUUID(found)
    return found


def of_pair(name: str, one: str, other: str, *args: Any) -> Any:
    try:
        handles = [pynvml.nvmlDeviceGetHandleByUUID(device) for device in (one, other)]
        return getattr(pynvml, name)(*handles, *args)
    except pynvml.NVMLError as error:
        return int(error.value)


def overrun(name: str, device: str, size: int, *args: int) -> int:
    """How many bytes behind a structure of ``size`` bytes a function wrote to."""
    room = (ctypes.c_ubyte * (size + 256))(*([0xA5] * (size + 256)))
    handle = pynvml.nvmlDeviceGetHandleByUUID(device)
    assert code(name, handle, *args, ctypes.byref(room)) == 0
    return sum(byte != 0xA5 for byte in room[size:])


def running_v1(name: str, device: str, room: int) -> Any:
    """(pids, bytes) of a list in the first structure; (code, count) where the list does not fit."""
    infos = (_ProcessInfoV1 * max(room, 1))()
    count = ctypes.c_uint(room)
    handle = pynvml.nvmlDeviceGetHandleByUUID(device)
    result = code(name, handle, ctypes.byref(count), infos)
    if result:
        return result, count.value
    return [(info.pid, info.used) for info in infos[: count.value]]


class _ProcessInfoV1(ctypes.Structure):
    _fields_ = (("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong))


def forked(device: str) -> int:
    """The answer about a device's memory in a forked child of an initialised process."""
    child = os.fork()
    if child == 0:
        asked = ask("nvmlDeviceGetMemoryInfo", device)
        os._exit(0 if isinstance(asked, dict) else asked)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# Compute instances that are a part of their GPU instance, which the plugin never makes.


def parts(device: str, instance: int, profiles: Sequence[int]) -> list[int]:
    """Make one instance of each profile (NVML's number) in a GPU instance: ids, or NVML's errors."""
    handle = pynvml.nvmlDeviceGetHandleByUUID(device)
    whole = pynvml.nvmlDeviceGetGpuInstanceById(handle, instance)
    made = []
    for profile in profiles:
        try:
            part = pynvml.nvmlGpuInstanceCreateComputeInstance(whole, profile)
            made.append(int(pynvml.nvmlComputeInstanceGetInfo(part).id))
        except pynvml.NVMLError as error:
            made.append(-int(error.value))
    return made


def left(device: str, profile: int) -> int:
    handle = pynvml.nvmlDeviceGetHandleByUUID(device)
    return int(pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity(handle, profile))


# Events.


def freed_while_waited_for(device: str) -> list[int]:
    """The answers of a waiter whose event set another thread frees, and of a later waiter."""
    handle = pynvml.nvmlDeviceGetHandleByUUID(device)
    events = pynvml.nvmlEventSetCreate()
    pynvml.nvmlDeviceRegisterEvents(handle, pynvml.nvmlEventTypeXidCriticalError, events)
    found: list[int] = []

    def wait() -> None:
        try:
            pynvml.nvmlEventSetWait_v2(events, 20_000)
            found.append(0)
        except pynvml.NVMLError as error:
            found.append(int(error.value))

    waiter = threading.Thread(target=wait)
    waiter.start()
    pynvml.nvmlEventSetFree(events)
    waiter.join()
    wait()
    return found


class Events:
    """An event set of this process, kept between calls."""

    made: Any = None


def watch_events(types: int, *devices: str) -> list[int]:
    """Register for events; the answer for each device."""
    Events.made = pynvml.nvmlEventSetCreate()
    results = []
    for device in devices:
        try:
            handle = pynvml.nvmlDeviceGetHandleByUUID(device)
            pynvml.nvmlDeviceRegisterEvents(handle, types, Events.made)
            results.append(0)
        except pynvml.NVMLError as error:
            results.append(int(error.value))
    return results


def next_event(milliseconds: int, version: int = 2) -> Any:
    """(type, data, GPU instance, compute instance, UUID), or NVML's error."""
    data = pynvml.c_nvmlEventData_t()
    data.gpuInstanceId = data.computeInstanceId = 77
    name = "nvmlEventSetWait_v2" if version == 2 else "nvmlEventSetWait"
    result = code(name, Events.made, ctypes.byref(data), milliseconds)
    if result:
        return result
    uuid = pynvml.nvmlDeviceGetUUID(data.device)
    return data.eventType, data.eventData, data.gpuInstanceId, data.computeInstanceId, uuid


# CUDA.


class Cuda:
    """A context and its memory, kept between calls."""

    driver: Any = None


def cuda(name: str, *args: Any) -> int:
    Cuda.driver = Cuda.driver or ctypes.CDLL("libcuda.so.1")
    return int(getattr(Cuda.driver, name)(*args))


def use_memory(mebibytes: int) -> int:
    """Make a context on this process's first device and allocate memory; the process's id."""
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    assert cuda("cuInit", 0) == 0
    assert cuda("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0) == 0
    assert cuda("cuCtxSetCurrent", context) == 0
    assert cuda("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(mebibytes << 20)) == 0
    return os.getpid()


def cuda_devices() -> list[tuple[str, str, int]]:
    """(UUID, name, bytes) of the devices that CUDA shows."""
    count = ctypes.c_int()
    if cuda("cuInit", 0) or cuda("cuDeviceGetCount", ctypes.byref(count)):
        return []
    found = []
    for ordinal in range(count.value):
        raw, name, size = (
            (ctypes.c_ubyte * 16)(),
            ctypes.create_string_buffer(128),
            ctypes.c_size_t(),
        )
        assert cuda("cuDeviceGetUuid_v2", ctypes.byref(raw), ordinal) == 0
        assert cuda("cuDeviceGetName", name, 128, ordinal) == 0
        assert cuda("cuDeviceTotalMem_v2", ctypes.byref(size), ordinal) == 0
        found.append((bytes(raw).hex(), name.value.decode(), size.value))
    return found


def _nvml() -> Any:
    if pynvml.nvmlLib is None:
        return ctypes.CDLL("libnvidia-ml.so.1")
    return pynvml.nvmlLib


def _plain(found: Any) -> Any:
    if isinstance(found, bytes):
        return found.decode()
    if isinstance(found, ctypes._Pointer):
        return pynvml.nvmlDeviceGetUUID(found)
    if isinstance(found, ctypes.c_uint):
        return found.value
    if isinstance(found, ctypes.Array) or type(found) is list:
        return [_plain(each) for each in found]
    if isinstance(found, ctypes.Structure):
        return {name: _plain(getattr(found, name)) for name, *_ in found._fields_}
    if hasattr(found, "__dict__"):
        return dict(vars(found))
    return found
