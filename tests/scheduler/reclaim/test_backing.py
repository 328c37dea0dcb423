"""Guarantees that are more than the cluster has are said to be so."""

from __future__ import annotations

from typing import Any

import pytest

from hami.domain.kubernetes.objects import Metadata, Node, NodeStatus
from hami.scheduler.exposition.elastic_metrics import unbacked_lines
from hami.scheduler.reclaim.backing import Backing

from ..builders import Cluster, a_node, an_elastic_quota


class Looked:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.changes = 0
        self.backing = Backing(cluster.state, known=lambda: True, changed=self._changed)

    def _changed(self) -> None:
        self.changes += 1

    async def missing(self) -> Any:
        await self.backing.look()
        return self.backing.missing


async def test_a_hundred_and_twenty_on_a_hundred() -> None:
    cluster = Cluster(a_node(memory=100))
    cluster.limits(an_elastic_quota("a", 80), an_elastic_quota("b", 40), an_elastic_quota("c", 0))
    looked = Looked(cluster)
    assert await looked.missing() == {"acme.com/mem": 20}
    assert [(p.about.namespace, p.reason) for p in cluster.problems] == [
        ("a", "GuaranteeNotBacked"), ("b", "GuaranteeNotBacked"),
    ]  # fmt: skip
    assert cluster.problems[0].text == (
        "all elastic quotas together guarantee 120 MiB of acme.com/mem, and the cluster has "
        "100 MiB: lower some min or add nodes, or not everybody can have what is guaranteed"
    )
    await looked.missing()
    assert (looked.changes, len(cluster.problems)) == (1, 2), "it is said once"
    cluster.state.node_changed(a_node("n2", memory=20))
    assert await looked.missing() == {}
    assert looked.changes == 2


def other_plugins(**allocatable: str) -> Node:
    return Node(
        metadata=Metadata(name="theirs"),
        status=NodeStatus(
            allocatable={f"nvidia.com/{k.replace('_', '-')}": n for k, n in allocatable.items()}
        ),
    )


@pytest.mark.parametrize(
    ("node", "least", "missing"),
    [
        (other_plugins(gpu="2"), 64, {}),
        (other_plugins(gpu="2"), 65, {"nos.nebuly.com/gpu-memory": 1}),
        (other_plugins(gpu_10gb="3"), 31, {"nos.nebuly.com/gpu-memory": 1}),
        (other_plugins(), 1, {"nos.nebuly.com/gpu-memory": 1}),
    ],
)
async def test_devices_of_other_plugins_count_as_pods_count_them(
    node: Node, least: int, missing: Any
) -> None:
    cluster = Cluster(node)
    cluster.limits(an_elastic_quota("a", least, resource="nos.nebuly.com/gpu-memory"))
    assert await Looked(cluster).missing() == missing


async def test_of_single_models_nothing_is_said() -> None:
    cluster = Cluster(a_node(memory=100))
    cluster.limits(an_elastic_quota("a", 200, resource="acme.com/mem@One"))
    assert await Looked(cluster).missing() == {}


def test_the_metric() -> None:
    text = "".join(unbacked_lines({"cpu": 1500, "acme.com/mem": 20}))
    assert 'hami_quota_unbacked{resource="acme.com/mem"} 20\n' in text
    assert 'hami_quota_unbacked{resource="cpu"} 1.5\n' in text
