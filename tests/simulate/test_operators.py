"""DaemonSets, CronJobs and the training operators' kinds: the pods that each would run now."""

from __future__ import annotations

from typing import Any

import pytest

from hami.domain.errors import ConfigError

from .builders import a_node, a_pod, nodes_of, read, run


def a_template(**spec: Any) -> dict[str, Any]:
    return {"spec": a_pod(**spec)["spec"]}


def an_object(kind: str, spec: dict[str, Any], *, api: str = "v1", **more: Any) -> dict[str, Any]:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": "w"}, "spec": spec, **more}


TEMPLATE = {"template": a_template()}


def a_daemon_set(**spec: Any) -> dict[str, Any]:
    return an_object("DaemonSet", {"template": a_template(**spec)})


def a_cron_job(*, job: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return an_object("CronJob", {"jobTemplate": {"spec": TEMPLATE | (job or {})}, **spec})


def a_training_job(kind: str, field: str, *, run: Any = None, **roles: int | None) -> Any:
    replicas = {role: TEMPLATE | {"replicas": number} for role, number in roles.items()}
    return an_object(kind, {field: replicas, "runPolicy": run})


def a_ray_cluster(**group: Any) -> dict[str, Any]:
    workers = [{"groupName": "gpu", **TEMPLATE, **group}]
    return {"headGroupSpec": TEMPLATE, "workerGroupSpecs": workers}


def a_leader_worker_set(*, leader: bool = False, size: int | None = None, **spec: Any) -> Any:
    templates = {"workerTemplate": a_template(), "size": size}
    templates |= {"leaderTemplate": a_template(limits={})} if leader else {}
    return an_object("LeaderWorkerSet", {"leaderWorkerTemplate": templates, **spec})


def a_job_set(*, replicas: int | None = None, **job: Any) -> dict[str, Any]:
    replicated = {"name": "train", "replicas": replicas, "template": {"spec": TEMPLATE | job}}
    return an_object("JobSet", {"replicatedJobs": [replicated]})


def a_volcano_job(**task: Any) -> dict[str, Any]:
    return an_object("Job", {"tasks": [{**TEMPLATE, **task}]}, api="batch.volcano.sh/v1alpha1")


PYTORCH = ("PyTorchJob", "pytorchReplicaSpecs")


@pytest.mark.parametrize(
    ("workload", "expected"),
    [
        pytest.param(a_cron_job(), ["w-1"], id="a CronJob is one run"),
        pytest.param(a_cron_job(job={"parallelism": 2}), ["w-1", "w-2"], id="of all its pods"),
        pytest.param(a_cron_job(suspend=True), [], id="a suspended CronJob"),
        pytest.param(
            a_training_job(*PYTORCH, Master=1, Worker=2),
            ["w-master-0", "w-worker-0", "w-worker-1"],
            id="a PyTorchJob",
        ),
        pytest.param(a_training_job(*PYTORCH, Worker=None), ["w-worker-0"], id="one by default"),
        pytest.param(
            a_training_job(*PYTORCH, run={"suspend": True}, Worker=1), [], id="a suspended one"
        ),
        pytest.param(
            a_training_job("MPIJob", "mpiReplicaSpecs", Launcher=1, Worker=1),
            ["w-launcher-0", "w-worker-0"],
            id="an MPIJob",
        ),
        pytest.param(
            a_training_job("TFJob", "tfReplicaSpecs", PS=1, Chief=1),
            ["w-ps-0", "w-chief-0"],
            id="a TFJob",
        ),
        pytest.param(
            an_object("RayCluster", a_ray_cluster(replicas=2)),
            ["w-head-1", "w-gpu-worker-1", "w-gpu-worker-2"],
            id="a RayCluster",
        ),
        pytest.param(
            an_object("RayCluster", a_ray_cluster(replicas=2, numOfHosts=2)),
            ["w-head-1", *(f"w-gpu-worker-{n}" for n in range(1, 5))],
            id="workers of several hosts",
        ),
        pytest.param(
            an_object("RayCluster", a_ray_cluster(minReplicas=1)),
            ["w-head-1", "w-gpu-worker-1"],
            id="the least, where an autoscaler decides",
        ),
        pytest.param(
            an_object("RayCluster", a_ray_cluster(replicas=0, minReplicas=1)),
            ["w-head-1", "w-gpu-worker-1"],
            id="never less than the least",
        ),
        pytest.param(
            an_object("RayCluster", a_ray_cluster(replicas=3, suspend=True)),
            ["w-head-1"],
            id="a suspended group",
        ),
        pytest.param(
            an_object("RayCluster", a_ray_cluster() | {"suspend": True}), [], id="suspended whole"
        ),
        pytest.param(
            an_object("RayJob", {"rayClusterSpec": a_ray_cluster()}), ["w-head-1"], id="a RayJob"
        ),
        pytest.param(
            an_object("RayJob", {"clusterSelector": {"ray.io/cluster": "there"}}),
            [],
            id="a RayJob on a cluster that is there",
        ),
        pytest.param(
            an_object("RayService", {"rayClusterConfig": a_ray_cluster()}),
            ["w-head-1"],
            id="a RayService",
        ),
        pytest.param(
            a_leader_worker_set(replicas=2, size=3),
            ["w-0", "w-1", "w-0-1", "w-0-2", "w-1-1", "w-1-2"],
            id="a LeaderWorkerSet",
        ),
        pytest.param(a_leader_worker_set(), ["w-0"], id="of one pod unless it says"),
        pytest.param(
            a_job_set(replicas=2, parallelism=2),
            ["w-train-0-1", "w-train-0-2", "w-train-1-1", "w-train-1-2"],
            id="a JobSet",
        ),
        pytest.param(
            a_volcano_job(name="worker", replicas=2), ["w-worker-0", "w-worker-1"], id="Volcano's"
        ),
    ],
)
def test_a_workload_runs(workload, expected):
    assert [pod.name for pod in read(workload).pods] == expected


def test_a_leader_of_its_own_template():
    leader, worker = read(a_leader_worker_set(leader=True, size=2)).pods
    assert (leader.name, worker.name) == ("w-0", "w-0-1")
    assert not leader.spec.containers[0].limits
    assert worker.spec.containers[0].limits


@pytest.mark.parametrize(
    ("condition", "expected"), [("Succeeded", 0), ("Failed", 0), ("Running", 1)]
)
def test_a_job_that_has_ended_runs_nothing(condition, expected):
    status = {"conditions": [{"type": condition, "status": "True"}]}
    job = a_training_job(*PYTORCH, Worker=1) | {"status": status}
    assert len(read(job).pods) == expected


@pytest.mark.parametrize(
    ("workload", "problem"),
    [
        pytest.param(
            a_training_job(*PYTORCH, Worker=-1),
            r"PyTorchJob default/w: spec\.pytorchReplicaSpecs\.Worker\.replicas is -1; write a number",
            id="a negative number",
        ),
        pytest.param(
            a_job_set(replicas=-1), r"spec\.replicatedJobs\[0\]\.replicas is -1", id="of Jobs"
        ),
        pytest.param(
            an_object("RayCluster", a_ray_cluster(replicas=10**6, numOfHosts=10**6)),
            "asks for 1000000000001 pods in all; ask for at most 1000000",
            id="numbers that are small alone",
        ),
        pytest.param(
            an_object("RayCluster", {"headGroupSpec": {}}),
            r"spec\.headGroupSpec\.template\.spec\.containers is empty",
            id="a template without containers",
        ),
        pytest.param(
            an_object("CronJob", {}),
            r"spec\.jobTemplate\.spec\.template\.spec\.containers is empty",
            id="a CronJob without a Job",
        ),
    ],
)
def test_what_no_controller_could_run_is_named(workload, problem):
    with pytest.raises(ConfigError, match=problem):
        read(workload)


def test_gates_of_one_template_hold_back_its_pods_alone():
    roles = {
        "Master": TEMPLATE,
        "Worker": {"template": a_template(schedulingGates=[{"name": "example.com/wait"}])},
    }
    manifests = read(a_node(), an_object("PyTorchJob", {"pytorchReplicaSpecs": roles}))
    assert [pod.name for pod in manifests.pods] == ["w-master-0"]
    assert "example.com/wait" in manifests.warnings[0]


# DaemonSets.

TAINTED = {"taints": [{"key": "team", "value": "ml", "effect": "NoSchedule"}]}
NOT_READY = {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}]}


