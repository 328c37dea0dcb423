"""Writes why pods wait into their ``PodScheduled`` condition, the newest word per pod only."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from hami.domain.kubernetes.objects import Pod
from hami.domain.units import PodUid
from hami.kube.client import KubeClient
from hami.kube.errors import CONFLICT, NOT_FOUND, ApiError
from hami_lab.live import LIVE_PODS, LivePod


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """``reason`` is ``Unschedulable`` or ``SchedulerError``, ``message`` a sentence."""

    pod: LivePod
    reason: str
    message: str


class Conditions:
    """A queue of one per pod, written one after the other."""

    def __init__(self, client: KubeClient, on_problem: Callable[[str], None]) -> None:
        self._client = client
        self._on_problem = on_problem
        self._due: dict[PodUid, Waits] = {}
        self._some = asyncio.Event()

    def say(self, pod: LivePod, reason: str, message: str) -> None:
        """Make the condition say this, soon; nothing is written when it says so already."""
        known = pod.condition("PodScheduled")
        if pod.uid not in self._due and known is not None:
            said = (known.status, known.reason, known.message)
            if said == ("False", reason, message):
                return
        self._due[pod.uid] = Waits(pod=pod, reason=reason, message=message)
        self._some.set()

    def forget(self, pod: Pod) -> None:
        """It is bound or gone: the API server itself says so."""
        self._due.pop(pod.uid, None)

    async def run(self) -> None:
        """Write until cancelled."""
        while True:
            await self._some.wait()
            self._some.clear()
            while self._due:
                uid = next(iter(self._due))
                await self._write(self._due.pop(uid))

    async def _write(self, waits: Waits) -> None:
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": waits.reason,
            "message": waits.message,
            "lastProbeTime": None,
            "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        pod = waits.pod
        patch = {
            "metadata": {"uid": pod.uid},
            "status": {"conditions": [condition]},
        }
        try:
            await self._client.patch(
                LIVE_PODS,
                pod.name,
                patch,
                namespace=pod.namespace,
                subresource="status",
                kind="strategic",
            )
        except ApiError as error:
            if error.status not in (NOT_FOUND, CONFLICT):
                self._on_problem(f"condition of pod {pod.full_name}: {error}")
