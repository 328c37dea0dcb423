"""What libvgpu.so costs: calls with and without it, on the simulated driver, in turns."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import msgspec

from benchmarks.rows import Row, p50, percentile
from tests.kubernetes.binaries import Missing
from tests.shim.builds import SHIM, Build
from tests.shim.simulated import SimulatedGpus
from tests.shim.slices import Slice

LIMIT_BYTES = 64 << 30
"""The slice's limit, on a card of 80 GiB, so that nothing measured is refused."""
LARGE, SMALL = 4 << 20, 4 << 10
"""Bytes of an allocation: a large one has the driver's blocks to itself, small ones share one."""
CAP = 99
"""Percent of a card: all the bookkeeping of a compute limit, and next to no waiting. Even empty
kernels keep a card busy, by its own clock, when they follow each other as fast as they can."""
LOWEST = 0.1
SLOWER = 30
"""Under a compute limit, batches are this many times longer and fewer."""
MONITOR_SECONDS = 0.5
"""How often the monitor's words, which the library reads, change."""


class Effort(msgspec.Struct, frozen=True, kw_only=True):
    """How much to measure. ``batch_ns`` is about how long one side measures before the other."""

    batches: int = 1500
    batch_ns: int = 200_000
    live: int = 10_000
    idle: int = 255
    active: int = 15
    starts: int = 300


