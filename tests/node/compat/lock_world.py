"""One node in the mode ``lock`` on a real (embedded) API server; the test acts as kubelet."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hami_lab.api import ApiServer

from hami.blocking.threads import Threads
from hami.domain.devices import Device
from hami.domain.kubernetes.objects import Pod
from hami.domain.slices import ContainerEdits
from hami.domain.units import DeviceId, MemoryMiB, PodUid, VendorKey
from hami.hookspecs import hookimpl
from hami.kube.client import KubeClient
from hami.kube.errors import ApiError
from hami.kube.events import EventRecorder
from hami.kube.resources import NODES, PODS
from hami.node.compat.lock_mode import ByLock
from hami.node.device.inventory import HookConfig
from hami.node.disk.cdi import CdiFolders
from hami.node.disk.store import SliceStore
from hami.node.kubelet.checkpoint import CHECKPOINT, CheckpointEntry
from hami.node.kubelet.responses import decode, encode
from hami.node.pod.pods import Granting, NodePods
from hami.node.slice.agent_context import AgentContext
from hami.node.slice.live_slices import LiveSlices
from hami.policy.profile.profile_vendor import ProfileVendor
from hami.signing import Signer
from hami.slices.cgroups import PodCgroups
from hami.vendors.registry import Vendors
from lab.tests.embedded import a_node, a_server

NODE = "n1"
LOCK = "hami.io/mutex.lock"
PHASE = "hami.io/bind-phase"
OWN_LOCK = "camb.com/own.lock"


def a_profile(key: str, lock: str = "mutex") -> str:
    word = key.lower()
    own = f", lock: {OWN_LOCK}" if lock == "private" else ""
    return f"""
profiles:
- key: {key}
  resources: {{count: {word}.com/gpu, memory: {word}.com/mem}}
  node_annotations: {{register: {word}.com/register{own}}}
  pod_annotations: {{to_allocate: {word}.com/to-allocate, allocated: {word}.com/allocated}}
  lock: {lock}
"""


class Enforcing(ProfileVendor):
    """A vendor that gives a container the names of its devices; ``fails`` or waits when told."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.enforced: list[tuple[str, str]] = []
        self.fails = ""
        self.may_end = threading.Event()
        self.may_end.set()

    @hookimpl
    def hami_enforce(self, slice) -> ContainerEdits:
        self.may_end.wait(20)
        if self.fails:
            raise RuntimeError(self.fails)
        assert slice.identity == "lock"
        assert slice.state_dir.is_dir()
        self.enforced.append((slice.pod, slice.container))
        devices = ",".join(grant.device_id for grant in slice.grants)
        return ContainerEdits(
            env={"VISIBLE_DEVICES": devices} | dict(slice.container_env),
            pod_annotations={f"{slice.vendor.lower()}.com/made": devices},
        )


class Heard:
    """The outcome of a PreStartContainer."""

    def __init__(self) -> None:
        self.refusals: list[str] = []

    def prepared(self, entry, outcome) -> None: ...

    def refused(self, entry, outcome) -> None:
        self.refusals.append(outcome.text)


