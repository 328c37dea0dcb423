"""Builders of nodes, pods and a state of the service, for cases about one thing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from hami.domain.devices import Device
from hami.domain.kubernetes.objects import (
    CompositeElasticQuota,
    CompositeElasticQuotaSpec,
    Container,
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    ElasticQuota,
    ElasticQuotaSpec,
    Metadata,
    Node,
    NodeStatus,
    Pod,
    PodSpec,
    PodStatus,
    QuotaTree,
    ResourceQuota,
    ResourceQuotaSpec,
    Resources,
    SecurityContext,
)
from hami.domain.scheduling import SchedulingPolicy
from hami.domain.units import CorePercent, DeviceId, MemoryMiB, PodUid, VendorKey
from hami.policy.pods.pod_request import parse_pod
from hami.policy.profile.profile_vendor import ProfileVendor
from hami.policy.quota.elastic import Options
from hami.scheduler.bookings.deps import SchedulerDeps
from hami.scheduler.bookings.lock_book import needs_lock
from hami.scheduler.bookings.problems import Problem
from hami.scheduler.bookings.state import ClusterState
from hami.scheduler.events import RoomInQuota, UsageChanged, on
from hami.signing import Signer
from hami.vendors.registry import Vendors
from hami.wire.codecs import encode_register_json

PROFILE = """
profiles:
- key: ACME
  resources: {count: acme.com/gpu, memory: acme.com/mem, memory_percentage: acme.com/mem-percent,
              cores: acme.com/cores}
  node_annotations: {register: acme.com/register}
  pod_annotations: {to_allocate: acme.com/to-allocate, allocated: acme.com/allocated}
"""


def acme() -> Vendors:
    return Vendors.of({"acme": ProfileVendor(PROFILE)})


def a_node(name: str = "n1", *, devices: int = 1, memory: int = 8000, models: Sequence[str] = (),
           **annotations: str) -> Node:  # fmt: skip
    """A node with one device for each of ``models``."""
    held = [
        Device(
            id=DeviceId(f"{name}-d{index}"),
            vendor=VendorKey("ACME"),
            index=index,
            model=models[index] if models else "ACME One",
            memory_mib=MemoryMiB(memory),
            cores=CorePercent(100),
            slots=10,
        )
        for index in range(devices)
    ]
    register = {"acme.com/register": encode_register_json(held)}
    return Node(
        metadata=Metadata(name=name, uid=PodUid(f"uid-{name}"), annotations=register | annotations),
        status=NodeStatus(allocatable={"acme.com/gpu": str(10 * devices)}),
    )


def a_pod(name: str = "p", *, mem: int | None = 1000, gpu: int = 1, namespace: str = "default",
          init_mem: int | None = None, priority: int | None = None, created: str = "",
          node: str = "", annotations: Mapping[str, str] | None = None, uid: str = "",
          phase: str = "Pending", init_ended: bool = False, cores: int = 0) -> Pod:  # fmt: skip
    """A pod that asks ACME for ``gpu`` slices of ``mem`` MiB; with None it asks for nothing."""
    statuses = None
    if init_ended:
        ended = ContainerState(terminated=ContainerStateTerminated(exit_code=0))
        statuses = [ContainerStatus(name="init", state=ended)]
    init = [_container("init", init_mem, gpu)] if init_mem is not None else None
    return Pod(
        metadata=Metadata(
            name=name, namespace=namespace, uid=PodUid(uid or f"uid-{namespace}-{name}"),
            creation_timestamp=created or None, annotations=dict(annotations or {}),
        ),
        spec=PodSpec(
            containers=[_container("main", mem, gpu, cores)], init_containers=init,
            scheduler_name="hami-scheduler", node_name=node, priority=priority,
        ),
        status=PodStatus(phase=phase, init_container_statuses=statuses),
    )  # fmt: skip


def _container(name: str, mem: int | None, gpu: int, cores: int = 0) -> Container:
    limits = {} if mem is None else {"acme.com/gpu": str(gpu), "acme.com/mem": str(mem)}
    if cores:
        limits["acme.com/cores"] = str(cores)
    return Container(name=name, resources=Resources(limits=limits))


def granted(pod: Pod, node: str, *slots: str) -> Pod:
    """The pod bound with these slots (``device:MiB``), one per container."""
    text = "".join(
        f"{slot.split(':')[0]},ACME,{slot.split(':')[1]},0:;" if slot else ";" for slot in slots
    )
    return bound(pod, node, {"acme.com/allocated": text})


def bound(pod: Pod, node: str, annotations: Mapping[str, str]) -> Pod:
    metadata = msgspec.structs.replace(pod.metadata, annotations={**pod.annotations, **annotations})
    spec = msgspec.structs.replace(pod.spec, node_name=node)
    return msgspec.structs.replace(pod, metadata=metadata, spec=spec)


def ended(pod: Pod, phase: str = "Succeeded") -> Pod:
    return msgspec.structs.replace(pod, status=PodStatus(phase=phase))


def privileged(pod: Pod) -> Pod:
    """The pod with an additional privileged container."""
    helper = Container(name="helper", security_context=SecurityContext(privileged=True))
    spec = msgspec.structs.replace(pod.spec, containers=[*pod.spec.containers, helper])
    return msgspec.structs.replace(pod, spec=spec)


def debugged(pod: Pod) -> Pod:
    """The pod with a privileged ephemeral container."""
    debugger = Container(name="debugger", security_context=SecurityContext(privileged=True))
    spec = msgspec.structs.replace(pod.spec, ephemeral_containers=[debugger])
    return msgspec.structs.replace(pod, spec=spec)


def a_quota(name: str = "q", *, namespace: str = "default", **hard: str) -> ResourceQuota:
    keys = {f"limits.acme.com/{key}": text for key, text in hard.items()}
    metadata = Metadata(name=name, namespace=namespace)
    return ResourceQuota(metadata=metadata, spec=ResourceQuotaSpec(hard=keys))


def an_elastic_quota(namespace: str, least: int, most: int | None = None, *namespaces: str,
                     name: str = "quota", parent: str = "", resource: str = "acme.com/mem"
                     ) -> ElasticQuota | CompositeElasticQuota:  # fmt: skip
    """A quota of MiB of ACME's memory; a composite when it names namespaces."""
    labels = {"quota.hami.io/parent": parent} if parent else None
    about = Metadata(name=name, namespace=namespace, labels=labels)
    low, high = {resource: str(least)}, None if most is None else {resource: str(most)}
    if namespaces:
        composite = CompositeElasticQuotaSpec(namespaces=list(namespaces), min=low, max=high)
        return CompositeElasticQuota(metadata=about, spec=composite)
    return ElasticQuota(metadata=about, spec=ElasticQuotaSpec(min=low, max=high))


