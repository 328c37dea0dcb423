"""Gangs: pods that run together or not at all, and which of them make way for others.

kube-scheduler asks about a gang's pods one by one, and binds none of them before all have a node.
Judged one by one, half a gang would hold devices that it cannot use. So its pods are judged
together, and a gang that holds devices for long without a bind makes way for others.
https://kubernetes.io/docs/concepts/scheduling-eviction/gang-scheduling/
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

from hami.domain.kubernetes.objects import Pod
from hami.wire import keys

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)

KUBERNETES = "scheduling.k8s.io"
SCHEDULER_PLUGINS = "scheduling.x-k8s.io"
VOLCANO = "scheduling.volcano.sh"


class GroupName(NamedTuple):
    """A PodGroup's name, with the API group of its kind."""

    api: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


def group_of(pod: Pod) -> GroupName | None:
    """The PodGroup that the pod names: Kubernetes' own, scheduler-plugins' or Volcano's."""
    native = pod.spec.scheduling_group
    if native is not None and native.pod_group_name:
        return GroupName(KUBERNETES, pod.namespace, native.pod_group_name)
    about = pod.metadata
    if about.labels and (name := about.labels.get(keys.POD_GROUP)):
        return GroupName(SCHEDULER_PLUGINS, pod.namespace, name)
    if about.annotations and (name := about.annotations.get(keys.VOLCANO_POD_GROUP)):
        return GroupName(VOLCANO, pod.namespace, name)
    return None


def needed(minimum: int | None, *, bound: int, others: int, waiting: int) -> int:
    """How many of a group's ``waiting`` pods must be given devices together before one may be.

    ``minimum`` is the group's own minimum. ``bound`` of its pods are bound already, and ``others``
    wait for no devices of ours. Without a known minimum all waiting pods are needed until one is
    bound; by then the gang's scheduler has let the gang go.
    """
    if minimum is None:
        return 0 if bound else waiting
    return max(0, min(minimum - bound - others, waiting))


class Places(Protocol[M_contra]):
    """Where members can be placed, each beside those that were placed before it."""

    def place(self, member: M_contra) -> bool:
        """Place the member if there is room; whether there was."""

    def take_back(self, member: M_contra) -> None:
        """Undo the placing of this member."""


def together(places: Places[M], members: Sequence[M], asked: M, need: int) -> Sequence[M] | None:
    """Place ``asked`` and enough other ``members`` to make ``need``; None if that cannot be done.

    ``members`` includes ``asked``; the hardest to place come first. The function tries that order
    first, because what large members leave over often suits small ones. Then it tries with
    ``asked`` before all others.
    """
    for order in (members, [asked, *(member for member in members if member != asked)]):
        placed = _in_order(places, order, asked, need)
        if placed is not None:
            return placed
    return None


def _in_order(places: Places[M], order: Sequence[M], asked: M, need: int) -> Sequence[M] | None:
    placed: list[M] = []
    others = need - 1
    for member in order:
        if member != asked and others <= 0:
            continue  # Whoever is not needed is placed when it asks itself.
        if places.place(member):
            placed.append(member)
            others -= member != asked
        elif member == asked:
            break
    else:
        if len(placed) >= need:
            return placed
    for member in reversed(placed):
        places.take_back(member)
    return None


class Holdings(Protocol[M_contra]):
    """The devices that members hold for longer than they should, while other pods wait."""

    def lift(self, holder: M_contra) -> None:
        """Count what this member holds as free."""

    def others_take(self) -> bool:
        """Whether a waiting pod fits into what is free; if so, it takes it."""

    def put_back(self, holder: M_contra, *, as_it_was: bool) -> bool:
        """Give the member back what it held, or as much in the same place; whether that worked.

        ``as_it_was``: no pod has taken anything, so it cannot fail.
        """


def giving_way(holdings: Holdings[M], holders: Sequence[M]) -> Sequence[M]:
    """Which members make way: only those that stand in the way of a waiting pod that fits.

    ``holders``: the one that has held longest comes first. At first everything that they hold
    counts as free, because several together may make room where one does not. Then the members are
    put back, the latest first: where one of two must go, it is the one that had more time.
    """
    for holder in holders:
        holdings.lift(holder)
    taken = holdings.others_take()
    stay = {
        holder for holder in reversed(holders) if holdings.put_back(holder, as_it_was=not taken)
    }
    return [holder for holder in holders if holder not in stay]
