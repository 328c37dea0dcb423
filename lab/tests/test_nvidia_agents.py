"""The NVIDIA agent as a process in an embedded cluster, on GPUs that are not there.

MIG from the scheduler's choice to the driver's instances and back, MIG devices that somebody else
cut, and GPUs that fall ill.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import yaml
from hami_lab.cluster import EmbeddedCluster
from hami_lab.kubelet.plugin_node import PluginNodeSettings
from hami_lab.live import LIVE_PODS
from hami_nvidia.schedule.mig_annotation import MIG_ANNOTATION, decode_mig_allocations
from hami_nvidia.simulation.nvml import SimulatedNvml
from hami_nvidia.simulation.spec import read_simulation

from hami.kube.resources import EVENTS
from hami.wire.codecs import decode_register_json

GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
CUT = [{"model": "a100-40g", "mig": True}]
MIG = "operatingmode: mig"
REGISTER = "hami.io/node-nvidia-register"


class Node:
    """The node, its GPUs and its agent."""

    def __init__(self, cluster, node, nvml, flags):
        self.cluster, self.node, self.nvml, self.flags = cluster, node, nvml, flags
        self.gpu = nvml.gpus()[0].uuid if nvml.gpus() else ""

    async def start(self):
        self.agent = await self.cluster.start_agent(self.node, "nvidia", *self.flags)

    async def kill(self):
        await self.cluster.agents.kill_agent(self.agent)
        await self.node.devices.lost(GPU)

    async def start_again(self):
        await self.cluster.agents.restart_agent(self.agent)

    def cut(self, name, start):
        """As an operator does it by hand; the MIG device's UUID."""
        profile = next(p for p in self.nvml.instance_profiles(self.gpu) if p.name == name)
        span = next(s for s in profile.spans if s.start == start)
        made = self.nvml.create_instance(self.gpu, profile, span)
        self.nvml.create_compute(self.gpu, made)
        return next(d.uuid for d in self.nvml.mig_devices(self.gpu) if d.gpu_instance == made)

    def fails(self, **requests):
        with self.nvml.state.changing() as state:
            state.failing = requests

    def profiles(self):
        """Of the instances that there are, each with its MIG device's UUID."""
        return {device.uuid: device.profile for device in self.nvml.mig_devices(self.gpu)}

    def env_of(self, pod, container=""):
        return self.node.runtime.starts_of(pod, container)[-1].env

    async def becomes(self, what, look, wanted):
        async def reached():
            return True if look() == wanted else None

        await self.cluster.eventually(what, reached)

    async def healthy(self):
        """By index, as the node's annotation says."""
        (node,) = await self.cluster.nodes()
        found = decode_register_json(
            node.annotations[REGISTER], annotation=REGISTER, vendor="NVIDIA", read_extra=None
        )
        return [device.healthy for device in found]


@asynccontextmanager
async def a_node(gpus, *flags, entry="", cut=(), start=True):
    """A cluster with one node; ``entry``: of the per-node configuration; ``cut``: beforehand."""
    async with EmbeddedCluster() as cluster:
        settings = PluginNodeSettings(
            retry=(0.1, 0.2), hear=lambda: asyncio.sleep(0.2), backoff=0.05
        )
        node = await cluster.add_plugin_node("n1", settings)
        spec, library = node.folder / "gpus.yaml", node.folder / "local/vgpu/libvgpu.so"
        spec.write_text(yaml.safe_dump({"node": "n1", "gpus": gpus, "waitSeconds": 0.1}))
        library.parent.mkdir(parents=True)
        library.touch()
        entries = node.folder / "nodes.yaml"
        entries.write_text(f"nodeconfig: [{{name: n1, {entry}}}]" if entry else "nodeconfig: []")
        found = Node(
            cluster, node, SimulatedNvml(read_simulation(spec, "n1")),
            [f"--simulated-nvml={spec}", f"--hook-path={node.folder / 'local'}",
             f"--node-config={entries}", "--discover-interval=1s", *flags],
        )  # fmt: skip
        found.made = [found.cut(*place) for place in cut]
        if start:
            await found.start()
        yield found


