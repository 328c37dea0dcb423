"""Why a container must not start, or keeps its limits: one word each, for metrics."""

from __future__ import annotations

from enum import StrEnum


class RefusalCause(StrEnum):
    """The first ones are answers that the container gets; the last four say what went wrong."""

    POD_UNKNOWN = "PodUnknown"  # no such pod here, or nobody could be asked
    POD_ENDED = "PodEnded"
    NOT_ALLOCATED = "NotAllocated"  # the pod's allocation gives this container nothing here
    BAD_ALLOCATION = "BadAllocation"  # it cannot be read, or is not what kubelet or the slice has
    BAD_SIGNATURE = "BadSignature"
    ESCAPE = "Escape"  # the pod could leave its slice
    NO_ROOM = "NoRoom"
    OTHERS_SLICE = "OthersSlice"  # kubelet's record and ours name different containers
    CHECKPOINT = "Checkpoint"  # kubelet's record does not say whose the ids are
    SPEC_CHANGED = "SpecChanged"  # the next start takes the new CDI spec
    STOPPING = "Stopping"
    DISK = "Disk"
    VENDOR = "Vendor"
    LATE = "Late"  # a hook, or what it waits for, takes too long
    DEFECT = "Defect"

    @property
    def failed(self) -> bool:
        """Whether the node could not do what it was to do, rather than refused it."""
        return self in (self.DISK, self.VENDOR, self.LATE, self.DEFECT)
