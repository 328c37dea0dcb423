"""The node register in HAMi's JSON form, read and written as Go's encoding/json does it.

NVIDIA (since HAMi 2.8), XPU, AMD and Ascend nodes carry this form. Vendors add keys of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import msgspec

from hami.domain.devices import Device
from hami.domain.errors import Malformed, shortened
from hami.domain.extra import NO_EXTRA, Extra
from hami.domain.units import CorePercent, DeviceId, MemoryMiB, VendorKey
from hami.wire.codecs.fields import (
    fault_in_field,
    id_problem,
    is_int32,
    require_registrable,
    unique_devices,
)

ReadExtra = Callable[[Mapping[str, Any]], Extra]
WriteExtra = Callable[[Device], Mapping[str, Any]]

_INTS = ("index", "count", "devmem", "devcore", "numa")
_TEXTS = ("id", "type", "mode")
_CORE_KEYS = frozenset({*_INTS, *_TEXTS, "health"})
_BYTE = re.compile(r"\(byte (\d+)\)")
# Go escapes these inside strings; outside of strings JSON has none of them.
_GO_ESCAPES = str.maketrans(
    {
        c: f"\\u{ord(c):04x}"
        for c in ("<", ">", "&", "\N{LINE SEPARATOR}", "\N{PARAGRAPH SEPARATOR}")
    }
)


_Int32 = Annotated[int, msgspec.Meta(ge=-(1 << 31), le=(1 << 31) - 1)]


class _Plain(msgspec.Struct, forbid_unknown_fields=True):
    """A device as HAMi nearly always writes it: its keys in its spelling, all of the right type."""

    id: str = ""
    index: Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)] = 0
    count: _Int32 = 0
    devmem: _Int32 = 0
    devcore: _Int32 = 0
    type: str = ""
    numa: _Int32 = 0
    mode: str = ""
    health: bool = False


_PLAIN = msgspec.json.Decoder(list[_Plain])


def decode_register_json(
    text: str, *, annotation: str, vendor: VendorKey, read_extra: ReadExtra | None = None
) -> tuple[Device, ...] | Malformed:
    """Every device in the text; one fault makes the whole annotation ``Malformed``.

    Keys are matched without regard to case, unknown ones ignored, ``null`` means absent; an
    absent ``health`` is False. ``annotation`` is the key for messages, ``vendor`` becomes every
    device's vendor. ``read_extra`` gets each device's object with lower-cased keys and may raise
    ValueError or msgspec.ValidationError; without it, reading takes a third of the time. Positions
    count devices from 0.
    """
    if read_extra is not None:
        return _decode_any(text, annotation, vendor, read_extra)
    try:
        plain = _PLAIN.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _decode_any(text, annotation, vendor, None)  # This finds out what is wrong.
    return unique_devices(
        (_plain_device(d, f"device {n}", annotation, vendor) for n, d in enumerate(plain)),
        annotation,
    )


def _plain_device(
    item: _Plain, where: str, annotation: str, vendor: VendorKey
) -> Device | Malformed:
    if unusable := id_problem(item.id):
        return fault_in_field(annotation, where, "id", item.id, unusable)
    return Device(
        id=DeviceId(item.id),
        vendor=vendor,
        index=item.index,
        model=item.type,
        slots=item.count,
        memory_mib=MemoryMiB(item.devmem),
        cores=CorePercent(item.devcore),
        numa=item.numa,
        mode=item.mode,
        healthy=item.health,
    )


def _decode_any(
    text: str, annotation: str, vendor: VendorKey, read_extra: ReadExtra | None
) -> tuple[Device, ...] | Malformed:
    """Whatever Go's parser would accept, or what is wrong with it."""
    try:
        items = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        return _broken(text, annotation, error)
    if items is None:
        return ()
    if not isinstance(items, list):
        return Malformed(
            annotation=annotation, position="", text=shortened(text), problem="not a JSON list"
        )
    return unique_devices(
        (_device(i, f"device {n}", annotation, vendor, read_extra) for n, i in enumerate(items)),
        annotation,
    )