def a_pod(name, *memory, resource=GPU, **about):
    """Containers ``c0``, ``c1``... with this memory each."""
    containers = [
        {
            "name": f"c{n}",
            "image": "x",
            "resources": {"limits": {resource: "1"} | ({MEMORY: str(mib)} if mib else {})},
        }
        for n, mib in enumerate(memory)
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": about},
        "spec": {"containers": containers, "terminationGracePeriodSeconds": 1},
    }


async def annotated(node, pod):
    """The MIG UUID of each container, once the pod's annotation says all of them."""

    async def complete():
        found = await node.cluster.client.get(LIVE_PODS, pod, namespace="default")
        entries = decode_mig_allocations(found.annotations.get(MIG_ANNOTATION, ""))
        uuids = [entry.mig_uuid for entry in entries]
        return uuids if uuids and None not in uuids else None

    return await node.cluster.eventually("the annotation says the instances", complete)


# Dynamic MIG.


async def test_a_container_gets_an_instance_of_its_own_for_as_long_as_its_pod_lives():
    async with a_node("a100-40g", entry=MIG) as node:
        assert node.nvml.mig_mode(node.gpu).enabled, "the agent turned it on"
        await node.cluster.apply([a_pod("p", 4000, 9000), a_pod("q", 9000)])
        for pod in ("p", "q"):
            await node.cluster.phase(pod, "Running")
        await node.becomes("c1 runs", lambda: len(node.node.runtime.starts_of("p", "c1")), 1)
        seen = [node.env_of("p", "c0"), node.env_of("p", "c1"), node.env_of("q")]
        mine = [env["NVIDIA_VISIBLE_DEVICES"] for env in seen]
        assert [node.profiles()[uuid] for uuid in mine] == ["1g.5gb", "2g.10gb", "2g.10gb"]
        assert [name for env in seen for name in env if name.startswith("CUDA_")] == []
        assert await annotated(node, "p") == mine[:2]
        assert await annotated(node, "q") == mine[2:]
        await node.cluster.delete_pod("p")
        await node.becomes("p's instances are gone", lambda: [*node.profiles()], mine[2:])
        await node.cluster.delete_pod("q")
        await node.becomes("q's instance is gone", node.profiles, {})
        assert list(node.cluster.problems) == []


async def test_instances_outlive_the_agent_and_it_takes_care_of_them_again():
    """One pod runs on, one goes while nobody looks, and a third one is new."""
    async with a_node(CUT, entry=MIG) as node:
        await node.cluster.apply([a_pod("stays", 4000), a_pod("goes", 4000)])
        for pod in ("stays", "goes"):
            await node.cluster.phase(pod, "Running")
        (kept,) = await annotated(node, "stays")
        await node.kill()
        await node.cluster.delete_pod("goes")
        await node.cluster.gone("goes")
        await node.start_again()
        await node.becomes("the instance of nobody is gone", lambda: [*node.profiles()], [kept])
        await node.cluster.apply(a_pod("new", 9000))
        await node.cluster.phase("new", "Running")
        assert node.env_of("new")["NVIDIA_VISIBLE_DEVICES"] != kept
        assert len(node.node.runtime.starts_of("stays")) == 1
        assert node.profiles()[kept] == "1g.5gb"


async def test_an_agent_that_is_killed_after_the_instance_was_made_uses_it_afterwards():
    """It was made, nothing of it was recorded, and it could not be taken back."""
    async with a_node(CUT, entry=MIG) as node:
        node.fails(mig_devices="Unknown Error", destroy_compute="In use by another client")
        await node.cluster.apply(a_pod("p", 4000))

        async def half_made():
            return [i for i in node.nvml.instances(node.gpu) if i.compute_ids] or None

        (made,) = await node.cluster.eventually("an instance is made", half_made)
        await node.kill()
        (state,) = (path for path in (node.node.slices / "nvidia").iterdir() if path.is_dir())
        assert not (state / "nvidia.json").exists(), "nothing is recorded"
        node.fails()
        (uuid,) = node.profiles()
        await node.start_again()
        await node.cluster.phase("p", "Running")
        assert node.nvml.instances(node.gpu) == [made]
        assert node.env_of("p")["NVIDIA_VISIBLE_DEVICES"] == uuid
        assert await annotated(node, "p") == [uuid]
        await node.cluster.delete_pod("p")
        await node.becomes("nothing is left", lambda: node.nvml.instances(node.gpu), [])


