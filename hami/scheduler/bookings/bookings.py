"""Decides where a pod goes and books it: what is promised, held for a claimant, or only tried.

Everything here runs to its end without giving up the loop, so there are no locks and no half-made
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from hami.domain.allocations import PodAllocation
from hami.domain.kubernetes.objects import Pod
from hami.domain.requests import PodRequest
from hami.domain.units import PodUid
from hami.policy.filter.decision import Placed, Refused, decide, over_quota
from hami.policy.pods.accounting import Account
from hami.policy.quota.elastic import Amounts, Claim, Member
from hami.scheduler.bookings.charge_book import ChargeBook
from hami.scheduler.bookings.charges import known_part
from hami.scheduler.bookings.deps import SchedulerDeps
from hami.scheduler.bookings.groups import Groups
from hami.scheduler.bookings.holds import Holds
from hami.scheduler.bookings.inventory import ClusterInventory
from hami.scheduler.bookings.reservations import Phase, Reservation, Reservations
from hami.scheduler.events import (
    Event,
    PodPlaced,
    PodUnplaced,
    RoomInElasticQuotas,
    RoomInQuota,
    RoomOnNode,
    UsageChanged,
)

LOCK_PROMISED = 5.0
"""Seconds that a node whose lock is needed is kept for a pod that was filtered and does not come to
its bind: one that waits for a volume or for its group must not keep others from a node that it has
not locked."""

_NOBODY = Pod()


class Bookings:
    """The one writer of what is in use: charges of devices and quotas, reservations, holds.

    Bound pods are charged by :class:`BoundPods`, which is its other half.
    """

    def __init__(
        self,
        inventory: ClusterInventory,
        books: ChargeBook,
        groups: Groups,
        pods: Mapping[PodUid, Pod],
        deps: SchedulerDeps,
        publish: Callable[[Event], None],
    ) -> None:
        """``pods``: as the informer shows them."""
        self._inventory = inventory
        self._books = books
        self._groups = groups
        self._pods = pods
        self._clock = deps.clock
        self._publish = publish
        self.reservations = Reservations(deps.clock)
        self.holds = Holds(books, clock=deps.clock, patience=deps.hold)
        self.change = 0
        """Counts how often what is in use has changed."""

    def reread(self) -> None:
        """Other profiles: what was promised stays promised, apart from devices of vendors that are
        no more.
        """
        for reservation in self.reservations.values():
            known = known_part(reservation.allocation, self._books.table.vendors)
            self._books.charge(reservation.pod, known)
            reservation.written = None

    # Where a pod goes.

    def reserve(self, request: PodRequest, candidates: Sequence[str]) -> PodAllocation | Refused:
        """Decide and promise in one step; what the pod was promised before is given up.

        When nothing fits, the pod holds nothing any more.
        """
        pod = request.pod
        former = self.lift(pod.uid)
        outcome: PodAllocation | Refused | None = None
        try:
            with self.holds.lifted(pod.uid):
                outcome = self._decided(request, candidates)
                if isinstance(outcome, PodAllocation):
                    self.promise(pod, outcome, former.first if former else self._clock())
            return outcome
        finally:
            if former is not None and former.allocation != outcome:
                self.freed(pod, former.allocation.node)

    def _decided(self, request: PodRequest, candidates: Sequence[str]) -> PodAllocation | Refused:
        """Charged to the quotas, if it is an allocation."""
        ledger = self._books.ledger
        # Nobody fits a pod into thousands of nodes to find its quota used up on each.
        if hopeless := ledger.hopeless(request):
            return over_quota(candidates, hopeless)
        outcome = self._on_a_free_node(request, candidates)
        if not isinstance(outcome, Placed):
            return outcome
        refusals = ledger.reserve(request.pod, outcome.allocation)
        return over_quota(candidates, refusals) if refusals else outcome.allocation

    def _on_a_free_node(self, request: PodRequest, candidates: Sequence[str]) -> Placed | Refused:
        """The best candidate whose lock is free; for want of one, the best that only its siblings
        keep busy: all of a gang are promised devices before one is bound, and its binds wait for
        each other.
        """
        table, gate = self._books.table, self._books.ledger.gate(request.pod)
        busy = self.locked_for(request)
        outcome = decide(table, request, gate, candidates, locked=busy)
        if not busy or isinstance(outcome, Placed):
            return outcome
        siblings = self._groups.siblings(request.pod.uid)
        if not siblings:
            return outcome
        others = self.locked_for(request, siblings=siblings)
        return decide(table, request, gate, candidates, locked=others)

    def locked_for(
        self,
        request: PodRequest,
        coming: Iterable[PodAllocation] = (),
        *,
        siblings: Collection[PodUid] = (),
    ) -> Collection[str]:
        """Nodes where this pod would have to wait for the lock; not those where only ``siblings``
        were before it. ``coming``: who is on the way.
        """
        locks = self._inventory.locks
        if not locks.needed_anywhere:
            return ()
        return locks.busy(request.pod, request.vendors, self._promises(coming), siblings)

    def locked(self) -> Collection[str]:
        """Nodes where a new pod with devices of every vendor would have to wait for a lock."""
        vendors = list(self._books.table.vendors)
        return self._inventory.locks.busy(_NOBODY, vendors, self._promises(()))

    def _promises(self, coming: Iterable[PodAllocation]) -> Iterator[tuple[PodUid, PodAllocation]]:
        since = self._clock() - LOCK_PROMISED
        for uid, reservation in self.reservations.items():
            match reservation.phase:
                case Phase.RESERVED if reservation.since > since:
                    yield uid, reservation.allocation
                case Phase.BINDING:
                    yield uid, reservation.allocation
                case _:
                    pass  # Who is bound has the lock, as the node says.
        for allocation in coming:
            yield PodUid(""), allocation

    # Reservations.

    def promise(self, pod: Pod, given: PodAllocation, first: float, *, told: bool = True) -> None:
        """What the ledger is charged already. ``first`` as in :class:`Reservation`."""
        self.end_hold(pod.uid)
        self._books.table.charge(pod.uid, given)
        self.reservations[pod.uid] = Reservation(pod, given, self._clock(), first, told)
        self.placed(pod.uid)
        self.usage_changed(pod.namespace)

    def lift(self, uid: PodUid) -> Reservation | None:
        """Take back what a pod was promised; nobody hears of it before :meth:`settle`."""
        reservation = self.reservations.pop(uid, None)
        if reservation is not None:
            self._books.discharge(reservation.pod)
        return reservation

    def put_back(self, former: Reservation) -> None:
        """What was lifted is promised as it was."""
        self._books.charge(former.pod, former.allocation)
        self.reservations[former.pod.uid] = former

    def move(self, former: Reservation, request: PodRequest) -> bool:
        """Promise again what was lifted, on the same node; on another of its devices, if that does
        as well. Whether it could be done.
        """
        outcome = self.try_on(request, [former.allocation.node])
        if not isinstance(outcome, PodAllocation):
            return False
        self.reservations[former.pod.uid] = Reservation(
            former.pod, outcome, former.since, former.first, former.told
        )
        return True

    def settle(self, former: Reservation) -> None:
        """What was lifted is free, but for what was promised to the same pod again.

        kube-scheduler may count on the promise, and then it does not ask again by itself.
        """
        now = self.reservations.get(former.pod.uid)
        if now is None or now.allocation != former.allocation:
            self.freed(former.pod, former.allocation.node)
        if now is None:
            self._is_unplaced(former.pod.uid, known_before=True)

    def renew(self, reservation: Reservation, first: float) -> None:
        """As if it were made now, by one of its gang that has held devices since ``first``."""
        reservation.since, reservation.first = self._clock(), first

    def release(self, uid: PodUid) -> None:
        """The API server definitely did not bind the pod, nor will it. Idempotent."""
        if self.drop(uid):
            self._is_unplaced(uid)

    def drop(self, uid: PodUid) -> bool:
        """Take back what the pod was promised, for good; whether there was anything."""
        reservation = self.reservations.pop(uid, None)
        if reservation is None:
            return False
        self.discharge(reservation.pod, reservation.allocation.node)
        return True

    def taken_over(self, uid: PodUid) -> None:
        """The pod is seen bound: what it was promised is charged as what it has from now on."""
        self.reservations.pop(uid, None)

    def _is_unplaced(self, uid: PodUid, *, known_before: bool = False) -> None:
        pod = self._pods.get(uid)
        if pod is not None and not pod.spec.node_name and not pod.finished:
            self.seen_unbound(pod, known_before=known_before)

    def seen_unbound(self, pod: Pod, *, known_before: bool = False) -> None:
        """``known_before``: it may have been refused already."""
        if pod.uid in self._books.charges:
            return  # A bound pod does not come back; an old event is not believed.
        if (reservation := self.reservations.get(pod.uid)) is not None:
            reservation.pod = pod
        else:
            self._publish(PodUnplaced(pod, known_before))

    # How far a bind has come.

    def begin_bind(self, uid: PodUid) -> PodAllocation:
        """The POST is about to leave for a pod with a reservation."""
        reservation = self.reservations[uid]
        reservation.phase = Phase.BINDING
        return reservation.allocation

    def wrote(self, pod: Pod, account: Account, signature: str) -> None:
        """The pod as its Binding makes it, and what it will be charged then."""
        if (reservation := self.reservations.get(pod.uid)) is not None:
            reservation.written = pod, account
            reservation.signature = signature

    def bound(self, uid: PodUid) -> None:
        """The API server has bound it."""
        self.reservations.bound(uid)

    def found_on(self, uid: PodUid, node: str) -> None:
        """Asked after a bind that got no answer, the API server shows the pod on this node."""
        reservation = self.reservations.get(uid)
        if reservation is None:
            return
        if reservation.allocation.node == node:
            reservation.phase = Phase.BOUND
        else:
            self.release(uid)

    def lost(self, uid: PodUid, seconds: float) -> None:
        """A bind got no answer; so long it may yet be carried out, even if the pod is not bound."""
        self.reservations.lost(uid, seconds)

    def not_bound(self, uid: PodUid) -> None:
        """A bind did not arrive, as far as anybody can tell; the promise stands for the next."""
        self.reservations.not_bound(uid)

    def give_up(self, uid: PodUid) -> None:
        """This attempt to bind came to nothing, which says nothing of one that was lost before."""
        self.reservations.not_bound(uid)
        if self.reservations.promised(uid) is None:
            self.release(uid)

    # Holds.

    def hold(
        self, claimant: Pod, victims: Sequence[Pod], charged: Amounts, members: Sequence[Member]
    ) -> None:
        """What these victims leave is for this claimant; as :meth:`Holds.begin`."""
        self.holds.begin(claimant, victims, charged, members)

    def spare(self, victim: PodUid) -> None:
        """It was not evicted after all; as :meth:`Holds.spares`."""
        self.holds.spares(victim)

    def end_hold(self, claimant: PodUid) -> None:
        """What was freed for this pod is free for everybody. Idempotent."""
        for left in self.holds.end(claimant):
            self.freed(left.pod, left.allocation.node)

    # On trial, taken back in the same turn of the loop.

    def try_on(self, request: PodRequest, candidates: Sequence[str]) -> PodAllocation | Refused:
        """Decide and charge, until :meth:`take_off`."""
        outcome = self._decided(request, candidates)
        if isinstance(outcome, PodAllocation):
            self._books.table.charge(request.pod.uid, outcome)
        return outcome

    def take_off(self, request: PodRequest) -> None:
        """It waits for its share of quota as before."""
        self._books.discharge(request.pod)
        self._books.ledger.ask(request)

    def on_trial(self) -> TrialCharges:
        """``with bookings.on_trial() as trial``: see what would fit beside others."""
        return TrialCharges(self._books)

    @contextmanager
    def without(self, uids: Iterable[PodUid]) -> Iterator[None]:
        """Within it, elastic quotas are as if these pods were gone."""
        with self._books.ledger.elastic.trial() as trial:
            for uid in uids:
                trial.drop(uid)
            yield

    @contextmanager
    def beside(self, members: Iterable[Member]) -> Iterator[None]:
        """Within it, elastic quotas are as if these were charged."""
        with self._books.ledger.elastic.trial() as trial:
            for member in members:
                trial.put(member)
            yield

    # What others want to know.

    def placed(self, uid: PodUid) -> None:
        self._books.ledger.withdraw(uid)
        self._publish(PodPlaced(uid))

    def discharge(self, pod: Pod, node: str) -> None:
        """What the pod had is free."""
        self._books.discharge(pod)
        self.freed(pod, node)

    def freed(self, pod: Pod, node: str) -> None:
        """On this node and in the quotas of its namespace there may be more room than before."""
        self._publish(RoomOnNode(node))
        self.freed_in(pod.namespace)
        self.usage_changed(pod.namespace)

    def freed_in(self, namespace: str) -> None:
        ledger = self._books.ledger
        if namespace in ledger.elastic_namespaces:
            self._publish(RoomInElasticQuotas(ledger.elastic_namespaces))
        elif ledger.limits(namespace):
            self._publish(RoomInQuota(namespace))

    def usage_changed(self, namespace: str) -> None:
        self.change += 1
        if self._books.ledger.limits(namespace):
            self._publish(UsageChanged(namespace))


class TrialCharges:
    """For one turn of the loop alone, some pods have what they might be given."""

    def __init__(self, books: ChargeBook) -> None:
        self._books = books
        self._charged: dict[PodUid, tuple[Pod, Claim | None]] = {}
        """With what each waits for of elastic quotas, which a charge ends."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for pod, claim in self._charged.values():
            self._books.discharge(pod)
            if claim is not None:
                self._books.ledger.elastic.ask(claim)

    @property
    def pods(self) -> Collection[PodUid]:
        return self._charged.keys()

    def charge(self, pod: Pod, allocation: PodAllocation) -> None:
        if pod.uid not in self._charged:
            self._charged[pod.uid] = pod, self._books.ledger.elastic.asked(pod.uid)
            self._books.charge(pod, allocation)
