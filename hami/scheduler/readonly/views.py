"""From the state to the read-only API's shapes; each function runs in one turn of the loop."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, TypeVar, assert_never

from hami.domain.allocations import PodAllocation
from hami.domain.devices import Device, DeviceState, Usage
from hami.domain.kubernetes.objects import Pod, ResourceQuota
from hami.policy.fit.selection import cordoned_ids
from hami.policy.quota.constraint import PREFIX
from hami.scheduler.bookings.reservations import Phase
from hami.scheduler.bookings.state import ClusterState
from hami.scheduler.pending.equivalence import PendingPod
from hami.scheduler.readonly.models import (
    Amount,
    ContainerView,
    CountedByKubernetes,
    DeviceView,
    GrantView,
    NodeDetail,
    NodeView,
    PodPhase,
    PodView,
    QuotaAmount,
    QuotaView,
    RefusedNodes,
    VendorSummary,
    WhyView,
)

_REQUESTS = "requests."

A = TypeVar("A", bound=Amount)


def node_view(state: ClusterState, name: str) -> NodeView | None:
    """The node's shape; None for a node that is gone."""
    fields = _node_fields(state, name)
    return None if fields is None else NodeView(**fields)


def node_detail(state: ClusterState, name: str) -> NodeDetail | None:
    fields = _node_fields(state, name)
    if fields is None:
        return None
    pods = PodsOfDevices()
    for pod, allocation in holders(state, {name}):
        pods.add(pod, allocation)
    inventory = [pods.shown(device) for device in device_views(state, name)]
    return NodeDetail(**fields, inventory=inventory)


class PodsOfDevices:
    """The pods that hold a part of each device."""

    def __init__(self) -> None:
        self._pods: dict[tuple[str, str, str], list[str]] = {}

    def add(self, pod: Pod, allocation: PodAllocation) -> None:
        """Add the devices of one pod of :func:`holders`."""
        for grant in dict.fromkeys((one.vendor, one.device_id) for one in allocation.grants):
            self._pods.setdefault((allocation.node, *grant), []).append(pod.full_name)

    def shown(self, device: DeviceView) -> DeviceView:
        """The device with its pods."""
        pods = self._pods.get((device.node, device.vendor, device.id), ())
        return device.model_copy(update={"pods": sorted(pods)})


def _node_fields(state: ClusterState, name: str) -> dict[str, Any] | None:
    node = state.nodes.get(name)
    if node is None:
        return None
    by_vendor: dict[str, list[tuple[Device, Usage]]] = {}
    for device, usage in state.table.inventory(name):
        by_vendor.setdefault(device.vendor, []).append((device, usage))
    return {
        "name": name,
        "unschedulable": bool(node.spec and node.spec.unschedulable),
        "devices": sum(map(len, by_vendor.values())),
        "vendors": {vendor: amount_of(Amount, held) for vendor, held in by_vendor.items()},
    }


def amount_of(shape: Callable[..., A], held: Iterable[tuple[Device, Usage]], **fields: Any) -> A:
    """The sums over some devices."""
    slots = memory = cores = used_slots = used_memory = used_cores = 0
    for device, usage in held:
        slots += device.slots
        memory += device.memory_mib
        cores += device.cores
        used_slots += usage.slots
        used_memory += usage.memory_mib
        used_cores += usage.cores
    return shape(
        slots=slots,
        memory_mib=memory,
        cores=cores,
        used_slots=used_slots,
        used_memory_mib=used_memory,
        used_cores=used_cores,
        **fields,
    )


def vendor_summary(held: Sequence[tuple[Device, Usage]]) -> VendorSummary:
    healthy = sum(device.healthy for device, _ in held)
    return amount_of(VendorSummary, held, devices=len(held), healthy=healthy)


def device_views(state: ClusterState, name: str, vendor: str = "") -> Sequence[DeviceView]:
    """A node's devices by vendor and index; empty for a node that is gone."""
    node = state.nodes.get(name)
    if node is None:
        return []
    views = []
    for profile in state.vendors.profiles:
        if vendor in ("", profile.key):
            cordoned = cordoned_ids(profile, node.annotations)
            states = state.table.device_states(name, profile.key)
            views += [_device_view(name, held, held.device.id in cordoned) for held in states]
    return views


def _device_view(node: str, held: DeviceState, cordoned: bool) -> DeviceView:  # noqa: FBT001 -- a field's value
    device = held.device
    return amount_of(
        DeviceView,
        [(device, held.usage)],
        node=node,
        id=device.id,
        vendor=device.vendor,
        index=device.index,
        model=device.model,
        mode=device.mode,
        numa=device.numa,
        healthy=device.healthy,
        cordoned=cordoned,
        known=held.known,
    )


# Pods.


def holders(state: ClusterState, nodes: Container[str]) -> Iterator[tuple[Pod, PodAllocation]]:
    """The pods that hold devices on these nodes when the iteration begins, and what they hold."""
    reservations, charges = list(state.reservations.values()), list(state.charges.values())
    for reservation in reservations:
        if reservation.allocation.node in nodes:
            yield reservation.pod, reservation.allocation
    for charge in charges:
        if charge.account.allocation.node in nodes:
            yield charge.pod, charge.account.running


