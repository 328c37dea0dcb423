"""Pods as the informer shows them, and what the bound ones of them are charged.

A charge follows from what stands on the pod; what was promised to it ends with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec.structs import replace

from hami.domain.kubernetes.objects import Pod
from hami.domain.units import PodUid
from hami.policy.pods.accounting import Account, account_of
from hami.scheduler.bookings.bookings import Bookings
from hami.scheduler.bookings.charge_book import ChargeBook
from hami.scheduler.bookings.charges import Charge, Unjudged
from hami.scheduler.bookings.decision import FIRST_GENERATION
from hami.scheduler.bookings.deps import SchedulerDeps
from hami.scheduler.bookings.groups import Groups
from hami.scheduler.bookings.inventory import ClusterInventory
from hami.scheduler.bookings.problems import Problems
from hami.scheduler.bookings.reservations import Reservation
from hami.scheduler.bookings.resizes import Resizes
from hami.scheduler.bookings.strangers import Strangers
from hami.scheduler.events import Event, PodSeen, RoomInQuota, RoomOnNode
from hami.signing import Verdict
from hami.wire import keys


class BoundPods:
    """The only writer of ``pods`` and of who is charged as a bound pod."""

    def __init__(
        self,
        pods: dict[PodUid, Pod],
        books: ChargeBook,
        bookings: Bookings,
        strangers: Strangers,
        groups: Groups,
        problems: Problems,
        inventory: ClusterInventory,
        deps: SchedulerDeps,
        publish: Callable[[Event], None],
    ) -> None:
        self._books = books
        self._bookings = bookings
        self._groups = groups
        self._problems = problems
        self._deps = deps
        self._publish = publish
        self._pods = pods
        self._charges = books.charges
        self._strangers = strangers
        self.leaving: set[PodUid] = set()
        """Those that are being deleted, and hold what they have until they are gone."""
        self.unjudged: dict[PodUid, Unjudged] = {}
        self.to_judge = asyncio.Event()
        self.resizes = Resizes(inventory, books, bookings, self.leaving, deps.signer)

    def reread(self) -> None:
        """Nobody is charged any more: read every pod anew."""
        self._charges.clear()
        self.unjudged.clear()
        for pod in self._pods.values():
            self.changed(pod)

    # As the informer shows them.

    def changed(self, pod: Pod) -> None:
        self._pods[pod.uid] = pod
        self._groups.seen(pod)
        if pod.metadata.deletion_timestamp and pod.spec.node_name and not pod.finished:
            self.leaving.add(pod.uid)
        if pod.finished:
            self._uses_nothing(pod.uid)
        elif pod.spec.node_name:
            self._runs(pod)
        else:
            self._bookings.seen_unbound(pod)
        self._publish(PodSeen(pod))

    def gone(self, pod: Pod) -> None:
        self._pods.pop(pod.uid, None)
        self._groups.gone(pod.uid)
        self._problems.forget(("Pod", pod.uid))
        self._strangers.forget(pod.uid)
        self._uses_nothing(pod.uid)

    def _runs(self, pod: Pod) -> None:
        self._bookings.placed(pod.uid)
        self._is_charged(pod)
        if self._books.ledger.seen(pod):
            self._bookings.usage_changed(pod.namespace)

    def _is_charged(self, pod: Pod) -> None:
        known = self._charges.get(pod.uid)
        if known is not None and known.reads_alike(pod):
            return
        reservation = self._bookings.reservations.get(pod.uid)
        account = reservation.account_of(pod) if reservation else None
        if account is None:
            account = account_of(pod, self._books.table.vendors)
        if account is None:
            self._bookings.drop(pod.uid)
            return
        if strange := self._strangers.is_strange(pod, account):
            account = self._strangers.at_most_asked(pod, account)
        self._bookings.taken_over(pod.uid)
        if reservation and reservation.answered is not None:
            self._deps.bind_seen(self._deps.clock() - reservation.answered)
        charge = self._charge_of(pod, account, known, reservation)
        if strange and not charge.generation:
            if known:  # Nobody vouched for what it said before either.
                bounded = self._strangers.at_most_asked(pod, charge.account)
                charge = replace(charge, account=bounded)
            charge = replace(charge, strange=True)
        self._apply(charge)
        before = known.account.running if known else reservation and reservation.allocation
        if before and before != charge.account.running:
            # Init containers have ended, or it runs elsewhere than was promised.
            self._bookings.freed(pod, before.node)

    def _charge_of(
        self, pod: Pod, account: Account, known: Charge | None, reservation: Reservation | None
    ) -> Charge:
        """As an unsigned allocation counts, until its signature is judged."""
        self.unjudged.pop(pod.uid, None)
        text = pod.annotations.get(keys.ALLOCATION_SIGNATURE, "")
        if resized := self.resizes.made(pod.uid, account, text):
            return Charge.signed(pod, account, resized, text)
        if known is None and reservation and reservation.vouches_for(account, text):
            return Charge.signed(pod, account, FIRST_GENERATION, text)
        vouched = known is not None and known.vouches_for(account, text)
        if text and not vouched and self._deps.signer().verifies:
            self._is_to_judge(pod, account, text)
        return known.edited(pod, account) if known else Charge(pod=pod, account=account)

    def _apply(self, charge: Charge) -> None:
        pod = charge.pod
        self._books.charge_bound(charge)
        self._bookings.usage_changed(pod.namespace)
        self._problems.tell(pod, ("Pod", pod.uid), "UnknownUsage", charge.account.problems)
        self._strangers.look_at(charge)

    # Those that have ended or are gone.

    def _uses_nothing(self, uid: PodUid) -> None:
        self.unjudged.pop(uid, None)
        self.leaving.discard(uid)
        self._bookings.placed(uid)
        self._bookings.drop(uid)
        self._bookings.end_hold(uid)
        ledger = self._books.ledger
        if (charge := self._charges.pop(uid, None)) is not None:
            self._has_left(charge)
        elif self._bookings.holds.lets_go(uid) and (member := ledger.elastic.member(uid)):
            ledger.release(uid)  # A pod without devices of ours.
            self._bookings.freed_in(member.namespace)

    def _has_left(self, charge: Charge) -> None:
        """A bound pod is gone; what it had is free, or held for whom it was evicted for."""
        node = charge.account.allocation.node
        hold = self._bookings.holds.keeps(charge.pod, charge.account.running)
        if hold is None:
            self._bookings.discharge(charge.pod, node)
            return
        self._publish(RoomOnNode(node))
        self._publish(RoomInQuota(hold.claimant.namespace))

    # Signatures, which somebody else verifies.

    def judge_anew(self) -> None:
        """Other keys: signatures that nobody could vouch for may be good by those of now."""
        for uid, charge in self._charges.items():
            if (waiting := self.unjudged.get(uid)) is not None:
                self.unjudged[uid] = replace(waiting)  # A verdict by other keys is not taken.
                continue
            text = charge.pod.annotations.get(keys.ALLOCATION_SIGNATURE, "")
            if not text or text == charge.signature:
                continue
            if (account := account_of(charge.pod, self._books.table.vendors)) is not None:
                self._is_to_judge(charge.pod, account, text)
        self.to_judge.set()

    def _is_to_judge(self, pod: Pod, account: Account, text: str) -> None:
        self.unjudged[pod.uid] = Unjudged(pod.uid, account, text)
        self.to_judge.set()

    def judged(self, about: Unjudged, verdict: Verdict) -> None:
        """A signature was found good or bad, some turns after the pod was seen with it."""
        if self.unjudged.get(about.uid) is not about:
            return  # The pod is gone, or it or the keys have changed meanwhile.
        del self.unjudged[about.uid]
        known = self._charges[about.uid]
        charge = self._strangers.judged(known, about, verdict)
        if charge.account == known.account:
            self._charges[about.uid] = charge  # As it was charged on trust.
            return
        self._apply(charge)
        if charge.account.running != known.account.running:
            self._bookings.freed(known.pod, known.account.running.node)
