"""Parts of an agent without an API server and a kubelet, for cases about one part."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hami.blocking.threads import Threads
from hami.domain.allocations import ContainerAllocation, ContainerKind, PodAllocation
from hami.domain.devices import Device, Grant
from hami.domain.kubernetes.objects import Container, Metadata, PodSpec, Resources
from hami.domain.slices import ContainerEdits, HealthChange
from hami.domain.units import CorePercent, DeviceId, MemoryMiB, PodUid, VendorKey
from hami.hookspecs import hookimpl
from hami.kube.node_pod import NodePod, NodePodStatus
from hami.node.device.inventory import HookConfig
from hami.node.disk.cdi import CdiFolders
from hami.node.disk.store import SliceStore
from hami.node.kubelet.checkpoint import CheckpointEntry
from hami.node.pod.pods import Granted, Granting, NoPod
from hami.node.slice.agent_context import AgentContext
from hami.node.slice.live_slices import LiveSlices
from hami.policy.profile.profile_vendor import ProfileVendor
from hami.signing import Signer, new_private_pem
from hami.slices.cgroups import PodCgroups
from hami.slices.limits_page import PageLimits, read_page
from hami.vendors.registry import Vendors
from hami.wire import keys
from hami.wire.allocation import encode_allocation

NODE = "n1"
ACME = VendorKey("ACME")
COUNT = "acme.com/gpu"
KIND = "acme.hami.io/slice"
NOWHERE = NoPod("the API server is away", certain=False)
_PROFILE = """
profiles:
- key: ACME
  resources: {count: acme.com/gpu, memory: acme.com/mem, cores: acme.com/cores}
  node_annotations: {register: acme.com/register}
  pod_annotations: {to_allocate: acme.com/to-allocate, allocated: acme.com/allocated}
