"""A real node beside the control plane: kubelet and containerd run what is bound to it."""

from __future__ import annotations

from .objects import a_pod
from .processes import until
from .worker import IMAGE


def test_a_pod_runs(cluster, worker):
    cluster.plane.kube_scheduler()
    pod = a_pod("p", scheduler="default-scheduler")
    pod["spec"]["containers"][0]["image"] = IMAGE
    cluster.add_pod(pod)

    def runs():
        return cluster.pod("p")["status"].get("phase") == "Running"

    until("it runs", runs, seconds=60, seen=lambda: cluster.pod("p")["status"])
    assert worker.ctr("tasks", "ls", "-q").split()
    cluster.remove_pod("p")
