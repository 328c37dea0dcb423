"""A device, its usage, and the slices granted on it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hami.domain.extra import NO_EXTRA, Extra
from hami.domain.units import WHOLE_DEVICE, CorePercent, DeviceId, MemoryMiB, VendorKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
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


@dataclass(frozen=True, slots=True)
class Usage:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
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


@dataclass(frozen=True, slots=True)
class DeviceState:
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
