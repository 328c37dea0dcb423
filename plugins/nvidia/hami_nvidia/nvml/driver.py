"""NVML as the driver answers it: each request of ``Nvml`` with its handles and structures.

The functions are described in https://docs.nvidia.com/deploy/nvml-api/.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hami.domain.units import DeviceId
from hami_nvidia.nvml import driver_mig, driver_usage
from hami_nvidia.nvml.driver_session import Session, text_of
from hami_nvidia.nvml.driver_watch import DriverWatch
from hami_nvidia.nvml.interface import (
    Ancestor,
    BusyRates,
    Capability,
    Gpu,
    GpuInstance,
    InstanceProfile,
    MemoryInUse,
    MigDevice,
    MigMode,
    NotSupported,
    NvLink,
    NvmlAway,
    NvmlFailed,
    NvmlUnreadable,
    Recovery,
    RunningProcess,
    Span,
    UtilisationSample,
    Watch,
)

_RECOVERY = MappingProxyType(
    {
        "NONE": Recovery.NONE,
        "GPU_RESET": Recovery.RESET,
        "DRAIN_AND_RESET": Recovery.RESET,
        "BUS_RESET": Recovery.RESET,
        "NODE_REBOOT": Recovery.REBOOT,
        "SYSTEM_REBOOT": Recovery.REBOOT,
        "DRAIN_P2P": Recovery.DRAIN,
        "RECOVER_IMEX_DOMAIN": Recovery.DRAIN,
    }
)
"""``NVML_GPU_RECOVERY_ACTION_...``, of drivers since 565."""


class DriverNvml:
    """See :class:`hami_nvidia.nvml.interface.Nvml`; ``api`` is the module ``pynvml``, or a test's.

    Making one asks nothing of the driver; the first request does.
    """

    def __init__(self, driver_root: Path = Path("/"), api: Any = None) -> None:
        self._session = Session(driver_root, api)

    def gpus(self) -> Sequence[Gpu | NvmlUnreadable]:
        with self._session.asking("count the GPUs") as api:
            count = api.nvmlDeviceGetCount()
        return [self._gpu(index) for index in range(count)]

    def probe(self, gpu: DeviceId) -> Recovery:
        with self._on(gpu, "read its memory") as (api, handle):
            _unless_unsupported(api, api.nvmlDeviceGetMemoryInfo, handle)
        try:
            with self._on(gpu, "ask whether it needs a reset") as (api, handle):
                field = api.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
                answer = api.nvmlDeviceGetFieldValues(handle, [field])[0]
        except NotSupported:
            return Recovery.UNKNOWN
        if answer.nvmlReturn != api.NVML_SUCCESS:
            return Recovery.UNKNOWN
        by_number = {
            getattr(api, f"NVML_GPU_RECOVERY_ACTION_{name}", None): recovery
            for name, recovery in _RECOVERY.items()
        }
        return by_number.get(int(answer.value.uiVal), Recovery.UNKNOWN)

    def busy(self, device: DeviceId) -> bool:
        with self._on(device, "list its processes") as (api, handle):
            handles = [handle, *driver_mig.mig_handles(api, handle)]
            return any(
                driver_usage.processes(api, "Compute", each)
                or driver_usage.processes(api, "Graphics", each)
                for each in handles
            )

    def memory(self, device: DeviceId) -> MemoryInUse | None:
        with self._on(device, "read its memory") as (api, handle):
            return driver_usage.memory(api, handle)

    def busy_rates(self, gpu: DeviceId) -> BusyRates | None:
        with self._on(gpu, "read its utilisation") as (api, handle):
            return driver_usage.busy_rates(api, handle)

    def running(self, gpu: DeviceId) -> Sequence[RunningProcess]:
        with self._on(gpu, "list its processes") as (api, handle):
            return driver_usage.running(api, handle)

    def utilisation(self, gpu: DeviceId, since_us: int) -> Sequence[UtilisationSample] | None:
        with self._on(gpu, "read its processes' utilisation") as (api, handle):
            return driver_usage.utilisation(api, handle, since_us)

    def mig_mode(self, gpu: DeviceId) -> MigMode | None:
        with self._on(gpu, "read its MIG mode") as (api, handle):
            return _mig_mode(api, handle)

    def set_mig(self, gpu: DeviceId, *, enabled: bool) -> None:
        with self._on(gpu, "set its MIG mode") as (api, handle):
            wanted = api.NVML_DEVICE_MIG_ENABLE if enabled else api.NVML_DEVICE_MIG_DISABLE
            status = api.nvmlDeviceSetMigMode(handle, wanted)
            if status not in (api.NVML_SUCCESS, api.NVML_ERROR_RESET_REQUIRED):
                raise api.NVMLError(status)

    def instance_profiles(self, gpu: DeviceId) -> Sequence[InstanceProfile]:
        with self._on(gpu, "list its MIG profiles") as (api, handle):
            memory = _memory_bytes(api, handle)
            return driver_mig.instance_profiles(api, handle, memory)

    def instances(self, gpu: DeviceId) -> Sequence[GpuInstance]:
        with self._on(gpu, "list its MIG instances") as (api, handle):
            return driver_mig.instances(api, handle)

    def create_instance(self, gpu: DeviceId, profile: InstanceProfile, span: Span) -> int:
        what = f"create a MIG instance {profile.name} at {span.start}"
        with self._on(gpu, what) as (api, handle):
            return driver_mig.create_instance(api, handle, profile, span)

    def create_compute(self, gpu: DeviceId, instance: int) -> int:
        with self._on(gpu, f"create the compute instance of {instance}") as (api, handle):
            return driver_mig.create_compute(api, handle, instance)

    def destroy_compute(self, gpu: DeviceId, instance: int, compute: int) -> None:
        with self._on(gpu, f"destroy compute instance {compute} of {instance}") as (api, handle):
            whole = api.nvmlDeviceGetGpuInstanceById(handle, instance)
            part = api.nvmlGpuInstanceGetComputeInstanceById(whole, compute)
            api.nvmlComputeInstanceDestroy(part)

    def destroy_instance(self, gpu: DeviceId, instance: int) -> None:
        with self._on(gpu, f"destroy MIG instance {instance}") as (api, handle):
            api.nvmlGpuInstanceDestroy(api.nvmlDeviceGetGpuInstanceById(handle, instance))

    def mig_devices(self, gpu: DeviceId) -> Sequence[MigDevice]:
        with self._on(gpu, "list its MIG devices") as (api, handle):
            return driver_mig.mig_devices(api, handle, _memory_bytes(api, handle))

    def ancestor(self, one: DeviceId, other: DeviceId) -> Ancestor:
        with self._on(one, f"find what it shares with {other}") as (api, handle):
            second = api.nvmlDeviceGetHandleByUUID(other)
            level = api.nvmlDeviceGetTopologyCommonAncestor(handle, second)
        try:
            return Ancestor(level)
        except ValueError as error:
            raise NvmlFailed(
                f"NVML: {one} and {other} share level {level} of PCIe, which is not known"
            ) from error

    def links(self, gpu: DeviceId) -> Sequence[NvLink]:
        with self._on(gpu, "list its NVLinks") as (api, handle):
            found = (_link(api, handle, n) for n in range(api.NVML_NVLINK_MAX_LINKS))
            return [link for link in found if link is not None]

    def watch(self, gpus: Sequence[DeviceId]) -> Watch:
        return DriverWatch(self._session, gpus)

    def close(self) -> None:
        self._session.end()

    @contextmanager
    def _on(self, device: DeviceId, what: str) -> Iterator[tuple[Any, Any]]:
        with self._session.asking(f"{device}: {what}") as api:
            yield api, api.nvmlDeviceGetHandleByUUID(device)

    def _gpu(self, index: int) -> Gpu | NvmlUnreadable:
        try:
            with self._session.asking(f"GPU {index}: read its properties") as api:
                handle = api.nvmlDeviceGetHandleByIndex(index)
                return Gpu(
                    uuid=DeviceId(text_of(api.nvmlDeviceGetUUID(handle))),
                    index=index,
                    minor=api.nvmlDeviceGetMinorNumber(handle),
                    name=text_of(api.nvmlDeviceGetName(handle)),
                    pci_bus_id=text_of(api.nvmlDeviceGetPciInfo(handle).busId),
                    memory_bytes=_memory_bytes(api, handle),
                    mig=_mig_mode(api, handle),
                    cores=_if_told(api, api.nvmlDeviceGetNumGpuCores, handle),
                    capability=_capability(api, handle),
                )
        except NvmlAway:
            raise
        except NvmlFailed as failed:
            return NvmlUnreadable(index=index, problem=str(failed))


def _memory_bytes(api: Any, handle: Any) -> int | None:
    memory = _unless_unsupported(api, api.nvmlDeviceGetMemoryInfo, handle)
    return None if memory is None else int(memory.total)


def _capability(api: Any, handle: Any) -> Capability | None:
    found = _if_told(api, api.nvmlDeviceGetCudaComputeCapability, handle)
    return None if found is None else Capability(*found)


def _mig_mode(api: Any, handle: Any) -> MigMode | None:
    modes = _unless_unsupported(api, api.nvmlDeviceGetMigMode, handle)
    if modes is None:
        return None
    current, pending = modes
    return MigMode(
        enabled=current == api.NVML_DEVICE_MIG_ENABLE, pending=pending == api.NVML_DEVICE_MIG_ENABLE
    )


def _link(api: Any, handle: Any, number: int) -> NvLink | None:
    """None: the GPU has no such link, or it is down, or what it leads to is unknown."""
    no_link = {api.NVML_ERROR_NOT_SUPPORTED, api.NVML_ERROR_INVALID_ARGUMENT}
    try:
        if not api.nvmlDeviceGetNvLinkState(handle, number):
            return None
        remote = text_of(api.nvmlDeviceGetNvLinkRemotePciInfo(handle, number).busId)
    except api.NVMLError as error:
        if error.value in no_link:
            return None
        raise
    kind = None
    with suppress(api.NVMLError):  # an older driver; a link to an unknown thing counts as direct
        kind = api.nvmlDeviceGetNvLinkRemoteDeviceType(handle, number)
    return NvLink(remote_bus_id=remote, switch=kind == api.NVML_NVLINK_DEVICE_TYPE_SWITCH)


def _unless_unsupported(api: Any, ask: Any, handle: Any) -> Any:
    """The answer, or None where the GPU or the driver has none."""
    try:
        return ask(handle)
    except api.NVMLError as error:
        if error.value in (api.NVML_ERROR_NOT_SUPPORTED, api.NVML_ERROR_FUNCTION_NOT_FOUND):
            return None
        raise


def _if_told(api: Any, ask: Any, handle: Any) -> Any:
    """The answer, or None whatever the driver has against it: of facts that can be done without.

    A driver or GPU that is gone says so when it is asked for anything else.
    """
    try:
        return ask(handle)
    except api.NVMLError:
        return None
