"""``shim/tests/programs/storm.c``: programs that take device memory by every way there is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .memory import Program, Tenant

WAYS = (
    "cuMemAlloc_v2",
    "cuMemAlloc",
    "cuMemAllocManaged",
    "cuMemAllocPitch_v2",
    "cuMemAllocPitch",
    "cuMemAllocAsync",
    "cuMemAllocAsync_ptsz",
    "cuMemAllocFromPoolAsync",
    "cuMemAllocFromPoolAsync_ptsz",
    "new-pool",
    "chosen-pool",
    "freed-late",
    "cuMemCreate",
    "cuMemMap",
    "cuArrayCreate_v2",
    "cuArrayCreate",
    "cuArray3DCreate_v2",
    "cuArray3DCreate",
    "thin-array",
    "cuMipmappedArrayCreate",
    "graph",
    "cuImportExternalMemory",
    "context",
)
"""Ways of allocating, in the order of the program's own table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stormed:
    """The outcome of one storm."""

    refused: int
    granted: Mapping[str, int]


class StormProgram(Program):
    def take(self, way: str, size: int, count: int = 1 << 30) -> tuple[int, int]:
        """Allocate up to ``count`` times, or until refused: the last result, and how many."""
        result, taken = self.ask("take", way, size, count)
        return result, taken

    def give(self, way: str, keep: int = 0) -> None:
        """Free all but every ``keep``-th allocation, and what the driver caches."""
        self.does("give", way, keep)

    def storms(
        self,
        seed: int,
        *,
        most: int,
        rounds: int = 0,
        small: int = 50,
        threads: int = 1,
        forks: int = 0,
        ways: tuple[str, ...] = (),
    ) -> None:
        """``small`` percent of requests below 1 MiB; ``forks`` in 1000 rounds; see ``stormed``."""
        self.tell("storm", seed, rounds, most, small, threads, forks, *ways)

    def stormed(self) -> Stormed:
        result, refused, *granted = self.answer()
        assert result == 0
        return Stormed(refused=refused, granted=dict(zip(WAYS, granted, strict=True)))


class StormTenant(Tenant):
    """Programs in one container that allocate what they can get."""

    def starts(self, *, library: bool = True, **knobs: object) -> StormProgram:
        return StormProgram(
            self._build.program("storm"),
            {**self._gpus.env(self.name, **knobs), **self.slice.env()},
            self._build.library if library else None,
        )

    def runs(self, gpu: int = 0, **knobs: object) -> StormProgram:
        program = self.starts(**knobs)
        program.does("init")
        program.does("device", gpu)
        return program

    @property
    def region(self) -> Path:
        return self.slice.folder / "usage"
