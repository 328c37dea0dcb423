"""A real kube-scheduler evicts for CPU, and asks us first whether the devices would fit then."""

from __future__ import annotations

import pytest

from .objects import a_container, a_pod
from .processes import until

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
CPU = "60"  # Of a node's 64: no two pods that ask for it fit.


@pytest.fixture
def prioritised(cluster):
    """Its names of three PriorityClasses."""
    names = {}
    for word, value in (("high", 1000), ("mid", 500), ("low", 10)):
        names[word] = f"{cluster.namespace}-{word}"
        cluster.admin.create(CLASSES, {"metadata": {"name": names[word]}, "value": value})
    yield names
    for name in names.values():
        cluster.admin.delete(f"{CLASSES}/{name}")


@pytest.fixture
def add(cluster, prioritised):
    """Adds a pod of ``high``, ``mid`` or ``low`` priority that asks for this much CPU."""

    def add(name, priority, *, cpu="1", node="", **asks):
        container = a_container(**asks)
        container["resources"]["requests"] = {"cpu": cpu}
        spec = {"priorityClassName": prioritised[priority]}
        if node:
            spec["nodeSelector"] = {"name": node}
        cluster.add_pod(a_pod(name, containers=[container], spec=spec))

    return add


def names(cluster):
    return sorted(pod["metadata"]["name"] for pod in cluster.pods(cluster.namespace))


def judged(service, pod):
    """The log lines about preemptions for this pod."""
    return [
        line
        for line in service.log()
        if line["event"] == "preemption judged" and line["pod"].endswith(f"/{pod}")
    ]


@pytest.mark.parametrize("names_only", [True, False], ids=["victims' uids", "whole victims"])
def test_a_pod_is_evicted_where_the_devices_fit_then(cluster, add, names_only):
    cluster.add_nodes("n1", devices="t4x1")
    service = cluster.service()
    cluster.kube_scheduler(service.url, nodeCacheCapable=names_only)
    add("low", "low", cpu=CPU, gpu=1, mem=10000)
    cluster.bound("low")
    add("high", "high", cpu=CPU, gpu=1, mem=15000)
    cluster.bound("high")
    assert names(cluster) == ["high"]
    assert judged(service, "high")[0]["outcome"] == "kept"
    cluster.agrees(service)


def test_nobody_is_evicted_where_the_devices_would_still_not_fit(cluster, add):
    cluster.add_nodes("n1", devices="t4x1")
    service = cluster.scheduled()
    add("holds", "high", gpu=1, mem=10000)
    add("low", "low", cpu=CPU, gpu=1, mem=1000)
    cluster.bound("holds", "low")
    add("high", "high", cpu=CPU, gpu=1, mem=9000)
    said = cluster.refused("high", "no candidate node for preemption")
    assert "Insufficient cpu" in said
    (first, *_) = judged(service, "high")
    assert (first["outcome"], first["reasons"]) == ("vetoed", {"CardInsufficientMemory": 1})
    assert names(cluster) == ["high", "holds", "low"]
    # Asked again and again, it stays so; and without the veto kube-scheduler would evict.
    cluster.kube_scheduler(service.url, preemptVerb="")
    until("low is evicted for nothing", lambda: names(cluster) == ["high", "holds"])
    cluster.refused("high", "CardInsufficientMemory")


def test_quota_counts_as_devices_do(cluster, add):
    cluster.add_nodes("n1", "n2", devices="t4x1")
    service = cluster.scheduled()
    cluster.add_quota("limit", **{"limits.nvidia.com/gpumem": "9000"})
    add("holds", "high", cpu=CPU, node="n1", gpu=1, mem=5000)
    add("low", "low", cpu=CPU, node="n2", gpu=1, mem=2000)
    cluster.bound("holds", "low")
    add("asks", "high", cpu=CPU, gpu=1, mem=5000)
    cluster.refused("asks", "no candidate node for preemption")
    assert judged(service, "asks")[0]["reasons"] == {"ResourceQuotaNotFit": 1}
    add("fits", "high", cpu=CPU, gpu=1, mem=4000)
    cluster.bound("fits")
    assert names(cluster) == ["asks", "fits", "holds"]


def test_the_node_is_chosen_among_those_that_would_do(cluster, add):
    """kube-scheduler alone prefers n1: its victim is less important."""
    cluster.add_nodes("n1", "n2", devices="t4x1")
    service = cluster.scheduled()
    add("holds", "high", node="n1", gpu=1, mem=10000)
    add("low", "low", cpu=CPU, node="n1", gpu=1, mem=1000)
    add("mid", "mid", cpu=CPU, node="n2", gpu=1, mem=9000)
    cluster.bound("holds", "low", "mid")
    add("high", "high", cpu=CPU, gpu=1, mem=9000)
    (pod,) = cluster.bound("high")
    assert pod["spec"]["nodeName"] == "n2"
    assert names(cluster) == ["high", "holds", "low"]
    cluster.agrees(service)


def test_a_follower_lets_nobody_be_evicted(cluster, add):
    cluster.add_nodes("n1", devices="t4x1")
    service = cluster.scheduled()
    add("low", "low", cpu=CPU, gpu=1, mem=1000)
    cluster.bound("low")
    follower = cluster.service(
        "follower", leader_mode="colocated", leader_elect_resource_name="nobodys"
    )
    cluster.kube_scheduler(follower.url)
    add("high", "high", cpu=CPU, gpu=1, mem=1000)
    cluster.refused("high", "no candidate node for preemption")
    assert "does not lead" in judged(follower, "high")[0]["error"]
    assert names(cluster) == ["high", "low"]
    cluster.kube_scheduler(service.url)
    cluster.bound("high")
    assert names(cluster) == ["high"]
