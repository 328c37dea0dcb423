"""The benchmark of the library measures what it says, on any machine; how long, nobody judges here."""

from __future__ import annotations

import math

from benchmarks import shim as bench
from tests.shim.builds import Build, make

BRIEF = bench.Effort(batches=3, batch_ns=20_000, live=50, idle=5, active=2, starts=3)


def test_every_figure_is_there(shim: Build) -> None:
    make("bench")
    rows = bench.measured(shim, BRIEF)
    assert len({row.what for row in rows}) == len(rows)
    assert all(math.isfinite(row.value) for row in rows)
    assert [(row.most, row.unit) for row in rows if row.most is not None] == [
        (10, "ns"), (150, "ns"), (150, "ns"), (80, "ns"), (150, "ns"), (150, "ns"), (30, "ns"),
        (2, "%"), (150, "ns"), (150, "ns"), (1, "ms"), (1, "ms"), (1, "ms"),
    ]  # fmt: skip
