"""What a vendor measures on its node: memory in bytes, utilisation in percent of a whole device.

``None`` stands for what nobody can say of this device; 0 is a figure.
"""

from __future__ import annotations

import msgspec

from hami.domain.units import DeviceId


class MeasuredDevice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A device, whoever uses it.

    ``utilisation``: in how much of the time anything computed; ``memory_utilisation``: in how much
    of it the memory controller was busy.
    """

    id: DeviceId
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    utilisation: float | None = None
    memory_utilisation: float | None = None


class MeasuredProcess(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A process that has a device open; ``pid`` as the node itself numbers it."""

    device_id: DeviceId
    pid: int
    memory_bytes: int | None = None
    utilisation: float | None = None


class MeasuredSlice(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A slice that the hardware itself counts, as it does a MIG instance or a virtual device."""

    device_id: DeviceId
    slice_id: str
    memory_bytes: int | None = None
    utilisation: float | None = None


class Measurement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One answer. ``seconds`` is the time that utilisation is a mean over; 0: not known."""

    devices: tuple[MeasuredDevice, ...] = ()
    processes: tuple[MeasuredProcess, ...] = ()
    slices: tuple[MeasuredSlice, ...] = ()
    seconds: float = 0.0
