"""Who gets how much of a card: tenants of libvgpu.so on simulated ones, in real time.

``python -m benchmarks share`` takes ten minutes; beside the rows of the table it writes each
tenant's share into ``docs/benchmarks/share.csv`` and draws ``share.svg``.
"""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import share_moments, share_plot
from benchmarks.rows import Row
from tests.kubernetes.binaries import Missing
from tests.shim.builds import SHIM, Build
from tests.shim.share import Load, a_hall, tolerance

FOLDER = Path(__file__).parents[1] / "docs" / "benchmarks"
WARM_UP, WINDOW = 5.0, 10.0
SHORT = 100_000
"""Nanoseconds: launching kernels shorter than this keeps a processor busy."""
CARDS = 4
"""The number of simulated cards at the same time; one where kernels are short."""

US, MS = 1000, 1_000_000
NARROW = {"width": 125}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Tenants on one card. ``even``: each always has work and should get its due.

    ``lent``: what that is, in percent, where they have of what others leave; else their caps.
    """

    name: str
    loads: tuple[Load, ...]
    even: bool = True
    lent: tuple[float, ...] = ()

    @property
    def due(self) -> tuple[float, ...]:
        return self.lent or tuple(load.cap for load in self.loads)

    @property
    def short(self) -> bool:
        return min(load.ns for load in self.loads) < SHORT

    @property
    def full(self) -> bool:
        return self.even and sum(self.due) > 99


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One tenant of one case. ``due``: the percent of the card that it should have.

    ``work`` is ``time`` weighted by the kernels' width.
    """

    case: Case
    load: Load
    due: float
    time: float
    work: float

    @property
    def allowed(self) -> float:
        """Points by which its share may differ from its due."""
        return tolerance(self.load, WINDOW)

    @property
    def error(self) -> float:
        """Points of error. A tenant that does not always have work may have less than its due."""
        over = self.time - self.due
        return over if self.case.even or not self.load.options else max(over, 0.0)

    @property
    def judged(self) -> bool:
        return bool(self.case.lent) or 0 < self.load.cap < 100


def _even(name: str, *loads: Load) -> Case:
    return Case(name=name, loads=loads)


def _time(ns: int) -> str:
    return f"{ns // MS} ms" if ns >= MS else f"{ns // US} us"


def _alone() -> Iterable[Case]:
    for ns in (10 * US, 100 * US, MS, 10 * MS, 50 * MS, 200 * MS):
        for cap in (10, 30, 50, 70, 90):
            yield _even(f"alone, {_time(ns)}", Load(cap=cap, ns=ns))


def _together() -> Iterable[Case]:
    for ns in (10 * US, 100 * US, MS, 20 * MS, 200 * MS):
        for caps in ((10, 90), (30, 70), (50, 50), (20, 30, 50), (10, 20, 30, 40)):
            loads = (Load(cap=cap, ns=ns) for cap in caps)
            yield _even(f"{len(caps)} tenants, {_time(ns)}", *loads)
    yield _even("10 us beside 50 ms", Load(cap=50, ns=10 * US), Load(cap=50, ns=50 * MS))
    yield _even(
        "10 us to 200 ms",
        *(
            Load(cap=cap, ns=ns)
            for cap, ns in ((10, 10 * US), (20, MS), (30, 20 * MS), (40, 200 * MS))
        ),
    )
    yield _even("room to spare", Load(cap=20, ns=MS), Load(cap=30, ns=5 * MS))


