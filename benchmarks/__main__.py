"""``python -m benchmarks``: a table for people, then one line of JSON."""

from __future__ import annotations

import json
import platform
import sys

from rich.console import Console
from rich.table import Table

from benchmarks import decisions, simulation

GOALS = {
    "decision p50 at 5000 nodes": "<= 2 ms",
    "ten times the nodes": "<= 12 times",
    "simulate 10 000 pods": "<= 20 s, <= 400 MiB",
}


def main() -> None:
    # First, while this process is small: Linux counts a parent's memory into its child's peak.
    whole = simulation.measure()
    rows = decisions.measure()
    table = Table(title="One decision: prefilter, rank, exact fit (8 devices a node, 4 slices)")
    for column in ("nodes", "request", "p50 ms", "p99 ms"):
        table.add_column(column, justify="left" if column == "request" else "right")
    for row in rows:
        table.add_row(*(str(row[key]) for key in ("nodes", "ask", "p50_ms", "p99_ms")))
    by_size = {row["nodes"]: row["p50_ms"] for row in reversed(rows)}
    small, middle, large = (float(str(by_size[nodes])) for nodes in (500, 5000, 50_000))
    ratios = {"5000/500": round(middle / small, 1), "50000/5000": round(large / middle, 1)}
    console = Console(width=100)
    console.print(table)
    console.print(f"ten times the nodes: x {ratios['5000/500']}, then x {ratios['50000/5000']}")
    console.print(
        f"simulate {whole['pods']} pods on {whole['nodes']} nodes x 8 devices: "
        f"{whole['seconds']} s, {whole['peak_mib']} MiB, {whole['placed']} placed"
    )
    console.print("goals: " + "; ".join(f"{what} {goal}" for what, goal in GOALS.items()))
    machine = {"python": platform.python_version(), "machine": platform.machine()}
    result = {"machine": machine, "decisions": rows, "ratios": ratios, "simulate": whole}
    sys.stdout.write(json.dumps(result) + "\n")


main()
