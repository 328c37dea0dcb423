"""HAMi's dashboard over our scheduler and our monitor: every query returns the figures it should."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hami.monitor.exposition.node_text import NodeText
from hami.scheduler.exposition.scrape import Scrape
from hami.scheduler.metrics import Metrics
from tests.monitor.exposition.queries import Sample, evaluate
from tests.monitor.tables import MIB, a_device, a_node, a_slice, held
from tests.scheduler import builders as cluster

UUID = "n1-d0"


def samples(text: bytes, job: str) -> list[Sample]:
    """As Prometheus stores them: what was scraped, with the job's and the target's label."""
    target = {("job", job), ("instance", f"{job}:9394")}
    return [
        Sample(sample.name, frozenset(sample.labels.items() | target), sample.value)
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    ]


@pytest.fixture
async def scraped() -> list[Sample]:
    """One node with two devices; a bound container with 3000 MiB of the first uses 750 of them."""
    booked = cluster.Cluster(cluster.a_node("n1", devices=2), cluster.a_node("n2"))
    booked.sees(cluster.granted(cluster.a_pod("p", mem=3000, node="n1"), "n1", f"{UUID}:3000"))
    scrape = Scrape(booked.state, Metrics(), leading=lambda: True)
    scheduler = b"".join([piece async for piece in scrape.pieces()])
    node = a_node(
        a_slice(
            "p",
            held(
                device_id=UUID,
                memory_limit_bytes=3000 * MIB,
                used_bytes=750 * MIB,
                utilisation=42.5,
            ),
            namespace="default",
        ),
        devices=(
            a_device(0, id=UUID, memory_used_bytes=900 * MIB, utilisation=60.0),
            a_device(1, id="n1-d1", memory_used_bytes=0, utilisation=0.0),
        ),
    )
    return samples(scheduler, "scheduler") + samples(b"".join(NodeText().pieces(node)), "monitor")


N = '{node=~"n1"}'
NS = '{namespace=~".*"}'
QUERIES = [
    # Cluster overview.
    (f"count(hami_gpu_memory_limit_bytes{N})", [2]),
    (f"sum(hami_gpu_memory_limit_bytes{N})", [16000 * MIB]),
    (f"sum(hami_gpu_memory_allocated_bytes{N})", [3000 * MIB]),
    (
        f"100 * sum(hami_gpu_memory_allocated_bytes{N}) / sum(hami_gpu_memory_limit_bytes{N})",
        [18.75],
    ),
    (f"sum(hami_gpu_shared_count{N})", [1]),
    # Physical GPUs.
    (
        f"hami_host_gpu_memory_used_bytes and on (device_uuid) hami_gpu_memory_limit_bytes{N}",
        [0, 900 * MIB],
    ),
    (
        f"hami_host_gpu_utilization_ratio and on (device_uuid) hami_gpu_memory_limit_bytes{N}",
        [0, 60],
    ),
    # Scheduler and allocation.
    (f"sum by (node) (hami_gpu_memory_allocated_bytes{N})", [3000 * MIB]),
    (f"sum by (node) (hami_gpu_memory_limit_bytes{N})", [16000 * MIB]),
    (f"hami_node_gpu_memory_allocated_ratio{N}", [0, 0.375]),
    (f"hami_gpu_core_allocated_ratio{N}", [0, 0]),
    (f"hami_gpu_shared_count{N}", [0, 1]),
    # Containers.
    (f"hami_vgpu_memory_used_bytes{NS}", [750 * MIB]),
    (f"hami_vgpu_memory_limit_bytes{NS}", [3000 * MIB]),
    (f"hami_container_device_utilization_ratio{NS}", [42.5]),
    (f"100 * hami_vgpu_memory_used_bytes{NS} / hami_vgpu_memory_limit_bytes{NS}", [25]),
    (f"topk(10, hami_vgpu_memory_used_bytes{NS})", [750 * MIB]),
]


@pytest.mark.parametrize(("query", "values"), QUERIES)
def test_a_panel_shows_what_is_there(scraped, query, values):
    answer = evaluate(query, scraped)
    assert isinstance(answer, Mapping)
    assert sorted(answer.values()) == pytest.approx(values)


@pytest.mark.parametrize(
    ("metric", "label", "values"),
    [("hami_gpu_memory_limit_bytes", "node", {"n1", "n2"}), ("hami_vgpu_memory_used_bytes", "namespace", {"default"})],
)  # fmt: skip
def test_a_variable_has_its_values(scraped, metric, label, values):
    assert {dict(s.labels).get(label) for s in scraped if s.name == metric} == values


def test_our_figures_of_a_container_divide_by_hamis(scraped):
    answer = evaluate("hami_slice_memory_charged_bytes / hami_vgpu_memory_limit_bytes", scraped)
    assert list(answer.values()) == [0]


def test_a_node_that_is_not_chosen_is_not_shown(scraped):
    assert evaluate('sum(hami_gpu_memory_limit_bytes{node=~"n2"})', scraped) == {
        frozenset(): 8000 * MIB
    }
    assert evaluate('hami_vgpu_memory_used_bytes{namespace=~"other"}', scraped) == {}
