"""Single fields as Go's strconv reads them, and what a register can hold of a device."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from hami.domain.devices import Device
from hami.domain.errors import Malformed, shortened
from hami.domain.units import DeviceId

NOT_INT32 = "not a whole number of 32 bits in plain digits"
NOT_BOOL = "neither true nor false"

_INT = re.compile(r"([+-]?)0*([0-9]{1,10})")
_INT32_MIN = -(1 << 31)
_INT32_MAX = (1 << 31) - 1
_BOOLS: Mapping[str, bool] = MappingProxyType(
    dict.fromkeys(("1", "t", "T", "TRUE", "true", "True"), True)
    | dict.fromkeys(("0", "f", "F", "FALSE", "false", "False"), False)
)
_SEPARATORS = ",:;"
_separator_in = re.compile(f"[{_SEPARATORS}]").search


def fault_in_field(annotation: str, where: str, field: str, text: str, problem: str) -> Malformed:
    """A fault in a field of the entry at ``where``; in the whole entry if ``field`` is empty."""
    return Malformed(
        annotation=annotation,
        position=f"{where}, {field}" if field else where,
        text=shortened(text),
        problem=problem,
    )


def is_int32(value: int) -> bool:
    return _INT32_MIN <= value <= _INT32_MAX


def go_int32(text: str) -> int | None:
    """A sign and decimal digits, without blanks, underscores or ``0x``; None: not an int32."""
    match = _INT.fullmatch(text)
    if match is None:
        return None
    value = int(match[1] + match[2])
    return value if is_int32(value) else None


def go_bool(text: str) -> bool | None:
    """The value of ``true``, ``t``, ``1`` and Go's other spellings; None for anything else."""
    return _BOOLS.get(text)


def unique_devices(
    devices: Iterable[Device | Malformed], annotation: str
) -> tuple[Device, ...] | Malformed:
    """All devices of a register, or the fault of the first that is unreadable or a repetition."""
    found: dict[DeviceId, Device] = {}
    for number, device in enumerate(devices):
        if isinstance(device, Malformed):
            return device
        if device.id in found:
            return Malformed(
                annotation=annotation,
                position=f"device {number}, id",
                text=shortened(device.id),
                problem="the id occurs twice",
            )
        found[device.id] = device
    return tuple(found.values())


def id_problem(id: str) -> str | None:
    """Why a pod's device list, which separates ids by ``,:;``, could not name this device."""
    if not id:
        return "no device id"
    if _separator_in(id):
        return f"a device id must not contain any of {_SEPARATORS}"
    return None


def require_registrable(devices: Iterable[Device]) -> None:
    """Refuse a device that a register's readers would not accept.

    Raises:
        ValueError: names the device and the field.
    """
    seen: set[DeviceId] = set()
    for device in devices:
        if problem := id_problem(device.id):
            raise ValueError(f"device {device.id!r}: id: {problem}")
        if device.id in seen:
            raise ValueError(f"device {device.id!r}: id: occurs twice")
        seen.add(device.id)
        numbers = {
            "index": device.index,
            "slots": device.slots,
            "memory_mib": device.memory_mib,
            "cores": device.cores,
            "numa": device.numa,
        }
        for field, value in numbers.items():
            if not is_int32(value):
                raise ValueError(f"device {device.id!r}: {field}: {value} is beyond 32 bits")
        if device.index < 0:
            raise ValueError(f"device {device.id!r}: index: {device.index} is negative")


def require_plain(device: Device, field: str, text: str) -> None:
    """Refuse a separator inside a field of a text format.

    Raises:
        ValueError: names the device and the field.
    """
    if _separator_in(text):
        raise ValueError(
            f"device {device.id!r}: {field}: {text!r} contains one of {_SEPARATORS}, "
            "which separate fields; rename it"
        )
