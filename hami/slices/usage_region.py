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
from pathlib import Path
from typing import NamedTuple

import msgspec

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
_BUCKET = struct.Struct("<16x Q 24x Q 8x")
"""``charged`` and ``waited`` of a ``struct hami_bucket``."""
_SLOT_SIZE = ctypes.sizeof(SlotC)
_FLOCK = struct.Struct("hhqqi0q")
"""``struct flock`` (fcntl(2)) where a ``long`` has 64 bits."""
_ROW_SIZE = 8 * MAX_SLOTS
_NO_ROW = bytes(_ROW_SIZE)
_NOTHING = (0,) * MAX_DEVICES
_NO_BUCKETS = bytes(_BUCKET.size * MAX_DEVICES)
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


class SlotUsage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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


class RegionUsage(msgspec.Struct, frozen=True, kw_only=True, gc=False):
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

    def read(
        self, fd: int, buffer: bytearray, devices: int = MAX_DEVICES
    ) -> RegionUsage | MalformedFile:
        """What the region says now of its first ``devices``; of others it is not even read.

        One caller at a time. ``buffer`` has ``REGION_SIZE`` bytes, and is this call's.

        Raises:
            OSError: it cannot be read.
        """
        rows = _CHARGED + devices * _ROW_SIZE
        whole = memoryview(buffer)
        for begin, end in ((0, rows), (_BUCKETS, REGION_SIZE)):
            if os.preadv(fd, [whole[begin:end]], begin) < end - begin:
                return _cut_short(min(os.fstat(fd).st_size, REGION_SIZE - 1))
        return self.parse(buffer, devices)

    def parse(
        self, data: bytes | bytearray, devices: int = MAX_DEVICES
    ) -> RegionUsage | MalformedFile:
        """The region in ``data``, of its first ``devices``; what follows it is not looked at."""
        if len(data) < REGION_SIZE:
            return _cut_short(len(data))
        rows = _CHARGED + devices * _ROW_SIZE
        if len(self._before) != rows or not data.startswith(self._before):
            if (problem := _header_problem(data)) is not None:
                return problem
            self._read = _parsed_slots(data, devices)
            self._before = bytes(data[:rows])
        found, refused = self._read
        return RegionUsage(slots=found, refused=refused, buckets=_parsed_buckets(data, devices))


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


def _header_problem(data: bytes | bytearray) -> MalformedFile | None:
    if data.startswith(_HEADER_BYTES):
        return None
    region = UsageC.from_buffer_copy(data)
    for name, expected in _HEADER:
        found = getattr(region, name)
        if found != expected:
            return _malformed(name, f"is {found:#x} instead of {expected:#x}")
    return None


def _parsed_slots(data: bytes | bytearray, devices: int) -> tuple[tuple[SlotUsage, ...], int]:
    words = memoryview(data)
    pids = words[_SLOTS:_CHARGED].cast("I")[:: _SLOT_SIZE // 4].tolist()
    rows = [_row(data, device) for device in range(devices)] + [()] * (MAX_DEVICES - devices)
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


def _row(data: bytes | bytearray, device: int) -> Sequence[int]:
    """What each slot has charged of one device; empty where that is nothing."""
    start = _CHARGED + device * _ROW_SIZE
    row = data[start : start + _ROW_SIZE]
    return () if row == _NO_ROW else memoryview(row).cast("Q").tolist()


def _parsed_buckets(data: bytes | bytearray, devices: int) -> tuple[BucketUsage, ...]:
    if data.startswith(_NO_BUCKETS, _BUCKETS):
        return UNUSED_BUCKETS
    found = [_bucket(data, device) for device in range(devices)]
    return (*found, *UNUSED_BUCKETS[devices:])


def _bucket(data: bytes | bytearray, device: int) -> BucketUsage:
    charged, waited = _BUCKET.unpack_from(data, _BUCKETS + device * _BUCKET.size)
    return BucketUsage(charged, waited) if max(charged, waited) <= _LONGEST else _UNUSED


def _cut_short(size: int) -> MalformedFile:
    return _malformed("", f"has {size} bytes instead of {REGION_SIZE}")


def _malformed(position: str, problem: str) -> MalformedFile:
    return MalformedFile(annotation="usage region", position=position, text="", problem=problem)
