"""Everything the service knows of the cluster, of parts that each change only themselves.

Fed by the informers, read and booked by the extender, all on one asyncio loop: every method runs to
its end without giving up the loop. All of it follows from nodes, pods and quotas, so a restart
rebuilds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hami.domain.allocations import PodAllocation
from hami.domain.objects import Node, Pod, ResourceQuota
from hami.domain.units import PodUid
from hami.policy.quota import QuotaLedger
from hami.policy.quota.elastic import Options
from hami.policy.tables.cluster_table import ClusterTable
from hami.scheduler.bookings.accounts import Accounts
from hami.scheduler.bookings.backoff import Backoff
from hami.scheduler.bookings.bookings import Bookings
from hami.scheduler.bookings.bound_pods import BoundPods
from hami.scheduler.bookings.charges import Charge
from hami.scheduler.bookings.deps import SchedulerDeps
from hami.scheduler.bookings.elastic_objects import ElasticObjects
from hami.scheduler.bookings.groups import Groups
from hami.scheduler.bookings.holds import Holds
from hami.scheduler.bookings.inventory import Inventory
from hami.scheduler.bookings.lock_book import LockBook
from hami.scheduler.bookings.problems import Problems
from hami.scheduler.bookings.quota_objects import QuotaObjects
from hami.scheduler.bookings.reservations import Phase, Reservations
from hami.scheduler.events import Event, Events, Subscriber
from hami.scheduler.pending.expected_pods import ExpectedPods
from hami.scheduler.pending.pending_pods import PendingPods
from hami.vendors.registry import Vendors
from hami.wire.codecs import NodeLock


class ClusterState:
    """``inventory`` has the nodes and devices, ``bookings`` and ``bound`` what is in use of them,
    ``quota_objects`` the limits, ``pending`` who waits. Beside them it only reads.
    """

    def __init__(
        self,
        vendors: Vendors,
        deps: SchedulerDeps,
        options: Options | None = None,
        subscribers: Sequence[Subscriber] = (),
    ) -> None:
        """``options`` are about elastic quotas. ``subscribers`` are told events after the parts."""
        pods: dict[PodUid, Pod] = {}
        problems = Problems(deps.report)
        self.pods: Mapping[PodUid, Pod] = pods
        self.groups = Groups()
        self.backoff = Backoff(deps.clock)
        self.pending = PendingPods(vendors, deps.scheduler_name)
        self.expected = ExpectedPods(pods)
        heard = (self._heard, self.pending.hear, self.expected.hear, *subscribers)
        publish = Events(heard).publish
        self.inventory = Inventory(
            vendors,
            deps.alive,
            LockBook(deps.needs_lock, deps.lock_expiry, self._pod_on),
            problems,
            watched=lambda: bool(self.pending.pods),
            publish=publish,
        )
        table = self.inventory.table
        self._accounts = Accounts(table, QuotaLedger(vendors, options, table.model_of))
        self.bookings = Bookings(self.inventory, self._accounts, self.groups, pods, deps, publish)
        self.bound = BoundPods(
            pods, self._accounts, self.bookings, self.groups, problems, deps, publish
        )
        self.quota_objects = QuotaObjects(self.inventory, self._accounts, pods, problems, publish)

    def _heard(self, event: Event) -> None:
        self.bound.hear(event)

    def _pod_on(self, node: str, lock: NodeLock) -> PodUid | None:
        """By what the lock says: after a restart nobody else knows who took it."""
        for uid in self.table.charged_on(node):
            pod = self.pods.get(uid)
            if pod is not None and (pod.namespace, pod.name) == (lock.namespace, lock.pod):
                return uid
        return None

    def use(self, vendors: Vendors) -> None:
        """Read everything anew with other profiles; what was promised stays promised.

        Takes as long as a start: some seconds on 5000 nodes.
        """
        self.inventory.use(vendors)
        options = self.ledger.elastic.options
        self._accounts.use(self.table, QuotaLedger(vendors, options, self.table.model_of))
        self.bookings.holds.forget()
        self.quota_objects.reread()
        for name in self.nodes:
            self.inventory.look_at_locks(name)
            self.inventory.reread(name)
        self.bookings.reread()
        self.pending.use(vendors)
        self.bound.reread()
        self.pending.forget_offers()

    # What the informers show.

    def node_changed(self, node: Node) -> None:
        self.inventory.node_changed(node)

    def node_gone(self, node: Node) -> None:
        self.inventory.node_gone(node)

    def reread_node(self, name: str) -> None:
        self.inventory.reread(name)

    def pod_changed(self, pod: Pod) -> None:
        self.bound.changed(pod)

    def pod_gone(self, pod: Pod) -> None:
        self.bound.gone(pod)

    def quota_changed(self, quota: ResourceQuota) -> None:
        self.quota_objects.changed(quota)

    def quota_gone(self, quota: ResourceQuota) -> None:
        self.quota_objects.gone(quota)

    def arrange_quotas(self) -> None:
        self.quota_objects.arrange()

    # What there is, to be read.

    @property
    def vendors(self) -> Vendors:
        return self.inventory.vendors

    @property
    def nodes(self) -> Mapping[str, Node]:
        return self.inventory.nodes

    @property
    def table(self) -> ClusterTable:
        return self.inventory.table

    @property
    def ledger(self) -> QuotaLedger:
        return self._accounts.ledger

    @property
    def reservations(self) -> Reservations:
        return self.bookings.reservations

    @property
    def charges(self) -> Mapping[PodUid, Charge]:
        return self.bookings.charges

    @property
    def holds(self) -> Holds:
        return self.bookings.holds

    @property
    def quotas(self) -> Mapping[tuple[str, str], ResourceQuota]:
        return self.quota_objects.objects

    @property
    def elastic(self) -> ElasticObjects:
        return self.quota_objects.elastic

    @property
    def allocations(self) -> Iterable[tuple[Pod, PodAllocation, Phase]]:
        """Every pod that holds devices, promised or bound."""
        for reservation in self.reservations.values():
            yield reservation.pod, reservation.allocation, reservation.phase
        for charge in self.charges.values():
            yield charge.pod, charge.account.running, Phase.BOUND
