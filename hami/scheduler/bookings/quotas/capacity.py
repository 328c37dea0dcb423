"""What the whole cluster has, in the units of elastic quotas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hami.domain.kubernetes.objects import Node
from hami.domain.kubernetes.quantity import BadQuantity
from hami.policy.quota.elastic import GPU_MEMORY, MIB_PER_GB, Amounts, Units
from hami.policy.tables.cluster_table import ClusterTable


def capacity_of(table: ClusterTable, nodes: Iterable[Node], units: Units) -> Amounts:
    """Every node's allocatable resources, and of the vendors' what its healthy devices have."""
    total: Counter[str] = Counter()
    for node in nodes:
        add_node(total, table, node, units)
    return total


def add_node(total: Counter[str], table: ClusterTable, node: Node, units: Units) -> None:
    for resource, text in (node.allocatable or {}).items():
        amount = units.request(resource, text)
        if resource not in units.managed and not isinstance(amount, BadQuantity):
            total[resource] += amount
    for device, _ in table.inventory(node.name):
        names = table.vendors[device.vendor].profile.resources
        if device.healthy:
            total[names.count] += device.slots
            total[names.memory] += device.memory_mib
            total[names.cores] += device.cores
            total[GPU_MEMORY] += device.memory_mib // MIB_PER_GB
    total.pop("", None)
