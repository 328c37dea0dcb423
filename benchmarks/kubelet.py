"""The node agent and kubelet, over real sockets; the agent is a process as in a pod."""

from __future__ import annotations

import asyncio
import itertools
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from hami_lab.live import LIVE_PODS

from benchmarks.agent_world import AgentWorld, Caller, Run
from benchmarks.kubelet_calls import Times
from benchmarks.rows import Row, ms, p50, p99, percentile, ratio
from benchmarks.stage import as_installed
from hami.cli.commands.device_plugin import FIRST_CALLS
from hami.node.kubelet.checkpoint import read_checkpoint
from tests.node.fake_kubelet import FakeKubelet
from tests.node.world import RESOURCE

CALLS, BURST, BURSTS, RESTARTS = 2000, 100, 20, 50
PODS, STORM = 35, 60
CALM = 2.0
"""Seconds until nothing of the start is left to do."""
MOST_REGISTERED = 100.0
"""In milliseconds. After a restart, kubelet fails pods whose plugin needs more than about a second
to return."""
MOST_ALLOCATE = 5.0
MOST_MIB, MOST_MIB_IDLE = 80.0, 60.0
IMPORTS = 10
MOST_IMPORTS = 1.9
"""Half a second where the libraries alone take 0.26 s."""


@dataclass(slots=True, kw_only=True)
class Seen:
    """What was measured; seconds, MiB."""

    idle: Times
    busy: Times
    patches: float
    bursts: Times
    restarts: Sequence[float]
    first: Sequence[float]
    repeated: Times
    storm: Sequence[Run]
    mib_alone: float
    mib_idle: float
    mib_slices: float
    mib_afterwards: float


def measure() -> list[Row]:
    seen = asyncio.run(_measure())
    return [*_calls(seen), *_starts(seen), _imports(), *_memory(seen)]


def _calls(seen: Seen) -> list[Row]:
    return [
        _beyond_echo("Allocate beyond an empty gRPC call, API server idle, p99", seen.idle),
        _beyond_echo(
            "Allocate beyond an empty gRPC call, API server busy, p99",
            seen.busy,
            f"; {seen.patches:.0f} pods of the node changed a second",
        ),
        Row(
            what=f"{BURST} Allocates at once, refused",
            value=len(seen.bursts.refused),
            unit="calls",
            most=0,
            seen=f"{BURSTS} times; all answered within p50 {ms(p50(seen.bursts.taken))}, "
            f"worst {ms(max(seen.bursts.taken))}",
        ),
        Row(
            what=f"kubelet's socket is back until it has our devices, worst of {RESTARTS}",
            value=round(max(seen.restarts) * 1000, 1),
            unit="ms",
            most=MOST_REGISTERED,
            seen=f"p50 {ms(p50(seen.restarts))}, p90 {ms(percentile(seen.restarts, 0.9))}",
        ),
    ]


def _beyond_echo(what: str, times: Times, more: str = "") -> Row:
    taken, echo = times.taken, times.echo
    return Row(
        what=what,
        value=round((p99(taken) - p99(echo)) * 1000, 2),
        unit="ms",
        most=MOST_ALLOCATE,
        seen=f"p50 {ms(p50(taken))}, p99 {ms(p99(taken))}; empty p50 {ms(p50(echo))}, "
        f"p99 {ms(p99(echo))}{more}",
    )


def _starts(seen: Seen) -> list[Row]:
    begin = min(run.bound for run in seen.storm)
    taken = [run.started - run.bound for run in seen.storm]
    return [
        Row(
            what="PreStartContainer, first: a slice is prepared, p99",
            value=round(p99(seen.first) * 1000, 2),
            unit="ms",
            seen=f"p50 {ms(p50(seen.first))}, {len(seen.first)} containers one after the other",
        ),
        Row(
            what="PreStartContainer, repeated, p99",
            value=round(p99(seen.repeated.taken) * 1000, 2),
            unit="ms",
            seen=f"p50 {ms(p50(seen.repeated.taken))}, {2 * PODS} slices",
        ),
        Row(
            what=f"{STORM} pods x 2 containers at once, bound until all are started",
            value=round(max(run.started for run in seen.storm) - begin, 2),
            unit="s",
            seen=f"a pod p50 {statistics.median(taken):.2f} s; API server and kubelet are "
            f"simulated, in one process",
        ),
    ]


def _imports() -> Row:
    """The least of several, in turns: whatever else the machine does only adds."""
    for part in ("agent", "libraries"):
        _imports_seconds(part)  # writes bytecode
    turns = [(_imports_seconds("agent"), _imports_seconds("libraries")) for _ in range(IMPORTS)]
    agent, libraries = map(min, zip(*turns, strict=True))
    return Row(
        what="All imports of the agent, against those of the libraries that it needs",
        value=ratio(agent, libraries),
        unit="x",
        most=MOST_IMPORTS,
        seen=f"{agent:.2f} s of the processor, libraries {libraries:.2f} s; best of {IMPORTS}",
    )


def _imports_seconds(part: str) -> float:
    command = [sys.executable, "-m", "benchmarks.agent_imports", part]
    return float(subprocess.check_output(command, env=as_installed()))


