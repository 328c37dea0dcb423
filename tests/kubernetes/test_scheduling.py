"""The scheduler service behind a real kube-scheduler and API server."""

from __future__ import annotations

import time
from functools import partial

import pytest

from .client import node_path, pods_path
from .objects import a_container, a_pod
from .processes import until
from .recount import ALLOCATED, Amount, recount, usage

T4 = 15360


def granted(pod):
    """By device id."""
    return usage(pod, pod["metadata"]["annotations"][ALLOCATED])


def amounts(pod):
    return sorted(granted(pod).values(), key=str)


class TestSharing:
    def test_pods_share_a_device(self, cluster):
        cluster.add_nodes("n1", devices="t4x1")
        service = cluster.scheduled()
        cluster.add_pods(*(a_pod(f"p{n}", gpu=1, mem=5000, cores=30) for n in range(3)))
        pods = cluster.bound("p0", "p1", "p2")
        assert [granted(pod) for pod in pods] == [{"GPU-n1-0": Amount(1, 5000, 30)}] * 3
        cluster.agrees(service)
        assert service.used() == {("n1", "GPU-n1-0"): Amount(3, 15000, 90)}

    def test_the_binding_says_everything_at_once(self, cluster):
        cluster.add_nodes("n1", devices="t4x1")
        cluster.scheduled()
        cluster.add_pod(a_pod("p", gpu=1, mem=5000))
        (pod,) = cluster.bound("p")
        annotations = pod["metadata"]["annotations"]
        assert annotations["hami.io/vgpu-node"] == "n1"
        assert annotations["hami.io/bind-phase"] == "allocating"
        assert annotations["hami.io/vgpu-devices-allocated"].startswith("GPU-n1-0,NVIDIA,5000,")
        assert pod["metadata"]["labels"]["hami.io/vgpu-node"] == "n1"

    def test_percentages_are_of_the_device_that_is_chosen(self, cluster):
        cluster.add_nodes("small", devices="t4x1")
        cluster.scheduled()
        cluster.add_pod(a_pod("p", gpu=1, percent=50))
        (pod,) = cluster.bound("p")
        assert granted(pod)["GPU-small-0"].memory == T4 // 2

    @pytest.mark.parametrize(
        ("written", "stored", "mib"),
        [
            pytest.param("3000", "3k", 3000, id="3000 is rewritten to 3k"),
            pytest.param("2Gi", "2Gi", 2048, id="a binary suffix means bytes"),
            pytest.param("0.5Gi", "512Mi", 512, id="0.5Gi is rewritten to 512Mi"),
            pytest.param("1e3", "1e3", 1000, id="1e3"),
        ],
    )
    def test_quantities_as_the_api_server_rewrites_them(self, cluster, written, stored, mib):
        cluster.add_nodes("n1", devices="t4x1")
        cluster.scheduled()
        cluster.add_pod(a_pod("p", gpu=1, mem=written))
        (pod,) = cluster.bound("p")
        limits = pod["spec"]["containers"][0]["resources"]["limits"]
        assert limits["nvidia.com/gpumem"] == stored
        assert granted(pod)["GPU-n1-0"].memory == mib

    def test_init_containers_and_sidecars(self, cluster):
        cluster.add_nodes("n1", devices="t4x1")
        service = cluster.scheduled()
        inits = [
            a_container("side", gpu=1, mem=1000, cores=10, policy="Always"),
            a_container("once", gpu=1, mem=9000, cores=10),
        ]
        cluster.add_pod(a_pod("p", gpu=1, mem=4000, cores=20, inits=inits))
        (pod,) = cluster.bound("p")
        assert amounts(pod) == [Amount(2, 10000, 30)]
        cluster.agrees(service)

    def test_two_vendors_in_one_pod(self, cluster):
        cluster.add_nodes("n1", devices="t4x1")
        cluster.add_nodes("both", devices="t4x1,k100-aix1")
        cluster.scheduled()
        containers = [a_container("a", gpu=1, mem=1000), a_container("b", dcu=1, dcumem=2000)]
        cluster.add_pod(a_pod("p", containers=containers))
        (pod,) = cluster.bound("p")
        assert pod["spec"]["nodeName"] == "both"
        annotations = pod["metadata"]["annotations"]
        assert annotations["hami.io/vgpu-devices-allocated"].startswith("GPU-both-0,")
        assert annotations["hami.io/dcu-devices-allocated"].startswith(";DCU-both-0,")

    def test_a_pod_without_devices_is_not_our_business(self, cluster):
        cluster.add_nodes("n1")
        service = cluster.scheduled()
        cluster.add_pod(a_pod("p"))
        (pod,) = cluster.bound("p")
        assert ALLOCATED not in pod["metadata"].get("annotations", {})
        cluster.agrees(service)


