"""The one book of what pods are charged; every check, status and metric derives from it.

One entry per pod uid, whole numbers, one owner. Each ResourceQuota object is its own constraint:
all that count the pod must admit it, and deleting one never lifts another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hami.domain.allocations import ContainerAllocation, PodAllocation
from hami.domain.objects import Pod, ResourceQuota
from hami.domain.profile import VendorProfile
from hami.domain.units import PodUid, VendorKey
from hami.policy.ports import VendorRegistry
from hami.policy.quota.constraint import Constraint, QuotaProblem, QuotaRefusal, read_quota
from hami.policy.quota.elastic.model import ElasticRefusal
from hami.policy.usage import quota_charge

Refusal = QuotaRefusal | ElasticRefusal
"""One limit of one object, whichever kind of quota."""


@dataclass(slots=True, eq=False)
class _Account:
    """A constraint and what the pods it counts are charged, by resource name."""

    constraint: Constraint
    used: dict[str, int] = field(default_factory=dict)

    def add(self, charge: Mapping[str, int], sign: int) -> None:
        for resource, amount in charge.items():
            self.used[resource] = self.used.get(resource, 0) + sign * amount

    def used_without(self, gone: Iterable[_Entry]) -> Mapping[str, int]:
        """By resource that is limited; ``gone`` are entries of the constraint's namespace."""
        freed = [entry.charge for entry in gone if self.constraint.scopes.match(entry.pod)]
        return {
            resource: self.used.get(resource, 0) - sum(charge.get(resource, 0) for charge in freed)
            for resource in self.constraint.limits
        }


@dataclass(slots=True, eq=False)
class _Entry:
    """What a pod holds; its ``charge`` is added up when some quota counts it."""

    pod: Pod
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
        self._entries: dict[PodUid, _Entry] = {}
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
        gone = [self._entries[uid] for uid in {pod.uid, *without} if uid in here]
        return PodGate([(a.constraint, a.used_without(gone)) for a in accounts])

    def reserve(self, pod: Pod, allocation: PodAllocation) -> tuple[Refusal, ...]:
        """Check and charge in one step; what the pod was charged before is replaced.

        Returns the refusals, and then nothing has changed.
        """
        gate, amount = self.gate(pod), self.amount(allocation.containers)
        refusals = gate.refusals(amount) if gate else ()
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
        entry = _Entry(pod, allocation.containers, self._profiles, allocation.node, amount)
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

    def _book(self, entry: _Entry, sign: int) -> None:
        for account in self._accounts.get(entry.pod.namespace, {}).values():
            if account.constraint.scopes.match(entry.pod):
                account.add(entry.charge, sign)


class PodGate:
    """What the quotas of one pod's namespace leave it, at one moment."""

    def __init__(self, books: Sequence[tuple[Constraint, Mapping[str, int]]]) -> None:
        self._books = books

    def left(self, resource: str) -> int | None:
        """The least that any object leaves of a resource; None when none limits it."""
        lefts = [
            constraint.limits[resource] - used[resource]
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
        found = (
            (constraint.refusal(resource, 0 if ignoring_usage else used[resource], amount), used)
            for constraint, used in self._books
            for resource, amount in sorted(asked.items())
            if resource in constraint.limits
        )
        return tuple(
            replace(refusal, used=used[refusal.resource]) for refusal, used in found if refusal
        )
