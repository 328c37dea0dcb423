"""Tells owners what is wrong with an object: at once, except for problems found at start.

A start with keys may find ten thousand unsigned allocations. Those are counted and logged in one
line when the start is over; then each gets its event, at a pace.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from hami.kube.pace import TokenBucket
from hami.scheduler.bookings.problems import Problem

PACE = 10.0
"""Events per second for problems found at start: a fifth of what the recorder writes."""
NAMED = 3
"""How many problems of each reason the log line about a start quotes."""


class Telling:
    """Tells problems. ``record`` writes an event; ``count`` counts problems by reason."""

    def __init__(
        self,
        record: Callable[[Problem], None],
        count: Callable[[str, int], None],
        *,
        pace: float = PACE,
    ) -> None:
        self._record = record
        self._count = count
        self._pace = pace
        self._found: list[Problem] | None = []
        self._log = structlog.get_logger("hami.scheduler")

    def tell(self, problem: Problem) -> None:
        if self._found is not None:
            self._found.append(problem)
            return
        self._count(problem.reason, 1)
        self._log.warning("problem", reason=problem.reason, problem=problem.text)
        self._record(problem)

    async def started(self) -> None:
        """Tell the problems found until now; later ones are told at once."""
        found, self._found = self._found or [], None
        for reason, problems in _by_reason(found).items():
            self._count(reason, len(problems))
            self._log.warning(
                "problems found at start",
                reason=reason,
                count=len(problems),
                first=[problem.text for problem in problems[:NAMED]],
            )
        pace = TokenBucket(rate=self._pace, burst=1)
        for problem in found:
            await pace.wait()
            self._record(problem)


def _by_reason(problems: Sequence[Problem]) -> dict[str, list[Problem]]:
    found: dict[str, list[Problem]] = {}
    for problem in problems:
        found.setdefault(problem.reason, []).append(problem)
    return found
