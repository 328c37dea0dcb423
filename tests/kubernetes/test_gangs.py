"""Kubernetes' own gangs on the real kube-scheduler: pods of one PodGroup run together or not at all.

The control is a gang of the same shape that asks for CPU alone: what kube-scheduler does with it
without us, it does with ours.
"""

from __future__ import annotations

import time

import pytest

from .client import node_path, pods_path
from .cluster import Cluster
from .objects import a_container, a_pod
from .plane import ControlPlane
from .processes import until

GATES = ("GenericWorkload", "GangScheduling")
API = "scheduling.k8s.io/v1alpha2"
T4 = 15360
LOCK = "hami.io/mutex.lock"


@pytest.fixture(scope="module")
def gang_plane(binaries, tmp_path_factory):
    """A control plane that knows PodGroups."""
    folder = tmp_path_factory.mktemp("gangs")
    with ControlPlane(binaries, folder, gates=GATES, apis=[API]) as plane:
        plane.allow_hami("kube-system")
        yield plane


@pytest.fixture
def cluster(gang_plane, tmp_path):
    with Cluster(gang_plane, tmp_path) as cluster:
        yield cluster


def add_group(cluster, name, least):
    path = f"/apis/{API}/namespaces/{cluster.namespace}/podgroups"
    spec = {"schedulingPolicy": {"gang": {"minCount": least}}}
    cluster.admin.create(path, {"metadata": {"name": name}, "spec": spec})


def a_member(name, group, **asks):
    return a_pod(name, spec={"schedulingGroup": {"podGroupName": group}}, **asks)


def a_gang(cluster, name, size, *, least=None, **asks):
    """The names of its pods."""
    add_group(cluster, name, least or size)
    names = [f"{name}-{number}" for number in range(size)]
    cluster.add_pods(*(a_member(each, name, **asks) for each in names))
    return names


def bound(cluster, names):
    pods = {pod["metadata"]["name"]: pod for pod in cluster.pods(cluster.namespace)}
    return [name for name in names if pods[name]["spec"].get("nodeName")]


def waits(cluster, names, seconds=3):
    """Refused, and still so a while later; no node is given to any."""
    for name in names:
        cluster.refused(name)
    time.sleep(seconds)
    assert bound(cluster, names) == []


def lock_of(cluster, node):
    return cluster.admin.get(node_path(node))["metadata"]["annotations"].get(LOCK, "")


def reserved(service):
    return service.get("/api/v1/summary")["pods"]["reserved"]


class TestControl:
    def test_a_gang_of_plain_pods_that_fits_runs(self, cluster):
        cluster.add_nodes("n1", devices="t4x1")
        cluster.scheduled()
        cpu = [a_container(cpu=1)]
        add_group(cluster, "g", 3)
        cluster.add_pods(*(a_member(f"g-{n}", "g", containers=cpu) for n in range(3)))
        cluster.bound("g-0", "g-1", "g-2")

    def test_one_that_does_not_fit_waits_and_keeps_nobody_out(self, cluster):
        cluster.add_nodes("n1", devices="t4x1")
        cluster.scheduled()
        add_group(cluster, "g", 3)
        most = [a_container(cpu=30)]
        cluster.add_pods(*(a_member(f"g-{n}", "g", containers=most) for n in range(3)))
        waits(cluster, ["g-0", "g-1", "g-2"])
        cluster.add_pod(a_pod("single", containers=most))
        cluster.bound("single")


