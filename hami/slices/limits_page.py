"""The limits page of a slice: what the enforcing library in the container obeys.

The file holds two copies and the index of the one in use (``shim/include/hami_slice.h``). The
library maps it, so a change is made in place: first the idle copy, then the one byte of the index,
by two ``pwrite`` calls. Each takes and releases the inode's lock in the kernel; an unlock followed
by a lock on one CPU orders the stores before it and after it for every observer (Linux kernel
memory model, ``po-unlock-lock-po``), so whoever sees the new index sees the new copy; and one byte
cannot tear. The checksum of a copy is a second line: a reader that is overtaken twice while it
copies sees a mixture and tries again.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from hami.domain.errors import HamiError
from hami.slices.c_layout import (
    LIMITS_ABI,
    LIMITS_MAGIC,
    LIMITS_SUM_WORD,
    MAX_DEVICES,
    MAX_SLOTS,
    UUID_SIZE,
    DeviceLimitC,
    LimitsC,
    LimitsPageC,
)
from hami.slices.files import MalformedFile

Policy = Literal["default", "force", "disable"]

PAGE_SIZE = ctypes.sizeof(LimitsPageC)
_COPY_SIZE = ctypes.sizeof(LimitsC)
_INDEX = LimitsPageC.index.offset
_COPIES = LimitsPageC.copies.offset
_HEADER = (
    ("magic", LIMITS_MAGIC),
    ("abi", LIMITS_ABI),
    ("size", PAGE_SIZE),
    ("copy_size", _COPY_SIZE),
    ("device_capacity", MAX_DEVICES),
    ("slot_capacity", MAX_SLOTS),
    ("observed_offset", LimitsPageC.observed.offset),
)
_POLICIES: tuple[Policy, ...] = ("default", "force", "disable")
_CODES = MappingProxyType({policy: code for code, policy in enumerate(_POLICIES)})
_WORD = (1 << 64) - 1


class LimitsUnfit(HamiError):
    """Limits that the page has no room or no words for; the message names the device and value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceLimit:
    """``memory_bytes`` 0: no limit; ``cores``, in percent, 0 or 100: no limit.

    ``cores_limit``: the percent up to which it may use what others leave idle; 0: none is named,
    and the policy says.
    """

    uuid: str
    memory_bytes: int
    cores: int
    context_reserve_bytes: int = 0
    cores_limit: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PageLimits:
    """``generation`` is the allocation's, 0 if unsigned; ``devices`` in the container's order."""

    generation: int
    devices: tuple[DeviceLimit, ...]
    priority: int = 1
    policy: Policy = "default"


def encode(limits: PageLimits) -> bytes:
    """A new page that says ``limits``.

    Raises:
        LimitsUnfit: too many devices, or a value out of range.
    """
    page = LimitsPageC()
    for name, value in _HEADER:
        setattr(page, name, value)
    page.copies[0] = _copy(limits, revision=1)
    return bytes(page)


def page_revision(data: bytes) -> int:
    """The number of the page's last change; ``data`` has at least both copies."""
    copy = LimitsC.from_buffer_copy(data, _COPIES + (data[_INDEX] & 1) * _COPY_SIZE)
    return int(copy.revision)


def read_page(data: bytes) -> PageLimits | MalformedFile:
    """What a page says to a container that reads it now."""
    used = _copy_in_use(data)
    return used if isinstance(used, MalformedFile) else _limits(used)


def update(
    fd: int, limits: PageLimits, pwrite: Callable[[int, bytes, int], int] | None = None
) -> Literal["same", "updated"] | MalformedFile:
    """Make the page in the file behind ``fd`` say ``limits``; there is one such writer at a time.

    Nothing is synced: after a crash of the machine nobody maps the page any more, and the slice's
    record says what it must say. ``MalformedFile``: the file is no such page; it stays as it is.

    Raises:
        LimitsUnfit: too many devices, or a value out of range.
        OSError: the page says what it said before.
    """
    data = os.pread(fd, PAGE_SIZE + 1, 0)
    used = _copy_in_use(data)
    if isinstance(used, MalformedFile):
        return used
    if _limits(used) == limits:
        return "same"
    idle = 1 - data[_INDEX]
    copy = bytes(_copy(limits, revision=used.revision + 1))
    start = _COPIES + idle * _COPY_SIZE
    write = pwrite or os.pwrite
    written = 0
    while written < len(copy):
        written += write(fd, copy[written:], start + written)
    write(fd, bytes([idle]), _INDEX)
    return "updated"


