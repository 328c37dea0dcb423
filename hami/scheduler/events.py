"""All that nodes, bookings and quotas tell each other, the pending pods and the service.

An event is delivered in the turn of the loop in which it happens, to subscribers that are given at
construction; none of them may wait or publish back. Events are structs, because each pod makes
several and a dataclass takes ten times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any, TypeVar

import msgspec

from hami.domain.kubernetes.objects import Pod
from hami.domain.units import PodUid


class RoomOnNode(msgspec.Struct, frozen=True, gc=False):
    """Devices of this node have room that they did not have before, or its lock is free."""

    node: str


class RoomInQuota(msgspec.Struct, frozen=True, gc=False):
    """Quota admits pods of this namespace that it did not admit before."""

    namespace: str


class RoomInElasticQuotas(msgspec.Struct, frozen=True, gc=False):
    """What one elastic quota leaves may be borrowed by any; ``namespaces`` are those they count."""

    namespaces: Container[str]


class QuotaRulesChanged(msgspec.Struct, frozen=True, gc=False):
    """A quota has come, gone or begun to say something else."""


class ElasticQuotasArranged(msgspec.Struct, frozen=True, gc=False):
    """All elastic quotas count anew."""


class UsageChanged(msgspec.Struct, frozen=True, gc=False):
    """What pods of this namespace hold against its quotas is another amount."""

    namespace: str


class PodSeen(msgspec.Struct, frozen=True, gc=False):
    """The informer has shown this pod, and the books are up to date with it."""

    pod: Pod


class PodUnplaced(msgspec.Struct, frozen=True, gc=False):
    """A pod without node and reservation, or its change.

    ``known_before``: it may have been refused already.
    """

    pod: Pod
    known_before: bool = False


class PodPlaced(msgspec.Struct, frozen=True, gc=False):
    """The pod has devices or a node, or is gone: it waits no more."""

    uid: PodUid


Event = (
    RoomOnNode
    | RoomInQuota
    | RoomInElasticQuotas
    | QuotaRulesChanged
    | ElasticQuotasArranged
    | UsageChanged
    | PodSeen
    | PodUnplaced
    | PodPlaced
)

E = TypeVar("E", bound=Event)

Subscription = tuple[Callable[[Any], None], tuple[type[Any], ...]]


def on(tell: Callable[[E], None], *kinds: type[E]) -> Subscription:
    """``tell`` is called for events of these kinds, and of no others."""
    return tell, kinds


class Events:
    """Tells every subscriber of what it asked for, in their order."""

    def __init__(self, *subscriptions: Subscription) -> None:
        self._told: dict[type[Any], list[Callable[[Any], None]]] = {}
        for tell, kinds in subscriptions:
            for kind in kinds:
                self._told.setdefault(kind, []).append(tell)

    def publish(self, event: Event) -> None:
        for tell in self._told.get(type(event), ()):
            tell(event)
