"""What is wrong with a plugin's answer that is of the right type: numbers, signs, whose it is.

The tables and sums of the core trust these values, so they are checked once, where they come in.
Every check is offered ``answer``, ``profile`` and the hook's arguments, takes by name those that it
needs, and returns what is wrong, or an empty text. Its docstring says what is right.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from hami.domain.allocations import Corrupt, PodAllocation
from hami.domain.devices import Device, DeviceState, Grant
from hami.domain.errors import Malformed
from hami.domain.measurements import MeasuredProcess, MeasuredSlice, Measurement
from hami.domain.profile import VendorProfile
from hami.domain.reasons import Reason, Rejected
from hami.domain.requests import DeviceRequest, Invalid, Placement
from hami.domain.slices import Slice
from hami.domain.units import VendorKey

_MOST = 2**31 - 1
"""HAMi's annotations hold 32-bit numbers."""
_MOST_BYTES = 2**63 - 1


def wrong_devices(answer: Sequence[Device] | Malformed, profile: VendorProfile) -> str:
    """Every device is this vendor's, has an id, and numbers that the tables can hold."""
    if isinstance(answer, Malformed):
        return ""
    for device in answer:
        if problem := _device_problem(device, profile.key):
            return problem
    return ""


def wrong_request(answer: DeviceRequest | Invalid | None, profile: VendorProfile) -> str:
    """A request is to this vendor, for at least one slice, with memory in one unit."""
    if not isinstance(answer, DeviceRequest):
        return ""
    if answer.vendor != profile.key:
        return f"read a request to vendor {answer.vendor!r}"
    memory, percent = answer.memory_mib, answer.memory_percent
    if not _counts(answer.count, answer.cores, memory or 0, percent or 0):
        return f"read numbers that are none: {answer}"
    if answer.count < 1:
        return f"read a request for {answer.count} slices; None means that nothing is asked"
    if (memory is None) is (percent is None):
        return f"read memory_mib={memory} and memory_percent={percent}; set exactly one"
    return ""


def wrong_charge(answer: Grant | Reason, profile: VendorProfile, state: DeviceState) -> str:
    """A grant is of the device that was asked about, and its amounts can be counted."""
    if isinstance(answer, Reason):
        return ""
    if answer.vendor == profile.key and answer.device_id != state.device.id:
        return f"granted {answer.device_id!r} when asked about {state.device.id!r}"
    return _grant_problem(answer, profile.key)


def wrong_placement(answer: Placement | Rejected, profile: VendorProfile) -> str:
    """Every grant is of this vendor, and its amounts can be counted."""
    if isinstance(answer, Rejected):
        return ""
    for grant in answer.grants:
        if problem := _grant_problem(grant, profile.key):
            return problem
    return ""


def wrong_score(answer: float) -> str:
    """A score is finite: any other number cannot rank a node."""
    # No comparison holds for NaN.
    finite = abs(answer) <= sys.float_info.max
    return "" if finite else f"returned {answer}, which is not finite"


def wrong_allocation(
    answer: PodAllocation | Corrupt, profile: VendorProfile, allocation: PodAllocation
) -> str:
    """Only grants of this vendor differ, and none of them takes less than before."""
    if answer is allocation or isinstance(answer, Corrupt):
        return ""
    if _completes(allocation, answer, profile.key):
        return ""
    return "returned other grants than its own changed, or a lower charge"


def wrong_measurement(
    answer: Measurement, devices: Sequence[Device], slices: Sequence[Slice]
) -> str:
    """It is of devices and slices that were asked about, in bytes and percent."""
    known, live = {device.id for device in devices}, {slice.id for slice in slices}
    if not 0 <= answer.seconds <= sys.float_info.max:
        return f"measured over {answer.seconds} seconds"
    for found in answer.devices:
        if found.id not in known:
            return f"measured device {found.id!r}, which was not discovered"
        if not _are_figures(
            (found.memory_used_bytes, found.memory_total_bytes),
            (found.utilisation, found.memory_utilisation),
        ):
            return f"measured figures that are none: {found}"
    parts: Sequence[MeasuredProcess | MeasuredSlice] = (*answer.processes, *answer.slices)
    for part in parts:
        if part.device_id not in known:
            return f"measured something on device {part.device_id!r}, which was not discovered"
        if not _are_figures((part.memory_bytes,), (part.utilisation,)):
            return f"measured figures that are none: {part}"
    if wrong := next((p for p in answer.processes if not _is_pid(p.pid)), None):
        return f"measured a process without a number: {wrong}"
    if foreign := next((s for s in answer.slices if s.slice_id not in live), None):
        return f"measured slice {foreign.slice_id!r}, which is not live"
    return ""


def _are_figures(sizes: Sequence[object], percents: Sequence[object]) -> bool:
    return all(
        size is None or (type(size) is int and 0 <= size <= _MOST_BYTES) for size in sizes
    ) and all(
        percent is None or (isinstance(percent, int | float) and 0 <= percent <= 100)
        for percent in percents
    )


def _is_pid(pid: object) -> bool:
    return type(pid) is int and 0 < pid <= _MOST


def _completes(before: PodAllocation, after: PodAllocation, vendor: VendorKey) -> bool:
    if (before.node, len(before.grants)) != (after.node, len(after.grants)):
        return False
    if [(c.name, c.kind, len(c.grants)) for c in before.containers] != [
        (c.name, c.kind, len(c.grants)) for c in after.containers
    ]:
        return False
    return all(
        new == old
        or (
            old.vendor == vendor
            and (new.vendor, new.device_id) == (old.vendor, old.device_id)
            and not (new.usage - old.usage).negative
        )
        for old, new in zip(before.grants, after.grants, strict=True)
    )


def _grant_problem(grant: Grant, vendor: VendorKey) -> str:
    if grant.vendor != vendor:
        return f"granted a device of vendor {grant.vendor!r}"
    if not _counts(grant.slots, grant.memory_mib, grant.cores) or grant.slots < 1:
        return f"granted {grant.slots} slots, {grant.memory_mib} MiB, {grant.cores} percent"
    return ""


def _device_problem(device: Device, vendor: VendorKey) -> str:
    if device.vendor != vendor:
        return f"published a device of vendor {device.vendor!r}"
    texts: tuple[object, ...] = (device.id, device.model, device.mode)
    if not device.id or not all(isinstance(text, str) for text in texts):
        return f"published a device with id, model and mode {texts}"
    numbers = (device.index, device.slots, device.memory_mib, device.cores)
    if not _counts(*numbers) or type(device.numa) is not int:
        return f"published device {device.id!r} with numbers {numbers}, numa {device.numa!r}"
    return ""


def _counts(*numbers: object) -> bool:
    return all(type(n) is int and 0 <= n <= _MOST for n in numbers)