class Clock:
    """A clock that moves only when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Cluster:
    """A state with short ways to change and ask it."""

    def __init__(
        self, *nodes: Node, signer: Signer | None = None, vendors: Vendors | None = None,
        options: Options | None = None,
    ):  # fmt: skip
        self.clock = Clock()
        self.problems: list[Problem] = []
        self.signer = signer or Signer.none()
        self.locked = False
        """Nodes need the locks that their vendors' profiles say."""
        self.room_in: list[str] = []
        """Namespaces whose quotas came to admit more, one after the other."""
        self._told: list[Callable[[str], None]] = []
        deps = SchedulerDeps(
            clock=self.clock,
            alive=lambda _profile, _node: True,
            signer=lambda: self.signer,
            report=self.problems.append,
            bind_seen=lambda _seconds: None,
            scheduler_name=lambda: "hami-scheduler",
            needs_lock=lambda node, profile: needs_lock(node, profile) if self.locked else "",
        )
        self.state = ClusterState(
            vendors or acme(), deps, options,
            [on(self._usage_changed, UsageChanged), on(self._room_in_quota, RoomInQuota)],
        )  # fmt: skip
        self.state.pending.following = False
        for node in nodes:
            self.state.node_changed(node)

    def _usage_changed(self, event: UsageChanged) -> None:
        for tell in self._told:
            tell(event.namespace)

    def _room_in_quota(self, event: RoomInQuota) -> None:
        self.room_in.append(event.namespace)

    def on_usage(self, tell: Callable[[str], None]) -> None:
        """``tell`` is told the namespace whose usage has changed, as the service does it."""
        self._told.append(tell)

    def sees(self, *pods: Pod) -> None:
        for pod in pods:
            self.state.pod_changed(pod)
        for about in list(self.state.bound.unjudged.values()):
            self.state.bound.judged(
                about, self.signer.verify(about.uid, about.account.allocation, about.text)
            )

    def limits(self, *quotas: ElasticQuota | CompositeElasticQuota | QuotaTree) -> None:
        """Set all elastic quotas at once."""
        for quota in quotas:
            self.state.elastic.put(quota)
        self.state.quota_objects.arrange()

    def reserve(self, pod: Pod, *candidates: str) -> Any:
        request = parse_pod(pod, self.state.vendors, SchedulingPolicy())
        names = list(candidates) or list(self.state.nodes)
        return self.state.bookings.reserve(request, names)  # type: ignore[arg-type]

    def used(self, node: str = "n1", index: int = 0) -> tuple[int, int]:
        """Slots and MiB in use on a device."""
        state = self.state.table.device_states(node, VendorKey("ACME"))[index]
        return state.usage.slots, state.usage.memory_mib

    def at_worst(self, node: str = "n1", index: int = 0) -> tuple[int, int]:
        """The same with unreadable pods' possible usage, which is what a new pod finds."""
        state = self.state.table.devices(node).states[VendorKey("ACME")][index]
        return state.usage.slots, state.usage.memory_mib

    def known(self, node: str = "n1", index: int = 0) -> bool:
        return self.state.table.device_states(node, VendorKey("ACME"))[index].known