def standing(state: ClusterState, pod: Pod) -> tuple[PodPhase, PodAllocation | None] | None:
    """A pod's phase and what it holds; None for a pod that neither holds nor waits for devices."""
    if (charge := state.charges.get(pod.uid)) is not None:
        return "bound", charge.account.running
    if (reservation := state.reservations.get(pod.uid)) is not None:
        return _phase_word(reservation.phase), reservation.allocation
    return ("waiting", None) if pod.uid in state.pending.pods else None


def _phase_word(phase: Phase) -> PodPhase:
    match phase:
        case Phase.RESERVED:
            return "reserved"
        case Phase.BINDING:
            return "binding"
        case Phase.BOUND:
            return "bound"
        case _:
            assert_never(phase)


def pod_view(pod: Pod, phase: PodPhase, allocation: PodAllocation | None) -> PodView:
    return PodView(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        phase=phase,
        node=allocation.node if allocation else "",
        containers=container_views(allocation),
    )


def container_views(allocation: PodAllocation | None) -> Sequence[ContainerView]:
    return [
        ContainerView(
            name=container.name,
            kind=container.kind.value,
            devices=[
                GrantView(
                    id=grant.device_id,
                    vendor=grant.vendor,
                    memory_mib=grant.memory_mib,
                    cores=grant.cores,
                    extra=grant.extra.encode(),
                )
                for grant in container.grants
            ],
        )
        for container in (allocation.containers if allocation else ())
    ]


# Why.


def why_view(state: ClusterState, pod: Pod) -> WhyView:
    """Where the pod stands, and why it waits if it does."""
    found = standing(state, pod)
    if found is None:
        phase, message = _not_ours(state, pod)
        return _why(pod, phase, message, node=pod.spec.node_name)
    phase, allocation = found
    if allocation is None:
        return _why_waiting(state, state.pending.pods[pod.uid])
    node = allocation.node
    charge = state.charges.get(pod.uid)
    return _why(
        pod,
        phase,
        _MESSAGES[phase].format(node=node),
        node=node,
        containers=container_views(allocation),
        problems=charge.account.problems if charge else (),
    )


_MESSAGES: Mapping[str, str] = MappingProxyType(
    {
        "reserved": "it has a place on node {node}; kube-scheduler is about to bind it",
        "binding": "it is being bound to node {node}",
        "bound": "it is bound to node {node}",
    }
)


def _why(pod: Pod, phase: str, message: str, **fields: Any) -> WhyView:
    known = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
    return WhyView.model_validate({**known, "phase": phase, "message": message, **fields})


def _not_ours(state: ClusterState, pod: Pod) -> tuple[str, str]:
    if pod.finished:
        return "ended", "it has ended and holds nothing any more"
    if not state.pending.asks(pod):
        return "unmanaged", "it asks for no device that a vendor manages here"
    wanted, ours = pod.spec.scheduler_name, state.pending.scheduler_name
    if not pod.spec.node_name and ours and wanted != ours:
        return "unmanaged", f"its scheduler is {wanted!r}, not {ours!r}: the webhook did not see it"
    return "unmanaged", "its device requests cannot be read, so it is charged with nothing"


def _why_waiting(state: ClusterState, waiting: PendingPod) -> WhyView:
    pod = waiting.pod
    quotas = [
        quota_view(state, state.quotas[key])
        for constraint in state.ledger.constraints_of(pod.namespace)
        if (key := (constraint.namespace, constraint.name)) in state.quotas
    ]
    if waiting.why is None:
        gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates or ())
        message = "kube-scheduler has not offered it any node since this replica leads"
        if gates:
            message = f"kube-scheduler does not try it while it has scheduling gates: {gates}"
        return _why(pod, "waiting", message, quotas=quotas)
    why = waiting.why
    return _why(
        pod,
        "waiting",
        why.message,
        at=datetime.fromtimestamp(waiting.refused_at, UTC).isoformat(timespec="seconds"),
        woken=waiting.woken_at is not None,
        reasons=[
            RefusedNodes(reason=said.reason, nodes=said.nodes, examples=said.examples)
            for said in why.reasons
        ],
        details=why.details,
        quotas=quotas,
    )


# Quota.


def quota_view(state: ClusterState, quota: ResourceQuota) -> QuotaView:
    held = state.ledger.constraints_of(quota.namespace)
    hard = next((constraint.limits for constraint in held if constraint.name == quota.name), {})
    used = state.ledger.used(quota.namespace, quota.name) if hard else {}
    limits = {
        PREFIX + resource: QuotaAmount(hard=limit, used=used[resource], left=limit - used[resource])
        for resource, limit in hard.items()
    }
    shown = (quota.status.used if quota.status else None) or {}
    counted = {
        key: CountedByKubernetes(hard=text, used=shown.get(key, ""))
        for key, text in (quota.spec.hard or {}).items()
        if key.startswith(_REQUESTS) and state.vendors.manages(key.removeprefix(_REQUESTS))
    }
    return QuotaView(
        namespace=quota.namespace, name=quota.name, limits=limits, counted_by_kubernetes=counted
    )
