"""The compute share, alone and beside another: work done, as a part of the uncapped work."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .machine import Broken, Command, Machine, Program, Watch
from .results import Result, judged
from .slices import Slice

PART = "share"
LONGEST_POINTS = 3.0
JUDGED_SECONDS = 10.0
"""Seconds; figures of shorter windows are reported and not judged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    warm_up: float
    window: float

    @property
    def whole(self) -> float:
        return self.warm_up + self.window


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """``amount`` of work takes ``ns`` alone on the card, which does ``rate`` of these a second."""

    amount: str
    ns: float
    rate: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """``share``: percent of the card's uncapped rate for this load; ``busy``: percent, by NVML."""

    shares: tuple[float, ...]
    busy: float
    observed: bool


def _did(program: Program) -> float:
    """The program's kernels per second."""
    ended = program.end()
    if ended.status != 0 or not ended.lines:
        raise Broken(f"tenant ended with {ended.status}: {ended.errors.strip()[-200:]}")
    _, count, seconds = ended.lines[-1].split()
    return int(count) / float(seconds)


def _observe(
    watch: Watch, slices: Sequence[Slice], programs: Sequence[Program], end: float
) -> bool:
    """Once a second until ``end``, write what the monitor would write.

    Returns False if NVML named no process; then the slices' pages stay as without a monitor. The
    figure is the process's share of the last second according to NVML, weighted as NVML does it.
    """
    told = False
    while (left := end - time.monotonic()) > 0:
        since = time.monotonic()
        time.sleep(min(1.0, left))
        looks = watch.since(since)
        figures: dict[str, list[int]] = {}
        for look in looks:
            for pid, percent in look["processes"].items():
                figures.setdefault(pid, []).append(percent)
        if not any(str(program.pid) in figures for program in programs):
            continue
        told = True
        for slice_, program in zip(slices, programs, strict=True):
            seen = figures.get(str(program.pid), [0])
            slice_.observe(sum(seen) / len(seen), others=len(slices) > 1)
    return told


def _run(
    machine: Machine, amount: str, slices: Sequence[Slice | None], timing: Timing
) -> tuple[list[float], float, bool]:
    """Run all tenants: kernels per second, NVML's busy percent, whether it names processes."""
    times = (str(timing.warm_up), str(timing.window))
    command: Command = [machine.program("tenant"), "run", amount, *times]
    with machine.watched() as watch:
        programs = [machine.start(command, slice_) for slice_ in slices]
        try:
            for program in programs:
                program.until("ready")
            for program in programs:
                program.go()
            start = time.monotonic()
            capped = [slice_ for slice_ in slices if slice_]
            told = False
            if capped:
                told = _observe(watch, capped, programs, start + timing.whole)
            else:
                time.sleep(timing.whole)
            looks = watch.since(start + timing.warm_up)
            rates = [_did(program) for program in programs]
        except Broken:
            for program in programs:
                program.kill()
            raise
    busy = [look["busy"] for look in looks if look["busy"] >= 0]
    return rates, sum(busy) / len(busy) if busy else -1.0, told


def _load(machine: Machine, microseconds: int, timing: Timing) -> Load:
    lines = machine.says([machine.program("tenant"), "calibrate", str(microseconds)])
    _, amount, ns = lines[-1].split()
    rates, _, _ = _run(machine, amount, [None], timing)
    if rates[0] <= 0:
        raise Broken("the card did none of the work within the window")
    return Load(amount=amount, ns=float(ns), rate=rates[0])


def _result(caps: Sequence[int], load: Load, ran: Ran, timing: Timing) -> Result:
    """Judge the result. The promise needs caps of at most 100 in sum, steady work, a monitor."""
    bound = max(LONGEST_POINTS, 2 * load.ns / 1e9 / timing.window * 100)
    error = max(abs(share - cap) for share, cap in zip(ran.shares, caps, strict=True))
    what = " and ".join(f"{cap} %" for cap in caps) + f", kernels of {load.ns / 1e3:.0f} us"
    figure = " and ".join(f"{share:.1f} %" for share in ran.shares)
    figure += f", error {error:.1f} points (bound {bound:.1f})"
    figure += f"; card busy {ran.busy:.0f} % by NVML" if ran.busy >= 0 else ""
    figure += "" if ran.observed else "; NVML tells of no process: no monitor was played"
    if timing.window < JUDGED_SECONDS or (len(caps) > 1 and not ran.observed):
        return Result(part=PART, what=what, status="measured", figure=figure)
    return judged(PART, what, good=error <= bound, figure=figure)


def check(
    machine: Machine, memory: int, *, timing: Timing, kernels: Sequence[int],
    caps: Sequence[Sequence[int]],
) -> Iterator[Result]:  # fmt: skip
    """Check each load; ``kernels`` are microseconds, ``caps`` percents of each tenant."""
    for microseconds in kernels:
        load = _load(machine, microseconds, timing)
        figure = f"{load.rate * load.ns / 1e7:.1f} % of the card, {load.rate:.0f} kernels a second"
        what = f"uncapped, kernels of {load.ns / 1e3:.0f} us"
        yield Result(part=PART, what=what, status="measured", figure=figure)
        for tenants in caps:
            slices = [machine.slice(memory // len(tenants), cores=cap) for cap in tenants]
            rates, busy, observed = _run(machine, load.amount, slices, timing)
            shares = tuple(rate / load.rate * 100 for rate in rates)
            ran = Ran(shares=shares, busy=busy, observed=observed)
            yield _result(tenants, load, ran, timing)
