"""What ``hami_enforce`` leaves on the node: a record per slice, and a pretended partition.

The record, ``<state_dir>/mock.json``, is what the container sees read-only and what
``hami_measure`` answers from. A partition, ``<partitions>/<slice id>.json``, stands for a change
of the hardware (a MIG instance) that outlives the agent and must be undone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from urllib.parse import quote

import msgspec

from hami.domain.slices import Slice
from hami.domain.units import CorePercent, DeviceId, MemoryMiB

_RECORD = "mock.json"


class MockGrant(msgspec.Struct, frozen=True, rename="camel"):
    """``memory_mib`` in MiB, ``cores`` in percent."""

    device_id: DeviceId
    memory_mib: MemoryMiB = msgspec.field(name="memoryMiB")
    cores: CorePercent


class MockRecord(msgspec.Struct, frozen=True, rename="camel"):
    """A slice as it was enforced."""

    slice_id: str
    grants: tuple[MockGrant, ...]


def record_path(slice: Slice) -> Path:
    return slice.state_dir / _RECORD


def write_record(slice: Slice, partitions: Path | None) -> Path:
    """Write both files, whole or not at all; the same slice gives the same bytes."""
    record = MockRecord(
        slice_id=slice.id,
        grants=tuple(
            MockGrant(grant.device_id, grant.memory_mib, grant.cores) for grant in slice.grants
        ),
    )
    path = record_path(slice)
    for target in (path, *_partition(slice.id, partitions)):
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_suffix(".tmp")
        unfinished.write_bytes(msgspec.json.encode(record))
        unfinished.replace(target)
    return path


def read_record(slice: Slice) -> MockRecord | None:
    """None for a slice that was not enforced, or was released.

    Raises:
        msgspec.DecodeError: somebody else wrote the file.
    """
    try:
        return msgspec.json.decode(record_path(slice).read_bytes(), type=MockRecord)
    except FileNotFoundError:
        return None


def remove_record(slice: Slice, partitions: Path | None) -> None:
    """Remove both files, where they are there."""
    for path in (record_path(slice), *_partition(slice.id, partitions)):
        path.unlink(missing_ok=True)


def remove_foreign_partitions(live: Collection[str], partitions: Path | None) -> None:
    """Undo every partition that belongs to no slice of these ids."""
    if partitions is None:
        return
    kept = {path for slice_id in live for path in _partition(slice_id, partitions)}
    for path in partitions.glob("*.json"):
        if path not in kept:
            path.unlink(missing_ok=True)


def _partition(slice_id: str, partitions: Path | None) -> Iterable[Path]:
    return () if partitions is None else (partitions / f"{quote(slice_id, safe='')}.json",)
