"""Tenants that share one simulated card, a monitor that watches them, and each one's share.

The truth is the card's own count of how long each tenant had it. The monitor sees it only as NVML
shows it: whole percents of samples, each a little late.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from hami.policy.compute.demand import WHOLE, ComputeDemand, Entitlement, Seen
from hami.policy.compute.shares import FLOOR, Contender, divide
from hami.slices.c_layout import BucketC
from hami.slices.limits_page import Policy

from .builds import Build
from .simulated import SimulatedGpus
from .slices import OTHERS, Slice

MEMORY = 8 << 30
"""Bytes of each slice; no tenant asks for more than a context takes."""
TICK = 0.5
"""Seconds between two rounds of the monitor."""
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
        self.slice = Slice(
            card.hall.folder / name,
            MEMORY,
            cores=load.cap,
            cores_limit=load.limit,
            policy=load.policy,
            priority=load.priority,
            first=card.unit,
        )
        self.programs: list[subprocess.Popen[str]] = []
        self.told: BucketC | None = None
        """What its processes had written at the last tick."""
        self._share = 0

    @property
    def entitlement(self) -> Entitlement:
        return Entitlement.of_page(
            cores=self.slice.cores,
            cores_limit=self.load.limit,
            policy=self.load.policy,
            priority=self.load.priority,
        )

    def seen(self, use: int) -> Seen:
        """What a monitor sees of it in a tick."""
        before, self.told = self.told, self.slice.bucket()
        if before is None or not self.load.library:
            return Seen(use=use)
        waited = (self.told.waited - before.waited) * WHOLE / (TICK * 1e9)
        launched = self.told.charged != before.charged if self._share else None
        return Seen(use=use, waited=round(waited), launched=launched)

    def tell(self, share: int, use: int, *, others: bool) -> None:
        self._share = share
        self.slice.observe_time(use, OTHERS * others, share)

    def prepare(self) -> None:
        """Start its programs, and wait until they are ready."""
        self.programs += [self._starts() for _ in range(self.load.processes)]
        for program in self.programs:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n", f"{self.name}: {program.wait(STARTS)}"

    def _starts(self) -> subprocess.Popen[str]:
        hall = self._card.hall
        preload = {"LD_PRELOAD": str(hall.build.library)} if self.load.library else {}
        return subprocess.Popen(
            [hall.build.program("tenant"), *self.load.arguments()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **hall.gpus.env(self.name, VISIBLE=self._card.unit),
                **self.slice.env(),
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
        self.slice.share(cores, MEMORY)

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
            for pipe in (program.stdin, program.stdout):
                assert pipe is not None
                pipe.close()
        self.programs.clear()


class Card:
    """One card, its tenants, and what the monitor knows of them.

    ``monitored``: whether a monitor looks at it. ``floor``: what a slice keeps, in 1/100 percent,
    that waits for one of higher priority.
    """

    def __init__(self, hall: Hall, unit: int) -> None:
        self.hall, self.unit = hall, unit
        self.tenants: list[Tenant] = []
        self.monitored = True
        self.floor = FLOOR
        self._samples: deque[Sample] = deque(maxlen=round(1 / SAMPLE))
        self._demands: Mapping[str, ComputeDemand] = {}

    def add(self, load: Load) -> Tenant:
        """Add a tenant that does nothing yet."""
        tenant = Tenant(f"card-{self.unit}-tenant-{len(self.tenants)}", load, self)
        self.tenants.append(tenant)
        return tenant

    def restart_monitor(self) -> None:
        """Forget what it saw, as one that is killed and started again."""
        self._samples.clear()
        self._demands = {}
        for tenant in self.tenants:
            tenant.told = None

    def tick(self, samples: Sequence[Sample]) -> None:
        """Divide the card, and tell each slice its share and what was seen of it."""
        if not self.monitored:
            return
        self._samples.extend(samples)
        contenders = {
            tenant.name: Contender(
                entitlement=tenant.entitlement, seen=tenant.seen(_mean(samples, tenant.name))
            )
            for tenant in self.tenants
        }
        division = divide(contenders, self._demands, floor=self.floor)
        self._demands = division.demands
        for tenant in self.tenants:
            tenant.tell(
                division.shares[tenant.name],
                _mean(self._samples, tenant.name),
                others=any(
                    division.demands[other.name].computes
                    for other in self.tenants
                    if other is not tenant
                ),
            )


Sample = Mapping[str, int]
"""Percent of its card that each tenant used for a moment."""


def _mean(samples: Collection[Sample], name: str) -> int:
    """In 1/100 percent."""
    return round(100 * sum(sample.get(name, 0) for sample in samples) / len(samples))


class Hall:
    """Simulated cards side by side, each with its own tenants, and one monitor for all."""

    def __init__(self, folder: Path, build: Build, gpus: SimulatedGpus, cards: int) -> None:
        self.folder, self.build, self.gpus = folder, build, gpus
        self.cards = [Card(self, unit) for unit in range(cards)]
        self.late = 0.0
        """Seconds by which this process slept too long at most: the machine had no processor."""
        self._ticked = time.monotonic()
        self._sampled = 0
        self._samples: list[Sample] = []

    @property
    def tenants(self) -> list[Tenant]:
        return [tenant for card in self.cards for tenant in card.tenants]

    def start(self) -> None:
        """Start all tenants at the same moment."""
        for tenant in self.tenants:
            tenant.prepare()
        for tenant in self.tenants:
            tenant.go()

    def used(self) -> Used:
        found = json.loads(self.gpus.command("busy"))
        return Used(
            at=found["now_ns"],
            by={row["tenant"]: (row["wall_ns"], row["sm_ns"]) for row in found["tenants"]},
        )

    def wait(self, seconds: float) -> None:
        """Let time pass while the monitor works."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            asked = min(SAMPLE / 2, left)
            slept = time.monotonic()
            time.sleep(asked)
            self.late = max(self.late, time.monotonic() - slept - asked)
            self._monitor()

    def watch(self, seconds: float) -> Mapping[Tenant, Share]:
        """Each tenant's shares within ``seconds``."""
        before = self.used()
        self.wait(seconds)
        after = self.used()
        return {tenant: after.since(before, tenant.name) for tenant in self.tenants}

    def _monitor(self) -> None:
        """Look at each sample once, and tell the slices once a tick."""
        board = self.gpus.board()
        if board["sampled_ns"] != self._sampled:
            self._sampled = board["sampled_ns"]
            sample: dict[str, int] = {}
            for row in board["rows"]:
                sample[row["tenant"]] = sample.get(row["tenant"], 0) + row["utilisation"]
            self._samples.append(sample)
        if self._samples and time.monotonic() - self._ticked >= TICK:
            self._ticked = max(self._ticked + TICK, time.monotonic() - TICK)
            for card in self.cards:
                card.tick(self._samples)
            self._samples.clear()


@contextmanager
def a_hall(folder: Path, build: Build, cards: int = 1) -> Iterator[Hall]:
    """A hall whose remaining tenants are killed at the end."""
    with SimulatedGpus(folder, build=build, gpus=cards) as gpus:
        gpus.command("set", "sample_ms", round(SAMPLE * 1000))
        hall = Hall(folder, build, gpus, cards)
        try:
            yield hall
        finally:
            for tenant in hall.tenants:
                tenant.kill()


def tolerance(load: Load, seconds: float) -> float:
    """Percent of the card: the promised error, or two launches where that is more."""
    return max(POINTS, 200 * load.launch_ns / 1e9 / seconds)