def measure() -> Sequence[Row]:
    if shutil.which("make") is None or shutil.which("cc") is None:
        raise Missing("there is no C compiler to build libvgpu.so and the simulated GPUs with")
    built = subprocess.run(
        ["make", "-C", SHIM, "bench"], check=False, capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr[-4000:]
    return measured(Build(folder=SHIM / "build", flavour=""), Effort())


class Took(msgspec.Struct, frozen=True, kw_only=True):
    """Nanoseconds per call: elapsed, and on a processor."""

    elapsed: float
    processor: float


class Calls:
    """``shim/bench/calls.c``: a process that makes calls and says how long they took."""

    def __init__(self, program: Path, env: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True
        )
        assert self._answer() == "ready"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def ask(self, *words: object) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        assert answer, f"{words}: it ended with {self._process.wait()}"
        return answer

    def time(self, what: str, count: int, bytes_: int) -> Took:
        elapsed, processor = self.ask("time", what, count, bytes_).split()
        return Took(elapsed=float(elapsed), processor=float(processor))


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What each side took in nanoseconds, batch by batch."""

    bare: Sequence[float]
    under: Sequence[float]

    @property
    def median(self) -> float:
        return p50(self.under) - p50(self.bare)

    @property
    def lowest(self) -> float:
        """The difference in the tenth of the batches that were disturbed least."""
        return percentile(self.under, LOWEST) - percentile(self.bare, LOWEST)

    def row(self, what: str, most: float | None = None, *, also: str = "") -> Row:
        seen = f"{p50(self.under):.1f} ns, bare {p50(self.bare):.1f} ns; "
        return Row(
            what=what,
            value=round(self.median, 1),
            unit="ns",
            most=most,
            seen=f"{seen}lowest tenth {self.lowest:+.1f} ns{also}",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two processes that make the same calls, one without the library and one with it."""

    bare: Calls
    under: Calls
    container: Slice
    effort: Effort

    def both(self, *words: object) -> None:
        self.bare.ask(*words)
        self.under.ask(*words)

    def added(self, what: str, bytes_: int = LARGE) -> Added:
        """The added processor time: these calls never wait, but other processes take turns."""
        return self.added_both(what, bytes_)[0]

    def added_both(self, what: str, bytes_: int = LARGE) -> tuple[Added, Added]:
        """The added processor time and the added elapsed time.

        Sides take turns, so that a disturbance slows both.
        """
        sides = (self.bare, self.under)
        took: tuple[list[Took], list[Took]] = ([], [])
        once = max(side.time(what, 100, bytes_).processor for side in sides)
        count = max(int(self.effort.batch_ns / max(once, 1.0)), 10)
        beat = 0.0
        for _ in range(self.effort.batches):
            if time.monotonic() - beat >= MONITOR_SECONDS:
                self.container.observe(*(0 for _ in self.container.usage().slots))
                beat = time.monotonic()
            for side, times in zip(sides, took, strict=True):
                times.append(side.time(what, count, bytes_))
        bare, under = took
        return (
            Added(bare=[it.processor for it in bare], under=[it.processor for it in under]),
            Added(bare=[it.elapsed for it in bare], under=[it.elapsed for it in under]),
        )


class Bench:
    """A simulated card, and containers on it."""

    def __init__(self, build: Build, gpus: SimulatedGpus, folder: Path, effort: Effort) -> None:
        self.build, self.gpus, self.folder, self.effort = build, gpus, folder, effort

    def program(self, name: str) -> Path:
        return self.build.folder / "bench" / name

    def container(self, name: str, *, cores: int = 0) -> Slice:
        """A container with the policy under which a compute limit always holds."""
        return Slice(self.folder / name, LIMIT_BYTES, cores=cores, policy="force")

    def bare(self, **knobs: object) -> dict[str, str]:
        return self.gpus.env("bench", LEDGER="local", **knobs)

    def under(self, container: Slice, **knobs: object) -> dict[str, str]:
        preload = {"LD_PRELOAD": str(self.build.library)}
        return {**self.bare(**knobs), **container.env(), **preload}

    @contextmanager
    def pair(self, container: Slice, **knobs: object) -> Iterator[Pair]:
        calls = self.program("calls")
        with (
            Calls(calls, self.bare(**knobs)) as bare,
            Calls(calls, self.under(container, **knobs)) as under,
        ):
            yield Pair(bare=bare, under=under, container=container, effort=self.effort)

    @contextmanager
    def crowd(self, container: Slice, count: int) -> Iterator[None]:
        """Processes that hold a slot each and do nothing."""
        process = subprocess.Popen(
            [self.program("crowd"), str(count)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self.under(container),
            text=True,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.wait()
        try:
            yield
        finally:
            process.communicate()


def measured(build: Build, effort: Effort) -> list[Row]:
    with tempfile.TemporaryDirectory() as name, SimulatedGpus(Path(name), build=build) as gpus:
        bench = Bench(build, gpus, Path(name), effort)
        return [*_free(bench), *_limited(bench), *_crowded(bench), *_busy(bench), *_starts(bench)]


def _free(bench: Bench) -> list[Row]:
    """Without a compute limit, alone; with the machine's own calls for scale."""
    live = bench.effort.live
    with bench.pair(bench.container("alone")) as pair:
        scale = ", ".join(
            f"{name} {p50(pair.added(what).bare):.0f} ns"
            for what, name in (("getpid", "getpid"), ("clock", "clock_gettime"))
        )
        rows = [
            pair.added("launch").row(
                "A launch without a compute limit: added by libvgpu.so", 10, also=f"; {scale}"
            ),
            pair.added("alloc").row("cuMemAlloc and cuMemFree, 4 MiB: added", 150),
            pair.added("alloc", SMALL).row("cuMemAlloc and cuMemFree, 4 KiB: added", 150),
            pair.added("async").row("cuMemAllocAsync and cuMemFreeAsync: added"),
            pair.added("info").row("cuMemGetInfo: added", 80),
        ]
        for text, bytes_ in (("4 MiB", LARGE), ("4 KiB", SMALL)):
            pair.both("hold", live, bytes_)
            found = pair.added("alloc", bytes_)
            rows.append(found.row(f"The same, {text}, {live} are live: added", 150))
            pair.both("drop")
    return rows


def _limited(bench: Bench) -> list[Row]:
    """Under a compute limit. Only some launches are measured, so a batch must be long enough."""
    container = bench.container("limited", cores=CAP)
    effort = msgspec.structs.replace(
        bench.effort,
        batches=-(-bench.effort.batches // SLOWER),
        batch_ns=bench.effort.batch_ns * SLOWER,
    )
    with bench.pair(container) as pair:
        longer = replace(pair, effort=effort)
        one = longer.added("launch")
        two = longer.added("launch2")
    with bench.pair(container, LAUNCH_NS=2000, EVENT_NS=1000) as pair:
        real, elapsed = replace(pair, effort=effort).added_both("launch")
    return [
        two.row(
            "A launch with a compute limit, by two threads at once: added",
            30,
            also=f"; by one thread {one.median:+.1f} ns",
        ),
        Row(
            what="The same, where a launch takes 2 us and an event 1 us: added",
            value=round(100 * real.median / p50(real.bare), 2),
            unit="%",
            most=2,
            seen=f"{p50(real.under):.0f} ns, bare {p50(real.bare):.0f} ns; lowest tenth "
            f"{real.lowest:+.1f} ns, elapsed {elapsed.lowest:+.1f} ns",
        ),
    ]


def _crowded(bench: Bench) -> list[Row]:
    container = bench.container("crowded")
    idle = bench.effort.idle + 1
    with bench.crowd(container, bench.effort.idle), bench.pair(container) as pair:
        held = len(container.usage().slots)
        assert held == idle, f"{held} slots are held, not {idle}"
        return [
            pair.added("alloc", size).row(
                f"cuMemAlloc and cuMemFree, {text}, {idle} processes, the others idle: added", 150
            )
            for size, text in ((LARGE, "4 MiB"), (SMALL, "4 KiB"))
        ]


def _busy(bench: Bench) -> list[Row]:
    """More processes than processors, in processor time."""
    container = bench.container("busy")
    with ExitStack() as stack:
        for _ in range(bench.effort.active):
            env = bench.under(container)
            stack.enter_context(Calls(bench.program("calls"), env)).ask("spin", "alloc")
        pair = stack.enter_context(bench.pair(container))
        fewer = msgspec.structs.replace(bench.effort, batches=-(-bench.effort.batches // SLOWER))
        return [
            replace(pair, effort=fewer)
            .added("alloc")
            .row(f"The same, 4 MiB, {bench.effort.active + 1} processes, all allocating: added")
        ]


def _lasts(program: Path, env: Mapping[str, str]) -> float:
    begin = time.perf_counter_ns()
    pid = os.posix_spawn(program, [program.name], env)
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"{program.name}: {status}"
    return float(time.perf_counter_ns() - begin)


def _starts(bench: Bench) -> list[Row]:
    container = bench.container("starting")
    crowded = bench.container("starting-crowded")
    others = bench.effort.idle - bench.effort.idle // 8  # they must not wait for a slot

    def added(name: str, to: Slice) -> Added:
        sides = (bench.bare(), bench.under(to))
        took: tuple[list[float], list[float]] = ([], [])
        for _ in range(bench.effort.starts):
            for env, times in zip(sides, took, strict=True):
                times.append(_lasts(bench.program(name), env))
        return Added(bare=took[0], under=took[1])

    def row(what: str, found: Added, most: float | None) -> Row:
        return Row(
            what=what,
            value=round(found.median / 1e6, 3),
            unit="ms",
            most=most,
            seen=f"{p50(found.under) / 1e6:.2f} ms, bare {p50(found.bare) / 1e6:.2f} ms; "
            f"lowest tenth {found.lowest / 1e6:+.3f} ms",
        )

    rows = [
        row("A process that calls cuInit, start to end: added", added("initialise", container), 1),
        row("A process without CUDA, start to end: added", added("idle", container), 1),
    ]
    with bench.crowd(crowded, others):
        found = added("initialise", crowded)
    return [*rows, row(f"The same with cuInit, beside {others} that are idle: added", found, 1)]
