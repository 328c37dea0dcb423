"""The node agent: one process per node and vendor, from its start to SIGTERM.

``serve`` builds everything and passes it down. What lives is owned by the loop: the table of
slices, the devices, the lists for kubelet. What blocks runs in threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypedDict

import structlog

from hami.blocking.threads import Threads
from hami.domain.errors import HamiError, PluginRejected
from hami.domain.slices import Identity
from hami.hookspecs import PluginConfig
from hami.kube.client import KubeClient
from hami.kube.events import EventRecorder
from hami.kube.leases.heartbeat import Heartbeat
from hami.kube.resources import NODES
from hami.logs import set_level
from hami.node.compat.lock_mode import ByLock
from hami.node.device.advertise import Advertiser
from hami.node.device.inventory import HookConfig, Inventory
from hami.node.disk.cdi import CdiFolders
from hami.node.disk.store import SliceStore
from hami.node.disk.tmpfs import why_not_mount
from hami.node.exposition.agent_parts import AgentParts
from hami.node.exposition.endpoint import AgentEndpoint
from hami.node.kubelet.checkpoint import read_checkpoint
from hami.node.kubelet.device_list import DeviceList
from hami.node.kubelet.displacement import Displacement
from hami.node.kubelet.served_resources import ServedResources
from hami.node.kubelet.server import DevicePluginServer
from hami.node.kubelet.static_calls import StaticCalls
from hami.node.pod.pods import Granting, NodePods
from hami.node.running.mount_check import MountCheck
from hami.node.running.slice_seen import slices_in_use
from hami.node.settings.config import AgentConfig
from hami.node.settings.identity import choose_identity
from hami.node.settings.node_facts import NodeFacts, node_facts
from hami.node.settings.served_vendor import vendor_named
from hami.node.settings.source import AgentSource, plugin_config
from hami.node.slice.agent_context import AgentContext
from hami.node.slice.live_slices import LiveSlices
from hami.node.slice.preparing import hold_pages
from hami.node.slice.reconciling import reconcile
from hami.node.slice.recovery import recover
from hami.node.slice.releasing import Releasing
from hami.node.slice.resizing import Resizing
from hami.node.start.kubelet_mode import ByKubelet
from hami.node.start.outcomes import Outcomes, PodWriter
from hami.settings.watch import ConfigWatcher
from hami.signing import KeyFile, SigningKeys
from hami.slices.cgroups import PodCgroups
from hami.slices.files import StoreFailed
from hami.slices.lock_file import alone
from hami.vendors.registry import Vendors, load_vendors
from hami.wire import keys
from hami.wire.node_identity import lease_name

COMPONENT = "hami-device-plugin"
DISK_AT_ONCE = 4
LOCKS = "hami"
"""In kubelet's directory; as old kubelets remove every file there when they start, a folder."""


class _Sockets(TypedDict):
    """Where a server's sockets are, and how they are named."""

    folder: Path
    kubelet_socket: Path
    name: str
    on_problem: Callable[[str], None]


def _passed_over(_: PluginRejected) -> None:
    """The start reported it already; the vendor that this agent serves is another."""


async def serve(config: AgentConfig, *, source: AgentSource, ready: Callable[[], None]) -> None:
    """Serve until cancelled; ``ready`` is called once the node says what devices it has.

    Raises:
        HamiError: a setting or a plugin must be changed.
    """
    log = structlog.get_logger("hami.agent")
    vendors = load_vendors(
        config.devices,
        on_failure=lambda failure: log.error(str(failure)),
        on_broken=lambda problem: log.warning(str(problem)),
    )
    endpoint = AgentEndpoint(config.node_name)
    async with AsyncExitStack() as stack:
        for folder in (config.kubelet_dir / LOCKS, config.slices):
            lock = folder / f"{config.vendor.lower()}.lock"
            await stack.enter_async_context(alone(lock, f"agent serves {config.vendor}"))
        await stack.enter_async_context(endpoint.listens(config.health_bind))
        client = await KubeClient.connect(config.kube)
        stack.push_async_callback(client.close)
        keys = SigningKeys(_key_file(config))
        await keys.reload()
        if config.takes_unsigned:
            log.warning(
                "unsigned allocations are taken: whoever may edit a pod's annotations decides "
                "about its devices; name the scheduler's public keys with --verification-keys"
            )
        remembered = config.slices / f"{config.vendor.lower()}-node.json"
        facts = await node_facts(client, config.node_name, remembered, log.warning)
        choice = choose_identity(
            config.identity, facts.info.kubelet_version, facts.info.container_runtime_version
        )
        log.info("how pods are identified", identity=choice.identity, why=choice.why)
        agent = Agent(
            Beginning(
                config=config,
                source=source,
                vendors=vendors,
                client=client,
                keys=keys,
                facts=facts,
                identity=choice.identity,
            )
        )
        stack.push_async_callback(agent.close)
        endpoint.made_of(agent.parts)
        await agent.recover()
        await agent.run(ready)


