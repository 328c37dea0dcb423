"""``kubelet_internal_checkpoint``: who holds which devices, as kubelet writes it. Pure."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from hami.domain.units import PodUid
from hami_lab.kubelet.devices.ledger import Held, HeldEntry, Ledger

FILE = "kubelet_internal_checkpoint"


class _Entry(msgspec.Struct, rename="pascal"):
    pod_uid: str = msgspec.field(name="PodUID")
    container_name: str
    resource_name: str
    device_ids: dict[str, list[str]] = msgspec.field(name="DeviceIDs")
    alloc_resp: str


class _Data(msgspec.Struct, rename="pascal"):
    pod_device_entries: list[_Entry] | None
    registered_devices: dict[str, list[str]]


class _File(msgspec.Struct, rename="pascal"):
    data: _Data
    checksum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What a checkpoint tells: who holds what, and which resources there were."""

    entries: Sequence[HeldEntry]
    resources: Sequence[str]


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A checkpoint that kubelet starts without; the text says why."""

    text: str


def encode(ledger: Ledger) -> bytes:
    """The file's bytes. Go writes a list that was never made as null.

    The checksum is over the data's JSON: kubelet's own is over a Go value's printed form, and
    nobody else reads it.
    """
    data = _Data(
        pod_device_entries=[_entry(entry) for entry in ledger.entries()] or None,
        registered_devices={r: sorted(ids) for r, ids in ledger.healthy.items()},
    )
    return msgspec.json.encode(_File(data=data, checksum=_checksum(data)))


def decode(text: bytes) -> Saved | Unreadable:
    """The contents of a file."""
    try:
        file = msgspec.json.decode(text, type=_File)
        if file.checksum != _checksum(file.data):
            return Unreadable("checkpoint is corrupted: the checksum does not match")
        entries = [_held(entry) for entry in file.data.pod_device_entries or ()]
    except (msgspec.MsgspecError, binascii.Error, ValueError) as error:
        return Unreadable(f"checkpoint is corrupted: {error}")
    return Saved(entries=entries, resources=tuple(file.data.registered_devices))


def _entry(entry: HeldEntry) -> _Entry:
    ids: Mapping[int, Any] = entry.held.ids
    return _Entry(
        pod_uid=entry.pod_uid,
        container_name=entry.container,
        resource_name=entry.resource,
        device_ids={str(numa): list(found) for numa, found in ids.items()},
        alloc_resp=base64.b64encode(entry.held.answer).decode(),
    )


def _held(entry: _Entry) -> HeldEntry:
    ids = {int(numa): tuple(found) for numa, found in entry.device_ids.items()}
    answer = base64.b64decode(entry.alloc_resp, validate=True)
    return HeldEntry(
        pod_uid=PodUid(entry.pod_uid),
        container=entry.container_name,
        resource=entry.resource_name,
        held=Held(ids, answer),
    )


def _checksum(data: _Data) -> int:
    return zlib.crc32(msgspec.json.encode(data))
