"""The layouts that HAMi's library gave its shared region, and how to tell them apart.

Every file begins with the same magic and is as long as its structure, or one byte longer. Six
layouts are known. The length tells three of them. Three have one length: one says that it is
version 1.2, and two that differ say that they are version 1.1. The status of a process tells these
two: each has it where the other has a word that stays 0.
"""

from __future__ import annotations

from dataclasses import dataclass

from hami.slices.files import MalformedFile

MAGIC = 19920718
MAX_DEVICES = 16
MAX_PROCESSES = 1024
UUID_CELL = 96


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionLayout:
    """Offsets and sizes in bytes; those of a process count from its own begin.

    At ``tail`` stand four 32-bit numbers: processes, utilisation switch, recent kernel, priority;
    and then, where ``has_last_kernel``, the time of the last kernel in Unix seconds.
    """

    version: str
    size: int
    device_count: int
    uuids: int
    limits: int
    sm_limits: int
    processes: int
    process_size: int
    used: int
    used_size: int
    status: int
    tail: int
    utilisation: int = 0
    utilisation_size: int = 0
    has_last_kernel: bool = False

    @property
    def has_utilisation(self) -> bool:
        return self.utilisation_size > 0


def _early(
    version: str, size: int, process_size: int, status: int, utilisation: int
) -> RegionLayout:
    """Before the file said its version."""
    return RegionLayout(
        version=version, size=size, device_count=48, uuids=56, limits=1592, sm_limits=1720,
        processes=1848, process_size=process_size, used=8, used_size=40, status=status,
        tail=size - 16, utilisation=utilisation, utilisation_size=24 if utilisation else 0,
    )  # fmt: skip


def _late(version: str, *, header: int = 0, process: int = 0) -> RegionLayout:
    """Since version 1; ``header`` and ``process`` are by how much what follows was moved."""
    return RegionLayout(
        version=version, size=2008952 + header, device_count=56 + header, uuids=64 + header,
        limits=1600 + header, sm_limits=1728 + header, processes=1856 + header, process_size=1960,
        used=8 + process, used_size=64, status=1928 + process, tail=2008896 + header,
        utilisation=1160 + process, utilisation_size=48, has_last_kernel=True,
    )  # fmt: skip


JANUARY_2024 = _early("0 (2024-01)", 804680, 784, 776, 0)
V0 = _early("0", 1197896, 1168, 1160, 776)
V1_1 = _late("1.1")
V1_1_SEQLOCK = _late("1.1 (2026-03)", process=8)
V1_1_POSTINIT = _late("1.1 (2026-04)", header=32, process=8)
V1_2 = _late("1.2")
LAYOUTS = (JANUARY_2024, V0, V1_1, V1_1_SEQLOCK, V1_1_POSTINIT, V1_2)

LARGEST_HEADER = max(layout.processes for layout in LAYOUTS)


def layouts_of(size: int, header: bytes) -> tuple[RegionLayout, ...] | MalformedFile:
    """The layouts that a file of ``size`` bytes can have: one, or two that ``only_one`` tells."""
    if int.from_bytes(header[:4], "little") != MAGIC:
        return refused("the magic number is missing, so no process has made it ready yet")
    fitting = tuple(each for each in LAYOUTS if size in (each.size, each.size + 1))
    if not fitting:
        return refused(f"no known layout has {size} bytes")
    if not fitting[0].version.startswith("1."):
        return fitting
    said = tuple(int.from_bytes(header[start : start + 4], "little") for start in (4, 8))
    version = "{}.{}".format(*said)
    named = tuple(each for each in fitting if each.version.split()[0] == version)
    return named or refused(f"no known layout of version {version} has {size} bytes")


def only_one(layouts: tuple[RegionLayout, ...], processes: bytes) -> RegionLayout | MalformedFile:
    """The layout in which ``processes`` were written; any of them where no process shows it."""
    if len(layouts) == 1:
        return layouts[0]
    step = layouts[0].process_size
    shown = {
        layout.version: layout
        for layout in layouts
        if any(processes[at] for at in range(layout.status, len(processes), step))
    }
    if len(shown) > 1:
        return refused(f"processes of two layouts in one file: {' and '.join(sorted(shown))}")
    return next(iter(shown.values()), layouts[0])


def refused(problem: str) -> MalformedFile:
    return MalformedFile(
        annotation="region of HAMi's library", position="", text="", problem=problem
    )
