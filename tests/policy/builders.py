"""Builders of vendors, devices, pods and clusters, for cases that are about one thing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hami.domain.allocations import ContainerAllocation, ContainerKind, PodAllocation
from hami.domain.devices import Device, DeviceState, Grant, Usage
from hami.domain.kubernetes.objects import (
    Container,
    Metadata,
    Node,
    NodeStatus,
    Pod,
    PodSpec,
    ResourceQuota,
    ResourceQuotaSpec,
    Resources,
)
from hami.domain.requests import DeviceRequest, FitContext, Invalid, PodRequest
from hami.domain.scheduling import DevicePolicy, NodePolicy, SchedulingPolicy
from hami.policy.filter.decision import Placed, Refused, decide
from hami.policy.pods.pod_request import parse_pod
from hami.policy.profile.profile_vendor import ProfileVendor
from hami.policy.quota import QuotaLedger
from hami.policy.tables.cluster_table import ClusterTable
from hami.vendors.registry import Vendors
from hami.wire.codecs import encode_register_json

ACME_YAML = """
profiles:
- key: ACME
  resources: {count: acme.com/gpu, memory: acme.com/mem, memory_percentage: acme.com/mem-percent,
              cores: acme.com/cores}
  node_annotations: {register: acme.com/register}
  pod_annotations:
    to_allocate: acme.com/to-allocate
    allocated: acme.com/allocated
    use_type: [acme.com/use-type]
    nouse_type: [acme.com/nouse-type]
    use_uuid: [acme.com/use-uuid]
    nouse_uuid: [acme.com/nouse-uuid]
    numa_bind: acme.com/numa-bind
    mode: acme.com/mode
"""
BOLT_YAML = """
profiles:
- key: BOLT
  resources: {count: bolt.io/npu, memory: bolt.io/mem, cores: bolt.io/cores}
  memory_factor: 256
  default_cores: 100
  node_annotations: {register: bolt.io/register}
  pod_annotations: {allocated: bolt.io/allocated}
- key: WHOLE
  resources: {count: whole.io/card}
  whole_device: true
  node_annotations: {register: whole.io/register}
  pod_annotations: {allocated: whole.io/allocated}
