"""The usage region of a slice: made here, written by the container, read as hostile input.

Whoever runs in the container can truncate the file, grow it or write what they like into it: so it
is read with bounded ``pread`` calls, never mapped (a truncated mapping is SIGBUS), and every field
is checked before it means anything.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

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
_LONGEST = 1 << 60
"""Nanoseconds, some 36 years: no device has been at work for longer."""
_SLOTS, _CHARGED, _BUCKETS = UsageC.slots.offset, UsageC.charged.offset, UsageC.buckets.offset
_SLOT = struct.Struct("<IIQQQ")
"""``struct hami_slot`` up to its generation; :mod:`hami.slices.c_layout` has all of it."""
_EVERY_BUCKET = struct.Struct("<" + "16x Q 24x Q 8x" * MAX_DEVICES)
"""``charged`` and ``waited`` of every ``struct hami_bucket``, in turn."""
_SLOT_SIZE = ctypes.sizeof(SlotC)
_FLOCK = struct.Struct("hhqqi0q")
"""``struct flock`` (fcntl(2)) where a ``long`` has 64 bits."""
_ROW_SIZE = 8 * MAX_SLOTS
_NO_ROW = bytes(_ROW_SIZE)
_NOTHING = (0,) * MAX_DEVICES
_NO_BUCKETS = bytes(_EVERY_BUCKET.size)
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


class BucketUsage(NamedTuple):
    """Of one device, in nanoseconds, since the region was made: what the container's processes were
    charged of its time, and for how long their threads have waited for their turn.
    """

    charged_ns: int = 0
    waited_ns: int = 0


_UNUSED = BucketUsage()
UNUSED_BUCKETS = (_UNUSED,) * MAX_DEVICES


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionUsage:
    """Every slot that was ever used; ``refused`` counts those whose fields make no sense.

    ``buckets`` by device; one that makes no sense counts as unused.
    """

    slots: tuple[SlotUsage, ...] = ()
    refused: int = 0
    buckets: tuple[BucketUsage, ...] = UNUSED_BUCKETS


def empty_region() -> bytes:
    """What the file is made with."""
    region = UsageC()
    for name, value in _HEADER:
        setattr(region, name, value)
    return bytes(region)


_HEADER_BYTES = empty_region()[: UsageC.reserved.offset]


class UsageReader:
    """Reads one region again and again; what a program did not change is not parsed again."""

    def __init__(self) -> None:
        self._before = b""
        self._read: tuple[tuple[SlotUsage, ...], int] = ((), 0)

    def read(self, fd: int) -> RegionUsage | MalformedFile:
        """What the region says now. One caller at a time.

        Raises:
            OSError: it cannot be read.
        """
        return self.parse(os.pread(fd, REGION_SIZE, 0))

    def parse(self, data: bytes) -> RegionUsage | MalformedFile:
        """The region in ``data``; what follows it is not looked at."""
        if not self._before or len(data) < REGION_SIZE or not data.startswith(self._before):
            if (problem := _header_problem(data)) is not None:
                return problem
            self._read = _parsed_slots(data)
            self._before = data[:_BUCKETS]
        found, refused = self._read
        return RegionUsage(slots=found, refused=refused, buckets=_parsed_buckets(data))


def read_usage(path: Path) -> RegionUsage | MalformedFile:
    """What the processes of a container have charged.

    ``path`` may be the symbolic link that the store makes; the file itself must be a regular one.

    Raises:
        OSError: it cannot be opened or read.
    """
    fd = open_region(path)
    try:
        return parse_usage(read_at_most(fd, REGION_SIZE))
    finally:
        os.close(fd)


def open_region(path: Path | str, *, within: int | None = None) -> int:
    """A descriptor to read it by; nothing that a tenant can put there makes us wait.

    Raises:
        OSError: it is not there, or is no regular file.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=within)
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    raise OSError(errno.EINVAL, "it is no regular file", str(path))


def is_held(fd: int, slot: int) -> bool:
    """Whether a process holds the slot's lock, which the kernel takes from it however it ends.

    Who ended leaves its words in the slot until another process of the container takes it. A
    program that closes every descriptor it does not know lives on without the lock.

    Raises:
        OSError: the file knows no locks.
    """
    asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, slot, 1, 0)
    answer = fcntl.fcntl(fd, fcntl.F_OFD_GETLK, asked)
    return int(_FLOCK.unpack(answer)[0]) != fcntl.F_UNLCK


def parse_usage(data: bytes) -> RegionUsage | MalformedFile:
    """The region in ``data``; what follows it is not looked at."""
    return UsageReader().parse(data)


def _header_problem(data: bytes) -> MalformedFile | None:
    if len(data) < REGION_SIZE:
        return _malformed("", f"has {len(data)} bytes instead of {REGION_SIZE}")
    if data.startswith(_HEADER_BYTES):
        return None
    region = UsageC.from_buffer_copy(data)
    for name, expected in _HEADER:
        found = getattr(region, name)
        if found != expected:
            return _malformed(name, f"is {found:#x} instead of {expected:#x}")
    return None


def _parsed_slots(data: bytes) -> tuple[tuple[SlotUsage, ...], int]:
    words = memoryview(data)
    pids = words[_SLOTS:_CHARGED].cast("I")[:: _SLOT_SIZE // 4].tolist()
    rows = [_row(data, device) for device in range(MAX_DEVICES)]
    charging = {slot for row in rows if row for slot, charge in enumerate(row) if charge}
    slots: list[SlotUsage] = []
    refused = 0
    for number in sorted({*charging, *(slot for slot, pid in enumerate(pids) if pid)}):
        pid, flags, start_time, pid_namespace, generation = _SLOT.unpack_from(
            data, _SLOTS + number * _SLOT_SIZE
        )
        charged = tuple([row[number] if row else 0 for row in rows]) if charging else _NOTHING
        if not 0 < pid <= _LAST_PID or flags & ~_KNOWN_FLAGS or max(charged) > MOST_CHARGED:
            refused += 1
            continue
        slots.append(
            SlotUsage(
                slot=number,
                pid=pid,
                start_time=start_time,
                pid_namespace=pid_namespace,
                generation=generation,
                bypass=bool(flags & SLOT_BYPASS),
                charged=charged,
            )
        )
    return tuple(slots), refused


def _row(data: bytes, device: int) -> Sequence[int]:
    """What each slot has charged of one device; empty where that is nothing."""
    start = _CHARGED + device * _ROW_SIZE
    row = data[start : start + _ROW_SIZE]
    return () if row == _NO_ROW else memoryview(row).cast("Q").tolist()


def _parsed_buckets(data: bytes) -> tuple[BucketUsage, ...]:
    if data.startswith(_NO_BUCKETS, _BUCKETS):
        return UNUSED_BUCKETS
    times = _EVERY_BUCKET.unpack_from(data, _BUCKETS)
    return tuple(
        [
            BucketUsage(charged, waited)
            if charged + waited > 0 and charged <= _LONGEST and waited <= _LONGEST
            else _UNUSED
            for charged, waited in zip(times[::2], times[1::2], strict=True)
        ]
    )


def _malformed(position: str, problem: str) -> MalformedFile:
    return MalformedFile(annotation="usage region", position=position, text="", problem=problem)
