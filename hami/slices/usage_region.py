"""The usage region of a slice: made here, written by the container, read as hostile input.

Whoever runs in the container can truncate the file, grow it or write what they like into it: so it
is read with bounded ``pread`` calls, never mapped (a truncated mapping is SIGBUS), and every field
is checked before it means anything.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path

from hami.slices.c_layout import (
    MAX_DEVICES,
    MAX_SLOTS,
    SLOT_BYPASS,
    USAGE_ABI,
    USAGE_MAGIC,
    SlotC,
    UsageC,
)
from hami.slices.files import MalformedFile, read_at_most

REGION_SIZE = ctypes.sizeof(UsageC)
MOST_CHARGED = 1 << 50
"""Bytes; no process can hold so much of a device, so a larger figure is made up."""
_LAST_PID = 1 << 22
"""PID_MAX_LIMIT of Linux."""
_KNOWN_FLAGS = 0b111
_HEADER = (
    ("magic", USAGE_MAGIC),
    ("abi", USAGE_ABI),
    ("size", REGION_SIZE),
    ("device_capacity", MAX_DEVICES),
    ("slot_capacity", MAX_SLOTS),
    ("slots_offset", UsageC.slots.offset),
    ("charged_offset", UsageC.charged.offset),
    ("buckets_offset", UsageC.buckets.offset),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotUsage:
    """What a process says of itself, which proves nothing; ``charged`` in bytes, by device.

    ``pid`` belongs to the pid namespace whose inode ``pid_namespace`` is. ``bypass``: it got a
    function of the driver that the library does not stand before.
    """

    slot: int
    pid: int
    start_time: int
    pid_namespace: int
    generation: int
    bypass: bool
    charged: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionUsage:
    """Every slot that was ever used; ``refused`` counts those whose fields make no sense."""

    slots: tuple[SlotUsage, ...] = ()
    refused: int = 0


def empty_region() -> bytes:
    """What the file is made with."""
    region = UsageC()
    for name, value in _HEADER:
        setattr(region, name, value)
    return bytes(region)


def read_usage(path: Path) -> RegionUsage | MalformedFile:
    """What the processes of a container have charged.

    ``path`` may be the symbolic link that the store makes; the file itself must be a regular one.

    Raises:
        OSError: it cannot be opened or read.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", str(path))
        return parse_usage(read_at_most(fd, REGION_SIZE))
    finally:
        os.close(fd)


def parse_usage(data: bytes) -> RegionUsage | MalformedFile:
    """The region in ``data``; what follows it is not looked at."""
    if len(data) < REGION_SIZE:
        return _malformed("", f"has {len(data)} bytes instead of {REGION_SIZE}")
    region = UsageC.from_buffer_copy(data)
    for name, expected in _HEADER:
        found = getattr(region, name)
        if found != expected:
            return _malformed(name, f"is {found:#x} instead of {expected:#x}")
    rows = [tuple(row) for row in region.charged]
    slots: list[SlotUsage] = []
    refused = 0
    for number, slot in enumerate(region.slots):
        charged = tuple(row[number] for row in rows)
        if slot.pid == 0 and not any(charged):
            continue
        if _makes_sense(slot, charged):
            slots.append(_slot_usage(number, slot, charged))
        else:
            refused += 1
    return RegionUsage(slots=tuple(slots), refused=refused)


def _makes_sense(slot: SlotC, charged: tuple[int, ...]) -> bool:
    return (
        0 < slot.pid <= _LAST_PID
        and slot.flags & ~_KNOWN_FLAGS == 0
        and max(charged) <= MOST_CHARGED
    )


def _slot_usage(number: int, slot: SlotC, charged: tuple[int, ...]) -> SlotUsage:
    return SlotUsage(
        slot=number,
        pid=slot.pid,
        start_time=slot.start_time,
        pid_namespace=slot.pid_namespace,
        generation=slot.generation,
        bypass=bool(slot.flags & SLOT_BYPASS),
        charged=charged,
    )


def _malformed(position: str, problem: str) -> MalformedFile:
    return MalformedFile(annotation="usage region", position=position, text="", problem=problem)
