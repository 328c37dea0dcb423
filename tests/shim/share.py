"""Tenants that share one simulated card, the monitor that watches them, and each one's share.

The truth is the card's own count of how long each tenant had it. The monitor is ``hami monitor``; it
sees only what NVML shows: whole percents of samples, each a little late.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hami.policy.compute.shares import FLOOR
from hami.slices.limits_page import DeviceLimit, Policy

from ..monitor.world import NodeSlices, ProcTree
from .builds import Build
from .simulated import SimulatedGpus
from .slices import uuid_of

ROOT = Path(__file__).parents[2]
MEMORY = 8 << 30
"""Bytes of each slice; no tenant asks for more than a context takes."""
SAMPLE = 0.1
"""Seconds between two samples of the card."""
POINTS = 3.0
"""Percent of the card by which a share may differ from its cap, where kernels are short."""
STARTS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Load:
    """One tenant and what its program does (``shim/tests/programs/tenant.c`` knows the options)."""

    cap: int = 0
    """Its guarantee, in percent of the card; 0 and 100 are no limit."""
    limit: int = 0
    """Up to so many percent, of what others leave, under the policy ``default``; 0: of all."""
    ns: int = 100_000
    graph: int = 0
    policy: Policy = "force"
    priority: int = 1
    processes: int = 1
    library: bool = True
    options: Mapping[str, int] = field(default_factory=dict)

    @property
    def launch_ns(self) -> int:
        return self.ns * max(self.graph, 1)

    def arguments(self) -> list[str]:
        every = {"ns": self.ns, "graph": self.graph, **self.options}
        return [f"{name}={value}" for name, value in every.items()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Percent of the card: of its time, and of its capacity in that time (narrow kernels use less)."""

    time: float
    work: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Used:
    """The card's own count at one moment: nanoseconds of time and of work, by tenant."""

    at: int
    by: Mapping[str, tuple[int, int]]

    def since(self, before: Used, name: str) -> Share:
        passed = self.at - before.at
        time_now, work_now = self.by.get(name, (0, 0))
        time_then, work_then = before.by.get(name, (0, 0))
        return Share(
            time=100 * (time_now - time_then) / passed,
            work=100 * (work_now - work_then) / passed,
            seconds=passed / 1e9,
        )


class Tenant:
    """A container: its slice and the processes in it."""

    def __init__(self, name: str, load: Load, card: Card) -> None:
        self.name, self.load, self._card = name, load, card
        self.slice = card.hall.slices.add(
            uuid_of(card.unit),
            memory=MEMORY,
            cores=load.cap,
            cores_limit=load.limit,
            policy=load.policy,
            priority=load.priority,
        )
        self.programs: list[subprocess.Popen[str]] = []
        self._started = 0

    def prepare(self) -> None:
        """Start its programs, and wait until they are ready."""
        self.programs += [self._starts() for _ in range(self.load.processes)]
        for program in self.programs:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n", f"{self.name}: {program.wait(STARTS)}"
            self._started += 1
            self._card.hall.proc.lend(
                program.pid,
                pod_uid=self.slice.pod_uid,
                container_id=f"{self.slice.id}{self._started}",
                page=self.slice.limits,
            )

    def _starts(self) -> subprocess.Popen[str]:
        hall = self._card.hall
        preload = {"LD_PRELOAD": str(hall.build.library)} if self.load.library else {}
        return subprocess.Popen(
            [hall.build.program("tenant"), *self.load.arguments()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **hall.gpus.env(self.name, VISIBLE=self._card.unit),
                "HAMI_SLICE_DIR": str(self.slice.path),
                **preload,
            },
            text=True,
        )

    def go(self) -> None:
        for program in self.programs:
            assert program.stdin is not None
            program.stdin.write("\n")
            program.stdin.flush()

    def starts(self) -> None:
        """Work with all its programs."""
        self.prepare()
        self.go()

    def caps_at(self, cores: int) -> None:
        """Change the cap from now on."""
        limit = DeviceLimit(uuid=uuid_of(self._card.unit), memory_bytes=MEMORY, cores=cores)
        load = self.load
        self._card.hall.slices.limit(
            self.slice, [limit], policy=load.policy, priority=load.priority
        )

    @property
    def works(self) -> bool:
        """Whether any of its programs still runs."""
        return any(program.poll() is None for program in self.programs)

    def kill(self) -> None:
        """Kill all its programs."""
        for program in self.programs:
            program.kill()
        for program in self.programs:
            program.wait(STARTS)
            self._card.hall.proc.end(program.pid)
            for pipe in (program.stdin, program.stdout):
                assert pipe is not None
                pipe.close()
        self.programs.clear()


