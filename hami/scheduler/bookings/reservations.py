"""What is promised to pods that are not seen bound yet.

``reserved`` (by a filter) -> ``binding`` (the POST is on its way) -> ``bound`` (the API server
said so). A reservation ends when the informer shows the pod bound, and its charge takes over; or
when the API server definitely refused, the pod is gone, or a ``reserved`` one is too old.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from hami.domain.allocations import PodAllocation
from hami.domain.kubernetes.objects import Pod
from hami.domain.units import PodUid
from hami.policy.pods.accounting import Account


class Phase(Enum):
    RESERVED = "reserved"
    BINDING = "binding"
    BOUND = "bound"


@dataclass(slots=True, eq=False)
class Reservation:
    """``since`` is when it was made last, ``first`` when this pod or its gang was promised devices
    first and has held some ever since, ``answered`` when its bind was; in monotonic seconds.

    ``told``: kube-scheduler knows of it; of those made beside a sibling's it does not yet.
    ``written`` is the pod as a bind wrote it, and what it is charged then; ``signature`` what was
    signed. Until ``lost_until`` a bind that got no answer may yet be carried out, whatever has
    been heard of the pod since.
    """

    pod: Pod
    allocation: PodAllocation
    since: float
    first: float
    told: bool = True
    phase: Phase = Phase.RESERVED
    written: tuple[Pod, Account] | None = None
    signature: str = ""
    answered: float | None = None
    lost_until: float = float("-inf")

    def may_be_bound(self, now: float) -> bool:
        """A bind of it is on its way or done: the pod cannot be given anything else."""
        return self.phase is not Phase.RESERVED or now < self.lost_until

    def account_of(self, pod: Pod) -> Account | None:
        """The account of a pod that is as we wrote it; None of any other."""
        if self.written is None:
            return None
        written, account = self.written
        same = (
            pod.annotations == written.annotations
            and pod.spec.node_name == written.spec.node_name
            and pod.spec.containers == written.spec.containers
            and pod.spec.init_containers == written.spec.init_containers
            and pod.init_finished == account.init_ended
        )
        return account if same else None

    def vouches_for(self, account: Account, signature: str) -> bool:
        """This is what we have just signed ourselves."""
        return bool(signature) and (self.signature, self.allocation) == (
            signature,
            account.allocation,
        )


class Reservations(dict[PodUid, Reservation]):
    """By pod, and how far each has come."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock

    def now(self) -> float:
        return self._clock()

    def bound(self, uid: PodUid) -> None:
        """The API server has bound it; the informer will show it, if it has not already."""
        if (reservation := self.get(uid)) is not None:
            reservation.phase = Phase.BOUND
            reservation.answered = self._clock()

    def not_bound(self, uid: PodUid) -> None:
        """A bind did not arrive, as far as anybody can tell; the promise stands for the next."""
        reservation = self.get(uid)
        if reservation is not None and reservation.phase is Phase.BINDING:
            reservation.phase = Phase.RESERVED
            reservation.since = self._clock()

    def lost(self, uid: PodUid, seconds: float) -> None:
        """A bind got no answer; so long it may yet be carried out, even if the pod is not bound."""
        if (reservation := self.get(uid)) is not None:
            reservation.lost_until = self._clock() + seconds

    def promised(self, uid: PodUid) -> str | None:
        """The node that a bind of this pod is, or may be, on its way to."""
        reservation = self.get(uid)
        if reservation is None or not reservation.may_be_bound(self._clock()):
            return None
        return reservation.allocation.node

    def overdue(self, age: float) -> Sequence[Reservation]:
        """Made longer than ``age`` seconds ago, not asked for since, and never come to a bind."""
        return [found for found in self.unbound() if found.since < self._clock() - age]

    def overstayed(self, age: float) -> Sequence[Reservation]:
        """Asked for again and again for longer than ``age`` seconds, and never come to a bind."""
        return [found for found in self.unbound() if found.first < self._clock() - age]

    def unbound(self) -> Iterator[Reservation]:
        """Those that no bind is on its way for."""
        now = self._clock()
        return (found for found in self.values() if not found.may_be_bound(now))
