"""A slice for a test: the folder that a container finds at /run/hami/nvidia, written by the test."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from hami.slices.c_layout import BucketC, LimitsPageC, ObservedC, ObservedDeviceC, UsageC
from hami.slices.files import MalformedFile
from hami.slices.limits_page import PAGE_SIZE, DeviceLimit, PageLimits, Policy, encode, update
from hami.slices.usage_region import RegionUsage, empty_region, read_usage


def uuid_of(gpu: int) -> str:
    """The UUID of the simulator's n-th card, unless its configuration sets another."""
    return f"GPU-{(0x48414D49 + gpu * 0x01010101) & 0xFFFFFFFF:08x}-5349-4d00-a000-{gpu + 1:012x}"


OTHERS = 1
"""``HAMI_CONTENTION_OTHERS``."""


class Slice:
    """``memory`` in bytes, for each device of the simulator from ``first`` on. ``reserve``: bytes
    for a context, on all devices. ``cores``, ``cores_limit``: percent of each device.
    """

    def __init__(
        self,
        path: Path,
        *memory: int,
        reserve: int = 0,
        cores: int = 0,
        cores_limit: int = 0,
        policy: Policy = "default",
        priority: int = 1,
        first: int = 0,
    ) -> None:
        self.folder = path
        self._first = first
        self._reserve, self._cores, self._limit = reserve, cores, cores_limit
        self._policy, self.priority = policy, priority
        path.mkdir()
        (path / "limits").write_bytes(encode(self._limits(memory)))
        (path / "usage").write_bytes(empty_region())
        self.observe()

    def _limits(self, memory: tuple[int, ...]) -> PageLimits:
        devices = tuple(
            DeviceLimit(
                uuid=uuid_of(gpu),
                memory_bytes=limit,
                cores=self._cores,
                context_reserve_bytes=self._reserve,
                cores_limit=self._limit,
            )
            for gpu, limit in enumerate(memory, start=self._first)
        )
        return PageLimits(
            generation=1, devices=devices, policy=self._policy, priority=self.priority
        )

    @property
    def cores(self) -> int:
        return self._cores

    def share(self, cores: int, *memory: int) -> None:
        """Set the percent of each device's time from now on."""
        self._cores = cores
        self.resize(*memory)

    def resize(self, *memory: int) -> None:
        fd = os.open(self.folder / "limits", os.O_RDWR)
        try:
            found = update(fd, self._limits(memory))
            assert found == "updated", found
        finally:
            os.close(fd)

    def usage(self) -> RegionUsage:
        usage = read_usage(self.folder / "usage")
        assert not isinstance(usage, MalformedFile)
        assert usage.refused == 0
        return usage

    def charged(self, gpu: int = 0) -> int:
        """Bytes charged by all processes, living or not recovered yet."""
        return sum(slot.charged[gpu] for slot in self.usage().slots)

    def observe(self, *bytes_: int) -> None:
        """Write, as the monitor once a period, what the driver accounts to each slot on GPU 0."""
        fd = os.open(self.folder / "limits", os.O_RDWR)
        observed = LimitsPageC.observed
        try:
            seen = LimitsPageC.from_buffer_copy(os.pread(fd, PAGE_SIZE, 0)).observed
            for slot, value in zip(self.usage().slots, bytes_, strict=True):
                seen.bytes[0][slot.slot] = value
                seen.slot_generation[slot.slot] = slot.generation
            seen.heartbeat += 1
            os.pwrite(fd, bytes(seen), observed.offset)
        finally:
            os.close(fd)

    def bucket(self) -> BucketC:
        """What its processes write of their time on its first GPU."""
        fd = os.open(self.folder / "usage", os.O_RDONLY)
        try:
            size = ctypes.sizeof(BucketC)
            return BucketC.from_buffer_copy(os.pread(fd, size, UsageC.buckets.offset))
        finally:
            os.close(fd)

    def observe_time(self, hundredths: int, contention: int, share: int = 0) -> None:
        """Write, as the monitor once a tick, how busy this slice kept its first GPU, who else is on
        that GPU, and what it may have of it; both times in 1/100 percent.
        """
        fd = os.open(self.folder / "limits", os.O_RDWR)
        at = LimitsPageC.observed.offset
        try:
            seen = ObservedDeviceC(utilisation=hundredths, contention=contention)
            os.pwrite(fd, bytes(seen), at + ObservedC.devices.offset)
            os.pwrite(fd, share.to_bytes(2, "little"), at + ObservedC.share.offset)
            beat = int.from_bytes(os.pread(fd, 8, at + ObservedC.heartbeat.offset), "little") + 1
            os.pwrite(fd, beat.to_bytes(8, "little"), at + ObservedC.heartbeat.offset)
        finally:
            os.close(fd)

    def remove(self) -> None:
        """Remove the slice: programs that start now find none."""
        for name in ("limits", "usage"):
            (self.folder / name).unlink()
        self.folder.rmdir()

    def env(self) -> dict[str, str]:
        """The environment for the library's test build."""
        return {"HAMI_SLICE_DIR": str(self.folder)}
