"""kubelet's own record of who got which ids, and what we answered.

``kubelet_internal_checkpoint`` in the device plugin folder: JSON, written after each Allocate by
renaming, so that a reader sees a whole one. Its checksum covers a dump of Go's memory, which only
kubelet can make; it is not looked at.
"""

from __future__ import annotations

import os
from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hami.domain.errors import Malformed, shortened
from hami.domain.slices import ContainerEdits
from hami.domain.units import PodUid
from hami.node.kubelet.responses import decode

CHECKPOINT = "kubelet_internal_checkpoint"
LARGEST = 64 << 20
"""Bytes; 500 pods of ten containers each stay below 8 MiB."""

Report = Callable[[Malformed], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointEntry:
    """One container's ids of one resource, with our answer to the Allocate that gave them."""

    pod_uid: PodUid
    container: str
    resource: str
    ids: frozenset[str]
    edits: ContainerEdits

    def locked_slice_id(self, cdi_kind: str) -> str:
        """The slice that an answer of the mode ``lock`` named, by the annotation ``cdi_kind``."""
        return self.edits.annotations.get(cdi_kind, "")


class _Data(msgspec.Struct, frozen=True):
    """``registered``: the healthy ids of each resource, as the plugin of the moment lists them."""

    registered: dict[str, list[str] | None] | None = msgspec.field(
        default=None, name="RegisteredDevices"
    )
    entries: list[msgspec.Raw] | None = msgspec.field(default=None, name="PodDeviceEntries")


class _File(msgspec.Struct, frozen=True):
    data: _Data = msgspec.field(name="Data")


class _Entry(msgspec.Struct, frozen=True):
    """``ids`` by NUMA node (``-1`` for none); in one list before kubelet 1.20."""

    pod_uid: str = msgspec.field(name="PodUID")
    container: str = msgspec.field(name="ContainerName")
    resource: str = msgspec.field(name="ResourceName")
    ids: dict[str, list[str] | None] | list[str] | None = msgspec.field(
        default=None, name="DeviceIDs"
    )
    answer: str | None = msgspec.field(default=None, name="AllocResp")


def read_checkpoint(
    folder: Path, report: Report = lambda _problem: None
) -> tuple[CheckpointEntry, ...] | Malformed:
    """The checkpoint in ``folder``; of a file that is not there (yet), no entries."""
    match _content(folder):
        case None:
            return ()
        case Malformed() as problem:
            return problem
        case data:
            return parse_checkpoint(data, report)


def registered_ids(folder: Path, resource: str) -> frozenset[str]:
    """The healthy ids of ``resource`` that kubelet knows; none where its record says nothing."""
    data = _content(folder)
    file = _parsed(data) if isinstance(data, bytes) else None
    if not isinstance(file, _File):
        return frozenset()
    return frozenset((file.data.registered or {}).get(resource) or ())


def _content(folder: Path) -> bytes | Malformed | None:
    """The file's bytes; None if it is not there (yet)."""
    path = folder / CHECKPOINT
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            # Python sets aside as much as it may read.
            data = file.read(min(size, LARGEST) + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        return _malformed("", str(path), f"cannot be read: {error.strerror}; let the agent read it")
    if len(data) > LARGEST:
        return _malformed("", str(path), f"{size} bytes, more than kubelet ever writes")
    return data


def named_slices(folder: Path, cdi_kind: str) -> set[str] | Malformed:
    """The slices of either mode that the checkpoint in ``folder`` names."""
    entries = read_checkpoint(folder)
    if isinstance(entries, Malformed):
        return entries
    return {
        entry.edits.cdi_device(cdi_kind) or entry.locked_slice_id(cdi_kind) for entry in entries
    }


def parse_checkpoint(
    data: bytes, report: Report = lambda _problem: None
) -> tuple[CheckpointEntry, ...] | Malformed:
    """The entries of all resources, in the file's order.

    An entry that cannot be read is left out and goes to ``report``. One whose answer alone cannot
    be read stays, with empty edits, and is reported too: its ids are taken all the same.
    """
    file = _parsed(data)
    if isinstance(file, Malformed):
        return file
    decoder = msgspec.json.Decoder(_Entry)
    found = []
    for number, raw in enumerate(file.data.entries or ()):
        try:
            entry = decoder.decode(raw)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            begin = bytes(raw)[:80].decode(errors="replace")
            report(_malformed(f"entry {number}", begin, f"left out: {error}"))
            continue
        edits = _edits(entry.answer or "")
        if isinstance(edits, str):
            where = f"entry {number}, {entry.resource} of container {entry.container}"
            report(_malformed(f"{where} of pod {entry.pod_uid}", entry.answer or "", edits))
            edits = ContainerEdits()
        found.append(
            CheckpointEntry(
                pod_uid=PodUid(entry.pod_uid),
                container=entry.container,
                resource=entry.resource,
                ids=_ids(entry.ids),
                edits=edits,
            )
        )
    return tuple(found)


def _parsed(data: bytes) -> _File | Malformed:
    try:
        return msgspec.json.decode(data, type=_File)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        begin = data[:80].decode(errors="replace")
        return _malformed("", begin, f"not what kubelet writes: {error}")


def _edits(answer: str) -> ContainerEdits | str:
    try:
        data = b64decode(answer, validate=True)
    except ValueError as error:
        return f"no base64: {error}"
    return decode(data)


def _ids(found: dict[str, list[str] | None] | list[str] | None) -> frozenset[str]:
    if found is None:
        return frozenset()
    if isinstance(found, list):
        return frozenset(found)
    return frozenset(id for ids in found.values() for id in ids or ())


def _malformed(position: str, text: str, problem: str) -> Malformed:
    return Malformed(
        annotation=CHECKPOINT, position=position, text=shortened(text), problem=problem
    )
