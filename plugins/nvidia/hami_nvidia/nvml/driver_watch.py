"""Critical errors as the driver tells them: an event set of NVML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Lock
from typing import Any

from hami.domain.units import DeviceId
from hami_nvidia.nvml.driver_session import Session, text_of
from hami_nvidia.nvml.interface import NotSupported, NvmlAway, NvmlFailed, XidEvent

_NO_INSTANCE = 0xFFFF_FFFF


class DriverWatch:
    """See :class:`hami_nvidia.nvml.interface.Watch`. No set is freed while somebody waits."""

    def __init__(self, session: Session, gpus: Sequence[DeviceId]) -> None:
        self._session = session
        self._refused: dict[DeviceId, str] = {}
        self._lock = Lock()
        with session.asking("create an event set") as api:
            self._events: Any = api.nvmlEventSetCreate()
            self._generation = session.generation
        try:
            for gpu in gpus:
                self._register(gpu)
        except NvmlAway:
            self.close()
            raise

    @property
    def refused(self) -> Mapping[DeviceId, str]:
        return self._refused

    def wait(self, seconds: float) -> XidEvent | None:
        with self._lock, self._session.asking("wait for errors") as api:
            self._check_session()
            try:
                data = api.nvmlEventSetWait_v2(self._events, round(seconds * 1000))
            except api.NVMLError as error:
                if error.value == api.NVML_ERROR_TIMEOUT:
                    return None
                raise
            if data.eventType != api.nvmlEventTypeXidCriticalError:
                return None
            return XidEvent(
                xid=int(data.eventData),
                uuid=self._whose(api, data.device),
                gpu_instance=_instance(data.gpuInstanceId),
                compute_instance=_instance(data.computeInstanceId),
            )

    def close(self) -> None:
        """NVML itself frees the sets of a session that has ended."""
        with self._lock, suppress(NvmlFailed), self._session.asking("free an event set") as api:
            self._check_session()
            self._generation = 0
            api.nvmlEventSetFree(self._events)

    def _check_session(self) -> None:
        if self._generation != self._session.generation:
            raise NvmlFailed("NVML: wait for errors: the session of this watch has ended")

    def _register(self, gpu: DeviceId) -> None:
        """A GPU that knows no such events (an old or virtual one) is not watched, and not ill."""
        try:
            with self._session.asking(f"{gpu}: watch its errors") as api:
                self._check_session()
                handle = api.nvmlDeviceGetHandleByUUID(gpu)
                wanted = (
                    api.nvmlEventTypeXidCriticalError
                    | api.nvmlEventTypeDoubleBitEccError
                    | api.nvmlEventTypeSingleBitEccError
                )
                known = wanted & api.nvmlDeviceGetSupportedEventTypes(handle)
                if known:
                    api.nvmlDeviceRegisterEvents(handle, known, self._events)
        except NvmlAway:
            raise
        except NotSupported:
            return
        except NvmlFailed as failed:
            self._refused[gpu] = str(failed)

    def _whose(self, api: Any, handle: Any) -> DeviceId | None:
        """None where the GPU is so lost that it does not know its UUID: then it may be any."""
        try:
            uuid = api.nvmlDeviceGetUUID(handle)
        except api.NVMLError:
            return None
        return DeviceId(text_of(uuid))


def _instance(id: int) -> int | None:
    return None if id == _NO_INSTANCE else int(id)
