"""Many processes at once, killed at any moment: no byte above the limit, by the cards' ledger.

The peak that the ledger keeps (see test_limits.py) is compared with the highest limit that was in
force while the storm went on: a request that was granted just before a limit sank was granted.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .builds import Build
from .memory import OUT_OF_MEMORY, SUCCESS
from .simulated import MIB, SimulatedGpus
from .slices import Slice
from .storms import WAYS, StormProgram, StormTenant

MakesTenant = Callable[..., StormTenant]

GRANULE = 2 * MIB
LIMIT = 255 * MIB + 3
RACERS = 16
CHEAP = {"CONTEXT_MIB": 2, "POOL_STEP": GRANULE}


@pytest.fixture
def gpus(shim: Build, tmp_path: Path):
    with SimulatedGpus(tmp_path, build=shim, gpus=2) as gpus:
        yield gpus


@pytest.fixture
def tenant(shim: Build, gpus: SimulatedGpus, tmp_path: Path) -> MakesTenant:
    def make(*memory: int, name: str = "a") -> StormTenant:
        return StormTenant(name, shim, gpus, Slice(tmp_path / name, *memory))

    return make


@contextmanager
def racing(tenant: StormTenant, count: int = RACERS) -> Iterator[list[StormProgram]]:
    """So many processes with a context; those that are left are killed."""
    programs = [tenant.starts(**CHEAP) for _ in range(count)]
    try:
        for program in programs:
            program.does("init")
            program.does("device", 0)
        yield programs
    finally:
        for program in programs:
            program.kill()


def everything_can_be_had(tenant: StormTenant, limit: int) -> None:
    """By the next process; and when it has given it back, nobody is charged anything."""
    with tenant.runs(**CHEAP) as last:
        result, blocks = last.take("cuMemCreate", GRANULE)
        assert (result, blocks) == (OUT_OF_MEMORY, limit // GRANULE)
        assert tenant.granted() == tenant.slice.charged() == blocks * GRANULE
        last.give("cuMemCreate")
        assert tenant.granted() == 0
        assert [sum(slot.charged) for slot in tenant.slice.usage().slots] == [0]


@pytest.mark.parametrize("small", [0, 50, 100], ids=["large", "mixed", "small"])
def test_racing_processes_by_every_way(small: int, tenant: MakesTenant):
    a = tenant(LIMIT)
    with racing(a) as programs:
        for round_ in range(2):
            for number, program in enumerate(programs):
                program.storms(
                    100 * round_ + number, rounds=150, most=20 * MIB, small=small, threads=1
                )
            stormed = [program.stormed() for program in programs]
            for way in WAYS:
                assert sum(one.granted[way] for one in stormed) > 0, way
            assert sum(one.refused for one in stormed) > 0 or small == 100
            # Whoever lives has given everything back.
            assert (a.granted(), a.slice.charged()) == (0, 0)
    assert LIMIT // 2 < a.peak() <= LIMIT
    everything_can_be_had(a, LIMIT)


def test_racing_threads_of_racing_processes(tenant: MakesTenant):
    a = tenant(LIMIT)
    with racing(a, 5) as programs:
        for number, program in enumerate(programs):
            program.storms(number, rounds=150, most=30 * MIB, threads=4)
        stormed = [program.stormed() for program in programs]
        assert sum(one.refused for one in stormed) > 0
        assert (a.granted(), a.slice.charged()) == (0, 0)
    assert LIMIT // 2 < a.peak() <= LIMIT


@pytest.mark.parametrize(("forks", "threads"), [(0, 1), (0, 3), (15, 1)])
def test_processes_killed_at_any_moment(
    forks: int, threads: int, tenant: MakesTenant, gpus: SimulatedGpus
):
    """With ``forks``: of processes that fork, children live on for up to 60 ms, or become others."""
    a = tenant(LIMIT)
    chance = random.Random(forks + threads)
    with racing(a, 10) as programs:
        for program in programs:
            program.storms(chance.randrange(1 << 20), most=40 * MIB, threads=threads, forks=forks)
        for _ in range(40):
            time.sleep(chance.uniform(0, 0.03))
            victim = chance.randrange(len(programs))
            programs[victim].kill()
            programs[victim] = next_one = a.runs(**CHEAP)
            next_one.storms(chance.randrange(1 << 20), most=40 * MIB, threads=threads, forks=forks)
    gpus.eventually(lambda: a.holds() == 0)
    assert LIMIT // 2 < a.peak() <= LIMIT
    everything_can_be_had(a, LIMIT)
    assert a.peak() <= LIMIT


@pytest.mark.parametrize("forks", [0, 15])
def test_processes_killed_while_the_driver_gets_no_processor(
    forks: int, tenant: MakesTenant, gpus: SimulatedGpus
):
    """Longer than the dead stay charged: who is left takes what they had, and asks for it first."""
    a = tenant(LIMIT)
    chance = random.Random(100 + forks)
    with racing(a, 6) as programs:
        for program in programs:
            program.storms(chance.randrange(1 << 20), most=40 * MIB, forks=forks)
        for _ in range(8):
            time.sleep(chance.uniform(0.02, 0.06))
            victims = chance.sample(range(len(programs)), 3)
            with gpus.paused():
                for victim in victims:
                    programs[victim].kill()
                time.sleep(chance.uniform(0.12, 0.25))
            for victim in victims:
                programs[victim] = next_one = a.runs(**CHEAP)
                next_one.storms(chance.randrange(1 << 20), most=40 * MIB, forks=forks)
    gpus.eventually(lambda: a.holds() == 0)
    assert LIMIT // 2 < a.peak() <= LIMIT
    everything_can_be_had(a, LIMIT)
    assert a.peak() <= LIMIT


def test_killed_while_they_start(tenant: MakesTenant, gpus: SimulatedGpus):
    """Slots are taken, and contexts charged and made, by processes that may not come to the end."""
    a = tenant(LIMIT)
    chance = random.Random(7)
    with racing(a, 3) as programs:
        for program in programs:
            program.storms(chance.randrange(1 << 20), most=40 * MIB)
        for _ in range(60):
            starting = a.starts(**CHEAP)
            starting.tell("init")
            starting.tell("device", 0)
            starting.tell("take", chance.choice(WAYS), 3 * MIB, 50)
            time.sleep(chance.uniform(0, 0.015))
            starting.kill()
    gpus.eventually(lambda: a.holds() == 0)
    assert LIMIT // 2 < a.peak() <= LIMIT
    assert len(a.slice.usage().slots) <= 60 + 3
    everything_can_be_had(a, LIMIT)


def test_no_byte_above_the_limit_with_what_contexts_take(
    shim: Build, gpus: SimulatedGpus, tmp_path: Path
):
    """The driver takes that by itself; it is reserved before. Some of those that start get none."""
    context, chance = 24 * MIB, random.Random(13)
    costly = {"CONTEXT_MIB": context // MIB, "POOL_STEP": GRANULE}
    a = StormTenant("a", shim, gpus, Slice(tmp_path / "a", LIMIT, reserve=context))
    programs: list[StormProgram] = []
    try:
        for number in range(70):
            if len(programs) == 7:
                programs.pop(chance.randrange(7)).kill()
            programs.append(starting := a.starts(**costly))
            starting.tell("init")
            starting.tell("device", 0)
            starting.storms(number, most=20 * MIB)
            time.sleep(chance.uniform(0, 0.03))
    finally:
        for program in programs:
            program.kill()
    gpus.eventually(lambda: a.holds() == 0)
    assert LIMIT // 2 < a.most() <= LIMIT
    assert a.peak() < a.most()
    with a.runs(**costly) as last:
        room = (LIMIT - context) // GRANULE
        assert last.take("cuMemCreate", GRANULE) == (OUT_OF_MEMORY, room)
        assert a.holds() == a.slice.charged() == context + room * GRANULE
    assert a.most() <= LIMIT


def test_all_killed_at_once_again_and_again(tenant: MakesTenant, gpus: SimulatedGpus):
    """The next ones start while the driver still takes back what the last ones had."""
    a = tenant(LIMIT)
    for seed in range(6):
        with racing(a, 5) as programs:
            for number, program in enumerate(programs):
                program.storms(10 * seed + number, most=60 * MIB)
            time.sleep(0.06)
    gpus.eventually(lambda: a.holds() == 0)
    assert LIMIT // 2 < a.peak() <= LIMIT
    everything_can_be_had(a, LIMIT)


def test_a_slow_driver_is_waited_for(tenant: MakesTenant, gpus: SimulatedGpus):
    """Of a killed process the memory is there for another 60 ms: so long nobody else has it."""
    gpus.command("set", "free_delay_ms", 60)
    a = tenant(LIMIT)
    for _ in range(5):
        with racing(a, 1) as (program,):
            assert program.take("cuMemAlloc_v2", 50 * MIB) == (OUT_OF_MEMORY, 5)
    assert a.peak() <= LIMIT


@pytest.mark.parametrize("noticed", [False, True], ids=["unnoticed", "noticed"])
def test_a_driver_that_wakes_late_has_freed_by_then(
    noticed: bool, tenant: MakesTenant, gpus: SimulatedGpus
):
    """Whoever waited for what a dead process had asks for it before the death was dealt with."""
    a = tenant(LIMIT)
    with racing(a, 2) as (victim, other):
        assert victim.take("cuMemAlloc_v2", 50 * MIB) == (OUT_OF_MEMORY, 5)
        if noticed:
            gpus.command("set", "free_delay_ms", 60)
            victim.kill()
            gpus.eventually(lambda: any(client["gone"] for client in gpus.clients()))
        with gpus.paused():
            victim.kill()
            other.tell("take", "cuMemAlloc_v2", 50 * MIB, 5)
            time.sleep(0.3)
        assert other.answer() == [SUCCESS, 5]
    assert LIMIT // 2 < a.peak() <= LIMIT


def test_tenants_storm_beside_each_other(tenant: MakesTenant, gpus: SimulatedGpus):
    tenants = [tenant(limit * MIB, name=name) for name, limit in (("a", 100), ("b", 50), ("c", 7))]
    chance = random.Random(3)
    with racing(tenants[0], 4) as a, racing(tenants[1], 4) as b, racing(tenants[2], 4) as c:
        for number, program in enumerate((*a, *b, *c)):
            program.storms(number, most=30 * MIB)
        for _ in range(20):
            time.sleep(chance.uniform(0, 0.03))
            which, programs = chance.choice(list(zip(tenants, (a, b, c), strict=True)))
            victim = chance.randrange(4)
            programs[victim].kill()
            programs[victim] = which.runs(**CHEAP)
            programs[victim].storms(chance.randrange(1 << 20), most=30 * MIB)
    for each, limit in zip(tenants, (100, 50, 7), strict=True):
        gpus.eventually(lambda each=each: each.holds() == 0)
        assert limit * MIB // 2 < each.peak() <= limit * MIB
        everything_can_be_had(each, limit * MIB)


# ---- Forks ----------------------------------------------------------------------------------


def test_a_child_keeps_its_dead_parents_memory_charged(tenant: MakesTenant, gpus: SimulatedGpus):
    """It holds what was open: the driver gives nothing back before it ends."""
    a = tenant(LIMIT)
    with a.runs(**CHEAP) as other:
        parent = a.runs(**CHEAP)
        assert parent.take("cuMemAlloc_v2", 40 * MIB, 5) == (SUCCESS, 5)
        parent.does("fork", 0.7, "copy")
        parent.kill()
        until = time.monotonic() + 0.45
        while time.monotonic() < until:
            assert other.take("cuMemAlloc_v2", 60 * MIB, 1) == (OUT_OF_MEMORY, 0)
            assert a.granted() == a.slice.charged() == 200 * MIB
        gpus.eventually(lambda: a.granted() == 0)
        assert other.take("cuMemAlloc_v2", 50 * MIB) == (OUT_OF_MEMORY, 5)
    assert a.peak() <= LIMIT


@pytest.mark.parametrize("how", ["exec", "closed"])
def test_a_child_that_holds_nothing_keeps_nothing(
    how: str, tenant: MakesTenant, gpus: SimulatedGpus
):
    a = tenant(LIMIT)
    with a.runs(**CHEAP) as other:
        parent = a.runs(**CHEAP)
        assert parent.take("cuMemAlloc_v2", 40 * MIB, 5) == (SUCCESS, 5)
        parent.does("fork", 3, how)
        time.sleep(0.1)  # until it is what it becomes
        parent.kill()
        started = time.monotonic()
        gpus.eventually(lambda: a.granted() == 0)
        assert other.take("cuMemAlloc_v2", 50 * MIB) == (OUT_OF_MEMORY, 5)
        assert time.monotonic() - started < 2.5  # it is still alive
    assert a.peak() <= LIMIT


# ---- A limit that changes in the middle -----------------------------------------------------


def test_a_limit_that_changes_while_processes_race(tenant: MakesTenant, gpus: SimulatedGpus):
    a = tenant(LIMIT)
    with racing(a, 8) as programs:
        limit = LIMIT
        for phase, then in enumerate((LIMIT // 4, LIMIT // 2, 3 * LIMIT)):
            highest = max(limit, then)
            for number, program in enumerate(programs):
                program.storms(10 * phase + number, rounds=120, most=30 * MIB)
            time.sleep(0.05)
            a.slice.resize(then)
            assert all(program.stormed() for program in programs)
            assert limit // 2 < a.peak() <= highest
            limit = then
            # Everybody has started anew since: only this limit holds.
            gpus.command("reset-peaks")
            for number, program in enumerate(programs):
                program.storms(50 + number, rounds=120, most=30 * MIB)
            assert all(program.stormed() for program in programs)
            assert limit // 2 < a.peak() <= limit
            assert (a.granted(), a.slice.charged()) == (0, 0)
            gpus.command("reset-peaks")
    everything_can_be_had(a, limit)


def test_limits_that_change_while_processes_are_killed(tenant: MakesTenant, gpus: SimulatedGpus):
    a = tenant(LIMIT)
    chance = random.Random(11)
    with racing(a, 6) as programs:
        for program in programs:
            program.storms(chance.randrange(1 << 20), most=40 * MIB)
        for _ in range(30):
            time.sleep(chance.uniform(0, 0.02))
            a.slice.resize(chance.randrange(LIMIT // 8, LIMIT))
            victim = chance.randrange(len(programs))
            programs[victim].kill()
            time.sleep(chance.uniform(0, 0.02))
            a.slice.resize(LIMIT)  # below what is held a new process would get no context
            programs[victim] = next_one = a.runs(**CHEAP)
            next_one.storms(chance.randrange(1 << 20), most=40 * MIB)
    gpus.eventually(lambda: a.holds() == 0)
    assert a.peak() <= LIMIT
    everything_can_be_had(a, LIMIT)


# ---- Under sanitizers -----------------------------------------------------------------------


@pytest.mark.parametrize("flavour", ["shim_asan", "shim_tsan"])
def test_threads_and_processes_under_sanitizers(
    flavour: str, request: pytest.FixtureRequest, tmp_path: Path
):
    build: Build = request.getfixturevalue(flavour)
    with SimulatedGpus(tmp_path, build=build) as gpus:
        a = StormTenant("a", build, gpus, Slice(tmp_path / "a", LIMIT))
        with racing(a, 2) as programs:
            for number, program in enumerate(programs):
                program.storms(number, rounds=150, most=60 * MIB, threads=4)
            stormed = [program.stormed() for program in programs]
            assert sum(one.refused for one in stormed) > 0
            assert (a.granted(), a.slice.charged()) == (0, 0)
        assert LIMIT // 2 < a.peak() <= LIMIT
