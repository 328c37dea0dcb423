"""What is promised to pods that are not seen bound yet.

``reserved`` (by a filter) -> ``binding`` (the POST is on its way) -> ``bound`` (the API server
said so). A reservation ends when the informer shows the pod bound, and its charge takes over; or
when the API server definitely refused, the pod is gone, or a ``reserved`` one is too old.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hami.domain.allocations import PodAllocation
from hami.domain.objects import Pod
from hami.policy.accounting import Account


class Phase(Enum):
    RESERVED = "reserved"
    BINDING = "binding"
    BOUND = "bound"


@dataclass(slots=True, eq=False)
class Reservation:
    """``since`` is when it was made, ``answered`` when its bind was; in monotonic seconds.

    ``signature`` is what a bind sent of it.
    """

    pod: Pod
    allocation: PodAllocation
    since: float
    phase: Phase = Phase.RESERVED
    signature: str = ""
    answered: float | None = None

    def vouches_for(self, account: Account, signature: str) -> bool:
        """This is what we have just signed ourselves."""
        return bool(signature) and (self.signature, self.allocation) == (
            signature,
            account.allocation,
        )
