"""A complete node: API server, kubelet and agent in one process, over real sockets and files.

The test acts as scheduler: it gives each pod what it asks for, first come, first served, and signs.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
from hami_lab.api import ApiServer, Fault, Faults, TlsFiles
from hami_lab.kubelet.kubelet import Kubelet
from hami_lab.kubelet.nodes import LIVE_NODES, NodeReports
from hami_lab.kubelet.plugin_node import PluginNode, PluginNodeSettings
from hami_lab.kubelet.runtime.create import StartedContainer
from hami_lab.live import LIVE_PODS, LivePod
from msgspec.structs import replace

from hami.domain.allocations import ContainerAllocation, ContainerKind, PodAllocation
from hami.domain.devices import Grant
from hami.domain.kubernetes.objects import Pod
from hami.domain.units import CorePercent, DeviceId, MemoryMiB, PodUid, VendorKey
from hami.kube.client import KubeClient, PodBinding
from hami.kube.errors import ApiError
from hami.kube.identity.settings import KubeSettings
from hami.node import agent
from hami.node.settings.source import AgentSource
from hami.policy.usage import device_usage
from hami.settings.model import key_of
from hami.signing import Signer, new_private_pem
from hami.slices.limits_page import read_page
from hami.vendors.registry import load_vendors
from hami.wire import keys
from hami.wire.allocation import bind_annotations, decision_annotations, encode_allocation

NODE = "n1"
VENDOR = VendorKey("MOCK")
RESOURCE = "mock.hami.io/device"
PATIENCE = 60.0
"""Seconds: an agent's process, which usually starts in one, took up to 20 on a busy machine."""

MEMORY = 16384
"""MiB of a mock device."""


class NoRoom(Exception):
    """The pod stays pending, because no device has room for it."""


@dataclass(frozen=True, slots=True)
class Wish:
    """One container: its number of devices, MiB of each, and when it runs."""

    name: str
    count: int = 1
    memory: int = 1000
    cores: int = 10
    kind: ContainerKind = ContainerKind.APP


