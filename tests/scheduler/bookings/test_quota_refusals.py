"""Which rule of a quota keeps pods out, counted once for each filter that it refused."""

from __future__ import annotations

import msgspec
import pytest

from hami.domain.allocations import PodAllocation
from hami.domain.kubernetes.objects import (
    Container,
    Metadata,
    Node,
    Pod,
    QuotaTree,
    QuotaTreeNode,
    QuotaTreeSpec,
    ResourceQuota,
    ResourceQuotaSpec,
    Resources,
)
from hami.policy.filter.decision import Refused
from hami.policy.quota import RULES
from hami.scheduler.metrics import Metrics
from hami.vendors.registry import load_vendors

from ..builders import Cluster, a_node, a_pod, a_quota, an_elastic_quota
from ..decide.test_extender import World
from ..exposition.test_metrics import read

FIXED = {"quota.hami.io/preemptible": "false"}


class Counted(World):
    """An extender whose metrics are read; one card of 8000 MiB, of which ``holds`` are held."""

    def __init__(self, *quotas: object, hard: str = "", holds: int = 0) -> None:
        super().__init__(a_node())
        self.extender._metrics = self.metrics = Metrics()
        if quotas:
            self.cluster.limits(*quotas)  # type: ignore[arg-type]
        if hard:
            self.cluster.state.quota_changed(a_quota(mem=hard))
        if holds:
            self.cluster.reserve(a_pod("holds", mem=holds))

    async def refused(self, pod: Pod) -> dict[str, float]:
        self.cluster.sees(pod)
        assert not (await self.filter(pod)).node_names
        name = "hami_quota_refusals_total"
        return {
            dict(line.labels)["rule"]: line.value
            for line in read(self.metrics.render())
            if line.name == name
        }


@pytest.mark.parametrize(
    ("world", "pod", "rule"),
    [
        (Counted(hard="2000"), a_pod(mem=3000), "hard"),
        (Counted(hard="2000", holds=1500), a_pod(mem=1000), "hard"),
        (Counted(an_elastic_quota("default", 9000, 2000)), a_pod(mem=3000), "max"),
        (Counted(an_elastic_quota("default", 2000)), a_pod(mem=3000), "pool"),
        (Counted(an_elastic_quota("default", 2000), an_elastic_quota("b", 9000)),
         a_pod(mem=3000, annotations=FIXED), "min of non-preemptible pods"),
        (Counted(an_elastic_quota("default", 9000, 2000), hard="1000"), a_pod(mem=3000), "max"),
        (Counted(an_elastic_quota("default", 2000, 2500)), a_pod(mem=3000), "max"),
    ],
    ids=[
        "a ResourceQuota", "what a ResourceQuota leaves", "a ceiling", "all quotas together",
        "a pod that nobody may evict", "a ceiling before a ResourceQuota", "a ceiling before the pool",
    ],
)  # fmt: skip
async def test_a_refusal_counts_for_the_first_rule(world: Counted, pod: Pod, rule: str) -> None:
    assert await world.refused(pod) == {rule: 1}
    assert await world.refused(pod) == {rule: 2}


async def test_a_share_that_comes_to_too_much_on_every_device_counts_once() -> None:
    world = Counted(hard="3000")
    asks = Resources(limits={"acme.com/gpu": "1", "acme.com/mem-percent": "50"})
    pod, container = a_pod(), Container(name="main", resources=asks)
    spec = msgspec.structs.replace(pod.spec, containers=[container])
    assert await world.refused(msgspec.structs.replace(pod, spec=spec)) == {"hard": 1}


async def test_a_full_device_is_no_refusal_of_a_quota() -> None:
    world = Counted(an_elastic_quota("default", 20000), hard="20000", holds=6000)
    assert await world.refused(a_pod(mem=3000)) == {}


async def test_a_borrow_limit_of_a_group_counts_as_one() -> None:
    group = QuotaTreeNode(name="research", borrow_limit={"acme.com/mem": "0"})
    tree = QuotaTree(metadata=Metadata(name="t"), spec=QuotaTreeSpec(nodes=[group]))
    world = Counted(tree, an_elastic_quota("default", 2000, parent="research"),
                    an_elastic_quota("b", 9000))  # fmt: skip
    assert await world.refused(a_pod(mem=3000)) == {"borrow limit": 1}


def test_every_rule_has_a_case_here() -> None:
    (mark,) = [
        m for m in test_a_refusal_counts_for_the_first_rule.pytestmark if m.name == "parametrize"
    ]  # type: ignore[attr-defined]
    assert {*(case[2] for case in mark.args[1]), "borrow limit"} == set(RULES)


def test_a_mig_instance_counts_whole_whatever_was_asked() -> None:
    """Of a device that is cut into instances a pod gets the next larger one, and is charged it."""
    vendors = load_vendors()
    asked = {"mock.hami.io/devices": "a100-40g:migx1"}
    written = vendors.simulated_annotations(Node(metadata=Metadata(name="n1", annotations=asked)), {})  # fmt: skip
    node = Node(metadata=Metadata(name="n1", annotations={**asked, **written}))
    asks = Resources(limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8000"})
    pod, container = a_pod(), Container(name="main", resources=asks)
    pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=[container]))  # fmt: skip

    def outcome(limit: int | None) -> PodAllocation | Refused:
        cluster = Cluster(node, vendors=vendors)
        if limit is not None:
            hard = {"limits.nvidia.com/gpumem": str(limit)}
            about = Metadata(name="q", namespace="default")
            cluster.state.quota_changed(ResourceQuota(metadata=about, spec=ResourceQuotaSpec(hard=hard)))  # fmt: skip
        return cluster.reserve(pod)

    free = outcome(None)
    assert isinstance(free, PodAllocation)
    (grant,) = free.grants
    assert grant.memory_mib > 8000
    assert isinstance(outcome(grant.memory_mib), PodAllocation)
    assert isinstance(outcome(grant.memory_mib - 1), Refused)
