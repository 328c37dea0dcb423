"""Gangs: pods that run together or not at all, and who makes way for whom.

A gang's pods come one by one, each with a question of its own, and its scheduler binds none of them
before all have been given a node. Judged one by one, half a gang would hold devices that it cannot
use; so they are judged together, and what is held for long without a bind makes way for others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

from hami.domain.objects import Pod
from hami.wire import keys

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)

KUBERNETES = "scheduling.k8s.io"
SCHEDULER_PLUGINS = "scheduling.x-k8s.io"
VOLCANO = "scheduling.volcano.sh"


class GroupName(NamedTuple):
    """A PodGroup, by the API group of its kind."""

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


def needed(least: int | None, *, bound: int, others: int, waiting: int) -> int:
    """How many of a group's ``waiting`` pods must be given devices together, so that any is.

    ``least`` is the group's own minimum; ``bound`` of its pods are bound already, and ``others``
    wait for no devices of ours. Where the minimum is not known, all that wait are needed, until one
    is bound: the gang's scheduler has let it go then.
    """
    if least is None:
        return 0 if bound else waiting
    return max(0, min(least - bound - others, waiting))


class Places(Protocol[M_contra]):
    """Where members can be placed, each beside those that were placed before it."""

    def place(self, member: M_contra) -> bool:
        """Whether there is room for it, which it has from now on."""

    def take_back(self, member: M_contra) -> None:
        """It was placed, and is so no more."""


def together(places: Places[M], members: Sequence[M], asked: M, need: int) -> Sequence[M] | None:
    """``asked`` and as many ``members`` more as make ``need``, all placed; None when nobody is.

    ``members``: ``asked`` among them, those that are hardest to place first. In that order they are
    tried, because what is left for the last ones does for small ones sooner; then with ``asked``
    before all others.
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
    """What members hold for longer than they should, beside others who wait."""

    def lift(self, holder: M_contra) -> None:
        """What it holds is free."""

    def others_take(self) -> bool:
        """Whether any of those who wait fits into what is free; they have it from now on."""

    def put_back(self, holder: M_contra, *, as_it_was: bool) -> bool:
        """Whether it holds again what it held, or as much at the same place.

        ``as_it_was``: nobody has taken anything, so it cannot fail.
        """


def giving_way(holdings: Holdings[M], holders: Sequence[M]) -> Sequence[M]:
    """Which of them make way for those who wait: only who is in the way of somebody who fits.

    ``holders``: whoever has held longest first. All of them count as free at first, because what
    several leave together may do for somebody for whom what one leaves does not. Then whoever came
    last is put back first: of two of whom one must go, it is the one that has had its time.
    """
    for holder in holders:
        holdings.lift(holder)
    taken = holdings.others_take()
    stay = {
        holder for holder in reversed(holders) if holdings.put_back(holder, as_it_was=not taken)
    }
    return [holder for holder in holders if holder not in stay]
