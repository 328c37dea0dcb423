"""The pods of one node: a mirror of them, and an answer to "whose UID is this?"."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import msgspec

from hami.domain.objects import ContainerState, ContainerStatus, Lean, Pod, PodStatus
from hami.domain.units import PodUid
from hami.kube.client import KubeClient
from hami.kube.errors import ApiError
from hami.kube.informer import Informer
from hami.kube.resources import Resource

PATIENCE = 1.0
"""Seconds that the mirror may lag behind kubelet, which knows the pod already."""
LIST_PATIENCE = 5.0
"""Seconds for the list that is asked for then."""
MIRROR_LAG = 120.0
"""Seconds: a pod that a list showed and the mirror still does not is gone again."""
STATIC_POD = "kubernetes.io/config.hash"
"""On the mirror of a static pod: the UID by which kubelet knows it."""


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


@dataclass(frozen=True, slots=True)
class NoPod:
    """There is no such pod on this node, or (not ``certain``) nobody could be asked.

    ``static``: kubelet has it from a file, so that the API server knows it by another UID.
    """

    problem: str
    certain: bool
    static: bool = False

    @property
    def ended(self) -> bool:
        """Nothing of it starts any more."""
        return self.certain and not self.static


class PodListener(Protocol):
    """Told of every change, on the loop; must not block."""

    def pod_changed(self, pod: NodePod) -> None: ...

    def pod_gone(self, pod: NodePod) -> None: ...


class NodePods:
    """Pods bound to one node, by UID."""

    def __init__(
        self,
        client: KubeClient,
        node: str,
        *,
        on_problem: Callable[[str], None],
        patience: float = PATIENCE,
    ) -> None:
        self._client = client
        self._node = node
        self._patience = patience
        self._selector = f"spec.nodeName={node}"
        self._by_uid: dict[PodUid, NodePod] = {}
        self._static: dict[str, NodePod] = {}
        self._arrived: dict[PodUid, asyncio.Event] = {}
        self._ahead: dict[PodUid, float] = {}
        self._listeners: list[PodListener] = []
        self._informer = Informer(
            client, NODE_PODS, self, field_selector=self._selector, on_problem=on_problem
        )

    @property
    def synced(self) -> asyncio.Event:
        return self._informer.synced

    def listen(self, listener: PodListener) -> None:
        self._listeners.append(listener)

    async def run(self) -> None:
        """Until cancelled."""
        await self._informer.run()

    def get(self, uid: PodUid) -> NodePod | None:
        """From the mirror alone."""
        return self._by_uid.get(uid)

    def is_gone(self, uid: PodUid) -> bool:
        """There was such a pod here, and there is none any more. False while nobody can say."""
        if not self.synced.is_set() or uid in self._by_uid:
            return False
        seen = self._ahead.get(uid)
        return seen is None or time.monotonic() - seen > MIRROR_LAG

    def __iter__(self) -> Iterator[NodePod]:
        return iter(list(self._by_uid.values()))

    async def find(self, uid: PodUid) -> NodePod | NoPod:
        """From the mirror, once it has caught up, else from the API server."""
        if (pod := self._by_uid.get(uid)) is not None:
            return pod
        event = self._arrived.setdefault(uid, asyncio.Event())
        try:
            async with asyncio.timeout(self._patience):
                await event.wait()
        except TimeoutError:
            return await self._listed(uid)
        finally:
            self._arrived.pop(uid, None)
        return self._by_uid.get(uid) or await self._listed(uid)

    async def _listed(self, uid: PodUid) -> NodePod | NoPod:
        try:
            async with asyncio.timeout(LIST_PATIENCE):
                pods = await self._client.list(NODE_PODS, field_selector=self._selector)
        except (ApiError, TimeoutError) as error:
            return NoPod(
                f"pod with UID {uid} is not known here yet, and the API server does not say who "
                f"it is: {error or 'no answer in time'}",
                certain=False,
            )
        for pod in pods:
            if pod.uid == uid:
                self._seen_ahead(uid)
                return pod
        # Asked last: the annotation is anybody's to write, and names whom he likes.
        if (static := self._static.get(uid)) is not None:
            return NoPod(
                f"{static.full_name} is a static pod: the scheduler never saw it, and it has no "
                "allocation; let a DaemonSet or Deployment run it",
                certain=True,
                static=True,
            )
        return NoPod(f"no pod with UID {uid} is bound to node {self._node}", certain=True)

    def _seen_ahead(self, uid: PodUid) -> None:
        """A list showed it and the mirror does not, yet or any more."""
        now = time.monotonic()
        self._ahead = {one: at for one, at in self._ahead.items() if now - at <= MIRROR_LAG}
        if uid not in self._by_uid:
            self._ahead[uid] = now

    # What the informer says.

    def changed(self, new: NodePod, old: NodePod | None) -> None:  # noqa: ARG002 -- the handler's signature
        self._by_uid[new.uid] = new
        self._ahead.pop(new.uid, None)
        if (kubelets := new.annotations.get(STATIC_POD)) is not None:
            self._static[kubelets] = new
        if (event := self._arrived.get(new.uid)) is not None:
            event.set()
        for listener in self._listeners:
            listener.pod_changed(new)

    def gone(self, last: NodePod) -> None:
        self._by_uid.pop(last.uid, None)
        self._static.pop(last.annotations.get(STATIC_POD, ""), None)
        for listener in self._listeners:
            listener.pod_gone(last)
