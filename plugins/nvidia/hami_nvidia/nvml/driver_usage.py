"""What uses a device, in NVML's own terms: memory, utilisation, processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hami_nvidia.nvml.interface import BusyRates, MemoryInUse, RunningProcess, UtilisationSample

_TRIES = 4
"""For lists that grow between the question how long they are and the question for them."""


def memory(api: Any, handle: Any) -> MemoryInUse | None:
    try:
        found = api.nvmlDeviceGetMemoryInfo(handle)
    except api.NVMLError as error:
        if error.value in _untold(api):
            return None
        raise
    return MemoryInUse(used=int(found.used), total=int(found.total))


def busy_rates(api: Any, handle: Any) -> BusyRates | None:
    try:
        found = api.nvmlDeviceGetUtilizationRates(handle)
    except api.NVMLError as error:
        if error.value in _untold(api):
            return None
        raise
    return BusyRates(compute=int(found.gpu), memory=int(found.memory))


def running(api: Any, handle: Any) -> Sequence[RunningProcess]:
    """A process that draws and computes is in two lists, with the same memory in each.

    In MIG mode it is there once for each MIG device that it uses.
    """
    found: dict[int, int | None] = {}
    for kind in ("Compute", "Graphics", "MPSCompute"):
        of_kind: dict[int, int | None] = {}
        for process in processes(api, kind, handle):
            before, now = of_kind.get(process.pid), process.usedGpuMemory
            of_kind[process.pid] = now if before is None else before + (now or 0)
        found |= {
            pid: used for pid, used in of_kind.items() if found.get(pid) is None or used is not None
        }
    return [RunningProcess(pid=pid, memory_bytes=used) for pid, used in found.items()]


def utilisation(api: Any, handle: Any, since_us: int) -> Sequence[UtilisationSample] | None:
    """A driver that has no sample after that time says so by an error, one with none by either."""
    nothing = (api.NVML_SUCCESS, api.NVML_ERROR_NOT_FOUND)
    for _ in range(_TRIES):
        try:
            samples = api.nvmlDeviceGetProcessUtilization(handle, since_us)
        except api.NVMLError as error:
            if error.value in nothing:
                return ()
            if error.value in _untold(api):
                return None
            if error.value != api.NVML_ERROR_INSUFFICIENT_SIZE:
                raise
        else:
            # Drivers fill what they counted and do not have with samples of no process.
            return [
                UtilisationSample(pid=each.pid, at_us=each.timeStamp, percent=min(100, each.smUtil))
                for each in samples
                if each.pid and each.timeStamp > since_us
            ]
    return ()


def processes(api: Any, kind: str, handle: Any) -> Any:
    """Those of a kind; ``NVMLError`` if nobody knows, but not of a kind that need not be known.

    The functions without a version answer an older driver with an error of the module's own.
    """
    newest, former = (
        getattr(api, f"nvmlDeviceGet{kind}RunningProcesses_v{version}") for version in (3, 2)
    )
    try:
        return _grown(api, newest, handle)
    except api.NVMLError as error:
        if error.value != api.NVML_ERROR_FUNCTION_NOT_FOUND:
            return _none_known(api, kind, error)
    try:
        return _grown(api, former, handle)
    except api.NVMLError as error:
        return _none_known(api, kind, error)


def _none_known(api: Any, kind: str, error: Any) -> list[Any]:
    """A GPU need not know of graphics, and a driver need not know of MPS."""
    if kind == "MPSCompute" and error.value in _untold(api):
        return []
    if kind == "Graphics" and error.value == api.NVML_ERROR_NOT_SUPPORTED:
        return []
    raise error


def _grown(api: Any, ask: Any, handle: Any) -> Any:
    """The list, although it has grown since its length was asked for."""
    for _ in range(_TRIES):
        try:
            return ask(handle)
        except api.NVMLError as error:
            if error.value != api.NVML_ERROR_INSUFFICIENT_SIZE:
                raise
    return ask(handle)


def _untold(api: Any) -> tuple[int, ...]:
    return (api.NVML_ERROR_NOT_SUPPORTED, api.NVML_ERROR_FUNCTION_NOT_FOUND)
