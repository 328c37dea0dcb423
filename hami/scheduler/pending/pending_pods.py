"""Pods that wait for devices, and where capacity has come free since each was last refused.

kube-scheduler does not know that our books changed: a pod that we refused waits until something
touches it. What is kept here says which pods to touch, and no more than once per change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import assert_never

from hami.domain.kubernetes.objects import Pod
from hami.domain.units import PodUid
from hami.policy.filter.decision import Refused
from hami.policy.ports import VendorRegistry
from hami.scheduler.events import (
    PodPlaced,
    PodUnplaced,
    QuotaRulesChanged,
    RoomInElasticQuotas,
    RoomInQuota,
    RoomOnNode,
)
from hami.scheduler.pending.answers import Explained, explained
from hami.scheduler.pending.equivalence import (
    EquivalenceClass,
    KindKeys,
    PendingPod,
    asks_for,
    may_come,
    resource_names,
    urgency_of,
)
from hami.scheduler.pending.node_sets import ANYWHERE, Changes, NodeSets

LONGEST_BACK_OFF = 300.0
"""Seconds; kube-scheduler itself tries a pod again that often."""

MOST_NAMES = 50_000
"""Node names after which numbering begins anew, where nodes come and go under new names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a pod is refused: ``at`` is unix time, ``outcome`` by node; or one text for all."""

    at: float
    outcome: Refused | None = None
    text: str = ""


Heard = RoomOnNode | RoomInQuota | RoomInElasticQuotas | QuotaRulesChanged | PodUnplaced | PodPlaced
"""The events that concern who waits."""


class PendingPods:
    """The pending pods, and the changes of capacity they have not been tried with.

    ``freed`` is set when a pending pod may be placed that could not be before; ``claims`` when one
    was refused or the rules of quota are others, so that room may be made for somebody.
    """

    def __init__(self, vendors: VendorRegistry, scheduler_name: Callable[[], str] = str) -> None:
        """``scheduler_name``: of the kube-scheduler that asks us; empty for any."""
        self._pods: dict[PodUid, PendingPod] = {}
        self._kinds: dict[bytes, EquivalenceClass] = {}
        self._called: dict[PodUid, Pod] = {}
        self._scheduler_name = scheduler_name
        self._change = 0
        self.frees = 0
        """Counts what has come free alone, and not that somebody is to be tried anew."""
        self.following = True
        """Another replica answers, so nobody here knows which pods were refused."""
        self.freed = asyncio.Event()
        self.claims = asyncio.Event()
        self._read(vendors)
        self._begin_numbering()

    def use(self, vendors: VendorRegistry) -> None:
        """Other vendors: nobody is pending until told anew."""
        self._pods.clear()
        self._kinds.clear()
        self._called.clear()
        self._read(vendors)
        self._begin_numbering()

    def _read(self, vendors: VendorRegistry) -> None:
        self._keys = KindKeys(vendors)
        self._resources = resource_names(vendors)

    def hear(self, event: Heard) -> None:
        match event:
            case PodPlaced(uid):
                self.left(uid)
            case PodUnplaced(pod, known_before):
                if self.is_ours(pod) and self.asks(pod):
                    self.arrived(pod, known_before=known_before or self.following)
            case RoomOnNode(node):
                self.freed_on(node)
            case RoomInQuota(namespace):
                self.freed_in(namespace)
            case RoomInElasticQuotas(namespaces):
                for namespace in {kind.namespace for kind in self._kinds.values()}:
                    if namespace in namespaces:
                        self.freed_in(namespace)
            case QuotaRulesChanged():
                self.claims.set()  # For whom nobody goes, others may go now.
            case never:
                assert_never(never)

    @property
    def scheduler_name(self) -> str:
        """Of the kube-scheduler that asks us; empty for any."""
        return self._scheduler_name()

    def is_ours(self, pod: Pod) -> bool:
        """It waits for a kube-scheduler that asks us."""
        return self._scheduler_name() in ("", pod.spec.scheduler_name)

    def asks(self, pod: Pod) -> bool:
        """Some container names a resource of a vendor."""
        return asks_for(pod, self._resources)

    def _begin_numbering(self) -> None:
        self._sets = NodeSets()
        self._freed = _Log()
        self._given_way = _Log()

    @property
    def pods(self) -> Mapping[PodUid, PendingPod]:
        return self._pods

    @property
    def change(self) -> int:
        """Counts what has come free."""
        return self._change

    @property
    def numbering(self) -> object:
        """The same as long as sets of nodes mean the same."""
        return self._sets

    @property
    def kinds(self) -> Sequence[EquivalenceClass]:
        return list(self._kinds.values())

    def set_of(self, names: Sequence[str]) -> int:
        """Equal for the same names in any order, as long as :attr:`numbering` is the same."""
        return self._sets.of(names)

    def kind_of(self, pod: Pod) -> bytes:
        """The same for pods that fit, or do not, alike."""
        return self._keys.of(pod)

    def names(self, nodes: int, among: Iterable[str]) -> list[str]:
        return self._sets.names(nodes, among)

    # Who waits.

    def arrived(self, pod: Pod, *, known_before: bool) -> bool:
        """A pod, or its change. ``known_before``: nobody knows whether it was refused already.

        Whether it had been woken and cannot come any more.
        """
        waiting = self._pods.get(pod.uid)
        if waiting is None:
            waiting = PendingPod(pod, urgency_of(pod), seen=0 if known_before else None)
            self._pods[pod.uid] = waiting
        waiting.pod = pod
        woken = waiting.woken_at is not None and not may_come(pod)
        if woken:
            self._rests(waiting)
            self.freed.set()  # What it was woken for may do for the next one.
        self._sort_in(waiting)
        return woken

    def left(self, uid: PodUid) -> bool:
        """It is placed or gone; whether it had been woken. Idempotent."""
        waiting = self._pods.pop(uid, None)
        if waiting is None:
            return False
        woken = waiting.woken_at is not None
        if waiting.kind is not None:
            waiting.kind.absent &= not woken
            self._take_out(waiting)
        waiting.woken_at = None
        if not self._pods:
            self._begin_numbering()
        if woken:
            self.freed.set()  # Now the next one may be.
        return woken

    def refused(self, pod: Pod, offered: Sequence[str], refusal: Refusal) -> bool:
        """Whether it had been woken, and what it was woken for may do for another."""
        waiting = self._pods.get(pod.uid)
        if waiting is None:
            waiting = self._pods[pod.uid] = PendingPod(pod, urgency_of(pod))
        woken = waiting.woken_at is not None
        self._rests(waiting)
        if len(self._sets) > MOST_NAMES:
            self._begin_numbering()
            self.forget_offers()
        waiting.offered = self._sets.of(offered)
        waiting.seen = self._change
        waiting.in_vain = waiting.vain = 0
        waiting.refused_at = refusal.at
        outcome = refusal.outcome
        waiting.why = Explained(message=refusal.text) if outcome is None else explained(outcome)
        self._sort_in(waiting)
        if waiting.kind is not None:
            waiting.kind.offered |= waiting.offered
            waiting.kind.absent = False
        self.claims.set()
        if woken:
            self.freed.set()  # What it was woken for may do for the next one.
        return woken

    def forget_offers(self) -> None:
        """Another replica may have answered for these pods: any of them may have been refused."""
        for waiting in self._pods.values():
            self._rests(waiting)
            waiting.offered, waiting.seen = ANYWHERE, 0
            waiting.in_vain = waiting.vain = 0
            waiting.called_at = None
            if waiting.kind is None:
                self._sort_in(waiting)
        for kind in self._kinds.values():
            kind.offered = ANYWHERE
        self.freed_everywhere()

    def _sort_in(self, waiting: PendingPod) -> None:
        """Where it belongs by what its pod says now."""
        if waiting.seen is None or not may_come(waiting.pod):
            if waiting.kind is not None:
                self._take_out(waiting)
            return
        key, urgency = self._keys.of(waiting.pod), urgency_of(waiting.pod)
        if waiting.kind is not None:
            if (waiting.kind.key, waiting.urgency) == (key, urgency):
                return
            self._take_out(waiting)
        waiting.urgency = urgency
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = EquivalenceClass(
                key, waiting.pod.namespace, tried=self._change
            )
        kind.add(waiting)
        if waiting.seen < self._change:
            self._disturb(kind)

    def _take_out(self, waiting: PendingPod) -> None:
        kind = waiting.kind
        assert kind is not None
        kind.remove(waiting)
        if not kind.queue:
            del self._kinds[kind.key]

    def look_again(self) -> None:
        """Somebody may be woken, now or after a while, who could not be before."""
        self.freed.set()

    def begin_leading(self) -> None:
        """From now on it is this replica that answers."""
        self.following = False
        self.forget_offers()
        self.claims.set()

    def end_leading(self) -> None:
        self.following = True

    # Who is called: made to ask, whatever there is room for.

    def call(self, pod: Pod) -> None:
        """It waits no more, and kube-scheduler must be made to ask for it all the same."""
        self._called[pod.uid] = pod
        self.freed.set()

    def take_called(self) -> Sequence[Pod]:
        """Those of :meth:`call`, each once."""
        called = list(self._called.values())
        self._called.clear()
        return called

    def called_at(self, waiting: PendingPod, at: float | None) -> None:
        """It is woken so that it is filtered here (monotonic seconds); None: it was not."""
        waiting.called_at = at

    # Who is woken.

    def woken(self, waiting: PendingPod, at: float) -> None:
        """``at``: monotonic seconds."""
        waiting.seen = self._change
        waiting.woken_at = at
        if waiting.kind is not None:
            waiting.kind.coming += 1

    def did_not_come(self, waiting: PendingPod, node: str, now: float) -> None:
        """It was woken for this node, and kube-scheduler did not ask for it."""
        self._rests(waiting)
        if waiting.kind is not None:
            waiting.kind.absent = True
        self._back_off(waiting, 1 << self._sets.number(node), now, 0.0)

    def not_woken(self, waiting: PendingPod, seen: int, now: float, least: float) -> None:
        """It could not be touched: all is as before, but it is left alone for a while.

        ``seen`` is what it had seen before; ``least`` in seconds.
        """
        self._rests(waiting)
        waiting.seen = seen
        self._back_off(waiting, ANYWHERE, now, least)
        if waiting.kind is not None:
            self._disturb(waiting.kind)

    def _back_off(self, waiting: PendingPod, nodes: int, now: float, least: float) -> None:
        waiting.vain = nodes if waiting.not_before <= now else waiting.vain | nodes
        seconds = min(2.0 ** min(waiting.in_vain, 30), LONGEST_BACK_OFF)
        waiting.not_before = now + max(seconds, least)
        waiting.in_vain += 1

    def _rests(self, waiting: PendingPod) -> None:
        if waiting.woken_at is not None:
            waiting.woken_at = None
            if waiting.kind is not None:
                waiting.kind.coming -= 1

    def _disturb(self, kind: EquivalenceClass) -> None:
        self._change += 1
        kind.disturbed = self._change

    # What came free.

    def freed_on(self, node: str) -> None:
        self.frees += 1
        self.freed.set()
        if self._pods:
            self._change += 1
            self._freed.nodes.note(self._sets.number(node), self._change)

    def freed_in(self, namespace: str) -> None:
        """Quota of a namespace."""
        self.frees += 1
        self.freed.set()
        if self._pods:
            self._change += 1
            self._freed.namespaces[namespace] = self._change

    def freed_everywhere(self) -> None:
        self.frees += 1
        self.freed.set()
        self._change += 1
        self._freed.everywhere = self._change

    def gave_way(self, node: str, namespace: str) -> None:
        """A woken pod does not take what it was woken for: others may, but not for a new change."""
        if self._pods:
            self._change += 1
            self._given_way.nodes.note(self._sets.number(node), self._change)
            self._given_way.namespaces[namespace] = self._change

    def gave_way_everywhere(self) -> None:
        """Whoever was found not to fit may fit now: the rules have changed."""
        self.frees += 1
        self._change += 1
        self._given_way.everywhere = self._change

    def new_for(self, kind: EquivalenceClass) -> int:
        """Nodes that may take one of the kind and were not tried since they changed."""
        since = kind.tried
        if kind.disturbed > since:
            return kind.offered
        namespace = kind.namespace
        changed = self._freed.after(since, namespace) | self._given_way.after(since, namespace)
        return changed & kind.offered

    def freed_for(self, waiting: PendingPod) -> int:
        """Nodes that it was offered and where there is something that it was not tried with."""
        assert waiting.seen is not None
        return waiting.offered & self._freed.after(waiting.seen, waiting.pod.namespace)


@dataclass(slots=True, eq=False)
class _Log:
    """The last change on each node, of each namespace's quota, and of all."""

    nodes: Changes = field(default_factory=Changes)
    namespaces: dict[str, int] = field(default_factory=dict)
    everywhere: int = 0

    def after(self, change: int, namespace: str) -> int:
        if max(self.everywhere, self.namespaces.get(namespace, 0)) > change:
            return ANYWHERE
        return self.nodes.since(change)
