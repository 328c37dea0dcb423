"""CPU, memory, pods and extended resources per node, as kube-scheduler's NodeResourcesFit counts.

The request of a pod is, per resource, the larger of: any plain init container with the sidecars
before it; all containers and sidecars together; plus the overhead.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from fractions import Fraction

from hami.domain.allocations import ContainerKind
from hami.domain.kubernetes import quantity
from hami.domain.kubernetes.objects import Node, Pod
from hami.domain.units import PodUid

_PODS = "pods"
_NONE = Fraction(0)
Amounts = Mapping[str, Fraction]


def requested(pod: Pod) -> Amounts:
    """What the pod asks of a node, by resource, in base units."""
    apps: dict[str, Fraction] = {}
    sidecars: dict[str, Fraction] = {}
    peak: dict[str, Fraction] = {}
    for container, kind in pod.each_container():
        asked = _amounts(container.limits) | _amounts(container.requests)
        match kind:
            case ContainerKind.APP:
                _add(apps, asked)
            case ContainerKind.SIDECAR:
                _add(sidecars, asked)
            case ContainerKind.INIT:
                for name, amount in asked.items():
                    at_once = amount + sidecars.get(name, _NONE)
                    peak[name] = max(peak.get(name, _NONE), at_once)
    _add(apps, sidecars)
    total = {name: max(apps.get(name, _NONE), peak.get(name, _NONE)) for name in apps | peak}
    _add(total, _amounts(pod.spec.overhead or {}))
    return {name: amount for name, amount in total.items() if amount}


def _add(into: dict[str, Fraction], more: Amounts) -> None:
    for name, amount in more.items():
        into[name] = into.get(name, _NONE) + amount


def _amounts(texts: Mapping[str, str]) -> dict[str, Fraction]:
    parsed = {name: quantity.parse(text) for name, text in texts.items()}
    return {n: q.value for n, q in parsed.items() if isinstance(q, quantity.Quantity)}


class NodeCapacity:
    """What one node has, and what its pods have taken."""

    def __init__(self) -> None:
        self._allocatable: Amounts = {}
        self._known = False
        self._pods: dict[PodUid, Amounts] = {}
        self._used: dict[str, Fraction] = {}

    @property
    def empty(self) -> bool:
        return not self._pods

    def set_node(self, node: Node) -> None:
        self._known = node.allocatable is not None
        self._allocatable = _amounts(node.allocatable or {})

    def charge(self, pod: Pod) -> None:
        if pod.uid not in self._pods:
            self._pods[pod.uid] = requested(pod)
            _add(self._used, self._pods[pod.uid])

    def release(self, uid: PodUid) -> None:
        _add(self._used, {name: -amount for name, amount in self._pods.pop(uid, {}).items()})

    def lacks(self, asked: Amounts, ignored: Container[str]) -> list[str]:
        """kube-scheduler's reasons, one per resource that does not suffice.

        A node that says nothing of its capacity is taken to suffice.
        """
        if not self._known:
            return []
        reasons = []
        if _PODS in self._allocatable and len(self._pods) >= self._allocatable[_PODS]:
            reasons.append("Too many pods")
        for name, amount in sorted(asked.items()):
            free = self._allocatable.get(name, _NONE) - self._used.get(name, _NONE)
            if amount > free and name not in ignored:
                reasons.append(f"Insufficient {name}")
        return reasons

    def share(self, asked: Amounts) -> float:
        """The mean share of CPU and memory that is in use with this pod; less is better."""
        shares = [
            float((self._used.get(name, _NONE) + asked.get(name, _NONE)) / whole)
            for name in ("cpu", "memory")
            if (whole := self._allocatable.get(name))
        ]
        return sum(shares) / len(shares) if shares else 0.0
