"""What kube-scheduler knows of the cluster, and the nodes that its filters leave for a pod."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from hami.domain.kubernetes.objects import Node, Pod
from hami.domain.units import PodUid
from hami.simulate.kube_filter import KubeFilter
from hami_lab.kube_scheduler.capacity import Amounts, NodeCapacity, requested

_ALWAYS_LOOK_AT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Feasible:
    """Nodes that may take the pod, and why not the others that were looked at."""

    names: Sequence[str]
    refused: Mapping[str, Sequence[str]]


class ClusterView:
    """Nodes, and the pods on them: those that the API server shows and those assumed."""

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._capacities: dict[str, NodeCapacity] = {}
        self._places: dict[PodUid, str] = {}
        self._filter: KubeFilter | None = None
        self._next = 0

    def __len__(self) -> int:
        return len(self._nodes)

    def set_node(self, node: Node) -> bool:
        """Whether this may let a waiting pod fit; a heartbeat does not."""
        old = self._nodes.get(node.name)
        self._nodes[node.name] = node
        self._capacity(node.name).set_node(node)
        if old is None or (old.labels, old.spec) != (node.labels, node.spec):
            self._filter = None
            return True
        return (old.annotations, old.allocatable) != (node.annotations, node.allocatable)

    def remove_node(self, name: str) -> None:
        self._filter = None
        if self._nodes.pop(name, None) and self._capacities[name].empty:
            del self._capacities[name]

    def charge(self, pod: Pod, node: str) -> None:
        """The pod is on this node, or will be."""
        if self._places.get(pod.uid) == node:
            return
        self.release(pod.uid)
        self._places[pod.uid] = node
        self._capacity(node).charge(pod)

    def release(self, uid: PodUid) -> bool:
        """Whether it held anything."""
        node = self._places.pop(uid, None)
        if node is None:
            return False
        self._capacities[node].release(uid)
        if node not in self._nodes and self._capacities[node].empty:
            del self._capacities[node]
        return True

    def feasible(self, pod: Pod, ignored: Container[str], percentage: int) -> Feasible:
        """The nodes that pass; not more than kube-scheduler would look for.

        ``ignored`` are resources that some extender manages; ``percentage`` is
        ``percentageOfNodesToScore``, 0 for kube-scheduler's own choice.
        """
        if self._filter is None:
            self._filter = KubeFilter(list(self._nodes.values()))
        by_kube = self._filter.candidates(pod)
        asked = requested(pod)
        names = list(self._nodes)
        enough = _enough(len(names), percentage)
        start = self._next % len(names) if names else 0
        found: list[str] = []
        refused: dict[str, Sequence[str]] = {}
        for name in (*names[start:], *names[:start]):
            if (reason := by_kube.refused.get(name)) is not None:
                refused[name] = [reason]
            elif lacking := self._capacities[name].lacks(asked, ignored):
                refused[name] = lacking
            else:
                found.append(name)
            if len(found) == enough:
                break
        self._next = start + len(found) + len(refused)
        return Feasible(names=found, refused=refused)

    def best(self, pod: Pod, names: Sequence[str]) -> str:
        """The least allocated of these nodes; the first name among equals."""
        asked = requested(pod)
        return min(names, key=lambda name: (self._share(name, asked), name))

    def _share(self, name: str, asked: Amounts) -> float:
        capacity = self._capacities.get(name)
        return capacity.share(asked) if capacity else 1.0

    def _capacity(self, name: str) -> NodeCapacity:
        return self._capacities.setdefault(name, NodeCapacity())


def _enough(nodes: int, percentage: int) -> int:
    """kube-scheduler's numFeasibleNodesToFind."""
    if nodes < _ALWAYS_LOOK_AT or percentage >= 100:
        return nodes
    share = percentage or max(5, 50 - nodes // 125)
    return max(_ALWAYS_LOOK_AT, nodes * share // 100)
