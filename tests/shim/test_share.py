"""Who gets how much of a card, in real time: real processes, judged by the card's own count.

Kernels here are long enough for a machine with two processors that other tests use too; shorter
ones are in the report (``python -m benchmarks share``) and, in virtual time, in
``shim/tests/lib/bucket_model_test.c``.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from .builds import Build
from .share import POINTS, Hall, Load, Tenant, a_hall, tolerance

# Real time that must pass, and programs that start where others compute.
pytestmark = pytest.mark.timeout(240)

MS = 1_000_000
WARM_UP, WINDOW = 5, 10
FULL = 95.0
"""Percent of a card that is used at least where backlogged tenants may use all of it."""
BESIDE = 0.9
"""Of its part of the uncapped throughput, what work in several streams gets at least."""

BURST = 0.1
"""Seconds of work that a container may have saved up (HAMI_BUCKET_FULL)."""

BACKLOGGED: tuple[tuple[Load, ...], ...] = (
    (Load(cap=30, ns=MS),),
    (Load(cap=50, ns=200 * MS),),
    (Load(cap=40, ns=2 * MS, options={"forks": 200}),),
    (Load(cap=30, ns=2 * MS), Load(cap=70, ns=2 * MS)),
    (Load(cap=20, ns=MS), Load(cap=30, ns=5 * MS), Load(cap=50, ns=20 * MS)),
    (Load(cap=30, ns=100_000, graph=50), Load(cap=70, ns=5 * MS, processes=2)),
)
"""By card. Each tenant has work all the time, and is to have its cap."""
STREAMS = {"streams": 8, "width": 125}

COOPERATIVE, EXTENDED, DEPENDENT, ANNOUNCED, COMPLETION, PER_THREAD = range(1, 7)
"""``enum way`` of the tenant's program."""
WAYS: dict[str, Load] = {
    "plain": Load(cap=20, ns=2 * MS),
    "cooperative": Load(cap=20, ns=2 * MS, options={"way": COOPERATIVE}),
    "dependent": Load(cap=20, ns=2 * MS, options={"way": DEPENDENT}),
    "short and dependent": Load(cap=20, ns=MS // 5, options={"way": DEPENDENT}),
    "with a programmatic event": Load(cap=20, ns=2 * MS, options={"way": ANNOUNCED}),
    "with a completion event": Load(cap=20, ns=2 * MS, options={"way": COMPLETION}),
    "per-thread stream": Load(cap=20, ns=2 * MS, options={"way": PER_THREAD}),
    "events of its own": Load(cap=20, ns=2 * MS, options={"way": EXTENDED, "events": 1}),
    "graphs": Load(cap=20, ns=MS // 5, graph=10),
    "8 streams": Load(cap=20, ns=2 * MS, options={"streams": 8}),
    "8 streams, dependent": Load(cap=20, ns=2 * MS, options={"streams": 8, "way": DEPENDENT}),
    "a stream for each, destroyed": Load(cap=20, ns=2 * MS, options={"fresh": 1}),
    "the same, short": Load(cap=20, ns=MS // 5, options={"fresh": 1}),
    "the same, dependent": Load(cap=20, ns=2 * MS, options={"fresh": 1, "way": DEPENDENT}),
    "8 such streams, waited for": Load(cap=20, ns=2 * MS, options={"fresh": 8, "waits": 1}),
    "16 such streams, waited for": Load(cap=20, ns=2 * MS, options={"fresh": 16, "waits": 1}),
}
"""Of launching, each on a card of its own without a monitor."""


@contextmanager
def cards(path: Path, shim: Build, count: int = 1) -> Iterator[Hall]:
    """Where nobody gets a processor for longer than a container can save up work, a share says
    nothing of the library.
    """
    with a_hall(path, shim, count) as hall:
        try:
            yield hall
        except AssertionError:
            if hall.late > BURST:
                pytest.skip(f"this machine had no processor for {hall.late:.2f} s at a time")
            raise


def test_each_has_its_share(tmp_path: Path, shim: Build) -> None:
    with cards(tmp_path, shim, len(BACKLOGGED) + 3) as hall:
        *backlogged, uncapped, streams, bursts = hall.cards
        for card, loads in zip(backlogged, BACKLOGGED, strict=True):
            for load in loads:
                card.add(load)
        whole = uncapped.add(Load(ns=2 * MS, library=False, options=STREAMS))
        half = streams.add(Load(cap=50, ns=2 * MS, options=STREAMS))
        steady = bursts.add(Load(cap=40, ns=2 * MS))
        bursty = bursts.add(Load(cap=60, ns=2 * MS, options={"on": 400, "off": 300}))
        hall.start()
        hall.wait(WARM_UP)
        shares = hall.watch(WINDOW)

        said = {tenant.name: (tenant.load.cap, shares[tenant]) for tenant in hall.tenants}
        for card in backlogged:
            for tenant in card.tenants:
                assert _holds(tenant, shares[tenant].time), (tenant.name, said)
            if sum(tenant.load.cap for tenant in card.tenants) == 100:
                assert sum(shares[tenant].time for tenant in card.tenants) >= FULL, said
        # Side by side without a limit, side by side under one.
        assert shares[whole].work >= FULL, said
        assert shares[half].work >= BESIDE * shares[whole].work / 2, said
        assert _holds(half, shares[half].time), said
        # Who pauses has less than its cap, and takes nothing from the other.
        assert _holds(steady, shares[steady].time), said
        assert 30 < shares[bursty].time <= 60 + POINTS, said


def test_no_way_of_launching_exceeds_its_cap(tmp_path: Path, shim: Build) -> None:
    with cards(tmp_path, shim, len(WAYS)) as hall:
        tenants = {
            name: card.add(load)
            for card, (name, load) in zip(hall.cards, WAYS.items(), strict=True)
        }
        for card in hall.cards:
            card.monitored = False
        hall.start()
        hall.wait(WARM_UP)
        shares = hall.watch(WINDOW)
        had = {name: round(shares[tenant].time, 1) for name, tenant in tenants.items()}
        assert all(tenant.works for tenant in tenants.values()), had
        for name, tenant in tenants.items():
            assert had[name] <= tenant.load.cap + tolerance(tenant.load, WINDOW), (name, had)
            assert had[name] > tenant.load.cap / 2, (name, had)


@pytest.mark.parametrize("monitored", [False, True])
def test_who_fills_the_bucket_in_the_file_gains_nothing(
    tmp_path: Path, shim: Build, monitored: bool
) -> None:
    loads = {
        "plain": Load(cap=20, ns=2 * MS),
        "waits": Load(cap=20, ns=2 * MS, options={"waits": 1}),
        "8 streams": Load(cap=20, ns=2 * MS, options={"streams": 8}),
    }
    if monitored:  # without one they know of each other by the file
        loads["2 processes"] = Load(cap=20, ns=2 * MS, processes=2)
    with cards(tmp_path, shim, len(loads)) as hall, ExitStack() as fillers:
        tenants = [card.add(load) for card, load in zip(hall.cards, loads.values(), strict=True)]
        for card in hall.cards:
            card.monitored = monitored
        neighbour = hall.cards[0].add(Load(cap=70, ns=2 * MS))
        for tenant in tenants:
            fillers.enter_context(_filler(shim, tenant))
        hall.start()
        # A monitor sees what was used, and has them pay for it then.
        hall.wait(4 * WARM_UP if monitored else WARM_UP)
        shares = hall.watch(WINDOW)
        had = {tenant.name: round(shares[tenant].time, 1) for tenant in hall.tenants}
        for tenant in tenants:
            assert shares[tenant].time <= tenant.load.cap + POINTS, had
        assert shares[neighbour].time > 40, had


@contextmanager
def _filler(shim: Build, tenant: Tenant) -> Iterator[None]:
    """A program of the container, without the library, that writes into its ``usage``."""
    program = shim.program("scribbler")
    with subprocess.Popen([program], stdin=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write(f"{tenant.slice.folder / 'usage'}\nfiller 1\n")
        process.stdin.flush()
        yield
        assert process.poll() is None
        process.stdin.write("end\n")


def _holds(tenant: Tenant, share: float) -> bool:
    return abs(share - tenant.load.cap) <= tolerance(tenant.load, WINDOW)


def test_the_policy_says_when(tmp_path: Path, shim: Build) -> None:
    with cards(tmp_path, shim, 3) as hall:
        by_default, forced, disabled = (
            card.add(Load(cap=20, ns=2 * MS, policy=policy))
            for card, policy in zip(hall.cards, ("default", "force", "disable"), strict=True)
        )
        hall.start()
        hall.wait(2.5)  # until the monitor has said who is there
        alone = hall.watch(2)
        assert alone[by_default].time > FULL
        assert abs(alone[forced].time - 20) <= POINTS
        assert alone[disabled].time > FULL

        neighbours = [card.add(Load(cap=80, ns=2 * MS)) for card in hall.cards]
        for neighbour in neighbours:
            neighbour.starts()
        hall.wait(3)
        beside = hall.watch(3)
        assert abs(beside[by_default].time - 20) <= 2 * POINTS
        assert abs(beside[forced].time - 20) <= 2 * POINTS
        assert beside[disabled].time > 45

        for neighbour in neighbours:
            neighbour.kill()
        hall.wait(2.5)
        again = hall.watch(1)
        assert again[by_default].time > FULL
        assert abs(again[forced].time - 20) <= 2 * POINTS


def test_what_is_idle_is_lent_until_it_is_wanted(tmp_path: Path, shim: Build) -> None:
    with cards(tmp_path, shim, 3) as hall:
        pair, limited, unnamed = hall.cards
        one = pair.add(Load(cap=30, ns=2 * MS, policy="default"))
        other = pair.add(Load(cap=50, ns=2 * MS, policy="default"))
        small = limited.add(Load(cap=10, limit=40, ns=2 * MS, policy="default"))
        large = limited.add(Load(cap=30, limit=90, ns=2 * MS, policy="default"))
        guaranteed = unnamed.add(Load(cap=60, ns=2 * MS, policy="default"))
        none = unnamed.add(Load(ns=2 * MS, policy="default"))
        for tenant in (one, small, none):
            tenant.starts()
        hall.wait(3)
        alone = hall.watch(2)
        assert alone[one].time > FULL
        assert abs(alone[small].time - 40) <= POINTS
        assert alone[none].time > FULL

        for tenant in (other, large, guaranteed):
            tenant.starts()
        hall.wait(3)
        both = hall.watch(4)
        for tenant, due in (
            (one, 37.5), (other, 62.5), (small, 25), (large, 75), (guaranteed, 60), (none, 40)
        ):  # fmt: skip
            assert abs(both[tenant].time - due) <= 2 * POINTS, (tenant.name, both[tenant])
        for tenant in (other, large, guaranteed):
            tenant.kill()
        hall.wait(3.5)
        again = hall.watch(2)
        assert again[one].time > FULL
        assert abs(again[small].time - 40) <= 2 * POINTS
        assert again[none].time > FULL


def test_a_monitor_that_starts_anew_disturbs_no_share(tmp_path: Path, shim: Build) -> None:
    with cards(tmp_path, shim) as hall:
        (card,) = hall.cards
        tenants = {
            card.add(Load(cap=cap, ns=2 * MS, policy="default")): due
            for cap, due in ((20, 40), (30, 60))
        }
        hall.start()
        hall.wait(WARM_UP)
        before = hall.used()
        for _ in range(4):
            hall.wait(2.5)
            card.restart_monitor()
        after = hall.used()
        had = {tenant.name: after.since(before, tenant.name).time for tenant in tenants}
        for tenant, due in tenants.items():
            assert abs(had[tenant.name] - due) <= 5, had


@pytest.mark.parametrize("floor", [0, 500])
def test_the_lower_priority_waits_while_the_higher_computes(
    tmp_path: Path, shim: Build, floor: int
) -> None:
    with cards(tmp_path, shim) as hall:
        (card,) = hall.cards
        card.floor = floor
        low = card.add(Load(cap=50, ns=2 * MS, priority=1))
        high = card.add(Load(cap=50, ns=2 * MS, priority=0))
        low.starts()
        hall.wait(2)
        assert hall.watch(1)[low].time > 40
        high.starts()
        hall.wait(2.5)
        both = hall.watch(2)
        assert both[low].time < 1 + floor / 100
        assert both[low].time >= floor / 200
        assert abs(both[high].time - 50) <= POINTS
        high.kill()
        hall.wait(2.5)
        assert hall.watch(1)[low].time > 40


def test_a_limit_changes_while_it_works(tmp_path: Path, shim: Build) -> None:
    with cards(tmp_path, shim, 2) as hall:
        wider, none = (card.add(Load(cap=20, ns=2 * MS)) for card in hall.cards)
        hall.start()
        hall.wait(1)
        assert abs(hall.watch(1)[wider].time - 20) <= 2 * POINTS
        wider.caps_at(60)
        none.caps_at(100)
        hall.wait(0.4)
        more = hall.watch(1.5)
        assert abs(more[wider].time - 60) <= 2 * POINTS
        assert more[none].time > FULL
        wider.caps_at(10)
        none.caps_at(30)
        hall.wait(0.4)
        less = hall.watch(1.5)
        assert abs(less[wider].time - 10) <= 2 * POINTS
        assert abs(less[none].time - 30) <= 2 * POINTS


def test_a_silent_monitor_is_not_believed_for_long(tmp_path: Path, shim: Build) -> None:
    """What it said last is that one is alone, and that another has to wait."""
    with cards(tmp_path, shim, 2) as hall:
        lonely, crowded = hall.cards
        crowded.floor = 0
        alone = lonely.add(Load(cap=30, ns=2 * MS, policy="default"))
        low = crowded.add(Load(cap=30, ns=2 * MS, priority=1))
        crowded.add(Load(cap=50, ns=2 * MS, priority=0))
        hall.start()
        hall.wait(3)
        for card in hall.cards:
            card.monitored = False
        said = hall.watch(5)
        assert said[alone].time > FULL
        assert said[low].time < 1
        hall.wait(5.5)
        left = hall.watch(2)
        assert abs(left[alone].time - 30) <= 2 * POINTS
        # Beside another without a monitor it is charged for what it waits as well.
        assert 5 < left[low].time <= 30 + 2 * POINTS


def test_a_debt_outlives_its_maker(tmp_path: Path, shim: Build) -> None:
    """A container that launches, is killed and comes back has no more than its share."""
    with cards(tmp_path, shim) as hall:
        (card,) = hall.cards
        tenant = card.add(Load(cap=20, ns=300 * MS))
        before = hall.used()
        began = time.monotonic()
        while time.monotonic() - began < 6:
            tenant.starts()
            hall.wait(0.5)
            tenant.kill()
        share = hall.used().since(before, tenant.name)
        assert share.time / 100 * share.seconds <= 0.2 * share.seconds + 0.3 + BURST
        tenant.starts()
        hall.wait(2.1)  # the greatest debt is paid after that
        assert hall.watch(3)[tenant].time > 10


def test_programs_that_end_at_once_pay_as_well(tmp_path: Path, shim: Build) -> None:
    """Each launches one long kernel, waits for it and ends: nothing is launched afterwards."""
    with cards(tmp_path, shim) as hall:
        (card,) = hall.cards
        tenant = card.add(Load(cap=20, ns=300 * MS, options={"launches": 1}))
        before = hall.used()
        began = time.monotonic()
        while time.monotonic() - began < 4:
            tenant.starts()
            while tenant.works:
                hall.wait(0.02)
            tenant.kill()
        share = hall.used().since(before, tenant.name)
        assert share.time / 100 * share.seconds <= 0.2 * share.seconds + 0.3 + BURST
        assert share.time > 10