class TestRefusals:
    @pytest.mark.parametrize(
        ("asks", "reason"),
        [
            pytest.param({"gpu": 1, "mem": 20000}, "2/2 CardInsufficientMemory", id="memory"),
            pytest.param({"gpu": 3, "mem": 10}, "NodeInsufficientDevice", id="too few devices"),
        ],
    )
    def test_the_pod_says_why(self, cluster, asks, reason):
        cluster.add_nodes("n1", "n2", devices="t4x2")
        cluster.scheduled()
        cluster.add_pod(a_pod("p", **asks))
        assert f"0/2 nodes are available: 2 {reason}" in cluster.refused("p", reason)
        said = until("an event says so", lambda: cluster.events("p", "FailedScheduling"))
        assert reason in said[0]

    def test_no_reason_hides_another_nodes(self, cluster):
        cluster.add_nodes("t4", devices="t4x1")
        cluster.add_nodes("none", devices="k100-aix1")
        cluster.scheduled()
        cluster.add_pod(a_pod("p", gpu=1, mem=20000))
        said = cluster.refused("p", "CardInsufficientMemory")
        assert "1 1/1 CardInsufficientMemory" in said
        assert "1 NodeInsufficientDevice" in said

    def test_a_request_that_cannot_be_read_is_refused_with_its_text(self, cluster):
        cluster.add_nodes("n1")
        cluster.scheduled()
        cluster.add_pod(a_pod("p", gpu=1, mem="500M"))
        said = cluster.refused("p", "500M")
        assert "nvidia.com/gpumem" in said


class TestBesideHami:
    def test_a_pod_whose_list_has_no_slot_for_its_init_container_keeps_what_it_has(self, cluster):
        """HAMi 2.10 bound it; since then its init container, which asks for no device, has ended."""
        cluster.add_nodes("n1", devices="t4x1")
        theirs = {ALLOCATED: "GPU-n1-0,NVIDIA,9000,0:;", "hami.io/vgpu-node": "n1"}
        spec = {"nodeName": "n1"}
        inits = [a_container("plain")]
        cluster.add_pod(
            a_pod("theirs", gpu=1, mem=9000, inits=inits, annotations=theirs, spec=spec)
        )
        ended = {"name": "plain", "ready": True, "restartCount": 0, "image": "x", "imageID": "x",
                 "state": {"terminated": {"exitCode": 0}}}  # fmt: skip
        path = f"{pods_path(cluster.namespace, 'theirs')}/status"
        status = {"phase": "Running", "initContainerStatuses": [ended]}
        cluster.admin.merge(path, {"status": status})
        service = cluster.scheduled()
        cluster.add_pods(a_pod("too-much", gpu=1, mem=9000), a_pod("fits", gpu=1, mem=6000))
        cluster.bound("fits")
        cluster.refused("too-much", "CardInsufficientMemory")
        cluster.agrees(service)
        assert service.used() == {("n1", "GPU-n1-0"): Amount(2, 15000, 0)}


