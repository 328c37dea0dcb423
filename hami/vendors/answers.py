"""What is wrong with a plugin's answer that is of the right class: numbers, signs, whose it is.

The tables and sums of the core trust these values, so they are checked once, at the boundary.
"""

from __future__ import annotations

from hami.domain.devices import Device, Grant
from hami.domain.requests import DeviceRequest
from hami.domain.units import DeviceId, VendorKey

_MOST = 2**31 - 1
"""HAMi's annotations hold 32-bit numbers."""


def grant_problem(grant: Grant, vendor: VendorKey, device: DeviceId | None = None) -> str:
    """Why this is no grant of this vendor, on this device if one is given; empty when it is one."""
    if grant.vendor != vendor:
        return f"granted a device of vendor {grant.vendor!r}"
    if device is not None and grant.device_id != device:
        return f"granted {grant.device_id!r} when asked about {device!r}"
    if not _counts(grant.slots, grant.memory_mib, grant.cores) or grant.slots < 1:
        return f"granted {grant.slots} slots, {grant.memory_mib} MiB, {grant.cores} percent"
    return ""


def device_problem(device: Device, vendor: VendorKey) -> str:
    """Why this is no device of this vendor; empty when it is one."""
    if device.vendor != vendor:
        return f"published a device of vendor {device.vendor!r}"
    texts: tuple[object, ...] = (device.id, device.model, device.mode)
    if not device.id or not all(isinstance(text, str) for text in texts):
        return f"published a device with id, model and mode {texts}"
    numbers = (device.index, device.slots, device.memory_mib, device.cores)
    if not _counts(*numbers) or type(device.numa) is not int:
        return f"published device {device.id!r} with numbers {numbers}, numa {device.numa!r}"
    return ""


def request_problem(request: DeviceRequest, vendor: VendorKey) -> str:
    """Why this is no request to this vendor; empty when it is one."""
    if request.vendor != vendor:
        return f"read a request to vendor {request.vendor!r}"
    memory, percent = request.memory_mib, request.memory_percent
    if not _counts(request.count, request.cores, memory or 0, percent or 0):
        return f"read numbers that are none: {request}"
    if request.count < 1:
        return f"read a request for {request.count} slices; None means that nothing is asked"
    if (memory is None) is (percent is None):
        return f"read memory_mib={memory} and memory_percent={percent}; set exactly one"
    return ""


def _counts(*numbers: object) -> bool:
    return all(type(n) is int and 0 <= n <= _MOST for n in numbers)
