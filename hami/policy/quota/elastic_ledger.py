"""Both kinds of quota over the same pods: ResourceQuota objects, and elastic quotas above them.

A pod is checked against both and charged to both in one step. Elastic quotas count every bound
pod of their namespaces, also those without devices; pods elsewhere are left out until a quota
covers them or a planner asks for them, which keeps a start short.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, KeysView, Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from hami.domain.allocations import ContainerAllocation, PodAllocation
from hami.domain.objects import Pod
from hami.domain.requests import PodRequest
from hami.domain.units import PodUid
from hami.policy.ports import VendorRegistry
from hami.policy.quota.elastic.arrangement import ElasticProblem
from hami.policy.quota.elastic.book import ElasticBook
from hami.policy.quota.elastic.model import (
    GPU_MEMORY,
    Amounts,
    Claim,
    Leaf,
    Member,
    Options,
    TreeNode,
)
from hami.policy.quota.elastic.models import ModelKeys, ModelOf, unknown
from hami.policy.quota.elastic.objects import preemptible
from hami.policy.quota.elastic.units import Units
from hami.policy.quota.elastic.vector import PodVector, pod_vector
from hami.policy.quota.ledger import PodGate, QuotaEntry, QuotaLedger, Refusal
from hami.policy.usage import asked_at_least

_MIB_PER_GB = 1024


class ElasticLedger(QuotaLedger):
    """The ledger of the scheduler, and the only writer of ``elastic``."""

    def __init__(
        self,
        vendors: VendorRegistry,
        options: Options | None = None,
        model_of: ModelOf = unknown,
    ) -> None:
        super().__init__(vendors)
        self._models = ModelKeys(self._profiles, model_of)
        self.units = Units.of(vendors)
        self.elastic = ElasticBook(options or Options(), self.units)

    # Quota objects.

    def set_elastic(
        self,
        leaves: Iterable[Leaf],
        nodes: Iterable[TreeNode],
        capacity: Amounts | None,
        bound: Callable[[Collection[str]], Iterable[Pod]],
    ) -> tuple[ElasticProblem, ...]:
        """All elastic quotas anew, in one step; what runs already counts at once.

        ``bound``: the bound pods of some namespaces as they are now, with or without devices.
        """
        leaves, nodes, before = list(leaves), list(nodes), self._covered()
        problems = self.elastic.set_quotas(leaves, nodes, capacity)
        covered = self._covered()
        new = covered - before
        for namespace in covered if self._models.read(leaves, nodes) else new:
            for uid in self._pods.get(namespace, ()):
                self._enter(self._entries[uid])
        for pod in bound(new) if new else ():
            self.seen(pod)
        return problems

    def _covered(self) -> set[str]:
        return {namespace for leaf in self.elastic.leaves for namespace in leaf.namespaces}

    # Pods.

    def seen(self, pod: Pod) -> bool:
        """A bound pod as it is now: it may have begun to run, or hold no device of ours.

        Whether that is new to a quota.
        """
        entry = self._entries.get(pod.uid)
        if entry is not None:
            entry.latest = pod
        covered, known = self.elastic.leaf_of(pod.namespace), self.elastic.member(pod.uid)
        if covered is None and known is None:
            return False  # Whoever asks for it gets it from its entry.
        charge, held = (entry.charge, entry.containers) if entry else (None, ())
        member = self._member(pod, charge, pod.spec.node_name, held)
        if member == known:
            return False
        self.elastic.put(member)
        return covered is not None

    def known(self, uid: PodUid) -> Member | None:
        """A charged pod as planners see it, whatever quota counts it or none."""
        member = self.elastic.member(uid)
        if member is None and (entry := self._entries.get(uid)) is not None:
            self._enter(entry)
            member = self.elastic.member(uid)
        return member

    def charged_in(self, namespace: str) -> KeysView[PodUid]:
        """The pods of a namespace that hold devices."""
        return self._pods.get(namespace, {}).keys()

    def reserve(self, pod: Pod, allocation: PodAllocation) -> tuple[Refusal, ...]:
        """As for ResourceQuotas alone; what the pod counts with is worked out once."""
        if self.elastic.leaf_of(pod.namespace) is None:
            return super().reserve(pod, allocation)
        amount = self.amount(allocation.containers)
        member = self._member(pod, amount, allocation.node, allocation.containers)
        refusals = (
            *self._hard_refusals(pod, amount),
            *self.elastic.refusals(member),
        )
        if not refusals:
            super().charge(pod, allocation, amount)
            self.elastic.put(member)
        return refusals

    def charge(self, pod: Pod, allocation: PodAllocation, amount: Amounts | None = None) -> None:
        super().charge(pod, allocation, amount)
        if self.elastic.leaf_of(pod.namespace) is not None:
            self._enter(self._entries[pod.uid])

    def look_again(self, uids: Iterable[PodUid]) -> None:
        """Their node has said anew what its devices are."""
        if self._models.keys:
            for entry in filter(None, map(self._entries.get, uids)):
                if self.elastic.leaf_of(entry.pod.namespace) is not None:
                    self._enter(entry)

    def release(self, uid: PodUid) -> None:
        super().release(uid)
        self.elastic.drop(uid)

    def _enter(self, entry: QuotaEntry) -> None:
        self.elastic.put(self._member(entry.latest, entry.charge, entry.node, entry.containers))

    def _member(
        self,
        pod: Pod,
        charge: Amounts | None,
        node: str,
        containers: Sequence[ContainerAllocation],
    ) -> Member:
        vector = pod_vector(pod, charge, self.units, self.elastic.options.gpu_memory_gb)
        if self._models.keys:
            vector |= self._of_models(pod.uid, containers, node)
        return Member(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            created=pod.metadata.creation_timestamp or "",
            priority=pod.spec.priority or 0,
            vector=vector,
            running=pod.status is not None and pod.status.phase == "Running",
            preemptible=preemptible(pod),
            node=node,
            since=_seconds(pod.status.start_time if pod.status else None),
        )

    def _of_models(
        self, uid: PodUid, containers: Sequence[ContainerAllocation], node: str
    ) -> Amounts:
        """A device that is away for a while stays what it was."""
        found = self._models.charged(containers, node)
        if found is not None:
            return found
        member = self.elastic.member(uid)
        return self._models.kept(member.vector) if member else {}

    # Pods that want in.

    def claim(self, request: PodRequest) -> Claim:
        """A waiting pod, with the least that it will be charged."""
        asked = asked_at_least(request.containers, self._profiles)
        return self._claim(request.pod, PodVector(request.pod, self.units).charged(asked))

    def vector(self, pod: Pod, allocation: PodAllocation) -> Amounts:
        """What a pod counts with once it has this."""
        amount = self.amount(allocation.containers)
        if self._models.keys:
            held = self._of_models(pod.uid, allocation.containers, allocation.node)
            amount = {**amount, **held}
        return PodVector(pod, self.units).charged(amount)

    def gate(self, pod: Pod, without: Collection[PodUid] = ()) -> PodGate | None:
        """As for ResourceQuotas alone, with what elastic quotas leave.

        ``without`` is about ResourceQuotas only.
        """
        hard = super().gate(pod, without)
        if self.elastic.leaf_of(pod.namespace) is None:
            return hard
        vector = PodVector(pod, self.units)
        return ElasticGate(hard, self.elastic, self._claim(pod, {}), vector, self._models)

    def hard_gate(self, pod: Pod, without: Collection[PodUid] = ()) -> PodGate | None:
        """What ResourceQuotas alone leave."""
        return super().gate(pod, without)

    def _claim(self, pod: Pod, vector: Amounts) -> Claim:
        return Claim(
            uid=pod.uid,
            namespace=pod.namespace,
            name=pod.name,
            priority=pod.spec.priority or 0,
            vector=vector,
            preemptible=preemptible(pod),
            never_preempts=pod.spec.preemption_policy == "Never",
        )


class ElasticGate(PodGate):
    """What both kinds of quota leave a pod. It reads the book itself, so it is of now or later."""

    def __init__(
        self,
        hard: PodGate | None,
        book: ElasticBook,
        claim: Claim,
        vector: PodVector,
        models: ModelKeys,
    ) -> None:
        super().__init__(())
        self._models = models
        self.per_model = bool(models.keys)
        self._hard = hard or PodGate(())
        self._book = book
        self._claim = claim
        self._vector = vector

    def of_models(self, containers: Sequence[ContainerAllocation], node: str) -> Amounts:
        return self._models.charged(containers, node) or {}

    def left(self, resource: str) -> int | None:
        """At least as much as is left: what is in GB counts in MiB, and nothing else in it."""
        lefts = [self._hard.left(resource), self._book.room(self._claim, resource)]
        if resource in self._vector.units.memory:
            gigabytes = self._book.room(self._claim, GPU_MEMORY)
            lefts.append(None if gigabytes is None else gigabytes * _MIB_PER_GB)
        return min((left for left in lefts if left is not None), default=None)

    def refusals(
        self, asked: Mapping[str, int], *, ignoring_usage: bool = False
    ) -> tuple[Refusal, ...]:
        claim = replace(self._claim, vector=self._vector.charged(asked))
        ask = self._book.could_ever if ignoring_usage else self._book.refusals
        return (*self._hard.refusals(asked, ignoring_usage=ignoring_usage), *ask(claim))


def _seconds(timestamp: str | None) -> float | None:
    """Since 1970; None for no time at all."""
    if not timestamp:
        return None
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except ValueError:
        return None