class TestWakeUp:
    def test_a_waiting_pod_gets_what_another_one_leaves(self, cluster, record_property):
        cluster.add_nodes("n1", "n2", devices="t4x1")
        service = cluster.scheduled()
        cluster.add_pods(*(a_pod(f"full{n}", gpu=1, mem=15000) for n in range(2)))
        cluster.bound("full0", "full1")
        cluster.add_pod(a_pod("waits", gpu=1, mem=15000))
        cluster.refused("waits", "CardInsufficientMemory")
        cluster.remove_pod("full1")
        begin = time.monotonic()
        cluster.bound("waits", seconds=20)  # kube-scheduler by itself: up to 5 minutes
        record_property("freed_to_bound_s", round(time.monotonic() - begin, 3))
        cluster.agrees(service)

    def test_a_new_node_wakes_it_too(self, cluster):
        cluster.add_nodes("n1", devices="t4x1")
        cluster.scheduled()
        cluster.add_pod(a_pod("waits", gpu=1, mem=40000))
        cluster.refused("waits", "CardInsufficientMemory")
        cluster.add_nodes("n2", devices="h100x1")
        (pod,) = cluster.bound("waits")
        assert pod["spec"]["nodeName"] == "n2"

    def test_no_more_are_woken_than_can_fit(self, cluster):
        cluster.add_nodes("n1", devices="t4x1")
        cluster.scheduled()
        cluster.add_pods(*(a_pod(f"full{n}", gpu=1, mem=7000) for n in range(2)))
        cluster.bound("full0", "full1")
        waiting = [f"waits{n}" for n in range(6)]
        cluster.add_pods(*(a_pod(name, gpu=1, mem=7000) for name in waiting))
        for name in waiting:
            cluster.refused(name, "CardInsufficientMemory")
        cluster.remove_pod("full0")

        def taken():
            return [name for name in waiting if cluster.pod(name)["spec"].get("nodeName")]

        until("one is bound", taken)
        time.sleep(1)
        assert len(taken()) == 1
        patched = [w for w in cluster.writes("hami", "pods") if w.startswith("patch pods ")]
        assert len(patched) <= 2, "a storm: only one pod can take what is free"

    def test_a_pod_that_ended_frees_its_devices(self, cluster):
        cluster.add_nodes("n1", devices="t4x1")
        service = cluster.scheduled()
        cluster.add_pod(a_pod("job", gpu=1, mem=15000, spec={"restartPolicy": "Never"}))
        cluster.bound("job")
        cluster.add_pod(a_pod("waits", gpu=1, mem=15000))
        cluster.refused("waits", "CardInsufficientMemory")
        ended = {"status": {"phase": "Succeeded"}}
        cluster.admin.merge(pods_path(cluster.namespace, "job") + "/status", ended)
        cluster.bound("waits")
        cluster.agrees(service)


class TestWrites:
    def test_a_bound_pod_costs_one_write_of_ours(self, cluster):
        cluster.add_nodes("n1", "n2", devices="t4x2")
        cluster.scheduled()
        names = [f"p{n}" for n in range(20)]
        cluster.add_pods(*(a_pod(name, gpu=1, mem=2000) for name in names))
        cluster.bound(*names)
        time.sleep(1)  # for what should not come
        assert cluster.writes("hami") == ["create pods/binding 201"] * len(names)
        pods = [w for w in cluster.writes("kube-scheduler") if not w.startswith("create events")]
        assert pods == []

    def test_a_refused_pod_costs_none(self, cluster):
        cluster.add_nodes("n1")
        cluster.scheduled()
        cluster.add_pod(a_pod("p", gpu=1, mem=20000))
        cluster.refused("p", "CardInsufficientMemory")
        time.sleep(1)
        assert [w for w in cluster.writes("hami") if "events" not in w] == []


class TestNodes:
    def test_a_deleted_node_takes_its_devices_along(self, cluster):
        cluster.add_nodes("n1", "n2", devices="t4x1")
        service = cluster.scheduled()
        cluster.admin.delete(node_path("n2"))
        until("its devices are gone", lambda: {node for node, _ in service.used()} == {"n1"})
        cluster.add_pods(*(a_pod(f"p{n}", gpu=1, mem=15000) for n in range(2)))

        def bound():
            return [p for p in cluster.pods(cluster.namespace) if p["spec"].get("nodeName")]

        (pod,) = until("one is bound", bound)
        assert pod["spec"]["nodeName"] == "n1"
        (other,) = {"p0", "p1"} - {pod["metadata"]["name"]}
        cluster.refused(other, "CardInsufficientMemory")

    def test_a_node_that_comes_back_is_as_full_as_it_was(self, cluster):
        cluster.add_nodes("n1", devices="t4x1")
        service = cluster.scheduled()
        cluster.add_pod(a_pod("runs", gpu=1, mem=10000))
        cluster.bound("runs")
        cluster.admin.delete(node_path("n1"))
        until("its devices are gone", lambda: not service.used())
        cluster.add_nodes("n1", devices="t4x1")
        cluster.add_pod(a_pod("more", gpu=1, mem=10000))
        cluster.refused("more", "CardInsufficientMemory")
        cluster.agrees(service)

    def test_a_cordoned_device_takes_no_new_pod(self, cluster):
        cluster.add_nodes("n1", devices="t4x2", device_cordon="GPU-n1-1")
        cluster.scheduled()
        cluster.add_pods(*(a_pod(f"p{n}", gpu=1, mem=7000) for n in range(2)))
        assert {next(iter(granted(pod))) for pod in cluster.bound("p0", "p1")} == {"GPU-n1-0"}

    def test_a_lock_is_taken_where_the_agent_needs_one(self, cluster):
        cluster.add_nodes("n1", devices="t4x1", node_identity="NVIDIA=lock")
        cluster.scheduled()
        cluster.add_pod(a_pod("first", gpu=1, mem=1000))
        cluster.bound("first")
        lock = cluster.admin.get(node_path("n1"))["metadata"]["annotations"]["hami.io/mutex.lock"]
        assert lock.endswith(f",{cluster.namespace},first")
        cluster.add_pod(a_pod("second", gpu=1, mem=1000))
        time.sleep(2)
        assert not cluster.pod("second")["spec"].get("nodeName"), "the agent still serves first"
        released = {"metadata": {"annotations": {"hami.io/mutex.lock": None}}}
        cluster.admin.merge(node_path("n1"), released)
        cluster.bound("second")


