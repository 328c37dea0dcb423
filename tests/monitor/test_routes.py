"""What the monitor answers over HTTP about its node."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hami.domain.units import VendorKey
from hami.monitor.exposition.node_text import PIECE
from hami.monitor.metrics import TICK_BUCKETS, MonitorMetrics
from hami.monitor.routes import AT_ONCE, node_routes
from hami.monitor.usage_history import UsageHistory
from tests.monitor.tables import a_node, a_slice, held

NVIDIA = VendorKey("NVIDIA")


@pytest.fixture
def metrics() -> MonitorMetrics:
    return MonitorMetrics([NVIDIA])


async def asked(path: str, metrics: MonitorMetrics, *, tables=None, history=None, **more):
    tables = tables or [a_node(a_slice())]
    routes = node_routes(tables.pop, metrics, history or UsageHistory(), **more)
    return await said(routes[path])


async def said(route):
    answer = await route()
    pieces = [piece async for piece in answer.more] if answer.more else []
    return replace(answer, body=b"".join([answer.body, *pieces]))


def values(text: bytes) -> dict[str, float]:
    families = text_string_to_metric_families(text.decode())
    return {
        s.name + s.labels.get("le", "") + s.labels.get("vendor", ""): s.value
        for f in families
        for s in f.samples
    }


async def test_a_scrape_has_the_node_and_the_process(metrics):
    metrics.ticked(0.004)
    metrics.ticked(9.0)
    metrics.measure_failed(NVIDIA)
    answer = await asked("/metrics", metrics)
    found = values(answer.body)
    assert answer.type.startswith("text/plain; version=0.0.4")
    assert (
        found["hami_monitor_tick_duration_seconds_bucket0.005"],
        found["hami_monitor_tick_duration_seconds_count"],
    ) == (1, 2)
    assert found["hami_monitor_measure_failures_totalNVIDIA"] == 1
    assert found["hami_build_info"] == 1
    assert found["hami_vgpu_memory_used_bytes"] == 0


async def test_a_vendor_that_always_answered_has_failed_0_times(metrics):
    assert (
        values((await asked("/metrics", metrics)).body)["hami_monitor_measure_failures_totalNVIDIA"]
        == 0
    )


@pytest.mark.parametrize("legacy", [False, True])
async def test_the_earlier_names_have_to_be_asked_for(metrics, legacy):
    answer = await asked("/metrics", metrics, legacy_metrics=legacy)
    assert (b"vGPU_device_memory_usage_in_bytes" in answer.body) is legacy


async def test_every_answer_is_of_the_newest_table(metrics):
    tables = [a_node(a_slice("second")), a_node(a_slice("first"))]
    routes = node_routes(tables.pop, metrics, UsageHistory())
    assert b'pod="first"' in (await said(routes["/metrics"])).body
    assert json.loads((await said(routes["/api/v1/node"])).body)["slices"][0]["pod"] == "second"


async def test_the_node_has_its_history(metrics):
    history, table = UsageHistory(), a_node(a_slice("train-0", held(used_bytes=9)))
    history.observe(table, 0.0)
    answer = await asked("/api/v1/node", metrics, tables=[table], history=history)
    assert answer.type == "application/json"
    assert json.loads(answer.body)["slices"][0]["devices"][0]["lastHour"]["maxUsedBytes"] == 9


def test_a_tick_of_a_full_node_is_told_from_a_slow_one():
    assert {0.01, 0.5} <= set(TICK_BUCKETS)


async def test_a_large_node_comes_in_pieces(metrics):
    node = a_node(*(a_slice(f"pod-{number}") for number in range(AT_ONCE * PIECE // 4)))
    answer = await node_routes(lambda: node, metrics, UsageHistory())["/metrics"]()
    pieces = [piece async for piece in answer.more]
    assert len(pieces) > 2
    assert b"".join(pieces).count(b"hami_vgpu_memory_used_bytes{") == len(node.slices)
