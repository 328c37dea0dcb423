"""How soon shares follow, and what happens without a monitor: on simulated cards, in real time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.rows import Row, percentile
from tests.shim.builds import Build
from tests.shim.share import Card, Hall, Load, Tenant, Used, a_hall

MS = 1_000_000
LOOK = 0.05
"""Seconds between two looks at the cards' counts."""
WINDOW = 0.5
"""Seconds over which a share is taken that is to be reached."""
NEARLY = 5.0
"""Percent of the card by which it may be short there: a few launches of such a window."""
GUARANTEE, OTHER = 70, 30
ON, OFF = 2600, 2300
"""Milliseconds of work and of pause; other than a whole number of ticks."""
SECONDS = 60.0
CARDS = 4
WARM_UP = 5.0
SILENCE = 15.0
RESTARTS, EVERY = 12, 5.0
"""A monitor is killed so often, every so many seconds."""


@dataclass(frozen=True, slots=True)
class Sooner:
    """Seconds from wanting a share to having it, once for each time."""

    back: Sequence[float]
    lent: Sequence[float]


def _looks(hall: Hall, seconds: float) -> list[Used]:
    found = []
    for _ in range(round(seconds / LOOK)):
        hall.wait(LOOK)
        found.append(hall.used())
    return found


def _turns(looks: Sequence[Used], tenant: Tenant) -> Iterator[tuple[int, bool]]:
    """The looks after which it began, or ended, to compute."""
    works: bool | None = None
    quiet = round(WINDOW / LOOK)
    for at in range(len(looks) - quiet):
        now = looks[at + 1].since(looks[at], tenant.name).time > 0
        ahead = looks[at + quiet].since(looks[at], tenant.name).time > 0
        if works is None:
            works = ahead
        elif now and not works:
            works = True
            yield at, True
        elif works and not ahead:
            works = False
            yield at, False


def _until(looks: Sequence[Used], at: int, tenant: Tenant, percent: float) -> float | None:
    """Seconds until a window begins in which it has so much; None: it never does."""
    window = round(WINDOW / LOOK)
    for begin in range(at, len(looks) - window):
        if looks[begin + window].since(looks[begin], tenant.name).time >= percent - NEARLY:
            return (looks[begin].at - looks[at].at) / 1e9
    return None


def _soon(hall: Hall, seconds: float) -> Sooner:
    pairs = []
    for card in hall.cards:
        options = {"on": ON, "off": OFF}
        sleeper = card.add(Load(cap=GUARANTEE, ns=2 * MS, policy="default", options=options))
        pairs.append((sleeper, card.add(Load(cap=OTHER, ns=2 * MS, policy="default"))))
    hall.start()
    hall.wait(WARM_UP)
    looks = _looks(hall, seconds)
    back: list[float] = []
    lent: list[float] = []
    for sleeper, other in pairs:
        for at, begins in _turns(looks, sleeper):
            # What is cut off by the end is no answer.
            if len(looks) - at < 2 / LOOK + WINDOW / LOOK:
                continue
            took = (
                _until(looks, at, sleeper, GUARANTEE) if begins else _until(looks, at, other, 100)
            )
            (back if begins else lent).append(took if took is not None else float("inf"))
    return Sooner(back=back, lent=lent)


CROWD = (Load(cap=20, ns=2 * MS), Load(cap=30, ns=5 * MS), Load(cap=50, ns=MS))
LENDERS = (Load(cap=20, ns=2 * MS, policy="default"), Load(cap=30, ns=2 * MS, policy="default"))
DUE = {20: 40.0, 30: 60.0}


def _off(shares: Mapping[Tenant, float], card: Card, *, lent: bool) -> float:
    return max(
        abs(shares[tenant] - (DUE[tenant.load.cap] if lent else tenant.load.cap))
        for tenant in card.tenants
    )


def _crowds(hall: Hall) -> tuple[Card, Card]:
    crowd, lenders = hall.cards
    for load in CROWD:
        crowd.add(load)
    for load in LENDERS:
        lenders.add(load)
    hall.start()
    hall.wait(WARM_UP)
    return crowd, lenders


def _restarted(hall: Hall, restarts: int) -> float:
    """The largest error over the whole time, in points."""
    crowd, lenders = _crowds(hall)
    before = hall.used()
    for _ in range(restarts):
        hall.wait(EVERY)
        for card in hall.cards:
            card.restart_monitor()
    after = hall.used()
    shares = {tenant: after.since(before, tenant.name).time for tenant in hall.tenants}
    return max(_off(shares, crowd, lent=False), _off(shares, lenders, lent=True))


def _silent(hall: Hall, seconds: float) -> tuple[float, float]:
    """Points above the cap, at most, and percent of the cap, at least, once nobody monitors."""
    _crowds(hall)
    for card in hall.cards:
        card.monitored = False
    hall.wait(seconds - WARM_UP)
    shares = hall.watch(WARM_UP)
    return (
        max(shares[tenant].time - tenant.load.cap for tenant in hall.tenants),
        min(100 * shares[tenant].time / tenant.load.cap for tenant in hall.tenants),
    )


def rows(build: Build, *, seconds: float = SECONDS, restarts: int = RESTARTS) -> list[Row]:
    with tempfile.TemporaryDirectory() as name, a_hall(Path(name), build, CARDS) as hall:
        soon = _soon(hall, seconds)
    with tempfile.TemporaryDirectory() as name, a_hall(Path(name), build, 2) as hall:
        off = _restarted(hall, restarts)
    with tempfile.TemporaryDirectory() as name, a_hall(Path(name), build, 2) as hall:
        above, least = _silent(hall, SILENCE)
    return [
        Row(
            what="A guarantee is there again after its slice wants it, p99",
            value=round(percentile(soon.back, 0.99), 2),
            unit="s",
            most=1,
            seen=f"p50 {percentile(soon.back, 0.5):.2f} s; {len(soon.back)} times, to within "
            f"{NEARLY:.0f} points over {WINDOW} s",
        ),
        Row(
            what="An idle share is lent after its slice went idle, p99",
            value=round(percentile(soon.lent, 0.99), 2),
            unit="s",
            most=1,
            seen=f"p50 {percentile(soon.lent, 0.5):.2f} s; {len(soon.lent)} times",
        ),
        Row(
            what=f"Shares while the monitor is killed every {EVERY:.0f} s: largest error",
            value=round(off, 2),
            unit="points",
            most=5,
            seen=f"5 tenants, {restarts} times",
        ),
        Row(
            what=f"Without a monitor for {SILENCE:.0f} s: largest share above a guarantee",
            value=round(above, 2),
            unit="points",
            most=3,
            seen=f"the least used has {least:.0f} % of its guarantee",
        ),
    ]
