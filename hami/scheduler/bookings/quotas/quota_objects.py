"""ResourceQuotas and elastic quotas as the informers show them, made limits of the ledger."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from hami.domain.kubernetes.objects import Pod, ResourceQuota
from hami.domain.units import PodUid
from hami.policy.quota.elastic import Amounts
from hami.scheduler.bookings.charge_book import ChargeBook
from hami.scheduler.bookings.inventory import ClusterInventory
from hami.scheduler.bookings.problems import Problems
from hami.scheduler.bookings.quotas.capacity import capacity_of
from hami.scheduler.bookings.quotas.elastic_objects import (
    ElasticObjects,
    QuotaObject,
    object_key,
)
from hami.scheduler.events import (
    ElasticQuotasArranged,
    Event,
    QuotaRulesChanged,
    RoomInElasticQuotas,
    RoomInQuota,
    UsageChanged,
)


class QuotaObjects:
    """The only writer of the ledger's limits."""

    def __init__(
        self,
        inventory: ClusterInventory,
        books: ChargeBook,
        pods: Mapping[PodUid, Pod],
        problems: Problems,
        publish: Callable[[Event], None],
    ) -> None:
        """``pods``: as the informer shows them."""
        self._inventory = inventory
        self._books = books
        self._pods = pods
        self._problems = problems
        self._publish = publish
        self.objects: dict[tuple[str, str], ResourceQuota] = {}
        """ResourceQuotas by namespace and name."""
        self.elastic = ElasticObjects()
        self.rules = 0
        """Counts how often a quota has come, gone or begun to say something else."""

    def reread(self) -> None:
        """Another ledger: it has none of them."""
        for quota in self.objects.values():
            self._set(quota)
        self.arrange()

    # ResourceQuotas.

    def changed(self, quota: ResourceQuota) -> None:
        key = (quota.namespace, quota.name)
        known = self.objects.get(key)
        self.objects[key] = quota
        if known is None or known.spec != quota.spec:
            self._set(quota)
            self._other_rules()
            self._publish(RoomInQuota(quota.namespace))
        self._publish(UsageChanged(quota.namespace))

    def _set(self, quota: ResourceQuota) -> None:
        key = ("ResourceQuota", f"{quota.namespace}/{quota.name}")
        problems = tuple(str(problem) for problem in self._books.ledger.set_quota(quota))
        self._problems.tell(quota, key, "MalformedQuota", problems)

    def gone(self, quota: ResourceQuota) -> None:
        self.objects.pop((quota.namespace, quota.name), None)
        self._problems.forget(("ResourceQuota", f"{quota.namespace}/{quota.name}"))
        self._books.ledger.remove_quota(quota.namespace, quota.name)
        self._other_rules()
        self._publish(RoomInQuota(quota.namespace))

    # Elastic quotas.

    def elastic_gone(self, quota: QuotaObject) -> None:
        """It counts until all are arranged anew; another of its name is told its own problems."""
        self.elastic.remove(quota)
        for about in ("elastic quota", "backing"):
            self._problems.forget((about, object_key(quota)))

    def arrange(self) -> None:
        """The elastic quotas have changed: what runs counts against the new ones at once."""
        ledger = self._books.ledger
        leaves, nodes, problems = self.elastic.read(ledger.units)
        problems += ledger.set_elastic(leaves, nodes, self._capacity(), self._bound_in)
        for key, quota in self.elastic.objects.items():
            told = tuple(str(problem) for problem in problems if problem.quota == key)
            self._problems.tell(quota, ("elastic quota", key), "MalformedQuota", told)
        self._other_rules()
        self._publish(RoomInElasticQuotas(ledger.elastic_namespaces))
        self._publish(ElasticQuotasArranged())

    def _bound_in(self, namespaces: Collection[str]) -> Iterator[Pod]:
        for pod in self._pods.values():
            if pod.namespace in namespaces and pod.spec.node_name and not pod.finished:
                yield pod

    def _capacity(self) -> Amounts | None:
        """What the cluster has, where quotas may use all of it."""
        ledger, inventory = self._books.ledger, self._inventory
        if ledger.elastic.options.pool != "capacity":
            return None
        return capacity_of(inventory.table, inventory.nodes.values(), ledger.units)

    def measure(self) -> None:
        """Nodes come and go: now and then the pool follows, and once all are known."""
        self._books.ledger.elastic.set_capacity(self._capacity())

    def tell_unbacked(self, unbacked: Mapping[str, object]) -> None:
        """By resource: what the cluster has too little of for all guarantees together."""
        for leaf in self._books.ledger.elastic.leaves:
            if (quota := self.elastic.quota(leaf.key)) is not None:
                told = tuple(str(unbacked[r]) for r in sorted(unbacked) if leaf.min.get(r, 0) > 0)
                self._problems.tell(quota, ("backing", leaf.key), "GuaranteeNotBacked", told)

    def _other_rules(self) -> None:
        self.rules += 1
        self._publish(QuotaRulesChanged())
