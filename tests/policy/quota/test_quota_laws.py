"""What holds for the ledger whatever happens to it, in any order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hami.domain.allocations import ContainerAllocation, ContainerKind, PodAllocation
from hami.domain.kubernetes.objects import Metadata, Pod, PodSpec, ResourceQuota, ResourceQuotaSpec
from hami.policy.quota import QuotaLedger
from hami.policy.usage import quota_charge

from ..builders import SHORT, a_grant, the_vendors

VENDORS = the_vendors()
PROFILES = {key: vendor.profile for key, vendor in VENDORS.items()}
NAMESPACES = ("one", "two")
SCOPES = ((), ("Terminating",), ("NotTerminating",))

uids = st.sampled_from([f"uid-{i}" for i in range(6)])
namespaces = st.sampled_from(NAMESPACES)
names = st.sampled_from(["a", "b", "c"])
vendors = st.sampled_from(["ACME", "BOLT", "WHOLE"])
grants = st.builds(
    lambda vendor, memory, cores: a_grant(memory=memory, cores=cores, vendor=vendor),
    vendors, st.integers(0, 600), st.integers(0, 60),
)  # fmt: skip
containers = st.builds(
    lambda kind, held: ContainerAllocation(name="c", kind=kind, grants=tuple(held)),
    st.sampled_from(ContainerKind),
    st.lists(grants, max_size=3),
)
allocations = st.lists(containers, max_size=4).map(
    lambda found: PodAllocation(
        node="n1", containers=tuple(sorted(found, key=lambda c: c.kind is ContainerKind.APP))
    )
)
pods = st.builds(
    lambda uid, namespace, deadline: Pod(
        metadata=Metadata(name=uid, namespace=namespace, uid=uid),
        spec=PodSpec(active_deadline_seconds=deadline),
    ),
    uids, namespaces, st.sampled_from([None, 60]),
)  # fmt: skip
limits = st.dictionaries(
    st.sampled_from(["gpu", "mem", "cores", "npumem", "npucores", "card"]),
    st.integers(0, 1500),
    min_size=1,
)


def in_scope(scopes: tuple[str, ...], pod: Pod) -> bool:
    ends = pod.spec.active_deadline_seconds is not None
    return all(ends == (scope == "Terminating") for scope in scopes)


class Ledger(RuleBasedStateMachine):
    """The ledger beside the plainest possible book: what each pod holds, added up anew each time."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = QuotaLedger(VENDORS)
        self.held: dict[str, tuple[Pod, Mapping[str, int]]] = {}
        self.quotas: dict[tuple[str, str], ResourceQuota] = {}
        self.over: set[tuple[str, str, str]] = set()

    def used(self, namespace: str, name: str) -> Counter[str]:
        scopes = tuple(self.quotas[namespace, name].spec.scopes or ())
        total: Counter[str] = Counter()
        for pod, charge in self.held.values():
            if pod.namespace == namespace and in_scope(scopes, pod):
                total.update(charge)
        return total

    def limits_of(self, namespace: str, name: str) -> dict[str, int]:
        constraint = next(
            c for c in self.ledger.constraints if (c.namespace, c.name) == (namespace, name)
        )
        return dict(constraint.limits)

    def excesses(self) -> set[tuple[str, str, str]]:
        return {
            (namespace, name, resource)
            for namespace, name in self.quotas
            for resource, limit in self.limits_of(namespace, name).items()
            if self.used(namespace, name)[resource] > limit
        }

    @rule(pod=pods, allocation=allocations)
    def reserve(self, pod: Pod, allocation: PodAllocation) -> None:
        charge = quota_charge(allocation.containers, PROFILES)
        before = dict(self.held)
        others = {uid: entry for uid, entry in before.items() if uid != pod.uid}
        self.held = others
        exceeded = {
            (name, resource)
            for namespace, name in self.quotas
            if namespace == pod.namespace
            and in_scope(tuple(self.quotas[namespace, name].spec.scopes or ()), pod)
            for resource, limit in self.limits_of(namespace, name).items()
            if charge.get(resource) and self.used(namespace, name)[resource] + charge[resource] > limit
        }  # fmt: skip
        refusals = self.ledger.reserve(pod, allocation)
        assert {(r.name, r.resource) for r in refusals} == exceeded
        self.held = before if refusals else others | {pod.uid: (pod, charge)}

    @rule(pod=pods, allocation=allocations)
    def charge(self, pod: Pod, allocation: PodAllocation) -> None:
        self.ledger.charge(pod, allocation)
        self.held[pod.uid] = (pod, quota_charge(allocation.containers, PROFILES))
        self.over |= self.excesses()

    @rule(uid=uids)
    def release(self, uid: str) -> None:
        self.ledger.release(uid)
        self.held.pop(uid, None)

    @rule(namespace=namespaces, name=names, hard=limits, scopes=st.sampled_from(SCOPES))
    def set_quota(
        self, namespace: str, name: str, hard: dict[str, int], scopes: tuple[str, ...]
    ) -> None:
        quota = ResourceQuota(
            metadata=Metadata(name=name, namespace=namespace),
            spec=ResourceQuotaSpec(
                hard={f"limits.{SHORT[key]}": str(n) for key, n in hard.items()},
                scopes=list(scopes),
            ),
        )
        assert self.ledger.set_quota(quota) == ()
        self.quotas[namespace, name] = quota
        self.over |= self.excesses()

    @rule(namespace=namespaces, name=names)
    def remove_quota(self, namespace: str, name: str) -> None:
        others = {key: self.limits_of(*key) for key in self.quotas if key != (namespace, name)}
        self.ledger.remove_quota(namespace, name)
        self.quotas.pop((namespace, name), None)
        assert {key: self.limits_of(*key) for key in self.quotas} == others

    @invariant()
    def used_is_the_sum_of_the_entries(self) -> None:
        for namespace, name in self.quotas:
            used = self.ledger.used(namespace, name)
            total = self.used(namespace, name)
            assert used == {resource: total[resource] for resource in used}
            assert set(used) == set(self.limits_of(namespace, name))

    @invariant()
    def no_limit_is_exceeded_but_by_what_ran_already(self) -> None:
        """Charging without asking and lowering a limit may; reserving and releasing never do."""
        now = self.excesses()
        assert now <= self.over
        self.over = now

    @invariant()
    def what_is_left_is_the_least_over_all_objects(self) -> None:
        for namespace in NAMESPACES:
            pod = Pod(metadata=Metadata(name="new", namespace=namespace, uid="new"))
            gate = self.ledger.gate(pod)
            lefts: dict[str, list[int]] = {}
            for (where, name), quota in self.quotas.items():
                if where == namespace and in_scope(tuple(quota.spec.scopes or ()), pod):
                    for resource, limit in self.limits_of(where, name).items():
                        left = limit - self.used(where, name)[resource]
                        lefts.setdefault(resource, []).append(left)
            assert (gate is None) == (not lefts)
            for resource, found in lefts.items():
                assert gate.left(resource) == min(found)

    def teardown(self) -> None:
        for uid in list(self.held):
            self.ledger.release(uid)
        for namespace, name in self.quotas:
            assert not any(self.ledger.used(namespace, name).values())


TestLedger = Ledger.TestCase
TestLedger.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
