"""Nodes with device plugins in an embedded cluster, and the real node agents that serve them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from hami.domain.errors import ConfigError
from hami.domain.profile import VendorProfile
from hami.kube.client import KubeClient
from hami.kube.events import EventRecorder
from hami.node.settings.served_vendor import vendor_named
from hami.vendors.registry import Vendors
from hami_lab.cluster.parts import Parts
from hami_lab.cluster.problems import NotInTime
from hami_lab.cluster.process import HamiProcess
from hami_lab.cluster.service import SchedulerService
from hami_lab.kubelet.kubelet import Kubelet
from hami_lab.kubelet.plugin_node import PluginNode, PluginNodeSettings
from hami_lab.live import LivePod
from hami_lab.simgpu import SimulatedGpus, installed_driver, simulated_gpus

READY = 60.0
"""Seconds that an agent may take until its devices are listed: starting Python is most of it."""
LONGEST_FOLDER = 40
"""Bytes of the folder with all nodes: sockets far below it get a path of at most 107."""
_FOREIGN = ("HAMI_DEVICE_PLUGIN_", "KUBE", "NODE_NAME", "NodeName", "NVIDIA_", "DP_", "CONFIG_FILE")
"""Variables of the caller that configure some other agent."""


class NodeFolders:
    """The nodes' folders: below ``folder``, or elsewhere where its path is too long.

    A unix socket's path is limited; that of a folder for temporary files is not.
    """

    def __init__(self, folder: Path, stack: AsyncExitStack) -> None:
        self._nodes = folder / "nodes"
        self._elsewhere: TemporaryDirectory[str] | None = None
        # Now, so that whatever uses a node's folder ends before the folder does.
        stack.callback(self._close)

    def of(self, node: str) -> Path:
        if len(os.fsencode(self._nodes)) <= LONGEST_FOLDER:
            return self._nodes / node
        if self._elsewhere is None:
            self._elsewhere = TemporaryDirectory(prefix="hami-", dir="/tmp")
        return Path(self._elsewhere.name) / node

    def _close(self) -> None:
        if self._elsewhere is not None:
            self._elsewhere.cleanup()


@dataclass(frozen=True, slots=True)
class NodeGpus:
    """Simulated GPUs of a node: their daemon, and the device configuration of an agent for them."""

    daemon: SimulatedGpus
    devices: Path


class NodeAgent(HamiProcess):
    """``hami device-plugin`` for the vendor of ``profile`` on one node.

    ``gpus`` are the simulated ones that it serves, if any.
    """

    def __init__(
        self,
        node: PluginNode,
        profile: VendorProfile,
        service: SchedulerService,
        flags: Sequence[str],
        gpus: NodeGpus | None,
    ) -> None:
        vendor = profile.key.lower()
        super().__init__(
            f"the node agent of {vendor} on {node.name}",
            log=node.folder / f"{vendor}.log",
            folder=node.folder,
            foreign=_FOREIGN,
            environment=gpus.daemon.environment if gpus else {},
        )
        self.node = node
        self.profile = profile
        self._flags = [
            f"--vendor={vendor}",
            f"--node-name={node.name}",
            f"--kubelet-dir={node.plugins}",
            f"--cdi-dir={node.cdi}",
            f"--cdi-read-dirs={node.cdi}",
            f"--slices={node.slices}",
            f"--cgroup-root={node.cgroups}",
            f"--proc-root={node.proc}",
            "--usage-tmpfs=off",
            "--health-address=off",
            f"--kubeconfig={service.kubeconfig}",
            f"--verification-keys={service.verification_keys}",
            f"--device-config={gpus.devices if gpus else service.devices}",
            *flags,
        ]

    async def launch(self) -> None:
        """Start the process without waiting for it."""
        await self.launch_with(["device-plugin", *self._flags])


class PluginNodes:
    """Makes them, and ends their agents with the cluster's ``stack``."""

    def __init__(
        self,
        client: KubeClient,
        kubelet: Kubelet,
        vendors: Vendors,
        *,
        parts: Parts,
        stack: AsyncExitStack,
        folders: NodeFolders,
        service: SchedulerService,
        on_problem: Callable[[str], None],
    ) -> None:
        self._client = client
        self._kubelet = kubelet
        self._vendors = vendors
        self._parts = parts
        self._stack = stack
        self._folders = folders
        self._service = service
        self._on_problem = on_problem
        self._events: EventRecorder | None = None
        self._nodes: dict[str, PluginNode] = {}
        self._agents: list[NodeAgent] = []

    @property
    def nodes(self) -> Mapping[str, PluginNode]:
        return self._nodes

    @property
    def agents(self) -> Sequence[NodeAgent]:
        return self._agents

    def add(self, name: str, settings: PluginNodeSettings | None) -> PluginNode:
        """A kubelet with a device-plugin folder; the Node object is not made here."""
        settings = settings or PluginNodeSettings()
        settings = replace(settings, record=self._record, on_problem=self._on_problem)
        node = PluginNode(name, self._folders.of(name), settings)
        self._nodes[name] = node
        self._kubelet.attach(node)
        self._parts.start(f"kubelet of {name}", node.run())
        return node

    async def simulate_gpus(self, node: PluginNode, vendor: str, text: str) -> NodeGpus:
        """Start the daemon of simulated GPUs such as ``a100-40g:migx2,t4``, for an agent of later.

        Raises:
            ConfigError: no simulated driver of this vendor is installed, or the text is wrong.
            HamiError: the driver is not built, or the daemon does not start.
        """
        profile = vendor_named(self._vendors, vendor).profile
        driver = installed_driver(profile.key)
        if driver is None:
            raise ConfigError(
                f"no simulated driver for {profile.key} is installed; leave its GPUs out"
            )
        configuration, section = driver.prepare(text, node.name, node.folder / "host")
        daemon = await self._stack.enter_async_context(
            simulated_gpus(driver, configuration, node.folder / "gpus")
        )
        config = msgspec.json.decode(self._service.devices.read_bytes())
        key = profile.key.lower()
        config[key] = {**config.get(key, {}), **section}
        devices = node.folder / "devices.json"
        devices.write_bytes(msgspec.json.encode(config))
        return NodeGpus(daemon, devices)

    async def start_agent(
        self, node: PluginNode, vendor: str, flags: Sequence[str], gpus: NodeGpus | None = None
    ) -> NodeAgent:
        """Start ``hami device-plugin``; its devices are listed when this returns.

        Raises:
            ConfigError: no installed plugin serves nodes with this vendor.
            ServiceDied: it ended instead.
            NotInTime: it takes too long.
        """
        profile = vendor_named(self._vendors, vendor).profile
        agent = NodeAgent(node, profile, self._service, flags, gpus)
        self._agents.append(agent)
        self._stack.push_async_callback(self.stop_agent, agent)
        await self.restart_agent(agent)
        return agent

    async def restart_agent(self, agent: NodeAgent) -> None:
        """Start it again after it was killed or stopped; raises as :meth:`start_agent`."""
        await agent.launch()
        self._parts.start(agent.name, _dies(agent))
        resource = agent.profile.resources.count
        listed = asyncio.create_task(agent.node.devices.healthy(resource))
        died = asyncio.create_task(agent.until_death())
        try:
            await asyncio.wait({listed, died}, timeout=READY, return_when=asyncio.FIRST_COMPLETED)
            if died.done():
                raise died.result()
            if not listed.done():
                raise NotInTime(
                    f"{agent.name} listed no healthy {resource} in {READY:.0f} s; its last lines:\n"
                    f"{agent.last_lines()}"
                )
        finally:
            listed.cancel()
            died.cancel()
            await asyncio.gather(listed, died, return_exceptions=True)

    async def kill_agent(self, agent: NodeAgent) -> None:
        """SIGKILL it."""
        await self._parts.stop(agent.name)
        await agent.kill()

    async def stop_agent(self, agent: NodeAgent) -> None:
        """SIGTERM it."""
        await self._parts.stop(agent.name)
        await agent.stop()

    def _record(self, pod: LivePod, reason: str, message: str) -> None:
        if self._events is None:
            self._events = EventRecorder(
                self._client, component="kubelet", on_problem=self._on_problem
            )
            self._parts.start("kubelet's events", self._events.run())
        self._events.record(pod, reason, message, warning=True)


async def _dies(agent: NodeAgent) -> None:
    raise await agent.until_death()