def _broken(text: str, annotation: str, error: Exception) -> Malformed:
    found = _BYTE.search(str(error))
    if found is None:
        return Malformed(
            annotation=annotation,
            position="",
            text=shortened(text),
            problem="JSON nested too deeply" if isinstance(error, RecursionError) else "not JSON",
        )
    at = int(found[1])
    excerpt = text.encode("utf-8", "replace")[max(0, at - 20) : at + 20]
    return Malformed(
        annotation=annotation,
        position=f"byte {at}",
        text=excerpt.decode("utf-8", "replace"),
        problem=str(error).replace(f" {found[0]}", ""),
    )


def _device(
    item: Any, where: str, annotation: str, vendor: VendorKey, read_extra: ReadExtra | None
) -> Device | Malformed:
    bad = partial(fault_in_field, annotation, where)
    if not isinstance(item, dict):
        return bad("", _shown(item), "not a JSON object")
    entry = {key.lower(): value for key, value in item.items() if value is not None}
    for key in _INTS:
        value = entry.get(key, 0)
        # 3.0 and true are no int to Go either.
        if type(value) is not int or not is_int32(value):
            return bad(key, _shown(value), "not a whole number of 32 bits")
    for key in _TEXTS:
        if not isinstance(entry.get(key, ""), str):
            return bad(key, _shown(entry[key]), "not a string")
    if not isinstance(entry.get("health", False), bool):
        return bad("health", _shown(entry["health"]), "neither true nor false")
    if entry.get("index", 0) < 0:
        return bad("index", str(entry["index"]), "an index must not be negative")
    id = entry.get("id", "")
    if unusable := id_problem(id):
        return bad("id", id, unusable)
    extra = NO_EXTRA
    if read_extra is not None:
        try:
            extra = read_extra(entry)
        except (ValueError, msgspec.ValidationError) as error:
            return bad("", id, str(error))
    return Device(
        id=DeviceId(id),
        vendor=vendor,
        index=entry.get("index", 0),
        model=entry.get("type", ""),
        slots=entry.get("count", 0),
        memory_mib=MemoryMiB(entry.get("devmem", 0)),
        cores=CorePercent(entry.get("devcore", 0)),
        numa=entry.get("numa", 0),
        mode=entry.get("mode", ""),
        healthy=entry.get("health", False),
        extra=extra,
    )


def _shown(value: Any) -> str:
    """A JSON value for a message; a nested value may be too deep to print."""
    match value:
        case dict():
            return "{…}"
        case list():
            return "[…]"
        case _:
            return msgspec.json.encode(value).decode()


def encode_register_json(
    devices: Sequence[Device], *, write_extra: WriteExtra | None = None
) -> str:
    """Compact JSON with the keys in HAMi's order; zero, empty and false values are left out.

    ``write_extra`` gives a device's further keys, written unchanged between ``mode`` and
    ``health``. The vendor is not in this form.

    Raises:
        ValueError: a device that could not be read back, or an extra under one of the core's keys;
            names the device and the field.
    """
    require_registrable(devices)
    text = msgspec.json.encode([_object(d, write_extra) for d in devices]).decode()
    return text.translate(_GO_ESCAPES)


def _object(device: Device, write_extra: WriteExtra | None) -> dict[str, Any]:
    before_extra = {
        "id": device.id,
        "index": device.index,
        "count": device.slots,
        "devmem": device.memory_mib,
        "devcore": device.cores,
        "type": device.model,
        "numa": device.numa,
        "mode": device.mode,
    }
    extra = write_extra(device) if write_extra else {}
    for key in extra:
        if key.lower() in _CORE_KEYS:
            raise ValueError(f"device {device.id!r}: {key}: the core writes this key itself")
    written = {key: value for key, value in before_extra.items() if value}
    return {**written, **extra, **({"health": True} if device.healthy else {})}
