"""What was done for a slice, in its own directory: read when its container starts again or ends."""

from __future__ import annotations

from pathlib import Path

import msgspec

from hami_nvidia.handover.files import write_whole
from hami_nvidia.mig.instances import InstanceIdentity

_NAME = "nvidia.json"


class EnforcedRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``library`` is the version that the container has; ``shared`` HAMi's directory for it.

    ``instances`` are the MIG instances that were made for it, in the order of its grants.
    """

    library: str = ""
    shared: str = ""
    instances: tuple[InstanceIdentity, ...] = ()


def read_record(state_dir: Path) -> EnforcedRecord:
    """Empty for a slice that was not enforced, and for a record that cannot be read.

    A record that was damaged costs a container its library's version at the next start; refusing
    to start it for that would cost more.
    """
    try:
        return msgspec.json.decode((state_dir / _NAME).read_bytes(), type=EnforcedRecord)
    except (FileNotFoundError, msgspec.DecodeError):
        return EnforcedRecord()


def write_record(state_dir: Path, record: EnforcedRecord) -> None:
    """Written once; the same again is not."""
    if read_record(state_dir) != record:
        state_dir.mkdir(parents=True, exist_ok=True)
        write_whole(state_dir / _NAME, msgspec.json.encode(record), 0o644)