class Card:
    """One card and its tenants."""

    def __init__(self, hall: Hall, unit: int) -> None:
        self.hall, self.unit = hall, unit
        self.tenants: list[Tenant] = []

    def add(self, load: Load) -> Tenant:
        """Add a tenant that does nothing yet."""
        tenant = Tenant(f"card-{self.unit}-tenant-{len(self.tenants)}", load, self)
        self.tenants.append(tenant)
        return tenant


class Hall:
    """Simulated cards side by side, each with its own tenants, and ``hami monitor`` for all."""

    def __init__(self, folder: Path, build: Build, gpus: SimulatedGpus, cards: int) -> None:
        self.folder, self.build, self.gpus = folder, build, gpus
        self.slices = NodeSlices(folder / "slices")
        self.proc = ProcTree(folder / "proc")
        self.cards = [Card(self, unit) for unit in range(cards)]
        self.late = 0.0
        """Seconds by which this process slept too long at most: the machine had no processor."""
        self._monitor: subprocess.Popen[bytes] | None = None

    @property
    def tenants(self) -> list[Tenant]:
        return [tenant for card in self.cards for tenant in card.tenants]

    def start_monitor(self, floor: int = FLOOR) -> None:
        """``floor``: what a slice keeps that waits for one of higher priority, in 1/100 percent."""
        with (self.folder / "monitor.log").open("ab") as log:
            self._monitor = subprocess.Popen(
                [sys.executable, "-m", "hami", "monitor", "--vendors", "nvidia",
                 "--slices", self.slices.root, "--proc-root", self.proc.root,
                 "--priority-floor", str(floor // 100), "--metrics-bind-address", "off"],
                stdout=log,
                stderr=log,
                env={**self.gpus.env(), "HOME": str(self.folder), "PYTHONPATH": str(ROOT)},
            )  # fmt: skip

    def kill_monitor(self) -> None:
        if self._monitor is not None:
            assert self._monitor.poll() is None, (self.folder / "monitor.log").read_text()
            self._monitor.kill()
            self._monitor.wait(STARTS)
            self._monitor = None

    def start(self) -> None:
        """Start all tenants at the same moment."""
        for tenant in self.tenants:
            tenant.prepare()
        self.wait_for_monitor()
        for tenant in self.tenants:
            tenant.go()

    def wait_for_monitor(self) -> None:
        """Until it has told every slice something, if there is one."""
        until = time.monotonic() + STARTS
        while self._monitor and any(t.slice.observed.heartbeat < 2 for t in self.tenants):
            assert time.monotonic() < until, (self.folder / "monitor.log").read_text()
            time.sleep(SAMPLE)

    def used(self) -> Used:
        found = json.loads(self.gpus.command("busy"))
        return Used(
            at=found["now_ns"],
            by={row["tenant"]: (row["wall_ns"], row["sm_ns"]) for row in found["tenants"]},
        )

    def wait(self, seconds: float) -> None:
        """Let time pass, and see whether this machine had a processor all the time."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            asked = min(SAMPLE / 2, left)
            slept = time.monotonic()
            time.sleep(asked)
            self.late = max(self.late, time.monotonic() - slept - asked)

    def watch(self, seconds: float) -> Mapping[Tenant, Share]:
        """Each tenant's shares within ``seconds``."""
        before = self.used()
        self.wait(seconds)
        after = self.used()
        return {tenant: after.since(before, tenant.name) for tenant in self.tenants}

    def close(self) -> None:
        for tenant in self.tenants:
            tenant.kill()
        self.kill_monitor()
        self.slices.close()


@contextmanager
def a_hall(
    folder: Path, build: Build, cards: int = 1, *, monitored: bool = True, floor: int = FLOOR
) -> Iterator[Hall]:
    """A hall whose tenants and monitor are killed at the end."""
    with SimulatedGpus(folder, build=build, gpus=cards) as gpus:
        gpus.command("set", "sample_ms", round(SAMPLE * 1000))
        hall = Hall(folder, build, gpus, cards)
        try:
            if monitored:
                hall.start_monitor(floor)
            yield hall
        finally:
            hall.close()


def tolerance(load: Load, seconds: float) -> float:
    """Percent of the card: the promised error, or two launches where that is more."""
    return max(POINTS, 200 * load.launch_ns / 1e9 / seconds)
