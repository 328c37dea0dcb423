"""Pods as kube-scheduler and kubelet read them: more fields than our own services need."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from hami.domain.allocations import ContainerKind
from hami.domain.kubernetes.objects import Container, Lean, Metadata, Pod, PodSpec, PodStatus
from hami.kube.resources import Resource


class LiveMetadata(Metadata, frozen=True):
    deletion_grace_period_seconds: int | None = None


class LiveContainer(Container, frozen=True):
    image: str = ""


class LiveSpec(PodSpec, frozen=True):
    containers: list[LiveContainer] = msgspec.field(default_factory=list)  # type: ignore[assignment]
    init_containers: list[LiveContainer] | None = None  # type: ignore[assignment]
    restart_policy: str = "Always"
    termination_grace_period_seconds: int | None = None


class LiveCondition(Lean, frozen=True):
    """One of a pod's conditions."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""


class LiveStatus(PodStatus, frozen=True):
    reason: str | None = None
    message: str | None = None
    conditions: list[LiveCondition] | None = None
    start_time: str | None = None
    container_statuses: list[dict[str, Any]] | None = None  # type: ignore[assignment]


class LivePod(Pod, frozen=True):
    """A pod with what its scheduler and its node look at."""

    metadata: LiveMetadata = LiveMetadata()
    spec: LiveSpec = LiveSpec()
    status: LiveStatus | None = None

    @property
    def gated(self) -> bool:
        """No scheduler looks at it yet."""
        return bool(self.spec.scheduling_gates)

    def each_live_container(self) -> Iterator[tuple[LiveContainer, ContainerKind]]:
        """As :meth:`each_container`, with the fields that a node looks at."""
        live = (*(self.spec.init_containers or ()), *self.spec.containers)
        return zip(live, (kind for _, kind in self.each_container()), strict=True)

    def condition(self, type_: str) -> LiveCondition | None:
        conditions = (self.status.conditions if self.status else None) or ()
        return next((c for c in conditions if c.type == type_), None)


class PodDocument(Lean, frozen=True):
    """A pod whose spec is kept as it came, so that it can be handed on whole."""

    metadata: LiveMetadata = LiveMetadata()
    spec: msgspec.Raw = msgspec.Raw(b"{}")
    status: LiveStatus | None = None

    def read(self) -> LivePod:
        """The pod with its spec decoded."""
        return LivePod(
            metadata=self.metadata,
            spec=msgspec.json.decode(self.spec, type=LiveSpec),
            status=self.status,
        )


POD_DOCUMENTS = Resource(
    group_version="v1", plural="pods", kind="Pod", type=PodDocument, namespaced=True
)
LIVE_PODS = Resource(group_version="v1", plural="pods", kind="Pod", type=LivePod, namespaced=True)