def checksum(copy: bytes) -> int:
    """``hami_limits_sum``: 64-bit FNV-1a over words; a shift lets high bits reach low ones."""
    total = 0xCBF29CE484222325
    for position, word in enumerate(memoryview(copy).cast("Q")):
        if position != LIMITS_SUM_WORD:
            total = ((total ^ word) * 0x100000001B3) & _WORD
            total ^= total >> 32
    return total


def _copy(limits: PageLimits, *, revision: int) -> LimitsC:
    if len(limits.devices) > MAX_DEVICES:
        raise LimitsUnfit(
            f"{len(limits.devices)} devices in one container: a limits page has room for "
            f"{MAX_DEVICES}; ask for fewer"
        )
    copy = LimitsC(
        revision=revision,
        generation=_in_range("generation", limits.generation, _WORD),
        device_count=len(limits.devices),
        priority=_in_range("priority", limits.priority, (1 << 32) - 1),
        policy=_CODES[limits.policy],
    )
    for index, device in enumerate(limits.devices):
        copy.devices[index] = _device(device)
    copy.checksum = checksum(bytes(copy))
    return copy


def _device(device: DeviceLimit) -> DeviceLimitC:
    uuid = device.uuid.encode()
    if not uuid or len(uuid) >= UUID_SIZE or b"\0" in uuid:
        raise LimitsUnfit(
            f"device {device.uuid!r}: an id on a limits page has 1 to {UUID_SIZE - 1} bytes, no NUL"
        )
    of = f"of device {device.uuid}"
    return DeviceLimitC(
        uuid=uuid,
        memory_bytes=_in_range(f"memory {of}", device.memory_bytes, _WORD),
        context_reserve_bytes=_in_range(
            f"context reserve {of}", device.context_reserve_bytes, _WORD
        ),
        cores=_in_range(f"cores {of}", device.cores, 100),
        cores_limit=_in_range(f"limit of cores {of}", device.cores_limit, 100),
    )


def _in_range(what: str, value: int, most: int) -> int:
    if not 0 <= value <= most:
        raise LimitsUnfit(f"{what} is {value}; a limits page takes 0 to {most}")
    return value


def _copy_in_use(data: bytes) -> LimitsC | MalformedFile:
    if len(data) != PAGE_SIZE:
        return _malformed("", f"has {len(data)} bytes instead of {PAGE_SIZE}")
    page = LimitsPageC.from_buffer_copy(data)
    for name, expected in _HEADER:
        found = getattr(page, name)
        if found != expected:
            return _malformed(name, f"is {found:#x} instead of {expected:#x}")
    if page.index > 1:
        return _malformed("index", f"is {page.index}; there are two copies")
    copy: LimitsC = page.copies[page.index]
    where = f"copy {page.index}"
    if copy.checksum != checksum(bytes(copy)):
        return _malformed(where, "its checksum is wrong")
    if copy.device_count > MAX_DEVICES:
        return _malformed(where, f"names {copy.device_count} devices")
    if copy.policy >= len(_POLICIES):
        return _malformed(where, f"has policy {copy.policy}")
    for index, device in enumerate(copy.devices[: copy.device_count]):
        if max(device.cores, device.cores_limit) > 100:
            most = max(device.cores, device.cores_limit)
            return _malformed(f"{where}, device {index}", f"has {most} percent of cores")
        if not _is_text(copy, index):
            return _malformed(f"{where}, device {index}", "has no readable id")
    return copy


def _is_text(copy: LimitsC, index: int) -> bool:
    start = LimitsC.devices.offset + index * ctypes.sizeof(DeviceLimitC)
    name, end, _ = bytes(copy)[start : start + UUID_SIZE].partition(b"\0")
    try:
        return bool(end) and bool(name.decode())
    except UnicodeDecodeError:
        return False


def _limits(copy: LimitsC) -> PageLimits:
    return PageLimits(
        generation=copy.generation,
        priority=copy.priority,
        policy=_POLICIES[copy.policy],
        devices=tuple(
            DeviceLimit(
                uuid=device.uuid.decode(),
                memory_bytes=device.memory_bytes,
                cores=device.cores,
                context_reserve_bytes=device.context_reserve_bytes,
                cores_limit=device.cores_limit,
            )
            for device in copy.devices[: copy.device_count]
        ),
    )


def _malformed(position: str, problem: str) -> MalformedFile:
    return MalformedFile(annotation="limits page", position=position, text="", problem=problem)
