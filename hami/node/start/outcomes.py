"""Tells the cluster what became of a pod: annotations through its status, and events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import structlog

from hami.domain.kubernetes.objects import Pod
from hami.domain.units import PodUid
from hami.kube.client import KubeClient
from hami.kube.errors import CONFLICT, NO_ANSWER, NOT_FOUND, ApiError
from hami.kube.node_pod import NODE_PODS, NodePod
from hami.kube.pace import Backoff
from hami.node.kubelet.checkpoint import CheckpointEntry
from hami.node.pod.pods import NotGranted
from hami.node.slice.agent_context import AgentContext
from hami.node.slice.live_slices import Prepared
from hami.wire import keys

REFUSED = "SliceRefused"
"""The reason of the event about a container that must not start."""
CONFLICTS = 5
"""In a row: then it is no race with kubelet, but another pod of this name."""


@dataclass(slots=True)
class _Wish:
    """The annotations that one pod is to get, and when the next try is due."""

    pod: Pod
    annotations: dict[str, str | None]
    backoff: Backoff
    due: float = 0.0
    conflicts: int = 0
    told: str = ""


class PodWriter:
    """Patches ``pods/status``, which leaves the spec alone; tried again until it is written.

    What is wanted of one pod is merged; nobody waits for it, and no pod for another that the API
    server refuses.
    """

    def __init__(
        self, client: KubeClient, on_problem: Callable[[str], None], *, first_retry: float = 0.2
    ) -> None:
        self._client = client
        self._on_problem = on_problem
        self._first_retry = first_retry
        self._wanted: dict[PodUid, _Wish] = {}
        self._waiting = asyncio.Event()

    def annotate(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        """None removes an annotation. What the pod has already is not written."""
        wish = self._wanted.get(pod.uid)
        before = wish.annotations if wish is not None else {}
        news = {
            key: text
            for key, text in annotations.items()
            if key in before or pod.annotations.get(key) != text
        }
        if not news:
            return
        if wish is None:
            backoff = Backoff(first=self._first_retry, most=30.0)
            wish = self._wanted[pod.uid] = _Wish(pod, {}, backoff)
        wish.annotations |= news
        self._waiting.set()

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._waiting.clear()
            for uid, wish in list(self._wanted.items()):
                if wish.due <= loop.time():
                    await self._write(uid, wish)
            due = min((wish.due for wish in self._wanted.values()), default=None)
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await self._waiting.wait()

    async def _write(self, uid: PodUid, wish: _Wish) -> None:
        pod, written = wish.pod, dict(wish.annotations)
        patch = {"metadata": {"uid": uid, "annotations": written}}
        try:
            await self._client.patch(
                NODE_PODS, pod.name, patch, namespace=pod.namespace, subresource="status"
            )
        except ApiError as error:
            self._failed(uid, wish, error)
            return
        if wish.annotations == written:
            del self._wanted[uid]

    def _failed(self, uid: PodUid, wish: _Wish, error: ApiError) -> None:
        """Try again later; give up if the pod is gone or another one has its name."""
        wish.conflicts = wish.conflicts + 1 if error.status == CONFLICT else 0
        if error.status == NOT_FOUND or wish.conflicts >= CONFLICTS:
            del self._wanted[uid]
            return
        delay = max(wish.backoff.delay(), error.retry_after or 0.0)
        wish.due = asyncio.get_running_loop().time() + delay
        if error.status == NO_ANSWER:
            # Nobody else of them is answered either.
            for other in self._wanted.values():
                other.due = max(other.due, wish.due)
        if error.status != CONFLICT and wish.told != str(error):
            wish.told = str(error)
            self._on_problem(f"cannot annotate pod {wish.pod.full_name}: {error}")


class Outcomes:
    """Writes what PreStartContainer came to: HAMi's phase ``success``, and an event per refusal."""

    def __init__(self, around: AgentContext, writer: PodWriter) -> None:
        self._around = around
        self._writer = writer
        self._vendor = around.vendor.profile.key
        self._recovered: set[PodUid] = set()
        self._log = structlog.get_logger("hami.starting")

    def recovered(self) -> None:
        """Say ``success`` for the slices of a former agent, which may have ended before it did."""
        self._recovered = set(self._around.slices.pods)

    def pod_changed(self, pod: NodePod) -> None:
        """Say what a former agent may have left unsaid, once per pod."""
        if pod.uid not in self._recovered:
            return
        self._recovered.remove(pod.uid)
        slices = self._around.slices.of_pod(pod.uid)
        if (
            slices
            and not pod.finished
            and self._around.slices.complete(slices[0].granted, self._vendor)
        ):
            self._writer.annotate(pod, {keys.BIND_PHASE: "success"})

    def pod_gone(self, pod: NodePod) -> None:
        self._recovered.discard(pod.uid)

    def prepared(self, entry: CheckpointEntry, outcome: Prepared) -> None:
        granted, pod = outcome.granted, outcome.granted.pod
        self._log.info(
            "a container may start",
            pod=pod.full_name,
            container=entry.container,
            devices=[grant.device_id for grant in granted.grants],
        )
        self._around.slices.changed.set()
        annotations: dict[str, str | None] = {}
        if outcome.edits is not None:
            annotations |= outcome.edits.pod_annotations
        if outcome.last:
            annotations[keys.BIND_PHASE] = "success"
        self._writer.annotate(pod, annotations)

    def refused(self, entry: CheckpointEntry, outcome: NotGranted) -> None:
        pod = self._around.pods.get(entry.pod_uid)
        self._log.warning(
            "a container must not start",
            pod=pod.full_name if pod else entry.pod_uid,
            container=entry.container,
            why=outcome.text,
        )
        if pod is not None:
            self._around.events.record(pod, REFUSED, outcome.text, warning=True)
