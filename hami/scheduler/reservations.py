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


class Phase(Enum):
    RESERVED = "reserved"
    BINDING = "binding"
    BOUND = "bound"


@dataclass(slots=True, eq=False)
class Reservation:
    """``since`` is when it was made, in monotonic seconds."""

    pod: Pod
    allocation: PodAllocation
    since: float
    phase: Phase = Phase.RESERVED
