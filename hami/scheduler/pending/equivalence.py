"""Waiting pods by kind: pods of one kind fit, or do not, alike.

What the core and a vendor's profile read of a pod makes its kind; a label, an environment variable
or another controller's annotation does not, so all pods of an Indexed Job or a StatefulSet are of
one kind. Thousands of waiting pods are few kinds, and each is tried once for what has come free.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter

import msgspec

from hami.domain.kubernetes.objects import Pod
from hami.domain.profile import VendorProfile
from hami.policy.pods.escapes import escape_of
from hami.policy.ports import VendorRegistry
from hami.scheduler.pending.answers import Explained
from hami.scheduler.pending.node_sets import ANYWHERE
from hami.wire import keys

Urgency = tuple[int, str, str, str, str]

_URGENCY = attrgetter("urgency")
_OURS = "hami.io"


@dataclass(slots=True, eq=False)
class PendingPod:
    """An unbound pod that asks for devices; times are monotonic seconds.

    ``offered``: the nodes it was last filtered with; anywhere when that is not known (after a
    restart, or while another replica led). ``seen`` is the last change of capacity that it was
    tried with, None for a new pod that is in kube-scheduler's hands anyway. ``woken_at`` is set
    from its wake-up until it is filtered again. After ``in_vain`` wake-ups in a row that came to
    nothing it is not woken for the nodes ``vain`` before ``not_before``. ``why`` is what was said
    when it was refused last, at ``refused_at`` (unix time). ``called_at``: it was woken so that
    it is filtered here, as nobody knows what it may be offered.
    """

    pod: Pod
    urgency: Urgency
    kind: EquivalenceClass | None = None
    offered: int = ANYWHERE
    seen: int | None = None
    woken_at: float | None = None
    in_vain: int = 0
    vain: int = 0
    not_before: float = 0.0
    refused_at: float = 0.0
    why: Explained | None = None
    called_at: float | None = None

    @property
    def judged(self) -> bool:
        """It was filtered, and the nodes that it may go to are known."""
        return self.why is not None and self.offered != ANYWHERE


@dataclass(slots=True, eq=False)
class EquivalenceClass:
    """The waiting pods of one kind that may be woken, most urgent first.

    ``offered`` are the nodes that some of them was offered. All of them were tried with what had
    changed up to ``tried``, apart from what ``disturbed`` says. ``coming`` are woken and not back
    yet. ``absent``: the last one that should have come did not.
    """

    key: bytes
    namespace: str
    queue: list[PendingPod] = field(default_factory=list)
    offered: int = 0
    tried: int = 0
    disturbed: int = 0
    coming: int = 0
    absent: bool = False

    def add(self, waiting: PendingPod) -> None:
        insort(self.queue, waiting, key=_URGENCY)
        self.offered |= waiting.offered
        self.coming += waiting.woken_at is not None
        waiting.kind = self

    def remove(self, waiting: PendingPod) -> None:
        del self.queue[bisect_left(self.queue, waiting.urgency, key=_URGENCY)]
        self.coming -= waiting.woken_at is not None
        waiting.kind = None

    def first(self, least: Urgency) -> tuple[PendingPod | None, Urgency | None]:
        """The first pod from this urgency on, and the urgency of the one behind it."""
        place = bisect_left(self.queue, least, key=_URGENCY)
        found = self.queue[place : place + 2]
        return (found[0] if found else None), (found[1].urgency if len(found) > 1 else None)


def urgency_of(pod: Pod) -> Urgency:
    about = pod.metadata
    created = about.creation_timestamp or ""
    return -(pod.spec.priority or 0), created, about.namespace, about.name, about.uid


def may_come(pod: Pod) -> bool:
    """kube-scheduler tries it at all: no gate holds it back, and it is not on its way out."""
    return not pod.spec.scheduling_gates and pod.metadata.deletion_timestamp is None


def resource_names(vendors: VendorRegistry) -> frozenset[str]:
    """All that any vendor's devices are asked for by."""
    return frozenset(name for key in vendors for name in vendors[key].profile.resources.all_names)


def asks_for(pod: Pod, resources: frozenset[str]) -> bool:
    return any(
        not resources.isdisjoint(container.limits) or not resources.isdisjoint(container.requests)
        for container, _ in pod.each_container()
    )


class KindKeys:
    """Says of which kind a pod is."""

    def __init__(self, vendors: VendorRegistry) -> None:
        self._vendors = vendors
        self._domains = frozenset(
            name.partition("/")[0] for key in vendors for name in _names(vendors[key].profile)
        )

    def of(self, pod: Pod) -> bytes:
        spec = pod.spec
        asks = [(kind.value, c.name, c.resources) for c, kind in pod.each_container()]
        read = sorted(item for item in pod.annotations.items() if self._reads(item[0]))
        # The three before the last are what a ResourceQuota's scopes read.
        parts = (
            pod.namespace,
            asks,
            read,
            spec.priority_class_name,
            spec.active_deadline_seconds,
            spec.affinity,
            escape_of(pod, self._vendors),
        )
        return msgspec.json.encode(parts)

    def _reads(self, annotation: str) -> bool:
        domain = annotation.partition("/")[0]
        ours = domain == _OURS or domain.endswith(f".{_OURS}") or domain in self._domains
        return ours and annotation != keys.WAKE_UP


def _names(profile: VendorProfile) -> Iterator[str]:
    """Everything on a pod that the profile names."""
    yield from profile.resources.all_names
    annotations = profile.pod_annotations
    yield from (annotations.allocated, annotations.to_allocate, annotations.numa_bind)
    yield annotations.mode
    yield from annotations.also_written + annotations.use_type + annotations.nouse_type
    yield from annotations.use_uuid + annotations.nouse_uuid
