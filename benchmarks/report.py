"""The results: a table for people, JSON for programs, Markdown for the documentation."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.rows import Row

DOCS = Path(__file__).parents[1] / "docs"
JSON, MARKDOWN = DOCS / "benchmarks.json", DOCS / "benchmarks.md"
BEGIN, END = "<!-- figures: begin -->", "<!-- figures: end -->"


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """What one topic measured: when, on which machine."""

    measured: str
    machine: str
    rows: list[Row]


Results = dict[str, Topic]


def measured_now(rows: Sequence[Row]) -> Topic:
    return Topic(measured=datetime.now(UTC).date().isoformat(), machine=machine(), rows=list(rows))


def machine() -> str:
    """The machine's processors, memory, kernel and Python."""
    info = _facts("/proc/cpuinfo")
    count = Path("/proc/cpuinfo").read_text().count("processor\t:")
    memory = int(_facts("/proc/meminfo")["MemTotal"].split()[0]) / (1 << 20)
    return (
        f"{count} x {info.get('model name', platform.machine())}, {memory:.0f} GiB, "
        f"Linux {platform.release().partition('-')[0]}, Python {platform.python_version()}"
    )


def _facts(path: str) -> Mapping[str, str]:
    """``name: value`` lines as a mapping; of several processors the last counts."""
    pairs = (line.partition(":") for line in Path(path).read_text().splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs}


def show(results: Results) -> None:
    table = Table(title="What the documentation promises")
    table.add_column("what")
    table.add_column("measured", justify="right")
    table.add_column("limit", justify="right")
    table.add_column("verdict")
    table.add_column("seen")
    for topic in results.values():
        for row in topic.rows:
            table.add_row(row.what, _value(row), row.limit, row.verdict, row.seen)
    Console(width=150).print(table)


def _value(row: Row) -> str:
    return f"{row.value:g} {row.unit}"


def save(measured: Results) -> None:
    """Write the results into the documentation, beside topics that were measured at other times."""
    known = msgspec.json.decode(JSON.read_bytes(), type=Results) if JSON.exists() else {}
    known |= measured
    JSON.write_bytes(msgspec.json.format(msgspec.json.encode(known), indent=2) + b"\n")
    before, begin, rest = MARKDOWN.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin, f"{MARKDOWN} has lost its marks"
    assert end, f"{MARKDOWN} has lost its marks"
    MARKDOWN.write_text(f"{before}{BEGIN}\n{markdown(known)}{END}{after}")


def markdown(results: Results) -> str:
    lines = ["| what | measured | limit | verdict | seen |", "|---|---|---|---|---|"]
    for topic in results.values():
        lines += [
            f"| {row.what} | {_value(row)} | {row.limit} | {row.verdict} | {row.seen} |"
            for row in topic.rows
        ]
    machines = sorted({f"{topic.measured}: {topic.machine}" for topic in results.values()})
    return "\n".join([*lines, "", *(f"Measured {text}." for text in machines), ""])