def _shapes() -> Iterable[Case]:
    """Cases with streams, graphs, processes, and programs that wait for each kernel or pause."""
    for ns in (500 * US, 5 * MS):
        streams = {"streams": 8, **NARROW}
        free = Load(ns=ns, library=False, options=streams)
        yield _even(f"8 narrow streams, {_time(ns)}, no limit", free)
        for cap in (20, 50, 80):
            load = Load(cap=cap, ns=ns, options=streams)
            yield _even(f"8 narrow streams, {_time(ns)}", load)
    yield _even(
        "8 wide streams beside 4 narrow",
        Load(cap=40, ns=MS, options={"streams": 8}),
        Load(cap=60, ns=MS, options={"streams": 4, **NARROW}),
    )
    yield _even("graphs of 100", Load(cap=30, ns=20 * US, graph=100))
    yield _even(
        "graphs of 200 beside kernels",
        Load(cap=30, ns=100 * US, graph=200),
        Load(cap=70, ns=100 * US),
    )
    yield _even(
        "3 processes beside 2",
        Load(cap=30, ns=MS, processes=3),
        Load(cap=70, ns=4 * MS, processes=2),
    )
    yield _even("waits for each, 5 ms", Load(cap=40, ns=5 * MS, options={"waits": 1}))
    for on, off in ((400, 300), (1500, 1000)):
        yield Case(
            name=f"steady beside bursts of {on} ms, pauses of {off}",
            loads=(
                Load(cap=40, ns=MS),
                Load(cap=60, ns=2 * MS, options={"on": on, "off": off}),
            ),
            even=False,
        )


def _lent(name: str, *tenants: tuple[Load, float]) -> Case:
    """Who gets what of the card beyond what was guaranteed; a due of each."""
    return Case(
        name=name,
        loads=tuple(load for load, _ in tenants),
        lent=tuple(due for _, due in tenants),
    )


def _lends() -> Iterable[Case]:
    """30 tenants that may have more than their guarantee."""

    def a(cap: int, limit: int = 0, *, ns: int = MS, **options: int) -> Load:
        return Load(cap=cap, limit=limit, ns=ns, policy="default", options=options)

    yield _lent("lent, alone, to a limit", (a(30, 80), 80))
    yield _lent("lent, alone, to a limit, 50 ms", (a(10, 50, ns=50 * MS), 50))
    yield _lent("lent, alone, all", (a(30), 100))
    yield _lent("lent, 8 narrow streams, to a limit", (a(20, 60, streams=8, **NARROW), 60))
    yield _lent("lent, waits for each, 5 ms", (a(20, 40, ns=5 * MS, waits=1), 40))
    for ns in (MS, 10 * MS, 100 * MS):
        yield _lent(f"lent, 2 tenants, {_time(ns)}", (a(20, ns=ns), 40), (a(30, ns=ns), 60))
    yield _lent("lent, two limits", (a(10, 50), 50), (a(20, 30, ns=4 * MS), 30))
    yield _lent("lent, one limit", (a(10), 40), (a(40, 60, ns=10 * MS), 60))
    yield _lent("lent, but all is wanted", (a(30), 30), (a(70, ns=4 * MS), 70))
    yield _lent("lent, beside a forced one", (a(30), 80), (Load(cap=20, ns=5 * MS), 20))
    yield _lent("lent, beside none guaranteed", (a(70), 70), (a(0), 30))
    yield _lent("lent, 3 tenants", (a(10), 50 / 3), (a(20), 100 / 3), (a(30), 50))
    yield _lent(
        "lent, 3 tenants, 1 to 50 ms",
        (a(10), 50 / 3), (a(20, ns=10 * MS), 100 / 3), (a(30, ns=50 * MS), 50),
    )  # fmt: skip
    yield _lent("lent, 3 tenants, one limit", (a(10, 15), 15), (a(20), 34), (a(30), 51))


def _batches(cases: Sequence[Case]) -> Iterable[Sequence[Case]]:
    yield from ([case] for case in cases if case.short)
    light = [case for case in cases if not case.short]
    for at in range(0, len(light), CARDS):
        yield light[at : at + CARDS]


def _run(cases: Sequence[Case], build: Build, warm_up: float, window: float) -> list[Measured]:
    with (
        tempfile.TemporaryDirectory() as folder,
        a_hall(Path(folder), build, len(cases)) as hall,
    ):
        for case, card in zip(cases, hall.cards, strict=True):
            for load in case.loads:
                card.add(load)
        hall.start()
        hall.wait(warm_up)
        shares = hall.watch(window)
        return [
            Measured(
                case=case,
                load=tenant.load,
                due=due,
                time=shares[tenant].time,
                work=shares[tenant].work,
            )
            for case, card in zip(cases, hall.cards, strict=True)
            for tenant, due in zip(card.tenants, case.due, strict=True)
        ]


