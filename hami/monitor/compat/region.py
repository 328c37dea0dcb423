"""One shared region of HAMi's library, read with bounded reads: every byte of it is hostile."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass

from hami.monitor.compat.region_layout import (
    LARGEST_HEADER,
    MAX_DEVICES,
    MAX_PROCESSES,
    UUID_CELL,
    RegionLayout,
    layouts_of,
    only_one,
    refused,
)
from hami.slices.files import MalformedFile
from hami.slices.usage_region import MOST_CHARGED

_UUID_TEXT = 40
"""What HAMi reads of a cell: a uuid as NVIDIA's driver prints it."""
_TAIL = struct.Struct("<iiii")
_LIVE = (1, 2)
"""Running and suspended; 0 has exited."""

Read = Callable[[int, int], bytes]
"""``(length, offset)``: as ``os.pread`` of one file."""


@dataclass(frozen=True, slots=True)
class RegionMemory:
    """Bytes that one process was charged on one device; ``total`` may exceed the parts."""

    context: int
    module: int
    buffer: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionProcess:
    """What a process says of itself; ``memory`` and ``utilisation`` (percent) by device.

    ``pid`` is the container's. ``utilisation`` is empty in a layout that has none.
    """

    slot: int
    pid: int
    memory: tuple[RegionMemory, ...]
    utilisation: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionDevice:
    """``uuid`` is empty where the region names none; limits in bytes and percent, 0 for none."""

    uuid: str
    memory_limit: int
    sm_limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """One region.

    ``last_kernel`` in Unix seconds, 0 if not known. ``recent_kernel``: above 0 after a launch,
    below 0 while launches have to wait. ``unreadable`` counts processes that make no sense.
    """

    layout: RegionLayout
    devices: tuple[RegionDevice, ...]
    processes: tuple[RegionProcess, ...]
    priority: int
    recent_kernel: int
    utilization_switch: int
    last_kernel: int = 0
    unreadable: int = 0


def read_region(size: int, read: Read) -> Region | MalformedFile:
    """The region in a file that has ``size`` bytes now; at most 2 MiB are read of it.

    Raises:
        OSError: from ``read``.
    """
    header = read(LARGEST_HEADER, 0)
    layouts = layouts_of(size, header)
    if isinstance(layouts, MalformedFile):
        return layouts
    some = layouts[0]
    ending = read(some.size - some.tail, some.tail)
    if len(header) < some.processes or len(ending) < some.size - some.tail:
        return refused("it was cut short while it was read")
    count, switch, recent, priority = _TAIL.unpack_from(ending)
    wanted = min(max(count, 0), MAX_PROCESSES) * some.process_size
    processes = read(wanted, some.processes)
    if len(processes) < wanted:
        return refused("it was cut short while it was read")
    layout = only_one(layouts, processes)
    if isinstance(layout, MalformedFile):
        return layout
    devices = _devices(layout, header)
    found, unreadable = _processes(layout, processes, len(devices))
    return Region(
        layout=layout,
        devices=devices,
        processes=found,
        priority=priority,
        recent_kernel=recent,
        utilization_switch=switch,
        last_kernel=struct.unpack_from("<Q", ending, 16)[0] if layout.has_last_kernel else 0,
        unreadable=unreadable,
    )


def _devices(layout: RegionLayout, header: bytes) -> tuple[RegionDevice, ...]:
    [count] = struct.unpack_from("<Q", header, layout.device_count)
    limits = struct.unpack_from(f"<{MAX_DEVICES}Q", header, layout.limits)
    sm_limits = struct.unpack_from(f"<{MAX_DEVICES}Q", header, layout.sm_limits)
    return tuple(
        RegionDevice(
            uuid=_uuid(header[layout.uuids + i * UUID_CELL :][:_UUID_TEXT]),
            memory_limit=limits[i] if limits[i] <= MOST_CHARGED else 0,
            sm_limit=sm_limits[i] if sm_limits[i] <= 100 else 0,
        )
        for i in range(min(count, MAX_DEVICES))
    )


def _uuid(cell: bytes) -> str:
    name = cell.partition(b"\0")[0]
    return name.decode() if name.isascii() and name.decode("ascii").isprintable() else ""


def _processes(
    layout: RegionLayout, data: bytes, devices: int
) -> tuple[tuple[RegionProcess, ...], int]:
    found = []
    unreadable = 0
    for slot, start in enumerate(range(0, len(data), layout.process_size)):
        [status] = struct.unpack_from("<i", data, start + layout.status)
        if status == 0:
            continue
        process = _process(layout, data, start, slot, devices) if status in _LIVE else None
        if process is None:
            unreadable += 1
        else:
            found.append(process)
    return tuple(found), unreadable


def _process(
    layout: RegionLayout, data: bytes, start: int, slot: int, devices: int
) -> RegionProcess | None:
    """One live process; None if what it says cannot be."""
    memory = []
    for device in range(devices):
        at = start + layout.used + device * layout.used_size
        context, module, buffer, _, total = struct.unpack_from("<5Q", data, at)
        if max(context, module, buffer, total) > MOST_CHARGED:
            return None
        memory.append(RegionMemory(context, module, buffer, total))
    shares = [
        struct.unpack_from("<Q", data, start + layout.util + device * layout.util_size + 16)[0]
        for device in range(devices if layout.has_util else 0)
    ]
    return RegionProcess(
        slot=slot,
        pid=struct.unpack_from("<i", data, start)[0],
        memory=tuple(memory),
        # NVML gives garbage now and then; nobody uses more than a whole device.
        utilisation=tuple(min(share, 100) for share in shares),
    )
