"""What a live resize asks for a pod that runs, and why it is refused."""

from __future__ import annotations

from dataclasses import dataclass

from hami.domain.reasons import Reason
from hami.domain.units import CorePercent, DeviceId, MemoryMiB

# Why a slice keeps its size, beside the reasons for which a device takes no new one.
NO_SUCH_SLICE = Reason("NoSuchSlice", unresolvable=True)
"""The container has no device or those of several vendors, or the pod several such containers."""
NO_SUCH_AMOUNT = Reason("NoSuchAmount", unresolvable=True)
"""The vendor does not count memory, or compute."""
WHOLE_DEVICE_GRANTED = Reason("WholeDevice", unresolvable=True)
PLACED_INSTANCE = Reason("PlacedInstance", unresolvable=True)
"""The slice is an instance of hardware (MIG), whose size is fixed."""
CORES_LIMIT_NOT_FIT = Reason("CoresLimitNotFit", unresolvable=True)
"""A limit of compute is for a container with a share of it, and not below that share."""
LIMITS_IN_ENVIRONMENT = Reason("LimitsInEnvironment", unresolvable=True)
"""The node's agent follows HAMi's protocol: a container's limits are in its environment."""
NOT_SIGNED = Reason("NotSigned", unresolvable=True)
"""Agents obey a newer allocation only if it is signed, and this pod's is not."""
POD_LEAVING = Reason("PodLeaving", unresolvable=True)
"""The pod is being deleted or evicted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerResize:
    """The new amounts of each slice of one container; None leaves an amount as it is.

    An empty ``container`` is the only one of the pod that has devices. ``cores_limit`` as in
    :class:`~hami.domain.allocations.ContainerAllocation`.
    """

    container: str = ""
    memory_mib: MemoryMiB | None = None
    cores: CorePercent | None = None
    cores_limit: CorePercent | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeRefusal:
    """One thing that keeps the slices as they are; ``text`` is for people and has all numbers.

    ``asked`` and ``free`` are about ``resource`` (a resource name) of ``device`` or, without one,
    of a quota. Both count the pod's own share: it asks for this much in all, and so much it
    could have. They are None where no amount is concerned.
    """

    reason: Reason
    text: str
    container: str = ""
    device: DeviceId | None = None
    resource: str = ""
    asked: int | None = None
    free: int | None = None

    def __str__(self) -> str:
        return self.text
