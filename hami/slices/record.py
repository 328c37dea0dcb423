"""What ``meta.json`` says of a slice: whose it is and what was granted; for recovery, monitors."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from hami.domain.kubernetes.objects import Pod
from hami.domain.slices import Identity
from hami.domain.units import CorePercent, DeviceId, MemoryMiB, VendorKey
from hami.slices.files import MalformedFile

FORMAT = 1
SliceState = Literal["preparing", "enforced", "releasing"]
SLICE_STATES: tuple[SliceState, ...] = get_args(SliceState)


class RecordedGrant(msgspec.Struct, frozen=True, kw_only=True):
    """A readable copy, for monitors; what counts is the allocation among the pod's annotations."""

    device_id: DeviceId
    memory_mib: MemoryMiB
    cores: CorePercent


class SliceRecord(msgspec.Struct, frozen=True, kw_only=True):
    """``pod`` is as much of it as its allocation is read from; ``created_at`` in Unix seconds.

    ``identity``: a slice of the mode ``lock`` is in the answer to Allocate and has no CDI spec.
    ``state``: ``preparing`` until ``hami_enforce`` has succeeded once; ``releasing`` once the pod
    and its last process are gone.
    """

    slice_id: str
    vendor: VendorKey
    pod: Pod
    container: str
    generation: int
    state: SliceState
    created_at: float
    grants: tuple[RecordedGrant, ...]
    identity: Identity = "kubelet"
    format: int = FORMAT

    @property
    def owner(self) -> str:
        """The pod and container, for messages."""
        return f"pod {self.pod.full_name} (UID {self.pod.uid}), container {self.container}"

    def same_owner(self, other: SliceRecord) -> bool:
        return (self.pod.uid, self.container) == (other.pod.uid, other.container)


def encode_record(record: SliceRecord) -> bytes:
    """Indented: people read it too."""
    return msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n"


def decode_record(data: bytes, slice_id: str, vendor: VendorKey) -> SliceRecord | MalformedFile:
    """The record of this slice, and of no other."""
    try:
        record = msgspec.json.decode(data, type=SliceRecord)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        return _malformed(f"cannot be read: {error}")
    if record.format > FORMAT:
        return _malformed(f"was written by a newer agent (format {record.format}, not {FORMAT})")
    if (record.slice_id, record.vendor) != (slice_id, vendor):
        return _malformed(f"is of slice {record.slice_id!r} of {record.vendor!r}")
    if not record.pod.uid or not record.container:
        return _malformed("names no pod and container")
    return record


def _malformed(problem: str) -> MalformedFile:
    return MalformedFile(annotation="meta.json", position="", text="", problem=problem)
