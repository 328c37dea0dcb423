"""The one book of what pods are charged; every check, status and metric derives from it.

One entry per pod uid, whole numbers, one owner. Each ResourceQuota object is its own constraint:
all that count the pod must admit it, and deleting one never lifts another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

from hami.domain.allocations import ContainerAllocation, PodAllocation
from hami.domain.objects import Pod, ResourceQuota
from hami.domain.profile import VendorProfile
from hami.domain.units import PodUid, VendorKey
from hami.policy.ports import VendorRegistry
from hami.policy.quota.constraint import Constraint, QuotaProblem, QuotaRefusal, read_quota
from hami.policy.quota.elastic.model import ElasticRefusal, Rule
from hami.policy.usage import quota_charge

Refusal = QuotaRefusal | ElasticRefusal
"""One limit of one object, whichever kind of quota."""

RULES: tuple[str, ...] = (*get_args(Rule), QuotaRefusal.rule)
"""Those that a refusal may name, in the order in which they are checked."""


@dataclass(slots=True, eq=False)
class _Account:
    """A constraint and what the pods it counts are charged, by resource name."""

    constraint: Constraint
    used: dict[str, int] = field(default_factory=dict)

    def add(self, charge: Mapping[str, int], sign: int) -> None:
        for resource, amount in charge.items():
            self.used[resource] = self.used.get(resource, 0) + sign * amount

    def used_without(self, gone: Iterable[QuotaEntry]) -> Mapping[str, int]:
        """As it is now; ``gone`` are entries of the constraint's namespace."""
        used = self.used.copy()
        for entry in gone:
            if self.constraint.scopes.match(entry.pod):
                for resource, amount in entry.charge.items():
                    used[resource] -= amount
        return used


@dataclass(slots=True, eq=False)
class QuotaEntry:
    """What a pod holds; its ``charge`` is added up when some quota counts it.

    ``pod`` is as it was charged, by which scopes match until it is released; ``latest`` as it was
    last seen.
    """

    pod: Pod
    latest: Pod
    containers: Sequence[ContainerAllocation]
    profiles: Mapping[VendorKey, VendorProfile]
    node: str
    _charge: Mapping[str, int] | None = None

    @property
    def charge(self) -> Mapping[str, int]:
        if self._charge is None:
            self._charge = quota_charge(self.containers, self.profiles)
        return self._charge


