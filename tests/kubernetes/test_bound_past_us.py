"""Pods that are on a node and that the scheduler did not put there, on a real API server."""

from __future__ import annotations

from .client import pods_path
from .objects import a_container, a_pod
from .processes import until

STARTED = "2026-01-01T00:00:00Z"


def put_on(node, name, **asks):
    return a_pod(name, spec={"nodeName": node}, **asks)


def kubelet_says(cluster, name, *, container_id=""):
    """As kubelet reports the container of a pod that waits, or that it created."""
    status = {
        "name": "main", "image": "", "imageID": "", "ready": False, "restartCount": 0,
        "containerID": container_id, "state": {"waiting": {"reason": "ContainerCreating"}},
    }  # fmt: skip
    patch = {"status": {"startTime": STARTED, "containerStatuses": [status]}}
    cluster.admin.merge(pods_path(cluster.namespace, name) + "/status", patch)


def gone(cluster, *names):
    """The recount reads annotations alone, and would not know what to say of these."""
    for name in names:
        cluster.remove_pod(name)

    def left() -> set[str]:
        return {pod["metadata"]["name"] for pod in cluster.pods(cluster.namespace)}

    until("they are gone", lambda: left().isdisjoint(names))


def test_a_pod_with_a_node_name_on_every_node_shuts_none(cluster):
    cluster.add_nodes("n1", "n2", devices="t4x2")
    service = cluster.scheduled()

    def told(pod: str) -> str:
        return " ".join(cluster.events(pod, "UnknownUsage"))

    for node in ("n1", "n2"):
        cluster.add_pod(put_on(node, f"on-{node}", gpu=1))
        until(
            "its author is told what to do", lambda n=node: "leave the node to" in told(f"on-{n}")
        )
        assert f"{cluster.namespace}/on-{node} on {node}" in told(f"on-{node}")
        kubelet_says(cluster, f"on-{node}")
    cluster.add_pods(*(a_pod(f"p{i}", gpu=1) for i in range(4)))
    cluster.bound(*(f"p{i}" for i in range(4)))
    gone(cluster, "on-n1", "on-n2")
    cluster.agrees(service)


def test_what_such_a_pod_asks_for_is_kept_free_when_it_runs_all_the_same(cluster):
    cluster.add_nodes("n1", devices="t4x2")
    service = cluster.service()
    cluster.add_pod(put_on("n1", "odd", containers=[a_container(gpu=1, mem=5000)]))
    kubelet_says(cluster, "odd", container_id="containerd://1")

    def unknown() -> bool:
        return [d["known"] for d in service.get("/api/v1/devices")["items"]] == [False, False]

    until("its devices are unknown", unknown)
    cluster.kube_scheduler(service.url)
    cluster.add_pod(a_pod("large", gpu=2, mem=12000))
    cluster.refused("large", "CardInsufficientMemory")
    cluster.add_pod(a_pod("small", gpu=2, mem=10000))
    cluster.bound("small")
    gone(cluster, "odd")
    until("its devices are known again", lambda: not unknown())
    cluster.agrees(service)


def test_an_unsigned_binding_by_somebody_else_is_told_and_takes_no_more_than_there_is(cluster):
    cluster.add_nodes("n1", devices="t4x1")
    service = cluster.scheduled(signing_key_secret=f"{cluster.namespace}/hami-signing-key")
    cluster.add_pod(a_pod("ours", gpu=1, mem=10000))
    cluster.bound("ours")
    cluster.add_pod(a_pod("theirs", scheduler="another", gpu=1, mem=8000))
    path = pods_path(cluster.namespace, "theirs")
    binding = {
        "metadata": {"name": "theirs", "annotations": {
            "hami.io/vgpu-node": "n1",
            "hami.io/vgpu-devices-allocated": "GPU-n1-0,NVIDIA,121920,0:;",
        }},
        "target": {"kind": "Node", "name": "n1"},
    }  # fmt: skip
    cluster.admin.create(path + "/binding", binding)
    (told,) = until("its author is told", lambda: cluster.events("theirs", "UnsignedAllocation"))
    assert "this scheduler did not make its allocation" in told
    (more,) = until("and of the device", lambda: cluster.events("theirs", "OverAllocated"))
    assert "GPU-n1-0 18000 of 15360 MiB" in more
    (device,) = service.get("/api/v1/devices")["items"]
    assert (device["usedMemoryMiB"], device["known"]) == (10000, False)
    text = service.text("/metrics")
    for reason in ("UnsignedAllocation", "OverAllocated"):
        assert f'hami_scheduler_problems_total{{reason="{reason}"}} 1.0' in text
    cluster.add_pod(a_pod("next", gpu=1, mem=1000))
    cluster.refused("next", "UnknownUsage")
    gone(cluster, "theirs")
    cluster.bound("next")
    cluster.agrees(service)
