"""The kubelet stand-in as a client of the API server: nodes that report, pods that run."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from types import MappingProxyType

import pytest
from hami_lab.api import Fault
from hami_lab.kubelet.kubelet import Kubelet
from hami_lab.kubelet.nodes import LIVE_NODES, NodeReports
from hami_lab.live import LIVE_PODS

from hami.hookspecs import HAMI_API, hookimpl
from hami.kube.client import PodBinding
from hami.kube.resources import PODS
from hami.policy.profile.profile_vendor import ProfileVendor
from hami.vendors.registry import Vendors
from hami.wire import keys
from tests.simulate.builders import ACME_YAML, register

from .embedded import Pods, a_container, a_node, a_pod, a_server, eventually, running


class Simulator:
    """``sim/devices: "3"`` gives a node three devices of the made-up vendor."""

    HAMI_API = HAMI_API

    @hookimpl
    def hami_simulated_annotations(self, config, node):
        count = int(node.annotations.get("sim/devices", 0))
        if not count:
            return {}
        return {"acme.com/register": register(node.name, devices=count, memory=1000, slots=4)}


def the_vendors() -> Vendors:
    return Vendors.of({"acme": ProfileVendor(ACME_YAML), "sim": Simulator()})


@asynccontextmanager
async def a_kubelet(folder, **options):
    async with a_server(folder) as (server, client):
        problems: list[str] = []
        reports = NodeReports(the_vendors(), MappingProxyType({}))
        kubelet = Kubelet(client, reports, on_problem=problems.append, **options)
        async with running(kubelet):
            yield server, Pods(client)
        assert problems == []


async def bind(pods: Pods, *bodies, node: str = "n1") -> None:
    """Create pods, and put them on a node as kube-scheduler does."""
    for body in bodies:
        await pods.add(body)
        pod = await pods.get(body["metadata"]["name"])
        await pods.client.bind(
            PodBinding(
                namespace="default",
                name=pod.name,
                uid=pod.uid,
                node=node,
                annotations={},
                labels={},
            ),
            timeout=5,
        )


async def ready_node(pods: Pods, name: str):
    async def look():
        node = await pods.client.get(LIVE_NODES, name)
        return node if node.ready and not node.tainted else None

    return await eventually(look, f"node {name} ready")


async def test_a_new_node_reports_its_capacity_its_devices_and_that_it_is_ready(tmp_path):
    async with a_kubelet(tmp_path) as (_, pods):
        body = {"metadata": {"name": "n1", "annotations": {"sim/devices": "3"}}}
        await pods.client.create(LIVE_NODES, body)
        node = await ready_node(pods, "n1")
        assert node.allocatable["acme.com/gpu"] == "12"
        assert {"cpu", "memory", "pods"} <= node.allocatable.keys()
        assert node.annotations["acme.com/register"] == register(
            "n1", devices=3, memory=1000, slots=4
        )
        assert node.annotations[keys.NODE_IDENTITY] == "ACME=simulated"
        assert node.labels["kubernetes.io/hostname"] == "n1"


async def test_what_a_node_says_of_itself_is_kept(tmp_path):
    async with a_kubelet(tmp_path) as (_, pods):
        own = {"acme.com/register": register("n1", devices=1, memory=5)}
        body = a_node("n1", own, cpu="2", pods="7", **{"acme.com/gpu": "99"})
        del body["status"]["conditions"]
        await pods.client.create(LIVE_NODES, body)
        node = await ready_node(pods, "n1")
        assert dict(node.allocatable) == {"cpu": "2", "pods": "7", "acme.com/gpu": "99"}
        assert node.annotations["acme.com/register"] == own["acme.com/register"]


async def test_changed_simulated_devices_are_reported_anew(tmp_path):
    async with a_kubelet(tmp_path) as (_, pods):
        body = {"metadata": {"name": "n1", "annotations": {"sim/devices": "1"}}}
        await pods.client.create(LIVE_NODES, body)
        assert (await ready_node(pods, "n1")).allocatable["acme.com/gpu"] == "4"
        patch = {"metadata": {"annotations": {"sim/devices": "2"}}}
        await pods.client.patch(LIVE_NODES, "n1", patch)

        async def twice():
            node = await pods.client.get(LIVE_NODES, "n1")
            return node if node.allocatable["acme.com/gpu"] == "8" else None

        node = await eventually(twice)
        assert node.annotations["acme.com/register"] == register(
            "n1", devices=2, memory=1000, slots=4
        )


async def test_a_bound_pod_runs_and_succeeds(tmp_path):
    async with a_kubelet(tmp_path) as (_, pods):
        await pods.client.create(LIVE_NODES, a_node("n1"))
        about = {"hami.io/sim-duration": "100ms"}
        inits = [a_container("init"), a_container("side") | {"restartPolicy": "Always"}]
        await bind(pods, a_pod("p", annotations=about, initContainers=inits), a_pod("q"))
        assert (await pods.phase("p", "Succeeded")).init_finished
        pod = await pods.phase("q", "Running")
        assert (pod.condition("Ready").status, pod.condition("PodScheduled").status) == (
            "True",
            "True",
        )


async def test_a_pod_that_fails_says_so(tmp_path):
    async with a_kubelet(tmp_path) as (_, pods):
        about = {"hami.io/sim-duration": "0", "hami.io/sim-exit-code": "9"}
        await bind(pods, a_pod("p", annotations=about))
        (status,) = (await pods.phase("p", "Failed")).status.container_statuses
        assert status["state"]["terminated"]["exitCode"] == 9


async def test_a_deleted_pod_is_stopped_first_and_then_gone(tmp_path):
    async with a_kubelet(tmp_path) as (_, pods):
        await bind(pods, a_pod("p", annotations={"hami.io/sim-stop-duration": "300ms"}))
        await pods.phase("p", "Running")
        await pods.client.delete(LIVE_PODS, "p", namespace="default")
        stopping = await pods.get("p")
        assert stopping.metadata.deletion_timestamp
        assert stopping.status.phase == "Running"

        async def gone():
            return not await pods.client.list(PODS, namespace="default") or None

        await eventually(gone)


async def test_pods_of_other_nodes_are_left_alone(tmp_path):
    async with a_kubelet(tmp_path, serves=lambda name: name == "n1") as (_, pods):
        await bind(pods, a_pod("theirs"), node="n2")
        await bind(pods, a_pod("ours"), node="n1")
        await pods.phase("ours", "Running")
        assert (await pods.get("theirs")).status.phase == "Pending"


async def test_a_settled_pod_and_node_cost_no_further_writes(tmp_path):
    async with a_kubelet(tmp_path) as (_, pods):
        await pods.client.create(LIVE_NODES, {"metadata": {"name": "n1"}})
        await ready_node(pods, "n1")
        await bind(pods, a_pod("p"))
        await pods.phase("p", "Running")
        await asyncio.sleep(0.2)
        before = [
            o.metadata.resource_version for o in (await pods.get("p"), await ready_node(pods, "n1"))
        ]
        await asyncio.sleep(0.3)
        after = [
            o.metadata.resource_version for o in (await pods.get("p"), await ready_node(pods, "n1"))
        ]
        assert before == after


@pytest.mark.parametrize("nodes", [300])
async def test_one_kubelet_serves_many_nodes(tmp_path, nodes):
    async with a_kubelet(tmp_path) as (server, pods):
        for number in range(nodes):
            await server.create(
                {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}"}}
            )

        async def all_ready():
            found = await pods.client.list(LIVE_NODES)
            return all(node.ready for node in found) or None

        await eventually(all_ready)


async def test_a_write_that_fails_is_tried_again(tmp_path):
    async with a_server(tmp_path) as (server, client):
        problems: list[str] = []
        reports = NodeReports(the_vendors(), MappingProxyType({}))
        kubelet = Kubelet(client, reports, on_problem=problems.append)
        fault = server.faults.add(
            Fault(verb="patch", resource="pods", subresource="status", times=2, status=500)
        )
        async with running(kubelet):
            pods = Pods(client)
            await bind(pods, a_pod("p"))
            await pods.phase("p", "Running")
        assert fault.hits == 2
        assert all("500" in problem for problem in problems)