class QuotaLedger:
    """Who is charged what, and what each namespace's quotas still leave."""

    def __init__(self, vendors: VendorRegistry) -> None:
        self._vendors = vendors
        self._profiles = {key: vendors[key].profile for key in vendors}
        self._entries: dict[PodUid, QuotaEntry] = {}
        self._pods: dict[str, dict[PodUid, None]] = {}
        self._accounts: dict[str, dict[str, _Account]] = {}

    # Quota objects.

    def set_quota(self, quota: ResourceQuota) -> tuple[QuotaProblem, ...]:
        """Add or replace an object in one step; what runs already counts at once."""
        constraint, problems = read_quota(quota, self._vendors)
        account = _Account(constraint)
        for uid in self._pods.get(quota.namespace, ()):
            entry = self._entries[uid]
            if constraint.scopes.match(entry.pod):
                account.add(entry.charge, 1)
        self._accounts.setdefault(quota.namespace, {})[quota.name] = account
        return problems

    def remove_quota(self, namespace: str, name: str) -> None:
        """Lift one object's limits; others of the namespace stay. Idempotent."""
        self._accounts.get(namespace, {}).pop(name, None)

    def used(self, namespace: str, name: str) -> Mapping[str, int]:
        """What counts against an object, for each resource that it limits; memory in MiB."""
        account = self._accounts[namespace][name]
        return {r: account.used.get(r, 0) for r in account.constraint.limits}

    @property
    def constraints(self) -> Iterator[Constraint]:
        for accounts in self._accounts.values():
            for account in accounts.values():
                yield account.constraint

    def constraints_of(self, namespace: str) -> Iterator[Constraint]:
        """The namespace's constraints that limit something."""
        for account in self._accounts.get(namespace, {}).values():
            if account.constraint.limits:
                yield account.constraint

    # Pods.

    def gate(self, pod: Pod, without: Collection[PodUid] = ()) -> PodGate | None:
        """What quota lets this pod have, its own charge not counted; None without any limit.

        ``without``: as if these pods were charged nothing either.
        """
        accounts = [
            account
            for account in self._accounts.get(pod.namespace, {}).values()
            if account.constraint.limits and account.constraint.scopes.match(pod)
        ]
        if not accounts:
            return None
        here = self._pods.get(pod.namespace, {})
        uids = {pod.uid, *without} if without else (pod.uid,)
        gone = [self._entries[uid] for uid in uids if uid in here]
        return PodGate([(a.constraint, a.used_without(gone)) for a in accounts])

    def reserve(self, pod: Pod, allocation: PodAllocation) -> tuple[Refusal, ...]:
        """Check and charge in one step; what the pod was charged before is replaced.

        Returns the refusals, and then nothing has changed.
        """
        amount = self.amount(allocation.containers)
        refusals = self._hard_refusals(pod, amount)
        if not refusals:
            self.charge(pod, allocation, amount)
        return refusals

    def charge(
        self, pod: Pod, allocation: PodAllocation, amount: Mapping[str, int] | None = None
    ) -> None:
        """Charge without asking: the pod runs, whatever the limits say now.

        ``amount``: what :meth:`amount` says of it, where that is known.
        """
        self.release(pod.uid)
        entry = QuotaEntry(pod, pod, allocation.containers, self._profiles, allocation.node, amount)
        self._entries[pod.uid] = entry
        self._pods.setdefault(pod.namespace, {})[pod.uid] = None
        self._book(entry, 1)

    def release(self, uid: PodUid) -> None:
        """Take back exactly what was charged. Idempotent."""
        entry = self._entries.pop(uid, None)
        if entry is None:
            return
        self._book(entry, -1)
        pods = self._pods[entry.pod.namespace]
        del pods[uid]
        if not pods:
            del self._pods[entry.pod.namespace]

    def amount(self, containers: Sequence[ContainerAllocation]) -> Mapping[str, int]:
        """What containers of one pod are charged, by resource name."""
        return quota_charge(containers, self._profiles)

    def _hard_refusals(self, pod: Pod, amount: Mapping[str, int]) -> tuple[Refusal, ...]:
        """As a gate says it; none is made for a pod that is new and admitted, as nearly all are."""
        if pod.uid not in self._entries and self._admits(pod, amount):
            return ()
        gate = QuotaLedger.gate(self, pod)
        return gate.refusals(amount) if gate else ()

    def _admits(self, pod: Pod, amount: Mapping[str, int]) -> bool:
        """Every object admits a pod that is charged nothing yet."""
        for account in self._accounts.get(pod.namespace, {}).values():
            constraint, used = account.constraint, account.used
            for resource in constraint.limits:
                refusal = constraint.refusal(
                    resource, used.get(resource, 0), amount.get(resource, 0)
                )
                if refusal is not None and constraint.scopes.match(pod):
                    return False
        return True

    def _book(self, entry: QuotaEntry, sign: int) -> None:
        for account in self._accounts.get(entry.pod.namespace, {}).values():
            if account.constraint.scopes.match(entry.pod):
                account.add(entry.charge, sign)


class PodGate:
    """What the quotas of one pod's namespace leave it, at one moment."""

    def __init__(self, books: Sequence[tuple[Constraint, Mapping[str, int]]]) -> None:
        """Each object with what it counts, where that is anything, by resource name."""
        self._books = books
        self.per_model = False
        """Whether single models of device are limited; without them nobody asks for them."""

    def of_models(self, containers: Sequence[ContainerAllocation], node: str) -> Mapping[str, int]:
        """What these containers would be charged there, of single models that are limited."""
        del containers, node
        return {}

    def left(self, resource: str) -> int | None:
        """The least that any object leaves of a resource; None when none limits it."""
        lefts = [
            constraint.limits[resource] - used.get(resource, 0)
            for constraint, used in self._books
            if resource in constraint.limits
        ]
        return min(lefts) if lefts else None

    def refusals(
        self, asked: Mapping[str, int], *, ignoring_usage: bool = False
    ) -> tuple[Refusal, ...]:
        """Why these amounts are too much; empty when every object admits them.

        ``ignoring_usage``: whether they could ever be admitted.
        """
        found: list[Refusal] = []
        for constraint, used in self._books:
            for resource in constraint.limits:
                asks, has = asked.get(resource, 0), used.get(resource, 0)
                refusal = constraint.refusal(resource, 0 if ignoring_usage else has, asks)
                if refusal is not None:
                    found.append(replace(refusal, used=has))
        return tuple(found)
