"""The real node agent as a process beside the embedded cluster's kubelet."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest
from hami_lab.cluster import ClusterSettings, EmbeddedCluster, ServiceDied
from hami_lab.kubelet.plugin_node import PluginNodeSettings
from hami_lab.live import LIVE_PODS

from hami.domain.errors import ConfigError
from hami.kube.resources import EVENTS
from hami.slices.limits_page import read_page
from hami.wire import keys

DEVICE, MEMORY = "mock.hami.io/device", "mock.hami.io/memory"
LIMITS = "/run/hami/mock/limits"


def a_pod(name: str, *, memory: int = 1000, about: dict[str, str] | None = None, **spec):
    limits = {DEVICE: "1", MEMORY: str(memory)}
    container = {"name": "main", "image": "x", "resources": {"limits": limits}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": about or {}},
        "spec": {"containers": [container], **spec},
    }


@asynccontextmanager
async def a_cluster(devices: str = "mockx2"):
    async with EmbeddedCluster(ClusterSettings()) as cluster:
        # Where kubelet is first, it rejects pods whose init container, which has ended, had devices.
        settings = PluginNodeSettings(retry=(0.2, 0.3), hear=lambda: node.devices.healthy(DEVICE))
        node = await cluster.add_plugin_node("n1", settings)
        agent = await cluster.start_agent(node, "mock", f"--mock-devices={devices}")
        yield cluster, node, agent


async def test_each_container_runs_with_the_limits_of_its_own_pods_grant():
    async with a_cluster() as (cluster, node, _):
        async with asyncio.timeout(20):
            while keys.NODE_IDENTITY not in (await cluster.nodes())[0].annotations:
                await asyncio.sleep(0.02)  # Its Lease comes first.
        (found,) = await cluster.nodes()
        assert found.annotations[keys.NODE_IDENTITY] == "MOCK=kubelet"
        assert found.allocatable[DEVICE] == "20"
        await cluster.apply([a_pod(f"p{n}", memory=100 * n) for n in range(1, 9)])
        for n in range(1, 9):
            await cluster.phase(f"p{n}", "Running")
            (started,) = node.runtime.starts_of(f"p{n}")
            assert started.env["MOCK_DEVICE_MEMORY_LIMIT_0"] == f"{100 * n}m"
            (device,) = read_page(started.files[LIMITS]).devices
            assert device.memory_bytes == 100 * n << 20
        assert list(cluster.problems) == []


async def test_an_agent_that_is_killed_and_started_again_serves_what_runs_and_what_comes():
    async with a_cluster() as (cluster, node, agent):
        await cluster.apply(a_pod("one"))
        await cluster.phase("one", "Running")
        await cluster.agents.kill_agent(agent)
        await node.devices.lost(DEVICE)
        await cluster.agents.restart_agent(agent)
        await cluster.apply(a_pod("two"))
        await cluster.phase("two", "Running")
        assert cluster.pods["default", "one"].status.phase == "Running"
        assert len(node.runtime.starts_of("one")) == 1


async def test_kubelet_starts_again_and_a_pod_with_a_finished_init_container_survives():
    async with a_cluster() as (cluster, node, _):
        body = a_pod("p")
        body["spec"]["initContainers"] = [body["spec"]["containers"][0] | {"name": "init"}]
        await cluster.apply(body)
        await cluster.phase("p", "Running")
        await node.restart()
        await node.synced.wait()
        await cluster.apply(a_pod("q"))
        await cluster.phase("q", "Running")
        assert cluster.pods["default", "p"].status.phase == "Running"


async def test_what_a_pod_leaves_on_the_node_goes_when_its_last_process_has_ended():
    async with a_cluster() as (cluster, node, _):
        await cluster.apply(a_pod("p", about={"hami.io/sim-stop-duration": "2s"}))
        pod = await cluster.phase("p", "Running")
        (slice,) = (node.slices / "mock").iterdir()
        group = node.cgroups / "kubepods" / f"pod{pod.uid}"
        await cluster.client.delete(LIVE_PODS, "p", namespace="default", grace_seconds=0)
        await cluster.gone("p")
        assert (group.exists(), slice.exists()) == (True, True)

        async def released() -> bool | None:
            assert slice.exists() or not group.exists()
            return not slice.exists() or None

        await cluster.eventually("slice released", released)
        assert list(node.cdi.iterdir()) == []


async def test_a_grant_that_is_not_the_schedulers_starts_nothing_and_says_why():
    async with a_cluster() as (cluster, node, _):
        await node.down()
        await cluster.apply(a_pod("p", memory=1000))
        (pod,) = await cluster.bound("p")
        mine = {k: v for k, v in pod.annotations.items() if k.endswith("devices-allocated")}
        assert mine, pod.annotations
        greedy = {key: text.replace("1000", "9000") for key, text in mine.items()}
        patch = {"metadata": {"annotations": greedy}}
        await cluster.client.patch(LIVE_PODS, "p", patch, namespace="default")
        await node.up()

        async def told() -> str | None:
            events = await cluster.client.list(
                EVENTS, namespace="default", field_selector="involvedObject.name=p"
            )
            return next((e.message for e in events if "PreStartContainer" in e.message), None)

        assert "signature" in await cluster.eventually("an event", told)
        assert node.runtime.starts_of("p") == []


# What goes wrong in a real kubelet.


def limit_of(node, name: str) -> str:
    (started,) = node.runtime.starts_of(name)
    return started.env["MOCK_DEVICE_MEMORY_LIMIT_0"]


async def test_a_stale_checkpoint_delays_no_start_and_mixes_up_nothing():
    async with a_cluster() as (cluster, node, _):
        await cluster.apply(a_pod("first", memory=100))
        await cluster.phase("first", "Running")
        node.races.stale_checkpoints = 1
        await cluster.apply(a_pod("p", memory=200))
        await cluster.phase("p", "Running")
        assert limit_of(node, "p") == "200m"


async def test_two_pods_that_kubelet_gave_one_id_each_run_with_their_own_grant():
    async with a_cluster() as (cluster, node, _):
        node.races.forgotten_allocations = 3
        await cluster.apply([a_pod(f"p{n}", memory=100 * n) for n in range(1, 5)])
        for n in range(1, 5):
            await cluster.phase(f"p{n}", "Running")
            assert limit_of(node, f"p{n}") == f"{100 * n}m"
        ids = [sorted(entry.held.flat) for entry in node.devices.entries()]
        assert len({tuple(found) for found in ids}) < len(ids)


async def test_a_lost_stream_is_registered_anew():
    async with a_cluster() as (cluster, node, _):
        node.devices.drop_stream(DEVICE)
        await node.devices.lost(DEVICE)
        await node.devices.healthy(DEVICE, 20)
        await cluster.apply(a_pod("p"))
        await cluster.phase("p", "Running")


async def test_a_stream_whose_end_is_noticed_late_costs_the_new_agent_its_registration_once():
    async with a_cluster() as (cluster, node, agent):
        node.races.stream_end.clear()
        await cluster.agents.kill_agent(agent)
        await cluster.agents.restart_agent(agent)
        node.races.stream_end.set()
        await node.devices.lost(DEVICE)
        await node.devices.healthy(DEVICE, 20)
        await cluster.apply(a_pod("p"))
        await cluster.phase("p", "Running")


async def test_an_agent_that_cannot_start_is_an_error_with_its_own_words():
    async with EmbeddedCluster() as cluster:
        node = await cluster.add_plugin_node("n1")
        with pytest.raises(ConfigError, match=r"no installed plugin has the vendor 'acme'"):
            await cluster.start_agent(node, "acme")
        with pytest.raises(ServiceDied, match=r"(?s)of mock on n1 ended with exit code 2.*soon"):
            await cluster.start_agent(node, "mock", "--discover-interval=soon")
