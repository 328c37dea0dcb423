"""A device, its usage, and the slices granted on it.

The values that a start makes by the hundred thousand are msgspec Structs: a frozen dataclass takes
nine times as long to make. ``msgspec.structs.replace`` makes a changed copy of one.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from hami.domain.extra import NO_EXTRA, Extra
from hami.domain.units import WHOLE_DEVICE, CorePercent, DeviceId, MemoryMiB, VendorKey


class Device(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One schedulable device as its node published it.

    ``slots`` is how many slices may share it. ``memory_mib`` is after the vendor's scaling, rounded
    down. ``mode`` is the vendor's word for the way of sharing (``hami-core``, ``mig``).
    """

    id: DeviceId
    vendor: VendorKey
    index: int = 0
    model: str = ""
    slots: int = 1
    memory_mib: MemoryMiB = MemoryMiB(0)
    cores: CorePercent = WHOLE_DEVICE
    numa: int = 0
    mode: str = ""
    healthy: bool = True
    extra: Extra = NO_EXTRA


class Usage(msgspec.Struct, frozen=True, gc=False):
    """How much of one device is taken."""

    slots: int = 0
    memory_mib: MemoryMiB = MemoryMiB(0)
    cores: CorePercent = CorePercent(0)

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.slots + other.slots,
            MemoryMiB(self.memory_mib + other.memory_mib),
            CorePercent(self.cores + other.cores),
        )

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            self.slots - other.slots,
            MemoryMiB(self.memory_mib - other.memory_mib),
            CorePercent(self.cores - other.cores),
        )

    @property
    def negative(self) -> bool:
        return self.slots < 0 or self.memory_mib < 0 or self.cores < 0

    def peak(self, other: Usage) -> Usage:
        """The larger of the two in every dimension, independently."""
        return Usage(
            max(self.slots, other.slots),
            max(self.memory_mib, other.memory_mib),
            max(self.cores, other.cores),
        )


UNUSED = Usage()


class Grant(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One slice of one device, and what the vendor charged for it."""

    device_id: DeviceId
    vendor: VendorKey
    slots: int = 1
    memory_mib: MemoryMiB = MemoryMiB(0)
    cores: CorePercent = CorePercent(0)
    extra: Extra = NO_EXTRA

    @property
    def usage(self) -> Usage:
        return Usage(self.slots, self.memory_mib, self.cores)


class DeviceState(msgspec.Struct, frozen=True, gc=False):
    """A device with its usage and its grants at one moment.

    The grants include those of the pod being placed that run at the same time as the container in
    question. ``known`` is False while a pod runs on the device whose allocation cannot be read:
    then nobody can say what is free.
    """

    device: Device
    usage: Usage = UNUSED
    grants: tuple[Grant, ...] = ()
    known: bool = True

    def taking(self, *grants: Grant) -> DeviceState:
        """The state of the device once these grants are on it too."""
        usage = self.usage
        for grant in grants:
            usage = usage + grant.usage
        return replace(self, usage=usage, grants=self.grants + grants)