def _memory(seen: Seen) -> list[Row]:
    return [
        Row(
            what="The agent's resident memory, kubelet is not there yet",
            value=round(seen.mib_alone, 1),
            unit="MiB",
            most=MOST_MIB_IDLE,
            seen="three plugins, in-cluster credentials; no gRPC call was made",
        ),
        Row(
            what="The agent's resident memory, idle",
            value=round(seen.mib_idle, 1),
            unit="MiB",
            most=MOST_MIB_IDLE,
            seen="kubelet has its devices",
        ),
        Row(
            what=f"The agent's resident memory, {PODS} pods x 2 containers",
            value=round(seen.mib_slices, 1),
            unit="MiB",
            most=MOST_MIB,
            seen=f"at the end of everything above {seen.mib_afterwards:.1f} MiB",
        ),
    ]


async def _measure() -> Seen:
    async with AgentWorld() as world:
        caller = Caller(world.folder)
        try:
            bursts, restarts = await _beside_kubelet(world, caller)
            await world.begin_lonely_agent()
            await asyncio.sleep(CALM)
            mib_alone = world.resident_mib()
            await world.end_agent()
            await world.begin_agent()
            await asyncio.sleep(FIRST_CALLS + CALM)
            mib_idle = world.resident_mib()
            runs = await world.run_pods(PODS)
            await asyncio.sleep(CALM)
            mib_slices = world.resident_mib()
            idle = await _allocates(world, caller)
            async with _busy(world, runs) as patches:
                begin, before = time.monotonic(), patches()
                busy = await _allocates(world, caller)
                per_second = (patches() - before) / (time.monotonic() - begin)
            repeated = await _repeated(world, caller)
            await world.end_pods(runs)
            first = await _first(world)
            storm = await world.run_pods(STORM)
            await world.end_pods(storm)
            return Seen(
                idle=idle,
                busy=busy,
                patches=per_second,
                bursts=bursts,
                restarts=restarts,
                first=first,
                repeated=repeated,
                storm=storm,
                mib_alone=mib_alone,
                mib_idle=mib_idle,
                mib_slices=mib_slices,
                mib_afterwards=world.resident_mib(),
            )
        finally:
            caller.close()


async def _beside_kubelet(world: AgentWorld, caller: Caller) -> tuple[Times, list[float]]:
    """Measure with a fake kubelet, which keeps no records and restarts in no time."""
    kubelet = FakeKubelet(world.folder / "kubelet")
    await kubelet.start()
    await world.begin_agent(kubelet.folder)
    try:
        async with asyncio.timeout(20):
            await kubelet.registered(1)
        bursts = await caller.times(
            call="Allocate at once",
            socket=str(world.socket(kubelet.folder)),
            ids=[[f"slot-{number}"] for number in range(BURST)],
            rounds=BURSTS,
        )
        return bursts, [await _restarted(kubelet) for _ in range(RESTARTS)]
    finally:
        await world.end_agent()
        await kubelet.die()


async def _restarted(kubelet: FakeKubelet) -> float:
    """Seconds from a restarted kubelet's new socket to the agent's first list."""
    count = len(kubelet.plugins)
    await kubelet.die()
    await asyncio.sleep(0.05)
    await kubelet.start()
    begin = kubelet.path.stat().st_mtime
    await kubelet.registered(count + 1)
    return time.time() - begin


async def _allocates(world: AgentWorld, caller: Caller) -> Times:
    times = await caller.times(
        call="Allocate", socket=str(world.socket()), ids=[["slot-159"]] * CALLS
    )
    assert not times.refused, times.refused[0]
    return times


@asynccontextmanager
async def _busy(world: AgentWorld, runs: Sequence[Run]) -> AsyncIterator[Any]:
    """Let the API server change pods of the node as fast as it can; yields the count."""
    changed = 0

    async def change(number: int) -> None:
        nonlocal changed
        for turn in itertools.count():
            patch = {"metadata": {"annotations": {"example.com/turn": str(turn)}}}
            await world.client.patch(LIVE_PODS, runs[number].name, patch, namespace="default")
            changed += 1

    tasks = [asyncio.create_task(change(number)) for number in range(4)]
    try:
        yield lambda: changed
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _repeated(world: AgentWorld, caller: Caller) -> Times:
    """Start each container again, several times."""
    entries = read_checkpoint(world.node.plugins)
    assert isinstance(entries, tuple), entries
    held = [sorted(entry.ids) for entry in entries if entry.resource == RESOURCE]
    times = await caller.times(
        call="PreStartContainer", socket=str(world.socket()), ids=held, rounds=5
    )
    assert not times.refused, times.refused[0]
    return times


async def _first(world: AgentWorld) -> list[float]:
    """Run pods one after the other, and delete them in the end."""
    taken: list[float] = []
    devices = world.node.devices
    before_start = devices.before_start

    async def timed(*args: Any) -> Any:
        begin = time.perf_counter()
        answer = await before_start(*args)
        taken.append(time.perf_counter() - begin)
        return answer

    devices.before_start = timed  # type: ignore[method-assign,assignment]
    try:
        runs = [run for _ in range(PODS) for run in await world.run_pods(1)]
    finally:
        devices.before_start = before_start  # type: ignore[method-assign]
    await world.end_pods(runs)
    return taken