class World:
    """``async with World() as world:``; everything in it is removed afterwards."""

    def __init__(
        self,
        *,
        devices: str = "mockx4",
        vendor: str = "mock",
        flags: Mapping[str, Any] | None = None,
        config: Mapping[str, Any] | None = None,
        tls: bool = False,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="w", dir="/tmp"))
        self.tls = TlsFiles.self_signed(self.folder) if tls else None
        self.faults = Faults()
        self.signer = Signer.from_pem(new_private_pem())
        self.problems: list[str] = []
        self.hears: Callable[[], Awaitable[None]] = partial(asyncio.sleep, 0.05)
        """Returns when kubelet, started again, has heard from the API server."""
        self.health = self.folder / "health.sock"
        self._vendor = vendor
        self._flags = dict(flags or {})
        self._unhealthy = self.folder / "unhealthy"
        mock = {"devices": devices, "node": NODE, "unhealthyFile": str(self._unhealthy)}
        self._config = {"mock": mock} | dict(config or {})
        self._stack = AsyncExitStack()
        self._agent: asyncio.Task[None] | None = None
        self._names = itertools.count()
        self.resource = RESOURCE
        self.allocations: dict[str, PodAllocation] = {}
        self._given: dict[str, PodAllocation] = {}
        self.uids: dict[str, str] = {}

    async def __aenter__(self) -> World:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop_agent()
        await self._stack.aclose()
        shutil.rmtree(self.folder, ignore_errors=True)

    async def _start(self) -> None:
        self.server = ApiServer(faults=self.faults, token="t")
        await self.server.start(port=0, tls=self.tls)
        self._stack.push_async_callback(self.server.stop)
        kubeconfig = self.folder / "kubeconfig"
        kubeconfig.write_bytes(msgspec.json.encode(self.server.kubeconfig()))
        (self.folder / "keys.pem").write_bytes(self.signer.public_pem())
        self.client = await KubeClient.connect(KubeSettings(kubeconfig=kubeconfig))
        self._stack.push_async_callback(self.client.close)
        self.vendors = load_vendors(self._config)
        self.node = PluginNode(
            NODE,
            self.folder / NODE,
            PluginNodeSettings(
                hear=self._hears,
                retry=(0.02, 0.05),
                backoff=0.02,
                on_problem=self.problems.append,
            ),
        )
        kubelet = Kubelet(
            self.client, NodeReports(self.vendors, {}), on_problem=self.problems.append
        )
        kubelet.attach(self.node)
        for work in (self.node.run(), kubelet.run()):
            task = asyncio.create_task(work)
            self._stack.push_async_callback(_ended, task)
        await self.client.create(LIVE_NODES, {"metadata": {"name": NODE}})
        await self.start_agent()

    async def _hears(self) -> None:
        await self.hears()

    # The agent.

    @property
    def flags(self) -> dict[str, Any]:
        return {
            "vendor": self._vendor,
            "node_name": NODE,
            "identity": "kubelet",
            "kubelet_dir": str(self.node.plugins),
            "slices": str(self.node.slices),
            "cdi_dir": str(self.node.cdi),
            "cdi_read_dirs": str(self.node.cdi),
            "usage_tmpfs": "off",
            "health_address": f"unix:{self.health}",
            "verification_keys": str(self.folder / "keys.pem"),
            "cgroup_root": str(self.node.cgroups),
            "proc_root": str(self.node.proc),
            "kubeconfig": str(self.folder / "kubeconfig"),
            "device_config": str(self._write_config()),
        } | self._flags

    async def start_agent(self, *, wait: bool = True) -> None:
        """Start the agent in this process."""
        source = AgentSource(file=None, flags=self.flags, environment={})
        ready = asyncio.Event()
        self._agent = asyncio.create_task(
            agent.serve(source.load(), source=source, ready=ready.set)
        )
        if wait:
            waiting = asyncio.create_task(ready.wait())
            await asyncio.wait({self._agent, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if self._agent.done():
                await self._agent
            async with asyncio.timeout(PATIENCE):
                await self.node.devices.healthy(self.resource)

    async def stop_agent(self) -> None:
        task, self._agent = self._agent, None
        if task is not None:
            await _ended(task)

    async def launch_agent(self) -> asyncio.subprocess.Process:
        """Start the agent as a process of its own, which may be killed, in place of the one in
        here.
        """
        words = [f"--{key_of(name)}={value}" for name, value in self.flags.items()]
        command = [sys.executable, "-m", "hami", "device-plugin", *words]
        with (self.folder / "agent.log").open("ab") as log:
            process = await asyncio.create_subprocess_exec(*command, stderr=log)
        self._stack.push_async_callback(_killed, process)
        return process

    async def served_by(self, agent: asyncio.subprocess.Process) -> None:
        """Wait until this process has its devices on the node."""

        def serves() -> bool:
            said = (self.folder / "agent.log").read_text()
            assert agent.returncode is None, f"the agent ended with {agent.returncode}: {said}"
            return self.healthy_slots() > 0

        await self.until("an agent's process serves", serves)

    def _write_config(self) -> Path:
        path = self.folder / "devices.json"
        path.write_bytes(msgspec.json.encode(self._config))
        return path

    # Pods.

    async def pod(
        self, *wishes: Wish, name: str = "", sign: bool = True, **annotations: str
    ) -> str:
        """A pod that is created and bound as kube-scheduler and our service would do it; its name."""
        name = name or f"p{next(self._names)}"
        body = {
            "metadata": {"name": name, "namespace": "default", "annotations": annotations},
            "spec": {
                "containers": [_container(w) for w in wishes if w.kind is ContainerKind.APP],
                "initContainers": [
                    _container(w) for w in wishes if w.kind is not ContainerKind.APP
                ],
                "terminationGracePeriodSeconds": 1,
            },
        }
        pod = await self.client.create(LIVE_PODS, body, namespace="default")
        await self.bind(pod, wishes, sign=sign)
        return name

    async def bind(self, pod: Pod, wishes: Sequence[Wish], *, sign: bool = True) -> None:
        allocation = self.place(wishes)
        now = datetime.now(UTC)
        profiles = self.vendors.profiles
        written = encode_allocation(allocation, profiles)
        written |= decision_annotations(NODE, now) | bind_annotations(now)
        if sign:
            written[keys.ALLOCATION_SIGNATURE] = self.signer.sign(pod.uid, allocation, 1)
        self.allocations[pod.name] = allocation
        self.uids[pod.name] = pod.uid
        self._given[pod.uid] = allocation
        await self.client.bind(
            PodBinding(
                namespace="default",
                name=pod.name,
                uid=pod.uid,
                node=NODE,
                annotations=written,
                labels={},
            ),
            timeout=10,
        )

    def place(self, wishes: Sequence[Wish]) -> PodAllocation:
        """Place the pod, first come, first served; each container on the emptiest devices."""
        used: dict[str, int] = dict.fromkeys(self.device_ids, 0)
        for allocation in self.allocations.values():
            for (_, device), usage in device_usage(allocation.containers).items():
                used[device] += usage.memory_mib
        containers = []
        for wish in sorted(wishes, key=lambda w: w.kind is ContainerKind.APP):
            chosen = sorted(used, key=used.__getitem__)[: wish.count]
            if any(used[device] + wish.memory > MEMORY for device in chosen):
                raise NoRoom(wish.name)
            for device in chosen:
                used[device] += wish.memory
            grants = tuple(
                Grant(
                    device_id=DeviceId(device),
                    vendor=VENDOR,
                    memory_mib=MemoryMiB(wish.memory),
                    cores=CorePercent(wish.cores),
                )
                for device in chosen
            )
            containers.append(ContainerAllocation(name=wish.name, kind=wish.kind, grants=grants))
        return PodAllocation(node=NODE, containers=tuple(containers))

    @property
    def device_ids(self) -> list[str]:
        return sorted(d.id for d in self.vendors["MOCK"].discover(self._config))

    async def delete(self, name: str, *, force: bool = False) -> None:
        self.allocations.pop(name, None)
        await self.client.delete(
            LIVE_PODS, name, namespace="default", grace_seconds=0 if force else None
        )

    async def get(self, name: str) -> LivePod | None:
        try:
            return await self.client.get(LIVE_PODS, name, namespace="default")
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    async def until(self, what: str, holds: Any, seconds: float = PATIENCE) -> Any:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            found = holds()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return found
            assert loop.time() < end, f"not in {seconds:g} s: {what}; {self.problems[-5:]}"
            if self._agent is not None and self._agent.done():
                await self._agent
            await asyncio.sleep(0.02)

    async def phase(self, name: str, phase: str) -> LivePod:
        async def reached() -> LivePod | None:
            pod = await self.get(name)
            return pod if pod and pod.status and pod.status.phase == phase else None

        found: LivePod = await self.until(f"pod {name} is {phase}", reached)
        return found

    async def resize(self, name: str, *, memory: int, generation: int) -> None:
        """Resize as ``hami resize`` does it: a newer signed allocation on the same devices."""
        old = self.allocations[name]
        containers = tuple(
            replace(c, grants=tuple(replace(g, memory_mib=MemoryMiB(memory)) for g in c.grants))
            for c in old.containers
        )
        allocation = self.allocations[name] = replace(old, containers=containers)
        written = encode_allocation(allocation, self.vendors.profiles)
        uid = PodUid(self.uids[name])
        written[keys.ALLOCATION_SIGNATURE] = self.signer.sign(uid, allocation, generation)
        self._given[uid] = allocation
        await self.annotate(name, written)

    async def annotate(self, name: str, annotations: Mapping[str, str | None]) -> None:
        patch = {"metadata": {"annotations": annotations}}
        await self.client.patch(LIVE_PODS, name, patch, namespace="default")

    # What goes wrong.

    @contextmanager
    def slow(self, seconds: float) -> Iterator[None]:
        """Let the API server take its time."""
        fault = self.faults.add(Fault(latency=seconds))
        try:
            yield
        finally:
            self.faults.remove(fault)

    def drop_watches(self) -> None:
        self.faults.cut_watches()

    async def ready(self) -> None:
        """Wait until kubelet and agent serve again."""
        self.node.races.stale_checkpoints = self.node.races.forgotten_allocations = 0
        async with asyncio.timeout(PATIENCE):
            await self.node.synced.wait()
            await self.node.devices.healthy(self.resource)

    async def came_to_something(self, name: str) -> bool:
        """Whether every container of the pod was started, or the pod has ended."""
        pod = await self.get(name)
        if pod is None or pod.finished:
            return True
        started = {start.container for start in self.started if start.pod_uid == pod.uid}
        return started == {container.name for container, _ in pod.each_container()}

    def left(self) -> list[str]:
        """Slices and CDI specs that are on disk."""
        slices = self.node.slices / "mock"
        kept = [path.name for path in slices.iterdir()] if slices.exists() else []
        return kept + [path.name for path in self.node.cdi.iterdir()]

    # Devices.

    def unhealthy(self, *ids: str) -> None:
        self._unhealthy.write_text("".join(f"{id}\n" for id in ids))

    def slots(self) -> int:
        return self.node.devices.counts().capacity.get(self.resource, 0)

    def healthy_slots(self) -> int:
        return self.node.devices.counts().allocatable.get(self.resource, 0)

    # What was really injected.

    @property
    def started(self) -> list[StartedContainer]:
        return list(self.node.runtime.started)

    def wrong(self) -> list[str]:
        """Starts of containers with anything other than their own grants."""
        return [problem for start in self.started if (problem := self._wrong(start))]

    def _wrong(self, start: StartedContainer) -> str:
        allocation = self.given[start.pod_uid]
        mine = next(c for c in allocation.containers if c.name == start.container)
        if not mine.grants:
            return ""
        limits = read_page(start.files.get("/run/hami/mock/limits", b""))
        seen = getattr(limits, "devices", None)
        if seen is None:
            return f"{start.full_name} started without a limits page: {limits}, {start.missing}"
        has = [(device.uuid, device.memory_bytes >> 20, device.cores) for device in seen]
        should = [(grant.device_id, grant.memory_mib, grant.cores) for grant in mine.grants]
        visible = start.env.get("MOCK_VISIBLE_DEVICES", "").split(",")
        if has != should or visible != [grant.device_id for grant in mine.grants]:
            return f"{start.full_name} has {has} and sees {visible}, it was given {should}"
        return ""

    def overfull(self) -> list[str]:
        """Devices on which running containers have more memory than there is."""
        used: dict[str, int] = {}
        for uid, allocation in self.given.items():
            running = self.node.runtime.running_of(PodUid(uid))
            for container in allocation.containers:
                for grant in container.grants if container.name in running else ():
                    used[grant.device_id] = used.get(grant.device_id, 0) + grant.memory_mib
        most = {d.id: d.memory_mib for d in self.vendors["MOCK"].discover(self._config)}
        return [f"{id}: {mib} of {most[id]} MiB" for id, mib in used.items() if mib > most[id]]

    @property
    def given(self) -> Mapping[str, PodAllocation]:
        """The grants of every pod that ever was, by UID."""
        return self._given


def _container(wish: Wish) -> dict[str, Any]:
    limits = {RESOURCE: str(wish.count), "mock.hami.io/memory": str(wish.memory)}
    sidecar = {"restartPolicy": "Always"} if wish.kind is ContainerKind.SIDECAR else {}
    return {"name": wish.name, "image": "i", "resources": {"limits": limits}} | sidecar


async def _killed(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    await process.wait()


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
