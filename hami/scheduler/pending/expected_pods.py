"""Pods that kube-scheduler asks about before the informer has shown them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from hami.domain.kubernetes.objects import Pod
from hami.domain.units import PodUid
from hami.scheduler.events import PodSeen


class ExpectedPods:
    """Waits for the informer, on behalf of whoever answers kube-scheduler."""

    def __init__(self, pods: Mapping[PodUid, Pod]) -> None:
        """``pods``: as the informer shows them."""
        self._pods = pods
        self._expected: dict[PodUid, list[asyncio.Future[None]]] = {}

    def seen(self, event: PodSeen) -> None:
        for future in self._expected.pop(event.pod.uid, ()):
            if not future.done():
                future.set_result(None)

    async def pod(self, uid: PodUid, patience: float) -> Pod | None:
        """The pod, waiting up to ``patience`` seconds for the informer to show it."""
        if uid not in self._pods:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._expected.setdefault(uid, []).append(future)
            await asyncio.wait([future], timeout=patience)
            waiting = self._expected.get(uid, [])
            if future in waiting:
                waiting.remove(future)
                if not waiting:
                    del self._expected[uid]
        return self._pods.get(uid)