class LockWorld:
    def __init__(
        self, folder: Path, server: ApiServer, client: KubeClient, key: str = "ACME"
    ) -> None:
        self.folder, self.server, self.client = folder, server, client
        self.acme, self.bolt = Enforcing(a_profile("ACME")), Enforcing(a_profile("BOLT"))
        self.camb = Enforcing(a_profile("CAMB", "private"))
        self.vendors = Vendors.of({"acme": self.acme, "bolt": self.bolt, "camb": self.camb})
        self.signer = Signer.none()
        self.problems: list[str] = []
        self.config: dict[str, Any] = {"nodeconfig": []}
        self.kubelet = PlayedKubelet(folder / "kubelet", f"{key.lower()}.com/gpu")
        self.heard = Heard()
        self.resent = 0
        self.store = SliceStore(folder / "slices", VendorKey(key), tmpfs=False, selinux=False)
        self.around = self._surroundings(key)
        self.by = self._by_lock()
        self.calls = self.by.calls

    def another(self, key: str) -> LockWorld:
        """Another vendor's agent on the same node."""
        return LockWorld(self.folder, self.server, self.client, key)

    def _surroundings(self, key: str) -> AgentContext:
        tell = self.problems.append
        return AgentContext(
            vendor=self.vendors[VendorKey(key)],
            kind=f"{key.lower()}.hami.io/slice",
            pods=NodePods(self.client, NODE, on_problem=tell, patience=0.05),
            granting=Granting(VendorKey(key), NODE, self.vendors, self, accept_unsigned=True),
            slices=LiveSlices(),
            store=self.store,
            folders=CdiFolders(self.folder / "cdi", [], vendor=VendorKey(key)),
            cgroups=PodCgroups(self.folder / "cgroup", tell),
            events=EventRecorder(self.client, component="t", instance=NODE, on_problem=tell),
            hooks=Threads("hook"),
            pages=Threads("page"),
            disk=Threads("disk"),
            inventory=SimpleNamespace(devices={DeviceId(d): a_device(d) for d in ("A", "B", "C")}),  # type: ignore[arg-type]
            config=HookConfig(self.config),
        )

    def _by_lock(self) -> ByLock:
        return ByLock(
            self.around,
            self.kubelet.folder,
            self.heard,
            self.client,
            NODE,
            self.vendors.profiles,
            self,  # type: ignore[arg-type]
            self.problems.append,
        )

    def resend(self) -> None:
        self.resent += 1
        self.kubelet.write()

    # The cluster.

    async def add(self, name: str, *slots: str, init: int = 0, lock: bool = True, at: int = 100,
                  phase: str = "allocating", **vendors: list[str]) -> Pod:  # fmt: skip
        """Add a bound pod that gets these devices (``A``, ``AB``), one text per container."""
        wanted = {"acme": list(slots)} | vendors if slots else vendors
        texts = {f"{v}.com": "".join(_listed(v, s) for s in found) for v, found in wanted.items()}
        annotations = {
            "hami.io/vgpu-node": NODE,
            "hami.io/bind-time": str(at),
            PHASE: phase,
            **{f"{domain}/to-allocate": text for domain, text in texts.items()},
            **{f"{domain}/allocated": text for domain, text in texts.items()},
        }
        containers = [
            _container(number, init, {v: len(s[number]) for v, s in wanted.items()})
            for number in range(max(map(len, wanted.values())))
        ]
        spec = {"nodeName": NODE, "containers": containers[init:], "restartPolicy": "Never"}
        if init:
            spec["initContainers"] = containers[:init]
        body = {"metadata": {"name": name, "annotations": annotations}, "spec": spec}
        pod = await self.client.create(PODS, body, namespace="default")
        if lock:
            await self.lock(f"2026-01-01T12:00:00Z,default,{name}")
        return pod

    async def lock(self, value: str | None, key: str = LOCK) -> None:
        await self.client.patch(NODES, NODE, {"metadata": {"annotations": {key: value}}})

    async def locked(self, key: str = LOCK) -> str:
        return (await self.client.get(NODES, NODE)).annotations.get(key, "")

    async def annotation(self, pod: str, key: str) -> str | None:
        found = await self.client.get(PODS, pod, namespace="default")
        return found.annotations.get(key)

    async def annotate(self, pod: str, **annotations: str | None) -> None:
        patch = {"metadata": {"annotations": annotations}}
        await self.client.patch(PODS, pod, patch, namespace="default")

    async def remove(self, pod: str) -> None:
        await self.client.delete(PODS, pod, namespace="default", grace_seconds=0)
        while True:
            try:
                await self.client.get(PODS, pod, namespace="default")
            except ApiError:
                return
            await asyncio.sleep(0.01)

    # kubelet.

    async def allocate(self, *ids: str) -> ContainerEdits:
        (edits,) = await self.calls.allocate([ids])
        return edits

    async def admit(self, pod: Pod, container: str, *ids: str) -> ContainerEdits:
        """Call Allocate, and record it as kubelet does."""
        edits = await self.allocate(*ids)
        self.kubelet.record(pod.uid, container, ids, edits)
        return edits


class PlayedKubelet:
    """The test's kubelet: a checkpoint."""

    def __init__(self, folder: Path, resource: str) -> None:
        self.folder, self.resource = folder, resource
        self.entries: dict[tuple[str, str], dict[str, Any]] = {}
        folder.mkdir(exist_ok=True)

    def record(
        self, uid: PodUid, container: str, ids: tuple[str, ...], edits: ContainerEdits, *, write: bool = True
    ) -> None:  # fmt: skip
        self.entries[uid, container] = {
            "PodUID": uid,
            "ContainerName": container,
            "ResourceName": self.resource,
            "DeviceIDs": {"-1": list(ids)},
            "AllocResp": base64.b64encode(encode(edits).SerializeToString()).decode(),
        }
        if write:
            self.write()

    def forget(self, uid: PodUid) -> None:
        self.entries = {key: entry for key, entry in self.entries.items() if key[0] != uid}
        self.write()

    def write(self) -> None:
        content = {"Data": {"PodDeviceEntries": list(self.entries.values())}, "Checksum": 1}
        new = self.folder / "new"
        new.write_text(json.dumps(content))
        new.rename(self.folder / CHECKPOINT)

    def entry(self, pod: Pod, container: str) -> CheckpointEntry:
        held = self.entries[pod.uid, container]
        edits = decode(base64.b64decode(held["AllocResp"]))
        assert isinstance(edits, ContainerEdits)
        return CheckpointEntry(
            pod_uid=pod.uid,
            container=container,
            resource=self.resource,
            ids=frozenset(held["DeviceIDs"]["-1"]),
            edits=edits,
        )


def a_device(id: str) -> Device:
    return Device(id=DeviceId(id), vendor=VendorKey("ACME"), slots=10, memory_mib=MemoryMiB(8000))


def _listed(vendor: str, devices: str) -> str:
    return "".join(f"{device},{vendor.upper()},100,0:" for device in devices) + ";"


def _container(number: int, init: int, counts: dict[str, int]) -> dict[str, Any]:
    limits = {f"{vendor}.com/gpu": str(count) for vendor, count in counts.items() if count}
    return {
        "name": f"init{number}" if number < init else f"app{number - init}",
        "image": "x",
        "env": [{"name": "PLAIN", "value": "1"}],
        "resources": {"limits": limits, "requests": limits},
    }


@asynccontextmanager
async def a_lock_world(folder: Path) -> AsyncIterator[LockWorld]:
    async with a_server(folder) as (server, client):
        await client.create(NODES, a_node(NODE))
        world = LockWorld(folder, server, client)
        try:
            yield world
        finally:
            await world.by.close()
