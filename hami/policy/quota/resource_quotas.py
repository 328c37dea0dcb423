"""Kubernetes' ResourceQuotas: what pods are charged against the limits of each object.

Each object is its own constraint: all that count the pod must admit it, and deleting one never
lifts another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hami.domain.allocations import ContainerAllocation
from hami.domain.kubernetes.objects import Pod, ResourceQuota
from hami.domain.units import PodUid
from hami.policy.ports import VendorRegistry
from hami.policy.quota.constraint import Constraint, QuotaProblem, QuotaRefusal, read_quota
from hami.policy.quota.entries import QuotaEntry


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


class ResourceQuotas:
    """The objects of every namespace, and what their pods are charged."""

    def __init__(self, vendors: VendorRegistry) -> None:
        self._vendors = vendors
        self.namespaces: dict[str, dict[str, _Account]] = {}
        """The objects by name, by the namespace that has any."""
        self.counted: dict[PodUid, QuotaEntry] = {}

    # The objects.

    def put(self, quota: ResourceQuota, entries: Iterable[QuotaEntry]) -> tuple[QuotaProblem, ...]:
        """Add or replace an object in one step; ``entries`` of its namespace count at once."""
        constraint, problems = read_quota(quota, self._vendors)
        account = _Account(constraint)
        for entry in entries:
            self.counted[entry.pod.uid] = entry
            if constraint.scopes.match(entry.pod):
                account.add(entry.charge, 1)
        self.namespaces.setdefault(quota.namespace, {})[quota.name] = account
        return problems

    def remove(self, namespace: str, name: str) -> None:
        """Lift one object's limits; others of the namespace stay. Idempotent."""
        accounts = self.namespaces.get(namespace, {})
        accounts.pop(name, None)
        if not accounts:
            self.namespaces.pop(namespace, None)

    def used(self, namespace: str, name: str) -> Mapping[str, int]:
        """What counts against an object, for each resource that it limits; memory in MiB."""
        account = self.namespaces[namespace][name]
        return {r: account.used.get(r, 0) for r in account.constraint.limits}

    @property
    def constraints(self) -> Iterator[Constraint]:
        for accounts in self.namespaces.values():
            for account in accounts.values():
                yield account.constraint

    def constraints_of(self, namespace: str) -> Iterator[Constraint]:
        """The namespace's constraints that limit something."""
        for account in self.namespaces.get(namespace, {}).values():
            if account.constraint.limits:
                yield account.constraint

    # As every kind of quota.

    def gate(self, pod: Pod, gone: Sequence[QuotaEntry]) -> ResourceQuotaGate | None:
        accounts = [
            account
            for account in self.namespaces.get(pod.namespace, {}).values()
            if account.constraint.limits and account.constraint.scopes.match(pod)
        ]
        if not accounts:
            return None
        return ResourceQuotaGate([(a.constraint, a.used_without(gone)) for a in accounts])

    def refusals(self, entry: QuotaEntry, gone: Sequence[QuotaEntry]) -> tuple[QuotaRefusal, ...]:
        """As a gate says it; none is made for a pod that is new and admitted, as nearly all are."""
        if not gone and self._admits(entry.pod, entry.charge):
            return ()
        gate = self.gate(entry.pod, gone)
        return gate.refusals(entry.charge) if gate else ()

    def charge(self, entry: QuotaEntry) -> None:
        self.counted[entry.pod.uid] = entry
        self._book(entry, 1)

    def release(self, uid: PodUid) -> None:
        if (entry := self.counted.pop(uid, None)) is not None:
            self._book(entry, -1)

    def _admits(self, pod: Pod, amount: Mapping[str, int]) -> bool:
        """Every object admits a pod that is charged nothing yet."""
        for account in self.namespaces.get(pod.namespace, {}).values():
            constraint, used = account.constraint, account.used
            for resource in constraint.limits:
                refusal = constraint.refusal(
                    resource, used.get(resource, 0), amount.get(resource, 0)
                )
                if refusal is not None and constraint.scopes.match(pod):
                    return False
        return True

    def _book(self, entry: QuotaEntry, sign: int) -> None:
        for account in self.namespaces.get(entry.pod.namespace, {}).values():
            if account.constraint.scopes.match(entry.pod):
                account.add(entry.charge, sign)


class ResourceQuotaGate:
    """What the ResourceQuotas of one pod's namespace leave it, at one moment."""

    per_model = False

    def __init__(self, books: Sequence[tuple[Constraint, Mapping[str, int]]]) -> None:
        """Each object with what it counts, where that is anything, by resource name."""
        self._books = books

    def of_models(self, containers: Sequence[ContainerAllocation], node: str) -> Mapping[str, int]:
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
    ) -> tuple[QuotaRefusal, ...]:
        found: list[QuotaRefusal] = []
        for constraint, used in self._books:
            for resource in constraint.limits:
                asks, has = asked.get(resource, 0), used.get(resource, 0)
                refusal = constraint.refusal(resource, 0 if ignoring_usage else has, asks)
                if refusal is not None:
                    found.append(replace(refusal, used=has))
        return tuple(found)
