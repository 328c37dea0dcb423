"""Regions of HAMi's library for tests, by C structures that share nothing with the reader."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field

MAGIC = 19920718
GPUS = ("GPU-00000000-1111-2222-3333-444444444444", "GPU-00000000-1111-2222-3333-555555555555")
MIB = 1 << 20

i32, u32, i64, u64 = ctypes.c_int32, ctypes.c_uint32, ctypes.c_int64, ctypes.c_uint64


def struct_of(name: str, *fields: tuple[str, object]) -> type[ctypes.LittleEndianStructure]:
    return type(name, (ctypes.LittleEndianStructure,), {"_fields_": list(fields)})


def used_of(unused: int) -> type:
    numbers = [
        (name, u64) for name in ("context_size", "module_size", "data_size", "offset", "total")
    ]
    return struct_of("Used", *numbers, *([("unused", u64 * unused)] if unused else []))


def util_of(unused: int) -> type:
    numbers = [(name, u64) for name in ("dec_util", "enc_util", "sm_util")]
    return struct_of("Util", *numbers, *([("unused", u64 * unused)] if unused else []))


TAIL = (("proc_num", i32), ("utilization_switch", i32), ("recent_kernel", i32), ("priority", i32))
ARRAYS = (
    ("num", u64),
    ("uuids", ctypes.c_char * 96 * 16),
    ("limit", u64 * 16),
    ("sm_limit", u64 * 16),
)
SEM = ("sem", u64 * 4)


def january_2024() -> type:
    slot = struct_of(
        "Slot",
        ("pid", i32),
        ("hostpid", i32),
        ("used", used_of(0) * 16),
        ("monitorused", u64 * 16),
        ("status", i32),
    )
    # Slots have the alignment of their widest member.
    return struct_of(
        "Region",
        ("magic", i32),
        ("sm_init_flag", i32),
        ("owner_pid", u64),
        SEM,
        *ARRAYS,
        ("procs", slot * 1024),
        *TAIL,
    )


def v0() -> type:
    slot = struct_of(
        "Slot",
        ("pid", i32),
        ("hostpid", i32),
        ("used", used_of(0) * 16),
        ("monitorused", u64 * 16),
        ("device_util", util_of(0) * 16),
        ("status", i32),
    )
    return struct_of(
        "Region",
        ("magic", i32),
        ("sm_init_flag", i32),
        ("owner_pid", u32),
        ("sem", u32 * 8),
        *ARRAYS,
        ("procs", slot * 1024),
        *TAIL,
    )


def later(
    *, seqlock_first: bool = False, seqlock_last: bool = False, postinit_first: bool = False
) -> type:
    slot = struct_of(
        "Slot",
        ("pid", i32),
        ("hostpid", i32),
        *([("seqlock", u64)] if seqlock_first else []),
        ("used", used_of(3) * 16),
        ("monitorused", u64 * 16),
        ("device_util", util_of(3) * 16),
        ("status", i32),
        *([("seqlock", u64)] if seqlock_last else []),
        ("unused", u64 * (2 if seqlock_first or seqlock_last else 3)),
    )
    return struct_of(
        "Region",
        ("magic", i32),
        ("major", u32),
        ("minor", u32),
        ("sm_init_flag", i32),
        ("owner_pid", u64),
        SEM,
        *([("postinit", u64 * 4)] if postinit_first else []),
        *ARRAYS,
        ("procs", slot * 1024),
        *TAIL,
        ("last_kernel_time", i64),
        ("last", u64 * 4),
    )


@dataclass(frozen=True)
class Kind:
    """One layout in the field: what it says of itself, and its structure."""

    name: str
    region: type[ctypes.LittleEndianStructure]
    size: int
    version: tuple[int, int] | None = None
    has_util: bool = True


KINDS = (
    Kind("0 (2024-01)", january_2024(), 804680, has_util=False),
    Kind("0", v0(), 1197896),
    Kind("1.1", later(), 2008952, (1, 1)),
    Kind("1.1 (2026-03)", later(seqlock_first=True), 2008952, (1, 1)),
    Kind("1.1 (2026-04)", later(seqlock_first=True, postinit_first=True), 2008984, (1, 1)),
    Kind("1.2", later(seqlock_last=True), 2008952, (1, 2)),
)
BY_NAME = {kind.name: kind for kind in KINDS}


@dataclass(frozen=True)
class Live:
    """One process: MiB by device, as (context, module, data), and percent by device."""

    pid: int = 7
    held: tuple[tuple[int, int, int], ...] = ((300, 20, 1000),)
    percent: tuple[int, ...] = (40,)
    status: int = 1


@dataclass(frozen=True)
class Told:
    """What a region says."""

    gpus: tuple[str, ...] = GPUS[:1]
    limits: tuple[int, ...] = (4096,)
    cores: tuple[int, ...] = (30,)
    live: tuple[Live, ...] = (Live(),)
    recent: int = 2
    switch: int = 1
    priority: int = 1
    last_kernel: int = 1_700_000_000
    extra: dict[str, int] = field(default_factory=dict)


def region_bytes(kind: Kind, told: Told = Told()) -> bytes:
    """The file, with the one byte that the library writes behind its structure."""
    region = kind.region()
    assert ctypes.sizeof(region) == kind.size
    region.magic = MAGIC
    if kind.version:
        region.major, region.minor = kind.version
        region.last_kernel_time = told.last_kernel
    region.num = len(told.gpus)
    for at, (uuid, limit, cores) in enumerate(zip(told.gpus, told.limits, told.cores, strict=True)):
        region.uuids[at].value = uuid.encode()
        region.limit[at], region.sm_limit[at] = limit * MIB, cores
    for slot, live in enumerate(told.live):
        there = region.procs[slot]
        there.pid, there.hostpid, there.status = live.pid, live.pid + 1000, live.status
        if hasattr(there, "seqlock"):
            there.seqlock = 2 * (slot + 1)
        for at, parts in enumerate(live.held):
            context, module, data = (each * MIB for each in parts)
            used = there.used[at]
            used.context_size, used.module_size, used.data_size = context, module, data
            used.total = context + module + data
            if kind.has_util:
                there.device_util[at].sm_util = live.percent[at]
    region.proc_num = len(told.live)
    region.recent_kernel, region.utilization_switch = told.recent, told.switch
    region.priority = told.priority
    for name, value in told.extra.items():
        setattr(region, name, value)
    return bytes(region) + b"\0"
