"""The figures in the documentation are those that were measured last."""

from __future__ import annotations

import msgspec

from benchmarks import report


def test_the_table_says_what_was_measured() -> None:
    results = msgspec.json.decode(report.JSON.read_bytes(), type=report.Results)
    text = report.MARKDOWN.read_text()
    table = text.partition(report.BEGIN)[2].partition(report.END)[0]
    assert table == f"\n{report.markdown(results)}"
