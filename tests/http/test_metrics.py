"""The text of metrics is what Prometheus' own parser reads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from hami.http.metrics import (
    METRICS_TYPE,
    CounterFamily,
    GaugeFamily,
    HistogramFamily,
    metrics_answer,
    sample,
)


def read(*families) -> dict[tuple[str, str], float]:
    """Samples by name and the values of their labels."""
    text = "".join(line for family in families for line in family.lines())
    return {
        (one.name, ",".join(one.labels.values())): one.value
        for family in text_string_to_metric_families(text)
        for one in family.samples
    }


def test_a_counter_is_there_before_it_counts():
    counted = CounterFamily("c_total", "Text.", "why", ("a", "b"))
    assert read(counted) == {("c_total", "a"): 0, ("c_total", "b"): 0}
    counted.add("b")
    counted.add("b", 2)
    counted.add("new")
    assert read(counted) == {("c_total", "a"): 0, ("c_total", "b"): 3, ("c_total", "new"): 1}


def test_a_counter_without_a_label():
    counted = CounterFamily("c_total", "Text.")
    counted.add()
    assert read(counted) == {("c_total", ""): 1}


def test_a_gauge_is_read_at_the_scrape_and_leaves_out_what_nobody_knows():
    levels = {"a": 1.5, "b": None}
    gauge = GaugeFamily("g", "Text.", lambda: levels, "what")
    assert read(gauge) == {("g", "a"): 1.5}
    levels["b"] = 2
    assert read(gauge) == {("g", "a"): 1.5, ("g", "b"): 2}
    assert read(GaugeFamily("g", "Text.", lambda: {"": 3.0})) == {("g", ""): 3}


@given(st.lists(st.floats(0, 10)))
def test_a_histogram_says_what_prometheus_own_would(values):
    registry = CollectorRegistry()
    theirs = Histogram("h", "Text.", buckets=(0.1, 1.0, 2.5), registry=registry)
    ours = HistogramFamily("h", "Text.", (0.1, 1.0, 2.5))
    for value in values:
        theirs.observe(value)
        ours.observe(value)
    said = generate_latest(registry).decode()
    expected = {
        (one.name, ",".join(one.labels.values())): one.value
        for family in text_string_to_metric_families(said)
        for one in family.samples
        if not one.name.endswith("_created")
    }
    assert read(ours) == pytest.approx(expected)


@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cs",))))
def test_a_label_may_hold_anything(text):
    registry = CollectorRegistry()
    Counter("c", "Text.", ("why",), registry=registry).labels(text).inc()
    line = next(
        x for x in generate_latest(registry).decode().split("\n") if x.startswith("c_total")
    )
    assert sample("c_total", {"why": text}, 1.0) == f"{line}\n"


def test_the_answer_says_which_format_it_is():
    answer = metrics_answer([CounterFamily("c_total", "Text.")])
    assert answer.type == METRICS_TYPE
    assert answer.body == b"# HELP c_total Text.\n# TYPE c_total counter\nc_total 0\n"