class TestOtherKubeSchedulers:
    def test_whole_nodes_instead_of_names(self, cluster):
        """``nodeCacheCapable: false`` looks like the Cluster Autoscaler: a bind reserves."""
        cluster.add_nodes("n1", "n2", devices="t4x1")
        service = cluster.service()
        cluster.kube_scheduler(service.url, nodeCacheCapable=False)
        cluster.add_pods(*(a_pod(f"p{n}", gpu=1, mem=15000) for n in range(2)))
        pods = cluster.bound("p0", "p1")
        assert {pod["spec"]["nodeName"] for pod in pods} == {"n1", "n2"}
        cluster.agrees(service)

    def test_nothing_but_memory_is_asked_for(self, cluster):
        """HAMi's oldest manifests name no count; the webhook adds it."""
        cluster.add_nodes("n1", devices="t4x1")
        service = cluster.scheduled()
        cluster.webhook(service)
        cluster.add_pod(a_pod("p", mem=3000, scheduler="default-scheduler"))
        (pod,) = cluster.bound("p")
        assert amounts(pod) == [Amount(1, 3000, 0)]


class TestBurst:
    def test_two_hundred_pods_at_once(self, cluster):
        cluster.add_nodes(*(f"n{n}" for n in range(10)), devices="t4x4")
        service = cluster.scheduled()
        names = [f"p{n:03}" for n in range(200)]
        asks = ({"mem": 3000, "cores": 20}, {"percent": 20}, {"mem": "1Gi", "cores": 5})
        cluster.add_pods(*(a_pod(name, gpu=1, **asks[n % 3]) for n, name in enumerate(names)))
        pods = cluster.bound(*names, seconds=60)
        assert len({pod["metadata"]["uid"] for pod in pods}) == 200
        cluster.agrees(service)
        assert sum(amount.slots for amount in service.used().values()) == 200
        assert cluster.writes("hami", "pods/binding") == ["create pods/binding 201"] * 200

    def test_more_than_there_is(self, cluster):
        """What fits runs, the rest waits and runs as the first ones go."""
        cluster.add_nodes("n1", "n2", devices="t4x2")
        service = cluster.scheduled()
        names = [f"p{n:02}" for n in range(40)]
        cluster.add_pods(*(a_pod(name, gpu=1, mem=3800) for name in names))  # 4 to a device

        def bound():
            return [
                pod["metadata"]["name"]
                for pod in cluster.pods(cluster.namespace)
                if pod["spec"].get("nodeName")
            ]

        left = set(names)
        while left:
            fit = partial(lambda count: len(bound()) >= count, min(16, len(left)))
            until(f"16 of {len(left)} run", fit, seconds=60)
            assert len(bound()) == min(16, len(left))
            cluster.agrees(service)
            for name in bound():
                cluster.remove_pod(name)
                left.remove(name)
        cluster.agrees(service)
        assert not any(amount.slots for amount in recount([], cluster.nodes()).values())
        assert not any(amount.slots for amount in service.used().values())
