"""The node register in HAMi's text form: ``id,count,devmem,devcore,type,numa,health,index,mode:``.

DCU, Iluvatar, Vastai and Biren nodes carry this form. The form of seven fields lacks index and
mode.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from hami.domain.devices import Device
from hami.domain.errors import Malformed, shortened
from hami.domain.units import CorePercent, DeviceId, MemoryMiB, VendorKey
from hami.wire.codecs.fields import (
    NOT_BOOL,
    NOT_INT32,
    fault_in_field,
    go_bool,
    go_int32,
    id_problem,
    require_plain,
    require_registrable,
    unique_devices,
)

_DEFAULT_MODE = "hami-core"

# HAMi's order: which of several faults is reported is visible to people.
_CHECKS: tuple[tuple[str, int, Callable[[str], int | None], str], ...] = (
    ("count", 1, go_int32, NOT_INT32),
    ("memory", 2, go_int32, NOT_INT32),
    ("core", 3, go_int32, NOT_INT32),
    ("health", 6, go_bool, NOT_BOOL),
    ("numa", 5, go_int32, NOT_INT32),
    ("index", 7, go_int32, NOT_INT32),
)


def decode_register_csv(
    text: str, *, annotation: str, vendor: VendorKey
) -> tuple[Device, ...] | Malformed:
    """Every device in the text; one fault makes the whole annotation ``Malformed``.

    ``annotation`` is the key for messages, ``vendor`` becomes every device's vendor. Positions
    count devices from 0.
    """
    if ":" not in text:
        return Malformed(
            annotation=annotation,
            position="",
            text=shortened(text),
            problem="no ':', which ends every device",
        )
    pieces = (piece for piece in text.split(":") if piece)
    return unique_devices(
        (_device(p, f"device {n}", annotation, vendor) for n, p in enumerate(pieces)), annotation
    )


def _device(segment: str, where: str, annotation: str, vendor: VendorKey) -> Device | Malformed:
    bad = partial(fault_in_field, annotation, where)
    fields = segment.split(",")
    if len(fields) == 1:
        return bad("", segment, "no ',', which separates a device's fields")
    if len(fields) not in (7, 9):
        return bad("", segment, f"{len(fields)} fields instead of 7 or 9")
    numbers = {"index": 0}
    for name, at, read, problem in _CHECKS if len(fields) == 9 else _CHECKS[:-1]:
        value = read(fields[at])
        if value is None:
            return bad(name, fields[at], problem)
        numbers[name] = value
    if numbers["index"] < 0:
        return bad("index", fields[7], "an index must not be negative")
    if unusable := id_problem(fields[0]):
        return bad("id", fields[0], unusable)
    return Device(
        id=DeviceId(fields[0]),
        vendor=vendor,
        index=numbers["index"],
        model=fields[4],
        slots=numbers["count"],
        memory_mib=MemoryMiB(numbers["memory"]),
        cores=CorePercent(numbers["core"]),
        numa=numbers["numa"],
        mode=fields[8] if len(fields) == 9 else _DEFAULT_MODE,
        healthy=bool(numbers["health"]),
    )


def encode_register_csv(devices: Sequence[Device]) -> str:
    """All nine fields of every device; ``:`` for no device. The vendor and extras are not written.

    Raises:
        ValueError: a device that could not be read back; names the device and the field.
    """
    require_registrable(devices)
    for device in devices:
        require_plain(device, "model", device.model)
        require_plain(device, "mode", device.mode)
    return (
        "".join(
            f"{d.id},{d.slots},{d.memory_mib},{d.cores},{d.model},{d.numa},"
            f"{'true' if d.healthy else 'false'},{d.index},{d.mode}:"
            for d in devices
        )
        or ":"
    )
