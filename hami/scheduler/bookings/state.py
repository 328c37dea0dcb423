"""Everything the service knows of the cluster, of parts that each change only themselves.

Fed by the informers, read and booked by the extender, all on one asyncio loop: every method runs to
its end without giving up the loop. All of it follows from nodes, pods and quotas, so a restart
rebuilds it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

from hami.domain.allocations import PodAllocation
from hami.domain.kubernetes.objects import Node, Pod, ResourceQuota
from hami.domain.units import PodUid
from hami.policy.quota import QuotaLedger
from hami.policy.quota.elastic import Options
from hami.policy.tables.cluster_table import ClusterTable
from hami.scheduler.bookings.backoff import PodBackoff
from hami.scheduler.bookings.bookings import Bookings
from hami.scheduler.bookings.bound_pods import BoundPods
from hami.scheduler.bookings.charge_book import ChargeBook
from hami.scheduler.bookings.charges import Charge
from hami.scheduler.bookings.deps import SchedulerDeps
from hami.scheduler.bookings.groups import Groups
from hami.scheduler.bookings.inventory import ClusterInventory
from hami.scheduler.bookings.lock_book import LockBook
from hami.scheduler.bookings.problems import Problems
from hami.scheduler.bookings.quotas.quota_objects import QuotaObjects
from hami.scheduler.bookings.reservations import Phase
from hami.scheduler.bookings.strangers import Strangers
from hami.scheduler.events import Events, PodSeen, Subscription, on
from hami.scheduler.pending.expected_pods import ExpectedPods
from hami.scheduler.pending.pending_pods import Heard, PendingPods
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
        subscriptions: Sequence[Subscription] = (),
    ) -> None:
        """``options`` are about elastic quotas. ``subscriptions``: who beside the parts
        is told of events; after them.
        """
        pods: dict[PodUid, Pod] = {}
        problems = Problems(deps.report)
        table = ClusterTable(vendors, alive=deps.alive)
        books = ChargeBook(table, QuotaLedger(vendors, options, table.model_of))
        strangers = Strangers(books, problems, deps.signer, self._freed)
        self.pods: Mapping[PodUid, Pod] = pods
        self.groups = Groups()
        self.backoff = PodBackoff(deps.clock)
        self.pending = PendingPods(vendors, deps.scheduler_name)
        self.expected = ExpectedPods(pods)
        publish = Events(
            on(self.pending.hear, *get_args(Heard)),
            on(self.expected.seen, PodSeen),
            *subscriptions,
        ).publish
        self.inventory = ClusterInventory(
            table,
            LockBook(deps.needs_lock, deps.lock_expiry, self._pod_on),
            problems,
            reread=strangers.node_reread,
            watched=lambda: bool(self.pending.pods),
            publish=publish,
        )
        self.bookings = Bookings(self.inventory, books, self.groups, pods, deps, publish)
        self.bound = BoundPods(
            pods,
            books,
            self.bookings,
            strangers,
            self.groups,
            problems,
            self.inventory,
            deps,
            publish,
        )
        self.resizes = self.bound.resizes
        self.quota_objects = QuotaObjects(self.inventory, books, pods, problems, publish)
        self._alive = deps.alive
        self._books = books
        # To be read.
        self.nodes: Mapping[str, Node] = self.inventory.nodes
        self.reservations = self.bookings.reservations
        self.charges: Mapping[PodUid, Charge] = books.charges
        self.holds = self.bookings.holds
        self.quotas: Mapping[tuple[str, str], ResourceQuota] = self.quota_objects.objects
        self.elastic = self.quota_objects.elastic
        self._read(vendors)

    def _read(self, vendors: Vendors) -> None:
        """What a reload makes anew."""
        self.vendors = vendors
        self.table = self._books.table
        self.ledger = self._books.ledger

    def _freed(self, pod: Pod, node: str) -> None:
        self.bookings.freed(pod, node)

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
        table = ClusterTable(vendors, alive=self._alive)
        self.inventory.use(table)
        self._books.use(table, QuotaLedger(vendors, self.ledger.elastic.options, table.model_of))
        self._read(vendors)
        self.bookings.holds.forget()
        for name in self.nodes:
            self.inventory.look_at_locks(name)
            self.inventory.reread(name)
        self.quota_objects.reread()  # The nodes' devices may be what all quotas share.
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

    @property
    def allocations(self) -> Iterable[tuple[Pod, PodAllocation, Phase]]:
        """Every pod that holds devices, promised or bound."""
        for reservation in self.reservations.values():
            yield reservation.pod, reservation.allocation, reservation.phase
        for charge in self.charges.values():
            yield charge.pod, charge.account.running, Phase.BOUND
