"""What a launch costs with the library and without, in alternating rounds."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from .machine import Machine
from .results import Result
from .slices import Slice

PART = "launch"


def _figures(machine: Machine, slice_: Slice | None, batches: int) -> dict[str, float]:
    lines = machine.says([machine.program("launches"), str(batches)], slice_)
    return {name: float(value) for name, value in (line.split() for line in lines)}


def check(machine: Machine, memory: int, *, rounds: int, batches: int) -> Iterator[Result]:
    """Time launches; under a compute limit the kernels use far less than their share."""
    slices = {
        "without the library": None,
        "memory limit": machine.slice(memory),
        "memory limit, 90 % of the time": machine.slice(memory, cores=90),
    }
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in slices}
    for _ in range(rounds):
        for kind, slice_ in slices.items():
            found[kind].append(_figures(machine, slice_, batches))
    plain = {
        name: median(run[name] for run in found["without the library"])
        for name in ("launch", "wait")
    }
    for kind, runs in found.items():
        for name, what in (("launch", "a launch"), ("wait", "a launch, awaited")):
            value = median(run[name] for run in runs)
            added = "" if slices[kind] is None else f", {value - plain[name]:+.0f} ns"
            yield Result(
                part=PART,
                what=f"{what}, {kind}",
                status="measured",
                figure=f"{value:.0f} ns{added}",
            )
