"""Two services, of which one acts: by a Lease of our own, or beside a kube-scheduler that leads."""

from __future__ import annotations

import socket
import threading

import pytest

from .client import Refused, pods_path
from .objects import a_pod
from .processes import until
from .proxy import Proxy

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
LEADER = {"labelSelector": "hami.io/scheduler-role=leader"}
FAST = {
    "leader_mode": "own",
    "leader_elect_lease_duration": "4s",
    "leader_elect_renew_deadline": "3s",
    "leader_elect_retry_period": "500ms",
    "bind_timeout": "1s",
}


class Endpoint(threading.Thread):
    """What a Service with the selector ``scheduler-role: leader`` does: follows the label."""

    def __init__(self, cluster, proxy, services):
        super().__init__(name="endpoint")
        self._cluster, self._proxy, self._services = cluster, proxy, services
        self._ended = threading.Event()

    def run(self):
        client = self._cluster.plane.client("admin")
        while not self._ended.wait(0.1):
            leaders = client.list(pods_path(self._cluster.namespace), **LEADER)
            urls = [self._services[pod["metadata"]["name"]].url for pod in leaders]
            if len(urls) == 1:
                self._proxy.upstream = urls[0]
        client.close()

    def end(self):
        self._ended.set()
        self.join()


def leaders(cluster):
    pods = cluster.admin.list(pods_path(cluster.namespace), **LEADER)
    return [pod["metadata"]["name"] for pod in pods]


@pytest.fixture
def replicas(cluster):
    """Two services with a pod each, and a kube-scheduler that calls whichever pod leads."""
    cluster.add_nodes(*(f"n{n}" for n in range(4)), devices="t4x4")
    cluster.add_nodes("own", devices="k100-aix1")
    services = {}
    for name in ("hami-a", "hami-b"):
        cluster.add_pod(a_pod(name, spec={"nodeName": "own"}))
        services[name] = cluster.service(
            name, pod_name=name, pod_namespace=cluster.namespace, **FAST
        )
    with Proxy("http://127.0.0.1:9") as proxy:
        endpoint = Endpoint(cluster, proxy, services)
        endpoint.start()
        cluster.kube_scheduler(proxy.url)
        yield services
        endpoint.end()


def test_one_leads_and_its_pod_says_so(cluster, replicas):
    until("one pod is labelled", lambda: len(leaders(cluster)) == 1)
    (name,) = leaders(cluster)
    (other,) = replicas.keys() - {name}
    follower = cluster.pod(other)
    assert follower["metadata"]["labels"]["hami.io/scheduler-role"] == "follower"
    cluster.add_pod(a_pod("p", gpu=1, mem=3000))
    cluster.bound("p")
    for service in replicas.values():
        cluster.agrees(service)


def test_a_leader_that_stops_hands_over(cluster, replicas):
    until("one leads", lambda: len(leaders(cluster)) == 1)
    (name,) = leaders(cluster)
    (other,) = replicas.keys() - {name}
    assert replicas[name].stop() == 0
    until("the other one leads", lambda: leaders(cluster)[-1:] == [other])
    cluster.admin.merge(
        pods_path(cluster.namespace, name),
        {"metadata": {"labels": {"hami.io/scheduler-role": None}}},
    )
    cluster.add_pod(a_pod("p", gpu=1, mem=3000))
    cluster.bound("p")


@pytest.mark.timeout(300)
def test_a_leader_killed_in_the_middle_of_a_burst(cluster, replicas):
    until("one leads", lambda: len(leaders(cluster)) == 1)
    (name,) = leaders(cluster)
    (other,) = replicas.keys() - {name}
    names = [f"p{n:03}" for n in range(100)]
    cluster.add_pods(*(a_pod(pod, gpu=1, mem=2000, cores=10) for pod in names))
    until("some are bound", lambda: len(cluster.writes("hami", "pods/binding")) >= 20)
    replicas[name].kill()
    # The dead one's pod would be deleted by its node; here it only loses its label.
    cluster.admin.merge(
        pods_path(cluster.namespace, name),
        {"metadata": {"labels": {"hami.io/scheduler-role": None}}},
    )
    cluster.bound(*names, seconds=120)
    bindings = cluster.writes("hami", "pods/binding")
    assert bindings.count("create pods/binding 201") == 100
    cluster.agrees(replicas[other])


class TestBesideKubeScheduler:
    @pytest.fixture
    def electing(self, cluster):
        yield {"leaderElect": True, "resourceName": "kube-scheduler", "leaseDuration": "5s",
               "renewDeadline": "4s", "retryPeriod": "1s", "resourceLock": "leases",
               "resourceNamespace": "kube-system"}  # fmt: skip
        cluster.plane.stop_kube_scheduler()
        try:
            cluster.admin.delete(f"{LEASES}/kube-scheduler")
        except Refused as error:
            if error.status != 404:
                raise

    def test_the_one_on_the_holders_host_leads(self, cluster, electing):
        cluster.add_nodes("n1", devices="t4x1")
        service = cluster.service(leader_mode="colocated", bind_timeout="1s")
        cluster.kube_scheduler(service.url, election=electing)
        cluster.add_pod(a_pod("p", gpu=1, mem=3000))
        cluster.bound("p")
        holder = cluster.admin.get(f"{LEASES}/kube-scheduler")["spec"]["holderIdentity"]
        assert holder.startswith(f"{socket.gethostname()}_")
        ours = [
            w
            for w in cluster.plane.writes()
            if (w.user, w.what, w.name) == ("hami", "leases", "kube-scheduler")
        ]
        assert ours == [], "it is kube-scheduler's"

    def test_another_hosts_refuses_and_says_who_leads(self, cluster, electing):
        cluster.add_nodes("n1", devices="t4x1")
        host = socket.gethostname()
        service = cluster.service(leader_mode="colocated", hostname=host[:-1] or "x")
        cluster.kube_scheduler(service.url, election=electing)
        cluster.add_pod(a_pod("p", gpu=1, mem=3000))
        assert host in cluster.refused("p", host)