def _key_file(config: AgentConfig) -> KeyFile | None:
    path = config.verification_keys
    return None if path is None else KeyFile(path, called="verification key file")


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """What ``serve`` knows before it builds the first part."""

    config: AgentConfig
    source: AgentSource
    vendors: Vendors
    client: KubeClient
    keys: SigningKeys
    facts: NodeFacts
    identity: Identity


class Agent:
    """Builds the agent's parts, and tells each what it must hear of the others."""

    def __init__(self, begin: Beginning) -> None:
        config, client = begin.config, begin.client
        self._begin = begin
        self._labels: Mapping[str, str] = begin.facts.labels
        self._log = structlog.get_logger("hami.agent")
        self._kept: tuple[str, ...] | None = None
        self._watcher = ConfigWatcher(begin.source, config, self._apply)
        self._config = HookConfig(self._plugin_config(config))
        self._events = EventRecorder(
            client,
            component=COMPONENT,
            instance=config.node_name,
            on_problem=self._log.warning,
        )
        self._writer = PodWriter(client, self._log.warning)
        self._around = around = self._surroundings()
        self._inventory = around.inventory
        self._heartbeat = self._make_heartbeat()
        self._advertiser = self._make_advertiser()
        self._outcomes = Outcomes(around, self._writer)
        self._releasing = Releasing(around)
        self._resizing = Resizing(around, self._releasing.make_room)
        self._devices = DeviceList()
        self._by = self._identifying()
        self._mounts = MountCheck(
            around,
            proc=config.proc_root,
            entries=partial(read_checkpoint, config.kubelet_dir),
            stop=lambda: self._watcher.running.stops_unmounted,
        )
        self._resources = ServedResources(
            DevicePluginServer(
                around.vendor.profile.resources.count,
                self._by.calls,
                self._devices,
                pre_start=True,
                **self._sockets(),
            ),
            self._by,
            self._inventory,
            Displacement(
                lambda: self._advertiser.node,
                lambda: client.get(NODES, config.node_name),
                self._events,
            ),
            static_server=self._static_server,
        )

    def _make_heartbeat(self) -> Heartbeat:
        config, key = self._begin.config, self._around.vendor.profile.key
        return Heartbeat(
            self._begin.client,
            lease_name(config.node_name, key),
            config.node_name,
            {keys.AGENT: key},
            on_problem=self._log.warning,
        )

    def _make_advertiser(self) -> Advertiser:
        config = self._begin.config
        return Advertiser(
            self._begin.client,
            config.node_name,
            self._around.vendor,
            self._begin.identity,
            vouched=self._heartbeat.heard.is_set,
            on_problem=self._log.warning,
            on_labels=self._labels_changed,
            every=config.advertise_interval,
        )

    def _surroundings(self) -> AgentContext:
        config, problem = self._begin.config, self._log.warning
        vendor = vendor_named(self._begin.vendors, config.vendor)
        key = vendor.profile.key
        hooks = Threads("hook")
        return AgentContext(
            vendor=vendor,
            kind=f"{key.lower()}.hami.io/slice",
            pods=NodePods(self._begin.client, config.node_name, on_problem=problem),
            granting=Granting(
                key,
                config.node_name,
                self._begin.vendors,
                self._begin.keys,
                accept_unsigned=config.takes_unsigned,
            ),
            slices=LiveSlices(),
            store=SliceStore(config.slices, key, tmpfs=self._mounts_tmpfs()),
            folders=CdiFolders(config.cdi_dir, config.cdi_read_dirs, vendor=key),
            cgroups=PodCgroups(config.cgroup_root, problem),
            events=self._events,
            hooks=hooks,
            pages=Threads("page", counted=StoreFailed),
            disk=Threads("disk", DISK_AT_ONCE, counted=StoreFailed),
            inventory=Inventory(
                vendor,
                hooks,
                self._config,
                self._inventory_changed,
                every=config.discover_interval,
            ),
            config=self._config,
        )

    def _mounts_tmpfs(self) -> bool:
        config = self._begin.config
        if config.usage_tmpfs != "auto":
            return config.usage_tmpfs == "on"
        why_not = why_not_mount(config.slices)
        if why_not:
            self._log.warning(
                "containers' usage files lie on the node's disk, where a tenant can make them grow "
                "until it is full",
                why=why_not,
            )
        return not why_not

    def _identifying(self) -> ByKubelet | ByLock:
        config = self._begin.config
        if self._begin.identity == "kubelet":
            return ByKubelet(
                self._around,
                config.kubelet_dir,
                self._outcomes,
                self._releasing.make_room,
                self._devices,
            )
        return ByLock(
            self._around,
            config.kubelet_dir,
            self._outcomes,
            self._begin.client,
            config.node_name,
            self._begin.vendors.profiles,
            self._devices,
            self._log.warning,
        )

    def _static_server(self, resource: str) -> DevicePluginServer:
        """For devices that kubelet itself hands out; raises HamiError where it cannot be served."""
        if resource in self._around.vendor.profile.resources.all_names:
            raise HamiError(f"{resource} is the scheduler's to give away, not kubelet's alone")
        calls = StaticCalls(
            resource,
            self._around.vendor,
            self._around.hooks,
            self._inventory,
            self._config,
        )
        suffix = resource.rpartition("/")[2]
        return DevicePluginServer(
            resource, calls, DeviceList(), pre_start=False, **self._sockets(suffix)
        )

    def _sockets(self, suffix: str = "") -> _Sockets:
        config = self._begin.config
        words = [self._around.vendor.profile.key.lower(), suffix]
        return {
            "folder": config.kubelet_dir,
            "kubelet_socket": config.socket,
            "name": "-".join(word for word in words if word),
            "on_problem": self._log.warning,
        }

    @property
    def parts(self) -> AgentParts:
        """Those that are asked how they do."""
        return AgentParts(
            around=self._around,
            advertiser=self._advertiser,
            resources=self._resources,
            resizing=self._resizing,
            starts=self._by.counts,
            recovered=lambda: self._kept is not None,
        )

    async def recover(self) -> None:
        """Take over the slices of a former process, before kubelet may ask for any."""
        around = self._around
        found = await around.disk.run(
            recover,
            around.store,
            around.folders,
            around.granting,
            self._by.slice_ids,
            lambda ids: slices_in_use(
                ids, around.vendor.profile.key, around.cgroups, self._begin.config.proc_root
            ),
            self._log.warning,
        )
        for live in found.slices:
            around.slices.put(live)
        self._log.info("slices on disk", live=len(found.slices), damaged=len(found.damaged))
        self._kept = found.kept
        self._outcomes.recovered()

    async def run(self, ready: Callable[[], None]) -> None:
        """Run every part until cancelled; ``ready`` is called once the node says what it has."""
        around = self._around
        for listener in (self._releasing, self._resizing, self._mounts, self._outcomes):
            around.pods.listen(listener)
        async with asyncio.TaskGroup() as tasks:
            for work in (
                reconcile(around, self._kept or ()),
                hold_pages(around),
                around.pods.run(),
                self._inventory.run(),
                self._resources.run(),
                self._follow_slices(),
                self._advertiser.run(),
                self._vouch(),
                self._releasing.run(),
                self._resizing.run(),
                self._mounts.run(),
                self._writer.run(),
                self._events.run(),
                self._begin.keys.run(self._log.warning),
                self._watcher.run(),
            ):
                tasks.create_task(work)
            await self._inventory.known.wait()
            await self._advertiser.published.wait()
            ready()

    async def _vouch(self) -> None:
        """Keep the heartbeat, without which the scheduler does not believe the node's identity."""
        if self._begin.identity != "kubelet":
            return
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._heartbeat.run())
            await self._heartbeat.heard.wait()
            self._advertiser.look_again()

    async def close(self) -> None:
        """Specs, pages and libraries of live slices stay: their containers may start again."""
        await self._advertiser.withdraw()
        await self._by.close()
        around = self._around
        await around.slices.close()
        for threads in (around.hooks, around.pages, around.disk):
            threads.close()
        around.store.close()

    # How the parts hear of each other.

    def _plugin_config(self, config: AgentConfig) -> PluginConfig:
        return plugin_config(config, labels=self._labels, identity=self._begin.identity)

    def _apply(self, config: AgentConfig) -> None:
        """Take over a changed configuration; a plugin that does not take its section refuses it."""
        load_vendors(config.devices, on_broken=_passed_over)
        self._config.now = self._plugin_config(config)
        set_level(config.log_level)
        self._inventory.look_again()

    def _labels_changed(self, labels: Mapping[str, str]) -> None:
        """Entries of the per-node configuration may select this node by them."""
        if labels != self._labels:
            self._labels = dict(labels)
            self._config.now = self._plugin_config(self._watcher.running)
            self._inventory.look_again()

    def _inventory_changed(self) -> None:
        self._advertiser.set_devices(tuple(self._inventory.devices.values()))
        self._resources.changed()

    async def _follow_slices(self) -> None:
        """Make the list for kubelet anew when slices change, while a device is not healthy.

        While all are healthy, the list does not depend on who holds which device.
        """
        changed = self._around.slices.changed
        while True:
            await changed.wait()
            changed.clear()
            if not all(device.healthy for device in self._inventory.devices.values()):
                self._resources.changed()