class TestOurs:
    def test_a_gang_that_fits_runs(self, cluster):
        cluster.add_nodes("n1", "n2", devices="t4x1")
        service = cluster.scheduled()
        names = a_gang(cluster, "g", 4, gpu=1, mem=7000)
        cluster.bound(*names)
        cluster.agrees(service)
        assert cluster.writes("hami", "pods/binding") == ["create pods/binding 201"] * 4

    def test_two_of_three_hold_nothing_and_a_pod_that_fits_runs(self, cluster):
        cluster.add_nodes("n1", devices="t4x1")
        service = cluster.scheduled()
        names = a_gang(cluster, "g", 3, gpu=1, mem=7000)
        waits(cluster, names)
        assert reserved(service) == 0
        cluster.add_pod(a_pod("single", gpu=1, mem=7000))
        cluster.bound("single")
        cluster.agrees(service)

    def test_two_gangs_of_which_one_fits_do_not_starve_each_other(self, cluster):
        cluster.add_nodes("n1", "n2", devices="t4x1")
        service = cluster.scheduled()
        both = [a_gang(cluster, name, 3, gpu=1, mem=7000) for name in ("a", "b")]

        def one_runs():
            return [names for names in both if len(bound(cluster, names)) == 3]

        (first,) = until("one of them runs", one_runs, seconds=60)
        (second,) = [names for names in both if names != first]
        waits(cluster, second)
        for name in first:
            cluster.remove_pod(name)
        cluster.bound(*second, seconds=60)
        cluster.agrees(service)

    def test_as_many_as_its_minimum_run_where_not_all_fit(self, cluster):
        cluster.add_nodes("n1", devices="t4x1")
        service = cluster.scheduled()
        names = a_gang(cluster, "g", 3, least=2, gpu=1, mem=7000)
        until("two of them run", lambda: len(bound(cluster, names)) == 2, seconds=60)
        cluster.agrees(service)
        cluster.remove_pod(bound(cluster, names)[0])
        left = [name for name in names if cluster.admin.exists(pods_path(cluster.namespace, name))]
        until("the third one runs", lambda: len(bound(cluster, left)) == 2, seconds=60)

    def test_it_runs_when_a_node_comes(self, cluster):
        cluster.add_nodes("n1", devices="t4x1")
        service = cluster.scheduled()
        names = a_gang(cluster, "g", 4, gpu=1, mem=7000)
        waits(cluster, names, seconds=1)
        cluster.add_nodes("n2", devices="t4x1")
        cluster.bound(*names, seconds=60)
        cluster.agrees(service)

    def test_where_agents_serve_one_pod_at_a_time_it_runs_and_each_has_the_lock_alone(
        self, cluster
    ):
        cluster.add_nodes("n1", devices="t4x1", node_identity="NVIDIA=lock")
        service = cluster.scheduled()
        names, served = a_gang(cluster, "g", 3, gpu=1, mem=5000), []
        for _ in names:
            lock = until("the lock is taken", lambda: lock_of(cluster, "n1"), seconds=60)
            served.append(lock.rpartition(",")[2])
            cluster.bound(served[-1])
            time.sleep(0.5)  # For what should not come: who waits looks every 100 ms.
            assert sorted(bound(cluster, names)) == sorted(served)
            assert lock_of(cluster, "n1") == lock
            cluster.admin.merge(node_path("n1"), {"metadata": {"annotations": {LOCK: None}}})
        cluster.agrees(service)

    def test_what_it_lacks_of_cpu_makes_it_give_its_devices_away(self, cluster):
        """The third member never comes to us: kube-scheduler finds no CPU for it."""
        cluster.add_nodes("n1", devices="t4x1")
        service = cluster.scheduled(reservation_ttl="5s")
        add_group(cluster, "g", 3)
        small, huge = a_container(gpu=1, mem=5000), a_container(gpu=1, mem=5000)
        huge["resources"]["requests"] = {"cpu": "1000"}
        cluster.add_pods(
            a_member("g-0", "g", containers=[small]),
            a_member("g-1", "g", containers=[small]),
            a_member("g-2", "g", containers=[huge]),
        )
        until("it holds devices", lambda: reserved(service) == 3)
        cluster.add_pod(a_pod("single", gpu=1, mem=T4))
        cluster.bound("single", seconds=90)
        cluster.agrees(service)
