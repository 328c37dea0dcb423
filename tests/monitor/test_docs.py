"""docs/monitor.md says what the code of now exports and answers."""

from __future__ import annotations

import re

from docs.monitor_tables import PAGE, page, tables
from hami.monitor.exposition.compat.host_families import (
    LEGACY_DEVICES,
    LEGACY_MIG,
    legacy_containers,
)
from hami.monitor.metrics import MonitorMetrics
from hami.monitor.node_api import FORMAT, NodeShape
from tests.monitor.exposition.test_node_text import AT_WORK, scraped

TEXT = PAGE.read_text()


def test_the_tables_are_those_of_now():
    assert page(TEXT) == TEXT, "run make monitor-tables"


def test_a_table_names_every_metric_that_a_scrape_has():
    text = MonitorMetrics([]).text()
    process = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    named = set(re.findall(r"^\| `(hami_\w+)`", TEXT, re.MULTILINE))
    sometimes = {"hami_slice_page_covered", "hami_slice_unreadable"}
    assert named == {line.name for line in scraped(AT_WORK)} | process | sometimes


def test_every_earlier_name_is_there():
    former = {
        f.name
        for group in (*LEGACY_DEVICES, *legacy_containers(0), LEGACY_MIG)
        for f in group.families
    }
    assert len(former) == 8
    assert [name for name in former if f"`{name}`" not in TEXT] == []


def test_no_table_is_empty():
    assert all(table.count("\n| `") > 1 for table in tables().values())


def test_the_format_is_the_one_that_is_written():
    assert NodeShape.__struct_defaults__ == (FORMAT,)
