"""Units and identifiers as types, so that MiB are never added to percent."""

from __future__ import annotations

from typing import NewType

DeviceId = NewType("DeviceId", str)
"""Unique within a vendor and a node, stable across reboots: ``GPU-0f3a...``; never an index."""

VendorKey = NewType("VendorKey", str)
"""The word for a vendor in annotations: ``NVIDIA``, ``DCU``."""

PodUid = NewType("PodUid", str)

MemoryMiB = NewType("MemoryMiB", int)
"""Mebibytes; the only unit of memory inside the core."""

CorePercent = NewType("CorePercent", int)
"""Compute, in percent of one physical device; 100 is a whole one."""

MIB = 1 << 20

MAX_DEVICE_MEMORY = MemoryMiB(1 << 24)
"""No device has more memory than this (16 TiB); a larger request has the wrong unit."""

WHOLE_DEVICE = CorePercent(100)


def with_unit(number: int, unit: str) -> str:
    """The number with its unit, ``5 MiB``; a plain count has none."""
    return f"{number} {unit}" if unit else str(number)


def mib_down(count: int) -> MemoryMiB:
    """Bytes to MiB, rounded down: for hardware and limits, never promise what is not there."""
    return MemoryMiB(count // MIB)


def mib_up(count: int) -> MemoryMiB:
    """Bytes to MiB, rounded up: for requests, never give less than was asked."""
    return MemoryMiB(-(-count // MIB))
