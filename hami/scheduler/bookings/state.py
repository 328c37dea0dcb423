"""Everything the service knows of the cluster, and the only place that changes it.

Fed by the informers, read and reserved from by the extender, all on one asyncio loop: every
method runs to its end without giving up the loop, so there are no locks and no half-made changes.
All of it follows from nodes, pods and quotas, so a restart rebuilds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from hami.domain.allocations import PodAllocation
from hami.domain.objects import Node, Pod, ResourceQuota
from hami.domain.requests import PodRequest
from hami.domain.units import PodUid
from hami.policy.filter.decision import Refused
from hami.policy.pods.accounting import Account, account_of
from hami.policy.quota import QuotaLedger
from hami.policy.quota.elastic import Amounts, Options
from hami.policy.tables.cluster_table import ClusterTable
from hami.scheduler.bookings.capacity import capacity_of
from hami.scheduler.bookings.charges import Charge, known_part
from hami.scheduler.bookings.deciding import decided
from hami.scheduler.bookings.decision import FIRST_GENERATION
from hami.scheduler.bookings.elastic_objects import ElasticObjects
from hami.scheduler.bookings.groups import Groups
from hami.scheduler.bookings.holds import Holds
from hami.scheduler.bookings.lock_book import Locks, NoLocks
from hami.scheduler.bookings.reservations import Phase, Reservation, Reservations
from hami.scheduler.bookings.rests import Rests
from hami.scheduler.bookings.room import Room, alike, grew, room_on
from hami.scheduler.bookings.strangers import Strangers
from hami.scheduler.bookings.surroundings import Problems, SchedulerDeps, Unjudged, nobody
from hami.scheduler.pending.kinds import asks_for, resource_names
from hami.scheduler.pending.waiting import WaitingPods
from hami.signing import Verdict
from hami.vendors.registry import Vendors
from hami.wire import keys


class ClusterState:
    """Nodes, pods, quotas; what is charged and what is promised."""

    def __init__(
        self, vendors: Vendors, around: SchedulerDeps, options: Options | None = None
    ) -> None:
        """``options`` are about elastic quotas."""
        self._around = around
        self.vendors = vendors
        self._resources = resource_names(vendors)
        self.table = ClusterTable(vendors, alive=around.alive)
        self.ledger = QuotaLedger(vendors, options, self.table.model_of)
        self.elastic = ElasticObjects()
        self.nodes: dict[str, Node] = {}
        self.pods: dict[PodUid, Pod] = {}
        self.quotas: dict[tuple[str, str], ResourceQuota] = {}
        self.reservations = Reservations(around.clock)
        self.groups = Groups()
        self.rests = Rests(around.clock)
        self.charges: dict[PodUid, Charge] = {}
        self.leaving: set[PodUid] = set()
        """Bound pods that are being deleted, and hold what they have until they are gone."""
        self.holds = Holds(self, clock=around.clock, patience=around.hold)
        self.waiting = WaitingPods(vendors)
        self.scheduler_name = ""
        self.following = True
        self.freed = asyncio.Event()
        self.claims = asyncio.Event()
        self.change = 0
        self.rules = 0
        """Counts how often a quota has come, gone or begun to say something else."""
        self.unjudged: dict[PodUid, Unjudged] = {}
        self.to_judge = asyncio.Event()
        self.usage_changed: Callable[[str], None] = nobody
        self.quotas_arranged: Callable[[], None] = nobody
        self.pod_seen: Callable[[Pod], None] = nobody
        self.locks: Locks = NoLocks()
        self._expected: dict[PodUid, list[asyncio.Future[None]]] = {}
        self._problems = Problems(around.report)
        self._strangers = Strangers(self, self._problems, around.signer)

    @property
    def allocations(self) -> Iterable[tuple[Pod, PodAllocation, Phase]]:
        """Every pod that holds devices, promised or bound."""
        for reservation in self.reservations.values():
            yield reservation.pod, reservation.allocation, reservation.phase
        for charge in self.charges.values():
            yield charge.pod, charge.account.running, Phase.BOUND

    def use(self, vendors: Vendors) -> None:
        """Read everything anew with other profiles; what was promised stays promised.

        Takes as long as a start: some seconds on 5000 nodes.
        """
        self.vendors = vendors
        self._resources = resource_names(vendors)
        self.table = ClusterTable(vendors, alive=self._around.alive)
        self.ledger = QuotaLedger(vendors, self.ledger.elastic.options, self.table.model_of)
        self.holds.forget()
        for quota in self.quotas.values():
            self._set_quota(quota)
        self.arrange_quotas()
        for name, node in self.nodes.items():
            self.locks.node_seen(node)
            self.reread_node(name)
        for reservation in self.reservations.values():
            known = known_part(reservation.allocation, vendors)
            self.table.charge(reservation.pod.uid, known)
            self.ledger.charge(reservation.pod, known)
            reservation.written = None
        self.charges.clear()
        self.unjudged.clear()
        self.waiting = WaitingPods(vendors)
        for pod in self.pods.values():
            self.pod_changed(pod)
        self.waiting.forget_offers()
        self.freed.set()

    # Nodes.

    def node_changed(self, node: Node) -> None:
        known = self.nodes.get(node.name)
        self.nodes[node.name] = node
        self.locks.node_seen(node)
        if known is not None and alike(known, node):
            return
        self.reread_node(node.name)

    def reread_node(self, name: str) -> None:
        """Take a node's devices afresh: it changed, or a liveness ran out."""
        node, before = self.nodes[name], self._room_on(name)
        problems = tuple(str(problem) for problem in self.table.set_node(node))
        self.ledger.look_again(self.table.charged_on(name))
        self._problems.tell(node, ("Node", name), "MalformedDevices", problems)
        self._strangers.look_on(name)
        if grew(before, self._room_on(name)):
            self.freed_on(name)

    def _room_on(self, name: str) -> Room:
        """None at all where nobody waits for it."""
        if not self.waiting.pods or name not in self.table.node_names:
            return {}
        return room_on(self.table.devices(name), self.vendors)

    def node_gone(self, node: Node) -> None:
        self.nodes.pop(node.name, None)
        self._problems.forget(("Node", node.name))
        self.locks.node_gone(node.name)
        self.table.remove_node(node.name)

    # Quotas.

    def quota_changed(self, quota: ResourceQuota) -> None:
        key = (quota.namespace, quota.name)
        known = self.quotas.get(key)
        self.quotas[key] = quota
        if known is None or known.spec != quota.spec:
            self._set_quota(quota)
            self._other_rules()
            self._allowed_in(quota.namespace)
        self.usage_changed(quota.namespace)

    def _set_quota(self, quota: ResourceQuota) -> None:
        key = ("ResourceQuota", f"{quota.namespace}/{quota.name}")
        problems = tuple(str(problem) for problem in self.ledger.set_quota(quota))
        self._problems.tell(quota, key, "MalformedQuota", problems)

    def quota_gone(self, quota: ResourceQuota) -> None:
        self.quotas.pop((quota.namespace, quota.name), None)
        self._problems.forget(("ResourceQuota", f"{quota.namespace}/{quota.name}"))
        self.ledger.remove_quota(quota.namespace, quota.name)
        self._other_rules()
        self._allowed_in(quota.namespace)

    def arrange_quotas(self) -> None:
        """The elastic quotas have changed: what runs counts against the new ones at once."""
        leaves, nodes, problems = self.elastic.read(self.ledger.units)
        problems += self.ledger.set_elastic(leaves, nodes, self._capacity(), self._bound_in)
        for key, quota in self.elastic.objects.items():
            told = tuple(str(problem) for problem in problems if problem.quota == key)
            self._problems.tell(quota, ("elastic quota", key), "MalformedQuota", told)
        self._other_rules()
        self._allowed_everywhere()
        self.quotas_arranged()

    def _other_rules(self) -> None:
        """For whom nobody goes, others may go now."""
        self.rules += 1
        self.claims.set()

    def _bound_in(self, namespaces: Collection[str]) -> Iterator[Pod]:
        for pod in self.pods.values():
            if pod.namespace in namespaces and pod.spec.node_name and not pod.finished:
                yield pod

    def _capacity(self) -> Amounts | None:
        """What the cluster has, where quotas may use all of it."""
        if self.ledger.elastic.options.pool != "capacity":
            return None
        return capacity_of(self.table, self.nodes.values(), self.ledger.units)

    def tell_unbacked(self, unbacked: Mapping[str, object]) -> None:
        """By resource: what the cluster has too little of for all guarantees together."""
        for leaf in self.ledger.elastic.leaves:
            if (quota := self.elastic.quota(leaf.key)) is not None:
                told = tuple(str(unbacked[r]) for r in sorted(unbacked) if leaf.min.get(r, 0) > 0)
                self._problems.tell(quota, ("backing", leaf.key), "GuaranteeNotBacked", told)

    def measure(self) -> None:
        """Nodes come and go: now and then the pool follows."""
        self.ledger.elastic.set_capacity(self._capacity())

    # Pods, as the informer shows them.

    def pod_changed(self, pod: Pod) -> None:
        self.pods[pod.uid] = pod
        self.groups.seen(pod)
        if pod.metadata.deletion_timestamp and pod.spec.node_name and not pod.finished:
            self.leaving.add(pod.uid)
        if pod.finished:
            self._uses_nothing(pod.uid)
        elif pod.spec.node_name:
            self._runs(pod)
        else:
            self._waits(pod)
        for future in self._expected.pop(pod.uid, ()):
            if not future.done():
                future.set_result(None)

    def pod_gone(self, pod: Pod) -> None:
        self.pods.pop(pod.uid, None)
        self.groups.gone(pod.uid)
        self._problems.forget(("Pod", pod.uid))
        self._strangers.forget(pod.uid)
        self._uses_nothing(pod.uid)

    async def expected_pod(self, uid: PodUid, patience: float) -> Pod | None:
        """The pod, waiting up to ``patience`` seconds for the informer to show it."""
        if uid not in self.pods:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._expected.setdefault(uid, []).append(future)
            await asyncio.wait([future], timeout=patience)
            waiting = self._expected.get(uid, [])
            if future in waiting:
                waiting.remove(future)
                if not waiting:
                    del self._expected[uid]
        return self.pods.get(uid)

    def _waits(self, pod: Pod, *, known_before: bool = False) -> None:
        if pod.uid in self.charges:
            return  # A bound pod does not come back; an old event is not believed.
        if (reservation := self.reservations.get(pod.uid)) is not None:
            reservation.pod = pod
        elif (
            self.is_ours(pod)
            and self.asks(pod)
            and self.waiting.arrived(pod, known_before=known_before or self.following)
        ):
            self.freed.set()  # It had been woken and is gated or on its way out by now.

    def _waits_no_more(self, uid: PodUid) -> None:
        self.ledger.withdraw(uid)
        if self.waiting.left(uid):
            self.freed.set()  # It had been woken; now the next one may be.

    def is_ours(self, pod: Pod) -> bool:
        """It waits for a kube-scheduler that asks us."""
        return not self.scheduler_name or pod.spec.scheduler_name == self.scheduler_name

    def asks(self, pod: Pod) -> bool:
        """Some container names a resource of a vendor."""
        return asks_for(pod, self._resources)

    def _runs(self, pod: Pod) -> None:
        self._waits_no_more(pod.uid)
        self._is_charged(pod)
        if self.ledger.seen(pod):
            self._usage_changed(pod.namespace)
        self.pod_seen(pod)

    def _is_charged(self, pod: Pod) -> None:
        known = self.charges.get(pod.uid)
        if known is not None and known.reads_alike(pod):
            return
        reservation = self.reservations.get(pod.uid)
        account = reservation.account_of(pod) if reservation else None
        if account is None:
            account = account_of(pod, self.vendors)
        if account is None:
            self._drop_reservation(pod.uid)
            return
        if strange := self._strangers.is_strange(pod, account):
            account = self._strangers.at_most_asked(pod, account)
        self.reservations.pop(pod.uid, None)
        if reservation and reservation.answered is not None:
            self._around.bind_seen(self._around.clock() - reservation.answered)
        charge = self._charge_of(pod, account, known, reservation)
        if strange and not charge.strange:
            charge = replace(charge, strange=True)
        self._apply(pod, charge)
        before = known.account.running if known else reservation and reservation.allocation
        if before and before != self.charges[pod.uid].account.running:
            # Init containers have ended, or it runs elsewhere than was promised.
            self._freed(pod, before.node)

    def _charge_of(
        self, pod: Pod, account: Account, known: Charge | None, reservation: Reservation | None
    ) -> Charge:
        """As an unsigned allocation counts, until its signature is judged."""
        text, generation = pod.annotations.get(keys.ALLOCATION_SIGNATURE, ""), 0
        if known and known.vouches_for(account, text):
            generation = known.generation
        elif reservation and reservation.vouches_for(account, text):
            generation = FIRST_GENERATION
        elif text and self._around.signer().verifies:
            first = known is None or known.account.idle
            self.unjudged[pod.uid] = Unjudged(pod.uid, account, text, first=first)
            self.to_judge.set()
        if known is None:
            signature = text if generation else ""
            return Charge(pod=pod, account=account, generation=generation, signature=signature)
        if account.allocation == known.account.allocation:
            return replace(known, pod=pod, account=account)
        return known.edited(pod, account)

    def judged(self, about: Unjudged, verdict: Verdict) -> None:
        """A signature was found good or bad, some turns after the pod was seen with it."""
        if self.unjudged.get(about.uid) is not about:
            return  # The pod is gone, or was edited meanwhile.
        del self.unjudged[about.uid]
        known = self.charges[about.uid]
        charge = self._strangers.judged(known, about, verdict)
        if charge.account == known.account:
            self.charges[about.uid] = charge  # As it was charged on trust.
            return
        self._apply(known.pod, charge)
        if charge.account.running != known.account.running:
            self._freed(known.pod, known.account.running.node)

    def _apply(self, pod: Pod, charge: Charge) -> None:
        self._strangers.book(charge)
        self._usage_changed(pod.namespace)
        self._problems.tell(pod, ("Pod", pod.uid), "UnknownUsage", charge.account.problems)
        self._strangers.look_at(charge)

    def _uses_nothing(self, uid: PodUid) -> None:
        self.unjudged.pop(uid, None)
        self.leaving.discard(uid)
        self._waits_no_more(uid)
        self._drop_reservation(uid)
        self.end_hold(uid)
        if (charge := self.charges.pop(uid, None)) is not None:
            self._has_left(charge)
        elif self.holds.lets_go(uid) and (member := self.ledger.elastic.member(uid)):
            self.ledger.release(uid)  # A pod without devices of ours.
            self._freed_in(member.namespace)

    def _has_left(self, charge: Charge) -> None:
        """A bound pod is gone; what it had is free, or held for whom it was evicted for."""
        node = charge.account.allocation.node
        if (hold := self.holds.keeps(charge.pod, charge.account.running)) is None:
            self._release(charge.pod, node)
            return
        self.freed_on(node)
        self._allowed_in(hold.claimant.namespace)

    # Holds.

    def charge(self, pod: Pod, allocation: PodAllocation) -> None:
        """Devices and quota, whatever the limits say."""
        self.table.charge(pod.uid, allocation)
        self.ledger.charge(pod, allocation)

    def discharge(self, pod: Pod) -> None:
        self.table.release(pod.uid)
        self.ledger.release(pod.uid)

    def end_hold(self, claimant: PodUid) -> None:
        """What was freed for this pod is free for everybody. Idempotent."""
        for left in self.holds.end(claimant):
            self._freed(left.pod, left.allocation.node)

    # Reservations.

    def reserve(self, request: PodRequest, candidates: Sequence[str]) -> PodAllocation | Refused:
        """Decide and promise in one step; what the pod was promised before is given up.

        When nothing fits, the pod holds nothing any more.
        """
        pod = request.pod
        former = self.lift(pod.uid)
        with self.holds.lifted(pod.uid):
            outcome = decided(self, request, candidates)
            if isinstance(outcome, PodAllocation):
                self.promise(pod, outcome, former.first if former else self._around.clock())
        if former is not None and former.allocation != outcome:
            self._freed(pod, former.allocation.node)
        return outcome

    def lift(self, uid: PodUid) -> Reservation | None:
        """Take back what a pod was promised; nobody hears of it before :meth:`settle`."""
        reservation = self.reservations.pop(uid, None)
        if reservation is not None:
            self.discharge(reservation.pod)
        return reservation

    def settle(self, former: Reservation) -> None:
        """What was lifted is free, but for what was promised to the same pod again.

        kube-scheduler may count on the promise, and then it does not ask again by itself.
        """
        now = self.reservations.get(former.pod.uid)
        if now is None or now.allocation != former.allocation:
            self._freed(former.pod, former.allocation.node)
        pod = self.pods.get(former.pod.uid)
        if now is None and pod and not pod.spec.node_name and not pod.finished:
            self._waits(pod, known_before=True)

    def promise(self, pod: Pod, given: PodAllocation, first: float, *, told: bool = True) -> None:
        """What the ledger is charged already. ``first`` as in :class:`Reservation`."""
        self.end_hold(pod.uid)
        self.table.charge(pod.uid, given)
        now = self._around.clock()
        self.reservations[pod.uid] = Reservation(pod, given, now, first, told)
        self._waits_no_more(pod.uid)
        self._usage_changed(pod.namespace)

    def give_up(self, uid: PodUid) -> None:
        """This attempt to bind came to nothing, which says nothing of one that was lost before."""
        self.reservations.not_bound(uid)
        if self.reservations.promised(uid) is None:
            self.release(uid)

    def release(self, uid: PodUid) -> None:
        """The API server definitely did not bind the pod, nor will it. Idempotent."""
        reservation, pod = self.reservations.get(uid), self.pods.get(uid)
        self._drop_reservation(uid)
        if reservation and pod and not pod.spec.node_name and not pod.finished:
            self._waits(pod)

    def _drop_reservation(self, uid: PodUid) -> None:
        if (reservation := self.reservations.pop(uid, None)) is not None:
            self._release(reservation.pod, reservation.allocation.node)

    def _release(self, pod: Pod, node: str) -> None:
        self.discharge(pod)
        self._freed(pod, node)

    # What others want to know.

    def _freed(self, pod: Pod, node: str) -> None:
        self.freed_on(node)
        self._freed_in(pod.namespace)
        self._usage_changed(pod.namespace)

    def freed_on(self, node: str) -> None:
        self.waiting.freed_on(node)
        self.freed.set()

    def _freed_in(self, namespace: str) -> None:
        """Elastic quota that one namespace leaves may be borrowed by any."""
        if self.ledger.elastic.leaf_of(namespace) is not None:
            self._allowed_everywhere()
        elif self._is_limited(namespace):
            self._allowed_in(namespace)

    def _allowed_everywhere(self) -> None:
        for namespace in {kind.namespace for kind in self.waiting.kinds}:
            if self.ledger.elastic.leaf_of(namespace) is not None:
                self._allowed_in(namespace)

    def _usage_changed(self, namespace: str) -> None:
        self.change += 1
        if self._is_limited(namespace) or self.ledger.elastic.leaf_of(namespace) is not None:
            self.usage_changed(namespace)

    def _is_limited(self, namespace: str) -> bool:
        return any(True for _ in self.ledger.constraints_of(namespace))

    def _allowed_in(self, namespace: str) -> None:
        """Also where the last limit has just gone."""
        self.waiting.freed_in(namespace)
        self.freed.set()