async def test_a_refusal_of_the_driver_is_told_on_the_pod_and_tried_again():
    async with a_node(CUT, entry=MIG) as node:
        node.fails(create_instance="Insufficient Resources")
        await node.cluster.apply(a_pod("p", 4000))

        async def told():
            events = await node.cluster.client.list(EVENTS, namespace="default")
            found = [e.message for e in events if e.reason == "SliceRefused"]
            return next((text for text in found if "Insufficient Resources" in text), None)

        assert "pod default/p, container c0" in await node.cluster.eventually("an event", told)
        node.fails()
        await node.cluster.phase("p", "Running")
        assert len(node.profiles()) == 1


# MIG devices that somebody else cut.


async def test_single_offers_mig_devices_as_gpus():
    parts = [("1g.5gb", 0), ("1g.5gb", 1)]
    async with a_node(CUT, "--mig-strategy=single", cut=parts) as node:
        (found,) = await node.cluster.nodes()
        assert found.allocatable[GPU] == "2"
        await node.cluster.apply([a_pod("p", 0), a_pod("q", 0)])
        for pod in ("p", "q"):
            await node.cluster.phase(pod, "Running")
        seen = [node.env_of(pod)["NVIDIA_VISIBLE_DEVICES"] for pod in ("p", "q")]
        assert sorted(seen) == sorted(node.made)
        assert "CUDA_DEVICE_MEMORY_LIMIT_0" not in node.env_of("p")
        for pod in ("p", "q"):
            await node.cluster.delete_pod(pod)
            await node.cluster.gone(pod)
        await node.becomes("their slices are gone", lambda: list(node.node.cdi.iterdir()), [])
        assert sorted(node.profiles()) == sorted(node.made), "they are not ours to destroy"


async def test_mixed_offers_them_beside_gpus_and_kubelet_chooses():
    resource = "nvidia.com/mig-3g.20gb"
    gpus = [*CUT, {"model": "t4"}]
    async with a_node(gpus, "--mig-strategy=mixed", cut=[("3g.20gb", 4)]) as node:
        await node.node.devices.healthy(resource)
        await node.cluster.apply([a_pod("p", 0, resource=resource), a_pod("q", 1000)])
        for pod in ("p", "q"):
            await node.cluster.phase(pod, "Running")
        whole = node.nvml.gpus()[1].uuid
        assert node.env_of("p")["NVIDIA_VISIBLE_DEVICES"] == node.made[0]
        assert node.env_of("q")["NVIDIA_VISIBLE_DEVICES"] == whole
        assert node.env_of("q")["CUDA_DEVICE_MEMORY_LIMIT_0"] == "1000m"
        assert "CUDA_DEVICE_MEMORY_LIMIT_0" not in node.env_of("p")


# Health.


async def test_a_gpu_with_a_critical_error_is_avoided_until_it_has_been_quiet():
    async with a_node("t4x2", "--health-recovery=1.5") as node:
        assert await node.healthy() == [True, True]

        async def health(*wanted):
            return True if await node.healthy() == [*wanted] else None

        async def ill():
            # Once more each time: the agent may not listen yet.
            node.nvml.state.add_event(94, node.gpu)
            return await health(False, True)

        await node.cluster.eventually("it is ill", ill)
        first, other = (gpu.uuid for gpu in node.nvml.gpus())
        await node.cluster.apply(a_pod("p", 15000))
        await node.cluster.phase("p", "Running")
        assert node.env_of("p")["NVIDIA_VISIBLE_DEVICES"] == other
        await node.cluster.eventually("it is well", lambda: health(True, True))
        await node.cluster.apply(a_pod("q", 15000))
        await node.cluster.phase("q", "Running")
        assert node.env_of("q")["NVIDIA_VISIBLE_DEVICES"] == first
