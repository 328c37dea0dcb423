"""The checks' results, as lines on the terminal and as a table for ``docs/benchmarks``."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

Status = Literal["ok", "failed", "differs", "measured", "skipped"]
MEANINGS = {
    "ok": "as promised",
    "failed": "not as promised",
    "differs": "this driver is not as the simulated one; the library can do with it",
    "measured": "a figure without a promise",
    "skipped": "could not be tried here",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One row. ``figure`` is the finding, or why the check was skipped or failed."""

    part: str
    what: str
    status: Status
    figure: str


def judged(part: str, what: str, *, good: bool, figure: str) -> Result:
    return Result(part=part, what=what, status="ok" if good else "failed", figure=figure)


def show(result: Result) -> None:
    sys.stdout.write(f"{result.status:9}{result.part}: {result.what}: {result.figure}\n")
    sys.stdout.flush()


def failed(results: Iterable[Result]) -> bool:
    return any(result.status == "failed" for result in results)


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def table(results: Sequence[Result], *, card: str, driver: str, date: str) -> str:
    """The results as a Markdown table."""
    counts = Counter[str](result.status for result in results)
    lines = [
        f"# `make gpu-check` on {_cell(card)}",
        "",
        f"Date {date}, driver {_cell(driver)}. "
        + ", ".join(f"{counts[status]} {status}" for status in MEANINGS if counts[status])
        + ".",
        "",
        *(f"- {status}: {meaning}" for status, meaning in MEANINGS.items()),
        "",
        "| part | what | result | figure |",
        "|---|---|---|---|",
    ]
    for result in results:
        row = (result.part, result.what, result.status, result.figure)
        lines.append("| " + " | ".join(_cell(text) for text in row) + " |")
    return "\n".join(lines) + "\n"
