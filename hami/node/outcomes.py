"""Tells the cluster what became of a pod: annotations through its status, and events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from hami.domain.objects import Pod
from hami.domain.units import PodUid
from hami.kube.client import KubeClient
from hami.kube.errors import CONFLICT, NOT_FOUND, ApiError
from hami.kube.pace import Backoff
from hami.node.checkpoint import Entry
from hami.node.granting import Granted, Refused
from hami.node.pods import NODE_PODS
from hami.node.preparing import Prepared
from hami.node.surroundings import Surroundings
from hami.wire import keys

REFUSED = "SliceRefused"
"""The reason of the event about a container that must not start."""
_SETTLED = frozenset({NOT_FOUND, CONFLICT})
"""The pod is gone, or another one has its name."""


class PodWriter:
    """Patches ``pods/status``, which leaves the spec alone; tried again until it is written.

    What is wanted of one pod is merged; nobody waits for it.
    """

    def __init__(self, client: KubeClient, on_problem: Callable[[str], None]) -> None:
        self._client = client
        self._on_problem = on_problem
        self._wanted: dict[PodUid, tuple[Pod, dict[str, str | None]]] = {}
        self._waiting = asyncio.Event()

    def annotate(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        """None removes an annotation. What the pod has already is not written."""
        news = {k: v for k, v in annotations.items() if pod.annotations.get(k) != v}
        if not news:
            return
        _, wanted = self._wanted.get(pod.uid, (pod, {}))
        self._wanted[pod.uid] = (pod, wanted | news)
        self._waiting.set()

    async def run(self) -> None:
        """Until cancelled."""
        backoff = Backoff(first=0.2, most=30.0)
        while True:
            await self._waiting.wait()
            self._waiting.clear()
            problems = [await self._write(uid) for uid in list(self._wanted)]
            if any(problems):
                self._on_problem(next(text for text in problems if text))
                await asyncio.sleep(backoff.delay())
                self._waiting.set()
            else:
                backoff.reset()

    async def _write(self, uid: PodUid) -> str:
        """What went wrong and must be tried again; empty when it is settled."""
        pod, wanted = self._wanted.pop(uid)
        patch = {"metadata": {"uid": uid, "annotations": wanted}}
        try:
            await self._client.patch(
                NODE_PODS, pod.name, patch, namespace=pod.namespace, subresource="status"
            )
        except ApiError as error:
            if error.status in _SETTLED:
                return ""
            # What was asked for meanwhile is newer.
            _, newer = self._wanted.get(uid, (pod, {}))
            self._wanted[uid] = (pod, wanted | newer)
            return f"cannot annotate pod {pod.full_name}: {error}"
        return ""


class Outcomes:
    """What PreStartContainer came to: the phase in HAMi's word, and an event for each refusal."""

    def __init__(
        self, around: Surroundings, writer: PodWriter, prepared: Callable[[], None]
    ) -> None:
        """``prepared`` is told of each slice that was made."""
        self._around = around
        self._writer = writer
        self._prepared = prepared
        self._log = structlog.get_logger("hami.starting")

    def prepared(self, entry: Entry, outcome: Prepared) -> None:
        granted, pod = outcome.granted, outcome.granted.pod
        self._log.info(
            "a container may start",
            pod=pod.full_name,
            container=entry.container,
            devices=[grant.device_id for grant in granted.grants],
        )
        self._prepared()
        annotations: dict[str, str | None] = {}
        if outcome.edits is not None:
            annotations |= outcome.edits.pod_annotations
        if self._complete(granted):
            annotations[keys.BIND_PHASE] = "success"
        self._writer.annotate(pod, annotations)

    def refused(self, entry: Entry, outcome: Refused) -> None:
        pod = self._around.pods.get(entry.pod_uid)
        self._log.warning(
            "a container must not start",
            pod=pod.full_name if pod else entry.pod_uid,
            container=entry.container,
            why=outcome.text,
        )
        if pod is not None:
            self._around.events.record(pod, REFUSED, outcome.text, warning=True)

    def _complete(self, granted: Granted) -> bool:
        """Every container of the pod that has something of this vendor has been prepared."""
        vendor = self._around.vendor.profile.key
        wanted = {
            container.name
            for container in granted.allocation.containers
            if any(grant.vendor == vendor for grant in container.grants)
        }
        made = {
            live.record.container
            for live in self._around.slices.of_pod(granted.pod.uid)
            if live.record.state == "enforced"
        }
        return wanted <= made
