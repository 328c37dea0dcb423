"""One shared region of HAMi's library, read with bounded reads: every byte of it is hostile."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionProcess:
    """What a process says of itself, by device: bytes and percent.

    ``pid`` is the container's. ``utilisation`` is empty in a layout that has none.
    """

    slot: int
    pid: int
    used: tuple[int, ...]
    utilisation: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionDevice:
    """A device, and what all processes together say of it.

    ``uuid`` is empty where the region names none; limits are in bytes and percent, 0 for none.
    ``used`` may exceed the sum of its parts: context, module and buffer, all in bytes.
    """

    uuid: str
    memory_limit: int
    sm_limit: int
    context: int = 0
    module: int = 0
    buffer: int = 0
    used: int = 0
    utilisation: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """One region.

    ``last_kernel`` in Unix seconds, 0 if not known. ``recent_kernel``: above 0 after a launch,
    below 0 while launches have to wait. ``unreadable`` counts processes that make no sense,
    ``numbers`` is processes times devices: so long does it take to read it.
    """

    layout: RegionLayout
    devices: tuple[RegionDevice, ...]
    processes: tuple[RegionProcess, ...]
    priority: int
    recent_kernel: int
    utilization_switch: int
    last_kernel: int = 0
    unreadable: int = 0
    numbers: int = 0


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
    read_as = _Numbers(layout, processes)
    devices = [
        _Said.of(read_as, layout, place)
        for place in range(min(_word(header, layout.device_count), MAX_DEVICES))
    ]
    statuses, pids = read_as.column(layout.status, "i"), read_as.column(0, "i")
    mad = frozenset(slot for said in devices for slot in said.mad)
    live = [slot for slot, status in enumerate(statuses) if status in _LIVE and slot not in mad]
    none = ((),) * len(statuses)
    used = list(zip(*(said.used for said in devices), strict=True)) or none
    percents = list(zip(*(said.utilisation for said in devices), strict=True)) or none
    return Region(
        layout=layout,
        devices=tuple(_device(layout, header, *each, live) for each in enumerate(devices)),
        processes=tuple(
            [
                RegionProcess(
                    slot=slot, pid=pids[slot], used=used[slot], utilisation=percents[slot]
                )
                for slot in live
            ]
        ),
        priority=priority,
        recent_kernel=recent,
        utilization_switch=switch,
        last_kernel=_word(ending, 16) if layout.has_last_kernel else 0,
        unreadable=len(statuses) - statuses.count(0) - len(live),
        numbers=len(statuses) * len(devices),
    )


class _Numbers:
    """Numbers of all processes. Little-endian, as the library and everything beside it is."""

    def __init__(self, layout: RegionLayout, processes: bytes) -> None:
        self._size = layout.process_size
        self._by_kind = {kind: array(kind, processes) for kind in ("i", "Q")}

    def column(self, offset: int, kind: Literal["i", "Q"] = "Q") -> list[int]:
        """One number of every process, which stands ``offset`` bytes behind its begin."""
        numbers = self._by_kind[kind]
        width = numbers.itemsize
        return numbers[offset // width :: self._size // width].tolist()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """What all processes say of one device, by slot; ``mad`` are slots that make no sense."""

    context: list[int]
    module: list[int]
    buffer: list[int]
    used: list[int]
    utilisation: list[int]
    mad: list[int]

    @classmethod
    def of(cls, numbers: _Numbers, layout: RegionLayout, place: int) -> _Said:
        at = layout.used + place * layout.used_size
        context, module, buffer, used = (numbers.column(at + part) for part in (0, 8, 16, 32))
        percents: list[int] = []
        if layout.has_utilisation:
            percents = numbers.column(layout.utilisation + place * layout.utilisation_size + 16)
            if max(percents, default=0) > 100:
                # NVML gives garbage now and then; nobody uses more than a whole device.
                percents = [min(percent, 100) for percent in percents]
        mad = [
            slot
            for column in (context, module, buffer, used)
            if max(column, default=0) > MOST_CHARGED
            for slot, number in enumerate(column)
            if number > MOST_CHARGED
        ]
        return cls(
            context=context, module=module, buffer=buffer, used=used, utilisation=percents, mad=mad
        )


def _device(
    layout: RegionLayout, header: bytes, place: int, said: _Said, live: Sequence[int]
) -> RegionDevice:
    memory_limit = _word(header, layout.limits + 8 * place)
    sm_limit = _word(header, layout.sm_limits + 8 * place)
    return RegionDevice(
        uuid=_uuid(header[layout.uuids + place * UUID_CELL :][:_UUID_TEXT]),
        memory_limit=memory_limit if memory_limit <= MOST_CHARGED else 0,
        sm_limit=sm_limit if sm_limit <= 100 else 0,
        context=sum([said.context[slot] for slot in live]),
        module=sum([said.module[slot] for slot in live]),
        buffer=sum([said.buffer[slot] for slot in live]),
        used=sum([said.used[slot] for slot in live]),
        utilisation=min(100, sum([said.utilisation[slot] for slot in live]))
        if layout.has_utilisation
        else 0,
    )


def _word(data: bytes, offset: int) -> int:
    return int.from_bytes(data[offset : offset + 8], "little")


def _uuid(cell: bytes) -> str:
    name = cell.partition(b"\0")[0]
    return name.decode() if name.isascii() and name.decode("ascii").isprintable() else ""