"""
SHORT = {
    "gpu": "acme.com/gpu",
    "mem": "acme.com/mem",
    "pct": "acme.com/mem-percent",
    "cores": "acme.com/cores",
    "npu": "bolt.io/npu",
    "npumem": "bolt.io/mem",
    "npucores": "bolt.io/cores",
    "card": "whole.io/card",
}
REGISTERS = {"ACME": "acme.com/register", "BOLT": "bolt.io/register", "WHOLE": "whole.io/register"}


def the_vendors(**more: object) -> Vendors:
    """ACME (percentages, NUMA, selection), BOLT (256 MiB units) and WHOLE (whole devices)."""
    return Vendors.of({"acme": ProfileVendor(ACME_YAML), "bolt": ProfileVendor(BOLT_YAML), **more})


def a_device(id: str = "d0", *, memory: int = 8000, cores: int = 100, slots: int = 10,
             numa: int = 0, index: int = 0, model: str = "ACME One", mode: str = "",
             healthy: bool = True, vendor: str = "ACME") -> Device:  # fmt: skip
    return Device(id=id, vendor=vendor, index=index, model=model, slots=slots, memory_mib=memory,
                  cores=cores, numa=numa, mode=mode, healthy=healthy)  # fmt: skip


def used(memory: int = 0, cores: int = 0, slots: int = 1) -> Usage:
    return Usage(slots, memory, cores)


def a_state(device: Device | str = "d0", usage: Usage | None = None, **fields: Any) -> DeviceState:
    built = device if isinstance(device, Device) else a_device(device, **fields)
    return DeviceState(built, usage or Usage())


def a_request(count: int = 1, *, memory: int | None = None, percent: int | None = None,
              cores: int = 0, exclusive: bool = False, vendor: str = "ACME") -> DeviceRequest:  # fmt: skip
    if memory is None and percent is None:
        percent = 100
    return DeviceRequest(vendor=vendor, count=count, memory_mib=memory, memory_percent=percent,
                         cores=cores, exclusive=exclusive)  # fmt: skip


def a_policy(device: str | DevicePolicy = "spread", node: str = "binpack") -> SchedulingPolicy:
    from hami.policy.fit.rank import device_policy

    read = device if isinstance(device, DevicePolicy) else device_policy(device)
    return SchedulingPolicy(node=NodePolicy(node), device=read)


def a_context(annotations: Mapping[str, str] | None = None, *, policy: SchedulingPolicy | None = None,
              node: Mapping[str, str] | None = None, allowed: Any = None) -> FitContext:  # fmt: skip
    pod = a_pod(annotations=annotations)
    extra = {"allowed": allowed} if allowed else {}
    return FitContext(pod=pod, container=pod.spec.containers[0], policy=policy or a_policy(),
                      node=Node(metadata=Metadata(name="n1", annotations=dict(node or {}))),
                      **extra)  # fmt: skip


def a_container(name: str = "c", *, restart: str | None = None, **asks: object) -> Container:
    limits = {SHORT[key]: str(value) for key, value in asks.items()}
    return Container(name=name, resources=Resources(limits=limits), restart_policy=restart)


def a_pod(name: str = "p", *containers: Container, init: Iterable[Container] = (),
          annotations: Mapping[str, str] | None = None, namespace: str = "default",
          **asks: object) -> Pod:  # fmt: skip
    apps = list(containers) or [a_container(**asks)]
    return Pod(
        metadata=Metadata(name=name, namespace=namespace, uid=f"uid-{namespace}-{name}",
                          annotations=dict(annotations or {})),
        spec=PodSpec(containers=apps, init_containers=list(init) or None),
    )  # fmt: skip


def a_node(name: str, *devices: Device, annotations: Mapping[str, str] | None = None,
           allocatable: Mapping[str, str] | None = None) -> Node:  # fmt: skip
    published = {
        REGISTERS[vendor]: encode_register_json([d for d in devices if d.vendor == vendor])
        for vendor in {device.vendor for device in devices}
    }
    status = NodeStatus(allocatable=dict(allocatable)) if allocatable is not None else None
    return Node(metadata=Metadata(name=name, annotations=published | dict(annotations or {})),
                status=status)  # fmt: skip


def a_quota(name: str = "q", *, namespace: str = "default", **hard: object) -> ResourceQuota:
    limits = {f"limits.{SHORT[key]}": str(value) for key, value in hard.items()}
    return ResourceQuota(metadata=Metadata(name=name, namespace=namespace),
                         spec=ResourceQuotaSpec(hard=limits))  # fmt: skip


def an_allocation(node: str, *grants: Grant, kind: ContainerKind = ContainerKind.APP) -> PodAllocation:  # fmt: skip
    container = ContainerAllocation(name="c", kind=kind, grants=grants)
    return PodAllocation(node=node, containers=(container,))


def a_grant(device: str = "d0", *, memory: int = 0, cores: int = 0, vendor: str = "ACME") -> Grant:
    return Grant(device_id=device, vendor=vendor, memory_mib=memory, cores=cores)


class Cluster:
    """A table, a ledger, and what a scheduler does with both, in one turn."""

    def __init__(self, *nodes: Node, vendors: Vendors | None = None, **defaults: str) -> None:
        self.vendors = vendors or the_vendors()
        self.table = ClusterTable(self.vendors)
        self.ledger = QuotaLedger(self.vendors)
        self.defaults = a_policy(defaults.get("device", "spread"), defaults.get("node", "binpack"))
        for node in nodes:
            assert self.table.set_node(node) == ()

    def parse(self, pod: Pod) -> PodRequest:
        request = parse_pod(pod, self.vendors, self.defaults)
        assert not isinstance(request, Invalid), request
        return request

    def try_pod(
        self, pod: Pod, candidates: Iterable[str] | None = None, **more: Any
    ) -> Placed | Refused:
        names = list(self.table.node_names if candidates is None else candidates)
        return decide(self.table, self.parse(pod), self.ledger.gate(pod), names, **more)

    def run(self, pod: Pod, candidates: Iterable[str] | None = None) -> PodAllocation | Refused:
        """Place and charge a pod, as a scheduler would."""
        outcome = self.try_pod(pod, candidates)
        if isinstance(outcome, Refused):
            return outcome
        assert not self.ledger.reserve(pod, outcome.allocation)
        self.table.charge(pod.uid, outcome.allocation)
        return outcome.allocation

    def delete(self, pod: Pod) -> None:
        self.table.release(pod.uid)
        self.ledger.release(pod.uid)

    def usage(self, node: str, vendor: str = "ACME") -> dict[str, Usage]:
        return {s.device.id: s.usage for s in self.table.device_states(node, vendor)}


def where(allocation: PodAllocation | Placed | Refused) -> tuple[str, list[list[str]]]:
    """The node, and the device ids of each container."""
    assert not isinstance(allocation, Refused), texts(allocation)
    found = allocation.allocation if isinstance(allocation, Placed) else allocation
    return found.node, [[g.device_id for g in c.grants] for c in found.containers]


def texts(outcome: object) -> dict[str, str]:
    assert isinstance(outcome, Refused), outcome
    return {node: str(rejected) for node, rejected in outcome.reasons.items()}
