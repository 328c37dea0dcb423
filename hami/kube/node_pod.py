"""A pod as processes on its node read it: beside what everybody reads, which containers run."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from hami.domain.kubernetes.objects import ContainerState, ContainerStatus, Lean, Pod, PodStatus
from hami.kube.resources import Resource


class RunningState(Lean, frozen=True):
    started_at: str = ""


class NodeContainerState(ContainerState, frozen=True):
    running: RunningState | None = None


class NodeContainerStatus(ContainerStatus, frozen=True):
    """``container_id``: ``containerd://<hex>``, empty until it was created."""

    container_id: str = msgspec.field(default="", name="containerID")
    state: NodeContainerState | None = None


class NodePodStatus(PodStatus, frozen=True):
    container_statuses: list[NodeContainerStatus] | None = None  # type: ignore[assignment]
    init_container_statuses: list[NodeContainerStatus] | None = None  # type: ignore[assignment]


class NodePod(Pod, frozen=True):
    """A pod with what the agent reads beside the rest: its containers' ids and environment."""

    status: NodePodStatus | None = None

    @property
    def running(self) -> Iterator[NodeContainerStatus]:
        """The containers that run now."""
        status = self.status
        for one in (
            *((status.init_container_statuses if status else None) or ()),
            *((status.container_statuses if status else None) or ()),
        ):
            if one.state is not None and one.state.running is not None:
                yield one


NODE_PODS = Resource(group_version="v1", plural="pods", kind="Pod", type=NodePod, namespaced=True)
