"""A slice as the node agent and the monitor would make it; here neither of them runs."""

from __future__ import annotations

import os
from pathlib import Path

from hami.slices.c_layout import LimitsPageC, ObservedC, ObservedDeviceC
from hami.slices.files import MalformedFile
from hami.slices.limits_page import DeviceLimit, PageLimits, encode
from hami.slices.usage_region import empty_region, read_usage

OTHERS = 1  # HAMI_CONTENTION_OTHERS


class Slice:
    """The folder that a container finds at /run/hami/nvidia, for one device."""

    def __init__(self, folder: Path, *, uuid: str, memory: int, cores: int, reserve: int) -> None:
        self.folder = folder
        self.memory = memory
        self.cores = cores
        device = DeviceLimit(
            uuid=uuid, memory_bytes=memory, cores=cores, context_reserve_bytes=reserve
        )
        folder.mkdir()
        limits = PageLimits(generation=1, devices=(device,), policy="force")
        (folder / "limits").write_bytes(encode(limits))
        (folder / "usage").write_bytes(empty_region())

    def charged(self) -> int:
        """Bytes charged by all processes that have or had a slot; -1 for a damaged region."""
        usage = read_usage(self.folder / "usage")
        if isinstance(usage, MalformedFile):
            return -1
        return sum(slot.charged[0] for slot in usage.slots)

    def observe(self, percent: float, *, others: bool) -> None:
        """Write, as the monitor does once a second, the card's share of this slice's kernels."""
        at = LimitsPageC.observed.offset
        device = ObservedDeviceC(utilisation=round(percent * 100), contention=OTHERS * others)
        fd = os.open(self.folder / "limits", os.O_RDWR)
        try:
            os.pwrite(fd, bytes(device), at + ObservedC.devices.offset)
            beat = int.from_bytes(os.pread(fd, 8, at + ObservedC.heartbeat.offset), "little")
            word = (beat + 1).to_bytes(8, "little")
            os.pwrite(fd, word, at + ObservedC.heartbeat.offset)
        finally:
            os.close(fd)