def measured(
    cases: Sequence[Case], build: Build, *, warm_up: float = WARM_UP, window: float = WINDOW
) -> list[Measured]:
    found: list[Measured] = []
    for batch in _batches(cases):
        sys.stderr.write(f"  {'; '.join(case.name for case in batch)}\n")
        found += _run(batch, build, warm_up, window)
    return found


def beside(found: Sequence[Measured]) -> Mapping[Measured, float]:
    """Work of tenants with streams, in percent of the uncapped work that their cap allows."""
    whole = {one.load.ns: one.work for one in found if not one.load.library}
    return {
        one: 100 * 100 * one.work / (one.due * whole[one.load.ns])
        for one in found
        if one.judged and len(one.case.loads) == 1 and one.load.ns in whole
        if "streams" in one.load.options
    }


def sums(found: Sequence[Measured]) -> Mapping[Case, float]:
    """Percent of the card in use, for cases whose tenants may use all of it."""
    full = {one.case for one in found if one.case.full}
    return {case: sum(one.time for one in found if one.case is case) for case in full}


def rows(found: Sequence[Measured]) -> list[Row]:
    judged = [one for one in found if one.judged]
    worst = max(judged, key=lambda one: abs(one.error) / one.allowed)
    mean = sum(abs(one.error) for one in judged) / len(judged)
    used, streams = sums(found), beside(found)
    emptiest = min(used, key=lambda case: used[case])
    slowest = min(streams, key=lambda one: streams[one])
    return [
        Row(
            what="Compute share of a tenant against what it is due, largest error",
            value=round(abs(worst.error) / worst.allowed, 2),
            unit="x allowed",
            most=1,
            seen=f"{worst.case.name}, {worst.due:.0f} %: {worst.time:.1f} %, allowed "
            f"{worst.allowed:.1f} points; mean error of {len(judged)} {mean:.2f} points",
        ),
        Row(
            what="A card whose tenants may use all of it, least used",
            value=round(used[emptiest], 1),
            unit="%",
            least=97,
            seen=f"{emptiest.name}; mean of {len(used)} {sum(used.values()) / len(used):.1f} %",
        ),
        Row(
            what="Work in 8 streams under a cap, of cap x uncapped, least",
            value=round(streams[slowest], 1),
            unit="%",
            least=90,
            seen=f"{slowest.case.name}, {slowest.load.cap} %; of {len(streams)}",
        ),
    ]


def save(found: Sequence[Measured], folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    with (folder / "share.csv").open("w", newline="") as file:
        write = csv.writer(file, lineterminator="\n").writerow
        write(
            ("case", "tenants", "cap_percent", "limit_percent", "due_percent", "kernel_us",
             "kernels_a_launch", "processes", "options", "share_percent",
             "work_percent", "error_points", "allowed_points")
        )  # fmt: skip
        for one in found:
            options = " ".join(f"{name}={value}" for name, value in one.load.options.items())
            write(
                (one.case.name, len(one.case.loads), one.load.cap, one.load.limit,
                 f"{one.due:.1f}", one.load.ns / US, max(one.load.graph, 1),
                 one.load.processes, options, f"{one.time:.2f}",
                 f"{one.work:.2f}", f"{one.error:.2f}" if one.judged else "",
                 f"{one.allowed:.1f}" if one.judged else "")
            )  # fmt: skip
    points = [
        share_plot.Point(
            due=one.due,
            share=one.time,
            launch_ns=one.load.launch_ns,
            tenants=len(one.case.loads),
            even=one.case.even or not one.load.options,
        )
        for one in found
        if one.judged
    ]
    (folder / "share.svg").write_text(share_plot.drawn(points, window=WINDOW))


def measure() -> Sequence[Row]:
    if shutil.which("make") is None or shutil.which("cc") is None:
        raise Missing("there is no C compiler to build libvgpu.so and the simulated GPUs with")
    subprocess.run(["make", "-C", SHIM, "all"], check=True, capture_output=True)
    build = Build(folder=SHIM / "build", flavour="")
    found = measured([*_alone(), *_together(), *_shapes(), *_lends()], build)
    save(found, FOLDER)
    return [*rows(found), *share_moments.rows(build)]
