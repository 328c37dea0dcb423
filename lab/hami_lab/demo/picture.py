"""A cluster's pods and devices, recounted from its objects alone, not from the service's books."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hami.domain.devices import Usage
from hami.domain.kubernetes.objects import Node
from hami.domain.profile import VendorProfile
from hami.policy.pods.accounting import account_of
from hami.policy.tables.cluster_table import ClusterTable
from hami.simulate.result import DeniedPod, NodeDevice, PlacedPod, Simulation, UnplacedPod
from hami.vendors.registry import Vendors
from hami_lab.live import LivePod

DeviceKey = tuple[str, str]
"""Node and device id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Objects as the API server has them."""

    nodes: Iterable[Node]
    pods: Iterable[LivePod]
    denied: Iterable[DeniedPod] = ()


def picture(cluster: Cluster, vendors: Vendors) -> Simulation:
    """Who runs where, who waits and why, and what is used of each device."""
    table = ClusterTable(vendors, alive=_always)
    nodes = list(cluster.nodes)
    warnings = [
        f"Node {node.name}: {problem}" for node in nodes for problem in table.set_node(node)
    ]
    placed: list[PlacedPod] = []
    pending: list[UnplacedPod] = []
    without_devices = 0
    for pod in cluster.pods:
        if pod.finished:
            continue
        if not pod.spec.node_name:
            pending.append(UnplacedPod(pod=pod, reasons={}, message=_waits(pod)))
            continue
        account = account_of(pod, vendors)
        if account is None:
            without_devices += 1
            continue
        warnings += account.problems
        table.charge(pod.uid, account.allocation, account.unknown, init_ended=account.init_ended)
        placed.append(PlacedPod(pod=pod, allocation=account.allocation))
    return Simulation(
        placed=tuple(placed),
        pending=tuple(pending),
        denied=tuple(cluster.denied),
        devices=tuple(
            NodeDevice(node=node.name, state=state)
            for node in nodes
            for key in vendors
            for state in table.device_states(node.name, key)
        ),
        without_devices=without_devices,
        warnings=tuple(warnings),
    )


def usages(simulation: Simulation) -> Mapping[DeviceKey, Usage]:
    """What is used of each device."""
    return {(one.node, one.state.device.id): one.state.usage for one in simulation.devices}


def overcommitted(simulation: Simulation) -> list[str]:
    """Devices that give more than they have; there must be none."""
    return [
        f"{one.state.device.id} on {one.node}: {one.state.usage} of {one.capacity}"
        for one in simulation.devices
        if (one.capacity - one.state.usage).negative
    ]


def _waits(pod: LivePod) -> str:
    condition = pod.condition("PodScheduled")
    return condition.message if condition else ""


def _always(_profile: VendorProfile, _node: Node) -> bool:
    return True