"""


def slice_id(number: int) -> str:
    return f"{number:024x}"


def a_device(id: str, *, memory: int = 8000, slots: int = 4, **fields: Any) -> Device:
    values = {"vendor": ACME, "slots": slots, "memory_mib": MemoryMiB(memory)} | fields
    return Device(id=DeviceId(id), **values)


def a_grant(device: str, memory: int = 1000, cores: int = 10, **fields: Any) -> Grant:
    return Grant(
        device_id=DeviceId(device),
        vendor=ACME,
        memory_mib=MemoryMiB(memory),
        cores=CorePercent(cores),
        **fields,
    )


class Hooks(ProfileVendor):
    """The vendor ACME; ``fails`` names hooks that raise, ``may_end`` lets the other hooks end."""

    def __init__(self) -> None:
        super().__init__(_PROFILE)
        self.fails: set[str] = set()
        self.calls: list[tuple[str, str]] = []
        self.found: Sequence[Device] = ()
        self.static: Mapping[str, Sequence[Device]] = {}
        self.changes: list[HealthChange] = []
        self.needs: tuple[str, ...] = ()
        self.may_end = threading.Event()
        self.may_end.set()

    def _called(self, hook: str, about: str = "") -> None:
        self.calls.append((hook, about))
        self.may_end.wait(20)
        if hook in self.fails:
            raise RuntimeError(f"{hook} does not work")

    def times(self, hook: str) -> int:
        return [name for name, _ in self.calls].count(hook)

    @hookimpl
    def hami_discover(self) -> Sequence[Device]:
        self._called("discover")
        return self.found

    @hookimpl
    def hami_static_devices(self) -> Mapping[str, Sequence[Device]]:
        return self.static

    @hookimpl
    def hami_static_edits(self, devices) -> ContainerEdits:
        self._called("static_edits")
        return ContainerEdits(env={"DEVICES": ",".join(device.id for device in devices)})

    @hookimpl
    def hami_check_health(self) -> Sequence[HealthChange]:
        self._called("check_health")
        changes, self.changes = self.changes, []
        return changes

    @hookimpl
    def hami_enforce(self, slice) -> ContainerEdits:
        self._called("enforce", slice.id)
        sizes = ",".join(str(grant.memory_mib) for grant in slice.grants)
        return ContainerEdits(env={"SIZES": sizes}, cdi_devices=self.needs)

    @hookimpl
    def hami_release(self, slice) -> None:
        self._called("release", slice.id)

    @hookimpl
    def hami_reconcile(self, live_slices) -> None:
        self._called("reconcile", ",".join(sorted(slice.id for slice in live_slices)))


class Pods:
    """A stand-in for the mirror; ``find`` answers NOWHERE while the API server is ``away``."""

    def __init__(self) -> None:
        self.by_uid: dict[PodUid, NodePod] = {}
        self.away = False
        self.synced = asyncio.Event()
        self.synced.set()

    def put(self, pod: NodePod) -> None:
        self.by_uid[pod.uid] = pod

    def get(self, uid: PodUid) -> NodePod | None:
        return self.by_uid.get(uid)

    def is_gone(self, uid: PodUid) -> bool:
        return not self.away and uid not in self.by_uid

    async def find(self, uid: PodUid) -> NodePod | NoPod:
        if self.away:
            return NOWHERE
        return self.by_uid.get(uid) or NoPod(f"no pod with UID {uid}", certain=True)


@dataclass
class Events:
    said: list[tuple[str, str, str]] = field(default_factory=list)

    def record(self, pod: NodePod, reason: str, message: str, *, warning: bool) -> None:
        self.said.append((pod.name, reason, message))


class Parts:
    """One of ACME's nodes, with the devices ``A``, ``B`` and ``C`` of 8000 MiB."""

    def __init__(self, folder: Path, *, unsigned: bool = False) -> None:
        self.folder = folder
        self.hooks = Hooks()
        self.vendors = Vendors.of({"acme": self.hooks})
        self.signer = Signer.from_pem(new_private_pem())
        self.pods, self.events = Pods(), Events()
        self.problems: list[str] = []
        self.devices = {id: a_device(id) for id in "ABC"}
        self.store = SliceStore(folder / "slices", ACME, tmpfs=False, selinux=False)
        self.folders = CdiFolders(folder / "cdi", [folder / "other"], vendor=ACME)
        for name in ("cdi", "other", "cgroup/kubepods"):
            (folder / name).mkdir(parents=True)
        self.granting = self.a_granting(unsigned=unsigned)
        self.around = AgentContext(
            vendor=self.vendors[ACME],
            kind=KIND,
            pods=self.pods,  # type: ignore[arg-type]
            granting=self.granting,
            slices=LiveSlices(),
            store=self.store,
            folders=self.folders,
            cgroups=PodCgroups(folder / "cgroup", self.problems.append),
            events=self.events,  # type: ignore[arg-type]
            hooks=Threads("hook"),
            pages=Threads("page"),
            disk=Threads("disk"),
            inventory=SimpleNamespace(devices=self.devices),  # type: ignore[arg-type]
            config=HookConfig({}),
        )

    def a_granting(self, *, unsigned: bool = False) -> Granting:
        return Granting(ACME, NODE, self.vendors, self, accept_unsigned=unsigned)

    def close(self) -> None:
        self.hooks.may_end.set()
        self.around.hooks.close()
        self.around.pages.close()
        self.around.disk.close()
        self.store.close()

    def pod(
        self, name: str = "p", *, generation: int = 1, sign: bool = True, phase: str = "Running",
        node: str = NODE, uid: str = "", init: Sequence[str] = (), cores_limit: int = 0, **grants: Sequence[Grant],
    ) -> NodePod:  # fmt: skip
        """A bound pod that the mirror knows: ``pod("p", main=[a_grant("A")])``."""
        grants = grants or {"main": [a_grant("A")]}
        allocation = PodAllocation(
            node=node,
            containers=tuple(
                ContainerAllocation(
                    name=container,
                    kind=ContainerKind.INIT if container in init else ContainerKind.APP,
                    grants=tuple(held),
                    cores_limit=cores_limit,
                )
                for container, held in sorted(grants.items(), key=lambda item: item[0] not in init)
            ),
        )
        written = encode_allocation(allocation, self.vendors.profiles)
        uid = PodUid(uid or f"uid-{name}")
        if sign:
            written[keys.ALLOCATION_SIGNATURE] = self.signer.sign(uid, allocation, generation)
        made = {name: _container(name, len(held)) for name, held in grants.items()}
        pod = NodePod(
            metadata=Metadata(name=name, namespace="team", uid=uid, annotations=written),
            spec=PodSpec(
                node_name=node,
                containers=[one for name, one in made.items() if name not in init],
                init_containers=[made[name] for name in init] or None,
            ),
            status=NodePodStatus(phase=phase),
        )
        self.pods.put(pod)
        return pod

    def granted(self, pod: NodePod, container: str = "main") -> Granted:
        granted = self.granting.granted(pod, container)
        assert isinstance(granted, Granted), granted
        return granted

    def page(self, slice_id: str) -> PageLimits:
        limits = read_page((self.store.state_dir(slice_id) / "limits").read_bytes())
        assert isinstance(limits, PageLimits), limits
        return limits

    def mib(self, slice_id: str) -> list[int]:
        return [device.memory_bytes >> 20 for device in self.page(slice_id).devices]


def an_entry(
    pod: NodePod | str, id: str = "", container: str = "main", *ids: str, **edits: Any
) -> CheckpointEntry:
    """An entry of kubelet's checkpoint; ``id`` is the slice that our answer named."""
    if id:
        edits["cdi_devices"] = (f"{KIND}={id}",)
    return CheckpointEntry(
        pod_uid=PodUid(pod if isinstance(pod, str) else pod.uid),
        container=container,
        resource=COUNT,
        ids=frozenset(ids or ("slot-0",)),
        edits=ContainerEdits(**edits),
    )


def _container(name: str, count: int) -> Container:
    return Container(name=name, resources=Resources(limits={COUNT: str(count)} if count else {}))


async def until(what: str, holds: Any, seconds: float = 10.0) -> None:
    end = asyncio.get_running_loop().time() + seconds
    while not holds():
        assert asyncio.get_running_loop().time() < end, f"not in time: {what}"
        await asyncio.sleep(0.01)
