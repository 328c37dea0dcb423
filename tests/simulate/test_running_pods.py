"""Pods that have a node already: what they hold is in use, known or not."""

from __future__ import annotations

import pytest

from .builders import a_container, a_node, a_pod, a_quota, a_running_pod, nodes_of, run, used_memory


def only_pending(result):
    (pending,) = result.pending
    return pending


def test_a_running_pod_is_charged_before_all_others():
    result = run(
        a_node(memory=1000),
        a_pod("new", limits={"gpu": 1, "mem": 600}, created="2020-01-01T00:00:00Z"),
        a_running_pod("old", "n1", "n1-0", mem=700),
    )
    assert [p.pod.name for p in result.running] == ["old"]
    assert only_pending(result).pod.name == "new"
    assert used_memory(result) == {"n1-0": 700}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_uses_nothing(phase):
    result = run(a_node(), a_running_pod("old", "n1", "n1-0", mem=700, phase=phase), a_pod("a"))
    assert (result.running, used_memory(result)) == ((), {"n1-0": 100})


def test_a_running_pod_counts_against_quota_even_above_it():
    result = run(
        a_node(memory=9000),
        a_quota(mem=500),
        a_running_pod("old", "n1", "n1-0", mem=700),
        a_pod("new", limits={"gpu": 1, "mem": 100}),
    )
    assert [p.pod.name for p in result.running] == ["old"]
    assert "used 700" in only_pending(result).message


def test_a_running_pod_without_device_requests_is_not_charged_whatever_it_carries():
    pod = a_running_pod("old", "n1", "n1-0", mem=700, containers=[{"name": "c"}])
    result = run(a_node(), pod)
    assert (used_memory(result), result.without_devices) == ({"n1-0": 0}, 1)


def test_a_running_pod_whose_init_containers_ended_holds_what_its_apps_hold():
    allocated = {"acme.com/allocated": "n1-0,ACME,900,0:;n1-0,ACME,300,0:;"}
    ended = {"name": "setup", "state": {"terminated": {"exitCode": 0}}}
    pod = a_pod(
        "old",
        nodeName="n1",
        annotations=allocated,
        initContainers=[a_container("setup", gpu=1, mem=900)],
        limits={"gpu": 1, "mem": 300},
    )
    pod["status"] = {"phase": "Running", "initContainerStatuses": [ended]}
    assert used_memory(run(a_node(), pod)) == {"n1-0": 300}


@pytest.mark.parametrize(
    ("annotation", "warning"),
    [
        pytest.param(None, "has no annotation acme.com/allocated", id="no allocation"),
        pytest.param("n1-0,ACME,lots,0:;", "annotation acme.com/allocated", id="an unreadable one"),
    ],
)
def test_a_running_pod_that_cannot_be_read_blocks_its_vendor_on_its_node(annotation, warning):
    annotations = {"acme.com/allocated": annotation} if annotation else {}
    whole = {"gpu": 1, "mem": 1000}
    old = a_pod("old", nodeName="n1", phase="Running", annotations=annotations, limits=whole)
    result = run(a_node("n1"), a_node("n2", memory=50), old, a_pod("new"))
    assert only_pending(result).reasons["n1"] == "1/1 UnknownUsage"
    assert result.warnings[0].startswith(f"Pod default/old on n1: {warning}")
    assert "what it uses of ACME is unknown" in result.warnings[1]


def test_a_running_pod_that_cannot_be_read_keeps_from_others_what_it_asks_for_and_no_more():
    old = a_pod("old", nodeName="n1", phase="Running", limits={"gpu": 1, "mem": 700})
    limits = {name: {"gpu": 1, "mem": mem} for name, mem in (("fits", 300), ("not", 301))}
    result = run(a_node("n1"), old, *(a_pod(name, limits=asks) for name, asks in limits.items()))
    assert nodes_of(result) == {"fits": "n1"}


SCHEDULED = {"conditions": [{"type": "PodScheduled", "status": "True"}]}
READY = {"conditions": [{"type": "Ready", "status": "False"}]}


@pytest.mark.parametrize(
    ("status", "bound"),
    [
        *(pytest.param({"phase": p, "startTime": "2026-01-01T00:00:00Z"}, True, id=p) for p in ("Pending", "Running", "Unknown")),
        pytest.param(SCHEDULED, True, id="a condition of the scheduler"),
        pytest.param(READY, False, id="another condition"),
        pytest.param({}, False, id="an empty status"),
        pytest.param(None, False, id="no status"),
    ],
)  # fmt: skip
def test_a_pod_with_a_node_and_no_allocation_is_bound_by(status, bound):
    old = a_pod("old", nodeName="n1", limits={"gpu": 1, "mem": 1000}) | {"status": status}
    result = run(a_node("n1"), old, a_pod("new"))
    assert [p.pod.name for p in result.running] == ["old"] * bound
    assert [p.pod.name for p in result.denied] == ["old"] * (not bound)
    assert bool(result.placed) != bound
    if bound:
        assert only_pending(result).reasons["n1"] == "1/1 UnknownUsage"


def test_a_phase_without_a_node_binds_nothing():
    assert nodes_of(run(a_node(), a_pod("a", phase="Pending"))) == {"a": "n1"}


def test_a_running_pod_with_more_slots_than_containers_is_charged_for_all():
    old = a_pod(
        "old",
        nodeName="n1",
        annotations={"acme.com/allocated": "n1-0,ACME,100,0:;n1-0,ACME,200,0:;"},
    )
    result = run(a_node(), old)
    assert used_memory(result) == {"n1-0": 300}
    assert "devices of more containers than the pod has" in result.warnings[0]


def test_a_device_that_the_node_does_not_have_is_warned_about():
    result = run(a_node(), a_running_pod("old", "n1", "gone", mem=700))
    assert result.warnings == (
        "Pod default/old holds ACME device gone, which node n1 does not have",
    )