@pytest.mark.parametrize(
    ("daemon_set", "expected"),
    [
        pytest.param(a_daemon_set(), ["n1", "cordoned", "starting"], id="on every node"),
        pytest.param(a_daemon_set(nodeSelector={"gpu": "on"}), ["n1"], id="that it selects"),
        pytest.param(
            a_daemon_set(tolerations=[{"operator": "Exists"}]),
            ["n1", "cordoned", "tainted", "starting"],
            id="whose taints it tolerates",
        ),
    ],
)
def test_a_daemon_set_has_a_pod(daemon_set, expected):
    nodes = [
        a_node("n1", labels={"gpu": "on"}),
        a_node("cordoned", unschedulable=True),
        a_node("tainted", **TAINTED),
        a_node("starting", **NOT_READY),
    ]
    result = run(*nodes, daemon_set)
    assert sorted(nodes_of(result).values()) == sorted(expected)
    assert result.pending == ()


def test_a_daemon_sets_pod_waits_for_its_own_node():
    full = a_pod("full", limits={"gpu": 1, "mem": 1000}, created="2026-01-01T00:00:00Z")
    full["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n1"}
    result = run(a_node("n1"), a_node("n2"), full, a_daemon_set())
    assert nodes_of(result) == {"full": "n1", "w-2": "n2"}
    assert [pod.pod.name for pod in result.pending] == ["w-1"]


# Dumps of clusters.


def owned(kind: str, name: str, **labels: str) -> dict[str, Any]:
    owner = [{"kind": kind, "name": name, "controller": True}]
    return a_pod("p", metadata={"ownerReferences": owner, "labels": labels})


@pytest.mark.parametrize(
    ("workload", "pod"),
    [
        pytest.param(a_daemon_set(), owned("DaemonSet", "w"), id="a DaemonSet's pod"),
        pytest.param(a_cron_job(), owned("Job", "w-29384756"), id="a CronJob's Job's pod"),
        pytest.param(
            a_training_job(*PYTORCH, Worker=1), owned("PyTorchJob", "w"), id="a PyTorchJob's pod"
        ),
        pytest.param(
            a_leader_worker_set(),
            owned("StatefulSet", "w", **{"leaderworkerset.sigs.k8s.io/name": "w"}),
            id="a LeaderWorkerSet's pod",
        ),
        pytest.param(
            a_job_set(),
            owned("Job", "w-train-0", **{"jobset.sigs.k8s.io/jobset-name": "w"}),
            id="a JobSet's pod",
        ),
    ],
)
def test_a_workload_is_not_expanded_beside(workload, pod):
    manifests = read(a_node(), workload, pod)
    assert [pod.name for pod in manifests.pods] == ["p"]
    assert "is not expanded" in manifests.warnings[0]
