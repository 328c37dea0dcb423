"""Elastic quota in the read-only API: what is guaranteed, used, borrowed; why a pod waits."""

from __future__ import annotations

import msgspec
import pytest

from hami.domain.kubernetes.objects import (
    Metadata,
    PodStatus,
    QuotaTree,
    QuotaTreeNode,
    QuotaTreeSpec,
)
from hami.policy.filter.decision import Refused
from hami.policy.quota.elastic import Claim
from hami.policy.quota.elastic.plans.plan import NoPlan
from hami.scheduler.pending.pending_pods import Refusal

from ..builders import Cluster, a_node, a_pod, an_elastic_quota, ended, granted
from .test_api import Api

MEM = "acme.com/mem"


def running(name: str, mem: int, *, namespace: str, device: int = 0, created: str = "", **more):
    pod = a_pod(name, mem=mem, namespace=namespace, created=created, **more)
    pod = granted(pod, "n1", f"n1-d{device}:{mem}")
    return msgspec.structs.replace(pod, status=PodStatus(phase="Running"))


def lending() -> Cluster:
    """a is guaranteed 4000 MiB and uses 1000; b is guaranteed 2000 and uses 3000."""
    cluster = Cluster(a_node("n1", devices=2))
    cluster.limits(an_elastic_quota("a", 4000), an_elastic_quota("b", 2000, 3500))
    cluster.sees(
        running("a-1", 1000, namespace="a"),
        running("b-1", 2000, namespace="b", device=1, created="2024-01-01T00:00:00Z"),
        running("b-2", 1000, namespace="b", device=1, created="2024-01-02T00:00:00Z", priority=7),
    )
    return cluster


async def quotas(cluster: Cluster, **query):
    return (await Api(cluster).get("/elasticquotas", **query))["items"]


async def test_a_quota_shows_what_is_guaranteed_used_borrowed_and_left():
    page = await Api(lending()).get("/elasticquotas")
    assert page["pool"] == {MEM: {"unit": "MiB", "used": 4000, "free": 2000}}
    a, b = page["items"]
    assert a == {
        "kind": "ElasticQuota", "namespace": "a", "name": "quota", "namespaces": ["a"],
        "parent": "", "pods": None,
        "resources": {MEM: {
            "unit": "MiB", "min": 4000, "max": None, "used": 1000, "reserved": 1000, "borrowed": 0,
            "lent": 1000, "guaranteedOverQuota": 2000, "left": 2000,
        }},
    }  # fmt: skip
    assert b["resources"][MEM] == {
        "unit": "MiB", "min": 2000, "max": 3500, "used": 3000, "reserved": 3000, "borrowed": 1000,
        "lent": 0, "guaranteedOverQuota": 1000, "left": 500,
    }  # fmt: skip


async def test_what_is_promised_is_reserved_and_not_used_yet():
    cluster = lending()
    cluster.reserve(a_pod("a-2", mem=500, namespace="a"))
    shown = (await quotas(cluster, namespace="a"))[0]["resources"][MEM]
    assert (shown["used"], shown["reserved"]) == (1000, 1500)


async def test_its_pods_are_shown_when_asked_for():
    (b,) = await quotas(lending(), namespace="b", pods="true")
    assert [(p["name"], p["capacity"], p["priority"], p["holds"][MEM]) for p in b["pods"]] == [
        ("b-1", "in-quota", 0, 2000),
        ("b-2", "over-quota", 7, 1000),
    ]
    assert b["pods"][0] | {"uid": "", "holds": {}} == {
        "namespace": "b", "name": "b-1", "uid": "", "node": "n1", "priority": 0, "running": True,
        "preemptible": True, "capacity": "in-quota", "holds": {}, "victimOf": "", "gone": False,
    }  # fmt: skip


async def test_a_victim_is_marked_also_when_it_is_gone_and_its_place_is_held():
    cluster, victim = lending(), running("b-2", 1000, namespace="b", device=1)
    claimant = a_pod("a-9", mem=1000, namespace="a")
    cluster.sees(claimant)
    cluster.state.holds.begin(claimant, [cluster.state.pods[victim.uid]])

    async def marks():
        (b,) = await quotas(cluster, namespace="b", pods="true")
        return [(p["name"], p["victimOf"], p["gone"], p["running"]) for p in b["pods"]]

    assert await marks() == [("b-1", "", False, True), ("b-2", "a/a-9", False, True)]
    cluster.sees(ended(cluster.state.pods[victim.uid]))
    assert await marks() == [("b-1", "", False, True), ("b-2", "a/a-9", True, False)]


async def test_a_composite_and_a_parent_are_named():
    cluster = Cluster()
    tree = QuotaTree(
        metadata=Metadata(name="t"), spec=QuotaTreeSpec(nodes=[QuotaTreeNode(name="research")])
    )
    cluster.limits(an_elastic_quota("x", 10, None, "a", "b", parent="research"), tree)
    (shown,) = await quotas(cluster)
    assert (shown["kind"], shown["namespaces"], shown["parent"]) == (
        "CompositeElasticQuota", ["a", "b"], "research",
    )  # fmt: skip
    assert await quotas(cluster, namespace="x") == []
    assert len(await quotas(cluster, namespace="b")) == 1


async def test_what_a_quota_borrows_is_shown_although_it_does_not_name_it():
    cluster = Cluster(a_node("n1", devices=1))
    cluster.limits(an_elastic_quota("a", 4000), an_elastic_quota("b", 1, resource="acme.com/gpu"))
    cluster.sees(running("b-1", 500, namespace="b"))
    (b,) = await quotas(cluster, namespace="b")
    assert b["resources"][MEM] == {
        "unit": "MiB", "min": 0, "max": None, "used": None, "reserved": 500, "borrowed": 500,
        "lent": 0, "guaranteedOverQuota": 0, "left": 3500,
    }  # fmt: skip


