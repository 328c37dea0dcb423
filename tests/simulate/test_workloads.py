"""Which pods the objects of the files make, and which of them a scheduler looks at."""

from __future__ import annotations

import pytest

from hami.domain.errors import ConfigError

from .builders import a_node, a_pod, a_workload, read

EARLY = "2026-01-01T00:00:00Z"


def names(manifests) -> list[str]:
    return [pod.full_name for pod in manifests.pods]


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        pytest.param(a_workload("Deployment"), ["web-1"], id="one replica unless it says"),
        pytest.param(a_workload("Deployment", replicas=2), ["web-1", "web-2"], id="a Deployment"),
        pytest.param(a_workload("ReplicaSet", replicas=2), ["web-1", "web-2"], id="a ReplicaSet"),
        pytest.param(a_workload("Deployment", replicas=0), [], id="a Deployment scaled to 0"),
        pytest.param(a_workload("StatefulSet", replicas=2), ["web-0", "web-1"], id="from 0"),
        pytest.param(a_workload("Job"), ["web-1"], id="a Job runs one pod"),
        pytest.param(a_workload("Job", completions=5), ["web-1"], id="one at a time"),
        pytest.param(a_workload("Job", parallelism=2), ["web-1", "web-2"], id="as many at once"),
        pytest.param(
            a_workload("Job", parallelism=9, completions=2),
            ["web-1", "web-2"],
            id="no more than left",
        ),
        pytest.param(a_workload("Job", parallelism=2, suspend=True), [], id="a suspended Job"),
    ],
)
def test_a_workload_runs(workload, expected):
    assert [pod.name for pod in read(workload).pods] == expected


def test_a_replica_is_like_the_template():
    template = a_pod(annotations={"a": "b"}, nodeSelector={"zone": "1"})
    (pod,) = read(a_workload("Deployment", pod=template)).pods
    assert pod.annotations == {"a": "b"}
    assert pod.spec.node_selector == {"zone": "1"}
    assert pod.namespace == "default"


def owned_by(kind: str, name: str) -> dict:
    return {"ownerReferences": [{"kind": kind, "name": name, "controller": True}]}


def test_a_dump_of_a_cluster_counts_no_pod_twice():
    replica_set = a_workload("ReplicaSet", "web-abc", replicas=1)
    replica_set["metadata"] |= owned_by("Deployment", "web")
    pod = a_pod("web-abc-xyz", metadata=owned_by("ReplicaSet", "web-abc"))
    manifests = read(a_node(), a_workload("Deployment", "web", replicas=1), replica_set, pod)
    assert names(manifests) == ["default/web-abc-xyz"]
    assert [w.partition(": ")[2] for w in manifests.warnings] == [
        "Deployment default/web is not expanded: the files hold what it made",
        "ReplicaSet default/web-abc is not expanded: the files hold what it made",
    ]


REAL, LABEL = "web-5d4f8b7c9d", {"pod-template-hash": "abc"}


@pytest.mark.parametrize(
    ("replica_set", "labels", "expanded"),
    [
        pytest.param(REAL, {}, False, id="a ReplicaSet with a hash"),
        pytest.param("web-abc", LABEL, False, id="a hash that the pod's label bears"),
        pytest.param(REAL, LABEL, True, id="another hash than the label's"),
        pytest.param("web-api", {}, True, id="a ReplicaSet with a word at its end"),
        pytest.param("shop-5d4f8b7c9d", {}, True, id="another Deployment's ReplicaSet"),
        pytest.param("web", {}, True, id="a ReplicaSet with the Deployment's own name"),
    ],
)
def test_a_deployment_is_expanded_beside_a_pod_of(replica_set, labels, expanded):
    pod = a_pod("p", metadata=owned_by("ReplicaSet", replica_set) | {"labels": labels})
    manifests = read(a_node(), a_workload("Deployment", "web"), pod)
    assert ("default/web-1" in names(manifests)) == expanded
    assert bool(manifests.warnings) != expanded


def test_a_pod_of_another_namespace_expands_no_less():
    pod = a_pod("p", namespace="ml", metadata=owned_by("ReplicaSet", REAL))
    assert "default/web-1" in names(read(a_workload("Deployment", "web"), pod))


@pytest.mark.parametrize(
    ("condition", "status", "expected"),
    [
        pytest.param("Complete", "True", [], id="a complete Job runs nothing"),
        pytest.param("Failed", "True", [], id="a failed Job runs nothing"),
        pytest.param("Failed", "False", ["default/web-1"], id="a Job that has not failed"),
        pytest.param("Suspended", "True", ["default/web-1"], id="a condition of another kind"),
    ],
)
def test_a_job_is_over(condition, status, expected):
    job = a_workload("Job") | {"status": {"conditions": [{"type": condition, "status": status}]}}
    assert names(read(a_node(), job)) == expected


@pytest.mark.parametrize(
    ("pod", "warned"),
    [
        pytest.param(
            a_pod("a", metadata={"deletionTimestamp": EARLY}), False, id="a pod that is going away"
        ),
        pytest.param(
            a_pod("a", schedulingGates=[{"name": "example.com/wait"}]), True, id="a gated pod"
        ),
        pytest.param(
            a_workload("Job", pod=a_pod(schedulingGates=[{"name": "example.com/wait"}])),
            True,
            id="a workload of gated pods",
        ),
    ],
)
def test_no_scheduler_looks_at(pod, warned):
    manifests = read(a_node(), pod)
    assert manifests.pods == ()
    assert [("example.com/wait" in w) for w in manifests.warnings] == [True] * warned


def test_a_bound_pod_that_is_going_away_still_counts():
    pod = a_pod("a", nodeName="n1", metadata={"deletionTimestamp": EARLY})
    assert names(read(a_node(), pod)) == ["default/a"]


def test_gates_of_the_wrong_type_are_named():
    with pytest.raises(ConfigError, match=r"Pod default/a: spec\.schedulingGates is 3: expected"):
        read(a_pod("a", schedulingGates=3))
