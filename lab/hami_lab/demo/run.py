"""Runs the scenario's steps one after the other and keeps what came of them."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hami.domain.errors import HamiError
from hami.simulate.result import Simulation


class StepFailed(HamiError):
    """A step did not come out as it must; says what was seen instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """This machine cannot show the step; ``why`` says what is missing, and how to get it."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """``run`` does it and returns what is worth telling.

    It raises an error of ours when the step does not hold.
    """

    name: str
    title: str
    run: Callable[[], Awaitable[Sequence[str] | Skipped]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """``lines`` tell what was seen.

    ``problem`` says why it did not hold, ``skipped`` why it did not run; else they are empty.
    """

    name: str
    title: str
    lines: Sequence[str]
    problem: str
    skipped: str
    seconds: float

    @property
    def held(self) -> bool:
        return not self.problem and not self.skipped

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "title": self.title,
            "held": self.held,
            "lines": list(self.lines),
            "problem": self.problem,
            "skipped": self.skipped,
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """Every step, and what the cluster holds at the end."""

    steps: Sequence[StepResult]
    picture: Simulation

    @property
    def held(self) -> bool:
        """No step failed; one that was skipped says nothing of the product."""
        return not any(step.problem for step in self.steps)

    def as_json(self) -> dict[str, Any]:
        held = self.picture.as_json()
        return {
            "held": self.held,
            "steps": [step.as_json() for step in self.steps],
            "placements": held["placements"],
            "pending": held["pending"],
            "devices": held["devices"],
        }


async def run_steps(steps: Sequence[Step], show: Callable[[StepResult], None]) -> list[StepResult]:
    """All steps in order; ``show`` is told of each when it is done. A failed one stops nothing."""
    results: list[StepResult] = []
    for step in steps:
        begin = time.monotonic()
        lines: Sequence[str] = ()
        problem = skipped = ""
        try:
            seen = await step.run()
            if isinstance(seen, Skipped):
                skipped = seen.why
            else:
                lines = seen
        except HamiError as error:
            problem = str(error)
        result = StepResult(
            name=step.name,
            title=step.title,
            lines=lines,
            problem=problem,
            skipped=skipped,
            seconds=time.monotonic() - begin,
        )
        results.append(result)
        show(result)
    return results