@pytest.mark.parametrize("limit", [1, 2, 5, 1000])
async def test_pages_show_every_quota_once(limit):
    cluster = Cluster()
    cluster.limits(*(an_elastic_quota(f"n{i}", 10) for i in range(5)))
    found, pages = await Api(cluster).all_of("/elasticquotas", limit=limit)
    assert [quota["namespace"] for quota in found] == [f"n{i}" for i in range(5)]
    assert pages == -(-5 // limit)


async def test_a_quota_that_goes_while_others_are_shown_is_left_out():
    cluster = lending()
    gone = an_elastic_quota("a", 4000)
    cluster.state.elastic.remove(gone)
    cluster.state.quota_objects.arrange()
    assert [quota["namespace"] for quota in await quotas(cluster)] == ["b"]


# Why.


def refusing(cluster: Cluster, pod) -> None:
    cluster.sees(pod)
    outcome = cluster.reserve(pod)
    assert isinstance(outcome, Refused)
    cluster.state.pending.refused(
        pod, list(cluster.state.nodes), Refusal(at=1_700_000_000.0, outcome=outcome)
    )


async def why(cluster: Cluster, pod: str, namespace: str, **unplanned: NoPlan):
    found = {f"uid-{namespace}-{pod}": plan for plan in unplanned.values()}
    api = Api(cluster, unplanned=lambda: found)
    return (await api.get(f"/pods/{namespace}/{pod}/why"))["elastic"]


async def test_a_waiting_pod_says_what_it_asks_and_which_rule_refuses_it():
    cluster = lending()
    refusing(cluster, a_pod("b-3", mem=600, namespace="b"))
    shown = await why(cluster, "b-3", "b")
    assert shown["quota"] == "ElasticQuota b/quota"
    assert shown["asks"][MEM] == {"unit": "MiB", "asked": 600, "left": 500}
    assert shown["refusals"] == [
        "ElasticQuota b/quota: max: acme.com/mem: used 3000 MiB + asked 600 MiB > limit 3500 MiB"
    ]
    assert (shown["victims"], shown["notEvicted"], shown["capacity"]) == ([], {}, "")


async def test_it_says_why_nobody_is_evicted_for_it():
    cluster = lending()
    refusing(cluster, a_pod("b-3", mem=600, namespace="b"))
    claim = Claim(uid="uid-b-b-3", namespace="b", name="b-3", vector={})
    plan = NoPlan(claim=claim, why={"fair": "it has its share"}, again=1_700_000_060.0)
    shown = await why(cluster, "b-3", "b", plan=plan)
    assert shown["notEvicted"] == {"fair": "it has its share"}
    assert shown["again"] == "2023-11-14T22:14:20+00:00"


async def test_a_pod_of_no_quota_says_why_nobody_is_evicted_for_it():
    cluster = Cluster(a_node("n1", memory=10))
    refusing(cluster, a_pod("p", mem=600))
    claim = Claim(uid="uid-default-p", namespace="default", name="p", vector={})
    plan = NoPlan(claim=claim, why={"priority": "nobody has less"})
    shown = await why(cluster, "p", "default", plan=plan)
    assert (shown["quota"], shown["notEvicted"]) == ("", {"priority": "nobody has less"})


async def test_a_claimant_names_the_victims_that_it_waits_for_and_what_is_held_is_free_for_it():
    cluster = lending()
    claimant = a_pod("a-9", mem=3000, namespace="a")
    refusing(cluster, claimant)
    assert (await why(cluster, "a-9", "a"))["asks"][MEM]["left"] == 2000
    victim = cluster.state.pods["uid-b-b-2"]
    cluster.state.holds.begin(claimant, [victim])
    expected = {"namespace": "b", "name": "b-2", "node": "n1"}
    assert (await why(cluster, "a-9", "a"))["victims"] == [expected | {"gone": False}]
    assert (await why(cluster, "b-2", "b"))["victimOf"] == "a/a-9"
    cluster.sees(ended(victim))
    shown = await why(cluster, "a-9", "a")
    assert shown["victims"] == [expected | {"gone": True}]
    assert shown["asks"][MEM]["left"] == 3000
    assert shown["refusals"] == []
    # For everybody else it is still used.
    (b,) = await quotas(cluster, namespace="b")
    assert b["resources"][MEM]["reserved"] == 3000


async def test_a_running_pod_says_whether_it_is_over_quota():
    cluster = lending()
    assert (await why(cluster, "b-1", "b"))["capacity"] == "in-quota"
    assert (await why(cluster, "b-2", "b"))["capacity"] == "over-quota"


async def test_without_any_quota_there_is_nothing_to_say():
    cluster = Cluster(a_node("n1"))
    cluster.sees(granted(a_pod("p", mem=10), "n1", "n1-d0:10"), a_pod("w", mem=10))
    assert await why(cluster, "p", "default") is None
    assert await why(cluster, "w", "default") is None


def test_what_is_wrong_with_a_groups_parent_is_told_of_its_tree():
    cluster = Cluster()
    nodes = [QuotaTreeNode(name=n, parent=p) for n, p in (("a", "b"), ("b", "a"), ("c", "gone"))]
    tree = QuotaTree(metadata=Metadata(name="t"), spec=QuotaTreeSpec(nodes=nodes))
    cluster.limits(tree)
    told = [str(problem.text) for problem in cluster.problems if problem.about is tree]
    assert [text.split(";")[0] for text in told] == [
        "QuotaTree t: a: parent: a > b > a is a circle",
        'QuotaTree t: c: parent: there is no node "gone" in any QuotaTree',
    ]
