"""Pods that wait for devices, and where capacity has come free since each was last refused.

kube-scheduler does not know that our state changed: a pod that we refused waits until something
touches it. What is kept here says which pods to touch, and no more than once per change.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from weakref import WeakValueDictionary

from hami.domain.objects import Pod
from hami.domain.units import PodUid
from hami.policy.filter import Refused
from hami.policy.names import NameBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a pod was refused last: ``at`` is unix time, ``outcome`` by node; or one text for all."""

    at: float
    outcome: Refused | None = None
    text: str = ""
    nodes: int = 0


@dataclass(slots=True, eq=False)
class Waiting:
    """An unbound pod that asks for devices.

    ``offered``: the nodes it was last filtered with; None when that is not known (after a restart,
    or while another replica led). ``seen`` is the last change of capacity that it was tried with,
    None for a new pod that is in kube-scheduler's hands anyway. ``woken_at`` is set from its
    wake-up until it is filtered again.
    """

    pod: Pod
    offered: frozenset[str] | None = None
    seen: int | None = None
    woken_at: float | None = None
    refusal: Refusal | None = None


class WaitingPods:
    """The waiting pods, and the changes of capacity they have not been tried with."""

    def __init__(self) -> None:
        self._pods: dict[PodUid, Waiting] = {}
        self._change = 0
        self._nodes: dict[str, int] = {}
        self._namespaces: dict[str, int] = {}
        self._everywhere = 0
        self._offers: WeakValueDictionary[tuple[int, int], frozenset[str]] = WeakValueDictionary()

    @property
    def pods(self) -> Mapping[PodUid, Waiting]:
        return self._pods

    # Who waits.

    def arrived(self, pod: Pod, *, known_before: bool) -> None:
        """A pod, or its change. ``known_before``: nobody knows whether it was refused already."""
        waiting = self._pods.get(pod.uid)
        if waiting is None:
            self._pods[pod.uid] = Waiting(pod, seen=0 if known_before else None)
        else:
            waiting.pod = pod

    def left(self, uid: PodUid) -> bool:
        """It is placed or gone; whether it had been woken. Idempotent."""
        waiting = self._pods.pop(uid, None)
        if not self._pods:
            self._nodes.clear()
            self._namespaces.clear()
        return waiting is not None and waiting.woken_at is not None

    def clear(self) -> None:
        self._pods.clear()

    def refused(self, pod: Pod, offered: Collection[str], refusal: Refusal) -> bool:
        """Whether it had been woken, and what it was woken for may do for another."""
        waiting = self._pods.setdefault(pod.uid, Waiting(pod))
        woken = waiting.woken_at is not None
        waiting.offered = self._shared(offered)
        waiting.seen = self._change
        waiting.woken_at = None
        waiting.refusal = refusal
        return woken

    def _shared(self, offered: Collection[str]) -> frozenset[str]:
        """One set for all pods that are offered the same nodes: they are often thousands."""
        if not isinstance(offered, NameBlock):
            return frozenset(offered)
        key = offered.fingerprint()
        found = self._offers.get(key)
        if found is None:
            found = self._offers[key] = frozenset(offered)
        return found

    def woken(self, uid: PodUid, at: float) -> None:
        """``at``: monotonic seconds."""
        waiting = self._pods[uid]
        waiting.seen = self._change
        waiting.woken_at = at

    def forget_offers(self) -> None:
        """Another replica may have answered for these pods: any of them may have been refused."""
        for waiting in self._pods.values():
            waiting.offered, waiting.seen, waiting.woken_at = None, 0, None
        self.freed_everywhere()

    # What came free.

    def freed_on(self, node: str) -> None:
        if self._pods:
            self._change += 1
            self._nodes[node] = self._change

    def freed_in(self, namespace: str) -> None:
        """Quota of a namespace."""
        if self._pods:
            self._change += 1
            self._namespaces[namespace] = self._change

    def freed_everywhere(self) -> None:
        self._change += 1
        self._everywhere = self._change

    def worth_trying(self) -> Iterator[tuple[Waiting, frozenset[str] | None]]:
        """Pods with capacity they were not tried with, most urgent first, and on which nodes.

        None stands for every node that the pod may go to.
        """
        for waiting in sorted(self._pods.values(), key=_urgency):
            if waiting.seen is None or waiting.woken_at is not None:
                continue
            if max(self._everywhere, self._namespaces.get(waiting.pod.namespace, 0)) > waiting.seen:
                yield waiting, waiting.offered
                continue
            freed = frozenset(n for n, change in self._nodes.items() if change > waiting.seen)
            if nodes := freed if waiting.offered is None else freed & waiting.offered:
                yield waiting, nodes


def _urgency(waiting: Waiting) -> tuple[int, str, str, str]:
    about = waiting.pod.metadata
    return (
        -(waiting.pod.spec.priority or 0),
        about.creation_timestamp or "",
        about.namespace,
        about.name,
    )
