"""The one book of what pods are charged; every check, status and metric derives from it.

One entry per pod uid, whole numbers, one owner. Kinds of quota stand beside each other in a list:
a pod is asked of, and charged to, those that count pods of its namespace, and no other is entered.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, KeysView, Mapping, Sequence

from hami.domain.allocations import ContainerAllocation, PodAllocation
from hami.domain.kubernetes.objects import Pod, ResourceQuota
from hami.domain.requests import PodRequest
from hami.domain.units import PodUid
from hami.policy.ports import VendorRegistry
from hami.policy.quota.constraint import Constraint, QuotaProblem
from hami.policy.quota.elastic.model import Amounts, Claim, Leaf, Member, Options, TreeNode
from hami.policy.quota.elastic.model_keys import ModelOf, unknown
from hami.policy.quota.elastic.objects.arrangement import ElasticProblem
from hami.policy.quota.elastic_quotas import ElasticQuotas
from hami.policy.quota.entries import PodGate, QuotaEntry, QuotaKind, Refusal
from hami.policy.quota.resource_quotas import ResourceQuotas
from hami.policy.usage import quota_charge


class QuotaLedger:
    """Who is charged what, and what each namespace's quotas still leave."""

    def __init__(
        self,
        vendors: VendorRegistry,
        options: Options | None = None,
        model_of: ModelOf = unknown,
    ) -> None:
        """``options`` and ``model_of`` are about elastic quotas."""
        self._profiles = {key: vendors[key].profile for key in vendors}
        self._entries: dict[PodUid, QuotaEntry] = {}
        self._pods: dict[str, dict[PodUid, None]] = {}
        self._resource_quotas = ResourceQuotas(vendors)
        self._elastic_quotas = ElasticQuotas(vendors, options or Options(), model_of)
        self._kinds: Sequence[QuotaKind] = (self._resource_quotas, self._elastic_quotas)
        self.elastic = self._elastic_quotas.book
        self.units = self._elastic_quotas.units

    @property
    def elastic_namespaces(self) -> Collection[str]:
        """Whose pods elastic quotas count."""
        return self._elastic_quotas.namespaces

    def limits(self, namespace: str) -> bool:
        """Some object that limits anything counts pods of this namespace."""
        return namespace in self._elastic_quotas.namespaces or any(
            True for _ in self._resource_quotas.constraints_of(namespace)
        )

    # Pods.

    def gate(self, pod: Pod, without: Collection[PodUid] = ()) -> PodGate | None:
        """What quota lets this pod have, its own charge not counted; None without any limit.

        ``without``: as if ResourceQuotas charged these pods nothing either.
        """
        gates = [
            gate
            for kind in self._kinds
            if pod.namespace in kind.namespaces
            and (gate := kind.gate(pod, self._gone(pod, without))) is not None
        ]
        return _AllGates(gates) if len(gates) > 1 else next(iter(gates), None)

    def hard_gate(self, pod: Pod, without: Collection[PodUid] = ()) -> PodGate | None:
        """What ResourceQuotas alone leave."""
        return self._resource_quotas.gate(pod, self._gone(pod, without))

    def _gone(self, pod: Pod, without: Collection[PodUid]) -> Sequence[QuotaEntry]:
        here = self._pods.get(pod.namespace, {})
        uids = {pod.uid, *without} if without else (pod.uid,)
        return [self._entries[uid] for uid in uids if uid in here]

    def reserve(self, pod: Pod, allocation: PodAllocation) -> tuple[Refusal, ...]:
        """Check and charge in one step; what the pod was charged before is replaced.

        Returns the refusals, and then nothing has changed.
        """
        kinds = [kind for kind in self._kinds if pod.namespace in kind.namespaces]
        entry = self._entry(pod, allocation, self.amount(allocation.containers) if kinds else None)
        gone = self._gone(pod, ())
        refusals = [refusal for kind in kinds for refusal in kind.refusals(entry, gone)]
        if not refusals:
            self._charge(entry)
        return tuple(refusals)

    def growth_refusals(
        self, pod: Pod, has: PodAllocation, gets: PodAllocation
    ) -> tuple[Refusal, ...]:
        """Every limit that a pod that runs would exceed by what it gets more than it has.

        Of what does not grow nothing is refused, even where the limit was lowered meanwhile.
        """
        kinds = [kind for kind in self._kinds if pod.namespace in kind.namespaces]
        if not kinds:
            return ()
        entry, gone = self._entry(pod, gets), self._gone(pod, ())
        refusals = [refusal for kind in kinds for refusal in kind.refusals(entry, gone)]
        if not refusals:
            return ()
        before, after = self._counted(pod, has), self._counted(pod, gets)
        return tuple(
            refusal
            for refusal in refusals
            if after.get(refusal.resource, 0) > before.get(refusal.resource, 0)
        )

    def _counted(self, pod: Pod, allocation: PodAllocation) -> Mapping[str, int]:
        """What every kind of quota counts, by resource."""
        return {**self.vector(pod, allocation), **self.amount(allocation.containers)}

    def charge(self, pod: Pod, allocation: PodAllocation) -> None:
        """Charge without asking: the pod runs, whatever the limits say now."""
        self._charge(self._entry(pod, allocation))

    def _entry(
        self, pod: Pod, allocation: PodAllocation, amount: Mapping[str, int] | None = None
    ) -> QuotaEntry:
        containers, node = allocation.containers, allocation.node
        return QuotaEntry(pod, pod, containers, self._profiles, node, amount)

    def _charge(self, entry: QuotaEntry) -> None:
        uid, namespace = entry.pod.uid, entry.pod.namespace
        self.release(uid)
        self._entries[uid] = entry
        self._pods.setdefault(namespace, {})[uid] = None
        for kind in self._kinds:
            if namespace in kind.namespaces:
                kind.charge(entry)

    def release(self, uid: PodUid) -> None:
        """Take back exactly what was charged. Idempotent."""
        for kind in self._kinds:
            if uid in kind.counted:
                kind.release(uid)
        if (entry := self._entries.pop(uid, None)) is None:
            return
        pods = self._pods[entry.pod.namespace]
        del pods[uid]
        if not pods:
            del self._pods[entry.pod.namespace]

    def amount(self, containers: Sequence[ContainerAllocation]) -> Mapping[str, int]:
        """What containers of one pod are charged, by resource name."""
        return quota_charge(containers, self._profiles)

    def charged_in(self, namespace: str) -> KeysView[PodUid]:
        """The pods of a namespace that hold devices."""
        return self._pods.get(namespace, {}).keys()

    # ResourceQuotas.

    def set_quota(self, quota: ResourceQuota) -> tuple[QuotaProblem, ...]:
        """Add or replace an object in one step; what runs already counts at once."""
        here = self._pods.get(quota.namespace, ())
        return self._resource_quotas.put(quota, (self._entries[uid] for uid in here))

    def remove_quota(self, namespace: str, name: str) -> None:
        """Lift one object's limits; others of the namespace stay. Idempotent."""
        self._resource_quotas.remove(namespace, name)

    def used(self, namespace: str, name: str) -> Mapping[str, int]:
        """What counts against an object, for each resource that it limits; memory in MiB."""
        return self._resource_quotas.used(namespace, name)

    @property
    def constraints(self) -> Iterator[Constraint]:
        return self._resource_quotas.constraints

    def constraints_of(self, namespace: str) -> Iterator[Constraint]:
        """The namespace's constraints that limit something."""
        return self._resource_quotas.constraints_of(namespace)

    # Elastic quotas.

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
        quotas, before = self._elastic_quotas, self._elastic_quotas.namespaces
        problems, other_models = quotas.arrange(list(leaves), list(nodes), capacity)
        new = quotas.namespaces - before
        for namespace in quotas.namespaces if other_models else new:
            for uid in self._pods.get(namespace, ()):
                quotas.count(self._entries[uid])
        for pod in bound(new) if new else ():
            self.seen(pod)
        return problems

    def seen(self, pod: Pod) -> bool:
        """A bound pod as it is now: it may have begun to run, or hold no device of ours.

        Whether that is new to an elastic quota.
        """
        entry, quotas = self._entries.get(pod.uid), self._elastic_quotas
        if entry is not None:
            entry.latest = pod
        if pod.namespace not in quotas.namespaces and pod.uid not in quotas.counted:
            return False  # Whoever asks for it gets it from its entry.
        return quotas.seen(pod, entry)

    def known(self, uid: PodUid) -> Member | None:
        """A charged pod as planners see it, whatever quota counts it or none."""
        member = self.elastic.member(uid)
        if member is None and (entry := self._entries.get(uid)) is not None:
            self._elastic_quotas.count(entry)
            member = self.elastic.member(uid)
        return member

    def look_again(self, uids: Iterable[PodUid]) -> None:
        """Their node has said anew what its devices are."""
        if self._elastic_quotas.per_model:
            for entry in filter(None, map(self._entries.get, uids)):
                if entry.pod.namespace in self._elastic_quotas.namespaces:
                    self._elastic_quotas.count(entry)

    def claim(self, request: PodRequest) -> Claim:
        """A waiting pod as elastic quotas count it, with the least that it will be charged."""
        return self._elastic_quotas.claim(request)

    def hopeless(self, request: PodRequest) -> Sequence[Refusal]:
        """Announce that the pod waits for its share of elastic quota, until it is charged.

        Returns what keeps it out now, whatever its devices.
        """
        if request.pod.namespace not in self._elastic_quotas.namespaces:
            return ()
        claim = self.claim(request)
        self.elastic.ask(claim)
        return self.elastic.refusals(claim)

    def ask(self, request: PodRequest) -> None:
        """The pod waits for its share of elastic quota."""
        if request.pod.namespace in self._elastic_quotas.namespaces:
            self.elastic.ask(self.claim(request))

    def withdraw(self, uid: PodUid) -> None:
        """The pod waits no more. Idempotent."""
        if uid in self._elastic_quotas.waiting:
            self.elastic.withdraw(uid)

    def vector(self, pod: Pod, allocation: PodAllocation) -> Amounts:
        """What a pod counts with once it has this."""
        return self._elastic_quotas.vector(self._entry(pod, allocation))


class _AllGates:
    """Several kinds of quota: each must admit the pod."""

    def __init__(self, gates: Sequence[PodGate]) -> None:
        self._gates = gates
        self.per_model = any(gate.per_model for gate in gates)

    def of_models(self, containers: Sequence[ContainerAllocation], node: str) -> Mapping[str, int]:
        found: dict[str, int] = {}
        for gate in self._gates:
            found |= gate.of_models(containers, node)
        return found

    def left(self, resource: str) -> int | None:
        lefts = [left for gate in self._gates if (left := gate.left(resource)) is not None]
        return min(lefts, default=None)

    def refusals(
        self, asked: Mapping[str, int], *, ignoring_usage: bool = False
    ) -> tuple[Refusal, ...]:
        return tuple(
            refusal
            for gate in self._gates
            for refusal in gate.refusals(asked, ignoring_usage=ignoring_usage)
        )
