"""The conformance suite on this driver, without the library and with it.

A check that fails without it shows that the simulated driver promises something that this driver
does not do. With the library every answer must be the same as without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from .machine import BUILD, SHIM, Machine
from .results import Result
from .slices import Slice

PART = "conformance"
KNOWN: Mapping[str, str] = MappingProxyType(
    {
        "shapes_larger_than_any_card_are_invalid": "what is over the limit is out of memory before "
        "the driver is asked whether it could be at all",
    }
)
"""Checks that may answer otherwise under the library, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """What a program's checks said: an empty text for a passed one, else the failure."""

    checks: Mapping[str, str]
    status: int
    errors: str


def programs() -> list[str]:
    return sorted(path.stem for path in (SHIM / "tests" / "conformance").glob("*.c"))


def answers(machine: Machine, program: Path, slice_: Slice | None) -> Answers:
    ended = machine.run([program], slice_)
    checks: dict[str, str] = {}
    for line in ended.lines:
        verdict, _, told = line.partition(" # ")
        if verdict.startswith("ok - "):
            checks[verdict.removeprefix("ok - ")] = told
        elif verdict.startswith("not ok - "):
            checks[verdict.removeprefix("not ok - ")] = told or "failed"
    return Answers(checks=checks, status=ended.status, errors=ended.errors.strip()[-200:])


def _failures(found: Answers) -> dict[str, str]:
    return {name: told for name, told in found.checks.items() if told and "skip: " not in told}


def _compared(program: str, plain: Answers, under: Answers) -> Iterator[Result]:
    for name, told in _failures(plain).items():
        yield Result(part=PART, what=name, status="differs", figure=f"this driver: {told}")
    if plain.status not in (0, 1):
        figure = f"ended with {plain.status}: {plain.errors}"
        yield Result(
            part=PART, what=f"{program} without the library", status="differs", figure=figure
        )
    for name in {**plain.checks, **under.checks}:
        before, after = plain.checks.get(name, "never ran"), under.checks.get(name, "never ran")
        if before == after or (before and after and "skip: " not in before + after):
            continue
        reason = KNOWN.get(name)
        told = f"under the library: {after or 'so'}; without: {before or 'so'}"
        if reason:
            yield Result(part=PART, what=name, status="ok", figure=f"expected, {reason}: {told}")
        else:
            yield Result(part=PART, what=name, status="failed", figure=told)
    if under.status not in (plain.status, 1):
        figure = f"ended with {under.status}: {under.errors}"
        yield Result(part=PART, what=f"{program} under the library", status="failed", figure=figure)


def check(machine: Machine, memory: int) -> Iterator[Result]:
    """Run all programs; ``memory`` is the card's, and the slice's limit too."""
    with machine.watched() as watch:
        idle = int(watch.next()["used"])
        yield from _check(machine, memory, lambda: watch.wait_for_used(idle))


def _check(machine: Machine, memory: int, settle: Callable[[], None]) -> Iterator[Result]:
    """Compare both runs. ``settle`` waits until memory of the earlier program is free again."""
    checks = skipped = 0
    for name in programs():
        program = BUILD / "conformance" / name
        settle()
        plain = answers(machine, program, None)
        if not plain.checks:
            figure = f"ended with {plain.status}: {plain.errors}"
            yield Result(part=PART, what=name, status="differs", figure=figure)
            continue
        settle()
        under = answers(machine, program, machine.slice(memory))
        checks += len(plain.checks)
        skipped += sum("skip: " in told for told in plain.checks.values())
        yield from _compared(name, plain, under)
    figure = f"{checks} checks in {len(programs())} programs, of which {skipped} skipped here"
    yield Result(part=PART, what="compared", status="measured", figure=figure)
