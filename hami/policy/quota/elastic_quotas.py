"""Elastic quotas as a kind of quota: what pods of their namespaces count with, and may still have.

Elastic quotas count every bound pod of their namespaces, also those without devices; pods elsewhere
are left out until a quota covers them or a planner asks for them, which keeps a start short.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec.structs import replace

from hami.domain.allocations import ContainerAllocation
from hami.domain.kubernetes.objects import Pod
from hami.domain.requests import PodRequest
from hami.domain.units import PodUid
from hami.policy.ports import VendorRegistry
from hami.policy.quota.elastic.book.book import ElasticBook
from hami.policy.quota.elastic.model import (
    GPU_MEMORY,
    MIB_PER_GB,
    Amounts,
    Claim,
    ElasticRefusal,
    Leaf,
    Member,
    Options,
    TreeNode,
)
from hami.policy.quota.elastic.model_keys import ModelKeys, ModelOf
from hami.policy.quota.elastic.objects.arrangement import ElasticProblem
from hami.policy.quota.elastic.objects.reading import preemptible
from hami.policy.quota.elastic.units import Units
from hami.policy.quota.elastic.vector import PodVector, pod_vector
from hami.policy.quota.entries import QuotaEntry
from hami.policy.usage import asked_at_least


class ElasticQuotas:
    """The only writer of ``book``.

    ``namespaces``, ``counted`` and ``waiting`` (for their share) tell whoever has a pod that none
    of it concerns elastic quotas, without a call.
    """

    def __init__(self, vendors: VendorRegistry, options: Options, model_of: ModelOf) -> None:
        self._profiles = {key: vendors[key].profile for key in vendors}
        self._models = ModelKeys(self._profiles, model_of)
        self._judged: tuple[QuotaEntry, Member] | None = None
        self.units = Units.of(vendors)
        self.book = ElasticBook(options, self.units)
        self.namespaces: frozenset[str] = frozenset()
        self.counted = self.book.all_members
        self.waiting = self.book.waiting

    @property
    def per_model(self) -> bool:
        """Single models of device are limited."""
        return bool(self._models.keys)

    def arrange(
        self, leaves: Sequence[Leaf], nodes: Sequence[TreeNode], capacity: Amounts | None
    ) -> tuple[tuple[ElasticProblem, ...], bool]:
        """All quotas anew; and whether other models of device than before are limited."""
        problems = self.book.set_quotas(leaves, nodes, capacity)
        covered = (namespace for leaf in self.book.leaves for namespace in leaf.namespaces)
        self.namespaces = frozenset(covered)
        return problems, self._models.read(leaves, nodes)

    # As every kind of quota.

    def gate(self, pod: Pod, gone: Sequence[QuotaEntry]) -> ElasticGate:
        """``gone`` count: whose quota they leave is not for this pod alone to take."""
        del gone
        claim, vector = self._claim(pod, {}), PodVector(pod, self.units)
        return ElasticGate(self.book, claim, vector, self._models)

    def refusals(self, entry: QuotaEntry, gone: Sequence[QuotaEntry]) -> tuple[ElasticRefusal, ...]:
        """What the pod counts with is kept, for the charge that follows."""
        del gone
        member = self._member(entry.pod, entry, entry.node)
        self._judged = entry, member
        return self.book.refusals(member)

    def charge(self, entry: QuotaEntry) -> None:
        judged, self._judged = self._judged, None
        if judged is not None and judged[0] is entry:
            self.book.put(judged[1])
        else:
            self.count(entry)

    def release(self, uid: PodUid) -> None:
        self.book.drop(uid)

    # Pods.

    def count(self, entry: QuotaEntry) -> None:
        """A pod that holds devices, as it was seen last."""
        self.book.put(self._member(entry.latest, entry, entry.node))

    def seen(self, pod: Pod, entry: QuotaEntry | None) -> bool:
        """A bound pod as it is now; whether that is new to a quota."""
        member = self._member(pod, entry, pod.spec.node_name)
        if member == self.book.member(pod.uid):
            return False
        self.book.put(member)
        return pod.namespace in self.namespaces

    def _member(self, pod: Pod, entry: QuotaEntry | None, node: str) -> Member:
        """``entry``: what it holds, if that is any device of ours."""
        charge, containers = (entry.charge, entry.containers) if entry else (None, ())
        vector = pod_vector(pod, charge, self.units, self.book.options.gpu_memory_gb)
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
        member = self.book.member(uid)
        return self._models.kept(member.vector) if member else {}

    # Pods that want in.

    def claim(self, request: PodRequest) -> Claim:
        """A waiting pod, with the least that it will be charged."""
        asked = asked_at_least(request.containers, self._profiles)
        return self._claim(request.pod, PodVector(request.pod, self.units).charged(asked))

    def vector(self, entry: QuotaEntry) -> Amounts:
        """What a pod counts with once it has this."""
        amount = entry.charge
        if self._models.keys:
            amount = {**amount, **self._of_models(entry.pod.uid, entry.containers, entry.node)}
        return PodVector(entry.pod, self.units).charged(amount)

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


class ElasticGate:
    """What elastic quotas leave a pod. It reads the book itself, so it is of now or later."""

    def __init__(
        self, book: ElasticBook, claim: Claim, vector: PodVector, models: ModelKeys
    ) -> None:
        self._book = book
        self._claim = claim
        self._vector = vector
        self._models = models
        self.per_model = bool(models.keys)

    def of_models(self, containers: Sequence[ContainerAllocation], node: str) -> Amounts:
        return self._models.charged(containers, node) or {}

    def left(self, resource: str) -> int | None:
        """At least as much as is left: what is in GB counts in MiB, and nothing else in it."""
        lefts = [self._book.room(self._claim, resource)]
        if resource in self._vector.units.memory:
            gigabytes = self._book.room(self._claim, GPU_MEMORY)
            lefts.append(None if gigabytes is None else gigabytes * MIB_PER_GB)
        return min((left for left in lefts if left is not None), default=None)

    def refusals(
        self, asked: Mapping[str, int], *, ignoring_usage: bool = False
    ) -> tuple[ElasticRefusal, ...]:
        claim = replace(self._claim, vector=self._vector.charged(asked))
        return self._book.could_ever(claim) if ignoring_usage else self._book.refusals(claim)


def _seconds(timestamp: str | None) -> float | None:
    """Since 1970; None for no time at all."""
    if not timestamp:
        return None
    try:
        return datetime.fromisoformat(timestamp).timestamp()
    except ValueError:
        return None
