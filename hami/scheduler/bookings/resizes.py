"""Bound pods that are being resized: reserved before it is written, in force once it is seen.

Between the two either allocation may be in force, so the pod is charged the larger of both. What
was reserved follows from no annotation: after a restart the pod is charged what it shows.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from hami.domain import reasons, resizes
from hami.domain.allocations import PodAllocation
from hami.domain.kubernetes.objects import Pod
from hami.domain.reasons import Reason
from hami.domain.resizes import ContainerResize, ResizeRefusal
from hami.domain.units import PodUid
from hami.policy.fit.resize import Refusals, resized
from hami.policy.pods.accounting import Account
from hami.policy.quota.entries import Refusal
from hami.policy.usage import at_least
from hami.scheduler.bookings.bookings import Bookings
from hami.scheduler.bookings.charge_book import ChargeBook
from hami.scheduler.bookings.charges import Charge
from hami.scheduler.bookings.inventory import ClusterInventory
from hami.signing import Signer
from hami.wire import keys
from hami.wire.node_identity import lock_of


@dataclass(slots=True, eq=False)
class PendingResize:
    """What is reserved: ``allocation`` of ``pod`` as ``generation``, once it is signed and written.

    ``pod`` is as it was when it was reserved, ``before`` the allocation that it had then.
    """

    pod: Pod
    before: PodAllocation
    allocation: PodAllocation
    generation: int
    signature: str = ""


class Resizes:
    """The one writer of what is reserved for resizes; one at a time for each pod."""

    def __init__(
        self,
        inventory: ClusterInventory,
        books: ChargeBook,
        bookings: Bookings,
        leaving: Collection[PodUid],
        signer: Callable[[], Signer],
    ) -> None:
        """``leaving``: the pods that are being deleted."""
        self._inventory = inventory
        self._books = books
        self._bookings = bookings
        self._leaving = leaving
        self._signer = signer
        self._pending: dict[PodUid, PendingResize] = {}

    def reserve(self, uid: PodUid, wanted: Sequence[ContainerResize]) -> PendingResize | Refusals:
        """Decide and charge in one step. For a bound pod that is not being resized."""
        charge = self._books.charges[uid]
        pod, account = charge.pod, charge.account
        if (fixed := self._is_fixed(charge)) is not None:
            return (fixed,)
        others = self._books.table.devices(pod.spec.node_name, (uid,))
        outcome = resized(
            pod,
            account.allocation,
            wanted,
            others,
            self._books.table.vendors,
            init_ended=account.init_ended,
        )
        if not isinstance(outcome, PodAllocation):
            return outcome
        most = at_least(account.allocation, outcome)
        gets = most.after_init() if account.init_ended else most
        if over := self._books.ledger.growth_refusals(pod, account.running, gets):
            return tuple(map(_over_quota, over))
        self._books.resizing[uid] = outcome
        self._books.charge_bound(charge)
        self._bookings.usage_changed(pod.namespace)
        pending = PendingResize(pod, account.allocation, outcome, charge.generation + 1)
        self._pending[uid] = pending
        return pending

    def _is_fixed(self, charge: Charge) -> ResizeRefusal | None:
        """What says of the pod as a whole that it keeps its slices as they are."""
        pod, account = charge.pod, charge.account
        signature = pod.annotations.get(keys.ALLOCATION_SIGNATURE, "")
        verified = charge.verified == account.allocation and charge.signature == signature
        if not verified or not self._signer().signs:
            problem = (
                "its allocation is not signed by this scheduler, or not by its newest keys yet"
            )
            return _refusal(pod, resizes.NOT_SIGNED, problem)
        if account.problems or account.unknown:
            problem = "; ".join(account.problems) or "what it uses is not known"
            return _refusal(pod, reasons.UNKNOWN_USAGE, problem)
        if pod.uid in self._leaving or pod.uid in self._bookings.holds.spoken_for:
            return _refusal(pod, resizes.POD_LEAVING, "it is being deleted or evicted")
        node = self._inventory.nodes.get(pod.spec.node_name)
        if node is None or node.name not in self._books.table.node_names:
            problem = f"node {pod.spec.node_name} is not known now"
            return _refusal(pod, reasons.NODE_UNREGISTERED, problem)
        for key in sorted({grant.vendor for grant in account.allocation.grants}):
            if lock_of(node, self._books.table.vendors[key].profile) != "none":
                problem = (
                    f"the agent of {key} on node {node.name} follows HAMi's protocol: the limits "
                    "are in the containers' environment, and only a new pod gets others"
                )
                return _refusal(pod, resizes.LIMITS_IN_ENVIRONMENT, problem)
        return None

    def sign(self, uid: PodUid, signature: str) -> None:
        """What is about to be written has this signature."""
        self._pending[uid].signature = signature

    def made(self, uid: PodUid, account: Account, signature: str) -> int:
        """The generation if this is the pod with the resize in force, which ends it; else 0."""
        pending = self._pending.get(uid)
        if pending is None or not signature or pending.signature != signature:
            return 0
        if account.allocation != pending.allocation:
            return 0
        del self._pending[uid], self._books.resizing[uid]
        return pending.generation

    def end(self, uid: PodUid) -> None:
        """What was reserved will not come, or its pod is gone. Idempotent."""
        if (pending := self._pending.pop(uid, None)) is None:
            return
        del self._books.resizing[uid]
        if (charge := self._books.charges.get(uid)) is not None:
            self._books.charge_bound(charge)
            self._bookings.freed(charge.pod, pending.allocation.node)


def _refusal(pod: Pod, reason: Reason, problem: str) -> ResizeRefusal:
    return ResizeRefusal(reason=reason, text=f"pod {pod.full_name}: {problem}")


def _over_quota(refusal: Refusal) -> ResizeRefusal:
    return ResizeRefusal(
        reason=reasons.QUOTA,
        text=str(refusal),
        resource=refusal.resource,
        asked=refusal.asked,
        free=max(0, refusal.limit - refusal.used),
    )
