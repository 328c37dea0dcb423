"""The report on shares says what was measured, on any machine; how even they were, nobody judges."""

from __future__ import annotations

import csv
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from benchmarks import share
from benchmarks.share import MS, Case

from .builds import Build
from .share import Load

STREAMS = {"streams": 8, "width": 125}
CASES = (
    Case(name="two", loads=(Load(cap=30, ns=MS), Load(cap=70, ns=5 * MS))),
    Case(name="free", loads=(Load(ns=5 * MS, library=False, options=STREAMS),)),
    Case(name="streams", loads=(Load(cap=50, ns=5 * MS, options=STREAMS),)),
)


def test_it_says_what_was_measured(tmp_path: Path, shim: Build) -> None:
    found = share.measured(CASES, shim, warm_up=0.2, window=0.5)
    assert [(one.case.name, one.load.cap) for one in found] == [
        ("two", 30), ("two", 70), ("free", 0), ("streams", 50),
    ]  # fmt: skip
    assert all(one.time > 0 for one in found)
    share.save(found, tmp_path / "report")
    with (tmp_path / "report/share.csv").open() as file:
        lines = list(csv.DictReader(file))
    assert [line["cap_percent"] for line in lines] == ["30", "70", "0", "50"]
    assert [line["share_percent"] for line in lines] == [f"{one.time:.2f}" for one in found]
    assert [line["error_points"] == "" for line in lines] == [False, False, True, False]
    drawn = ElementTree.parse(tmp_path / "report/share.svg")
    marks = drawn.findall("{http://www.w3.org/2000/svg}circle")
    assert len(marks) == 2 * 3 + 4  # each capped tenant in both panels; the legend
    rows = share.rows(found)
    assert [(row.most, row.least) for row in rows] == [(1, None), (None, 97), (None, 90)]
    assert rows[1].value == round(found[0].time + found[1].time, 1)
