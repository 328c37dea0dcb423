"""ReplicaSets and kube-scheduler over the embedded API server; evicted pods are made anew at once.

One pod is filtered at a time, the one that has waited longest; a woken pod queues again.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from typing import Any

from .objects import Json
from .process import Service
from .world import World

WAKE_UP = "hami.io/wake-up"


class Replicas:
    """Open with ``async with``; ``evicted`` counts by namespace."""

    def __init__(self, world: World, service: Service, **asks: Any) -> None:
        self.world, self.service = world, service
        self.evicted: Counter[str] = Counter()
        self._asks = asks
        self._made = 0
        self._line: deque[Json] = deque()
        self._tasks: list[asyncio.Task[None]] = []
        world.server.on_change(self._seen)

    async def __aenter__(self) -> Replicas:
        self._tasks.append(asyncio.create_task(self._schedule()))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            assert outcome is None or isinstance(outcome, asyncio.CancelledError), outcome

    async def scale(self, namespace: str, number: int) -> None:
        for _ in range(number):
            self._made += 1
            pod = await self.world.add_pod(f"r{self._made}", namespace=namespace, **self._asks)
            self._line.append(pod)

    def bound(self, namespace: str) -> int:
        pods = self.world.books.pods.values()
        return sum(
            p["metadata"]["namespace"] == namespace and bool(p["spec"].get("nodeName"))
            for p in pods
        )

    def _seen(self, plural: str, kind: str, now: Json, before: Json | None) -> None:
        if plural != "pods" or kind != "MODIFIED" or before is None:
            return
        about, was = now["metadata"], before["metadata"]
        if "deletionTimestamp" in about and "deletionTimestamp" not in was:
            self.evicted[about["namespace"]] += 1
            self._tasks.append(asyncio.create_task(self._replace(now)))
        woken = about.get("annotations", {}).get(WAKE_UP)
        if woken != was.get("annotations", {}).get(WAKE_UP):
            self._line.append(now)

    async def _replace(self, pod: Json) -> None:
        await self.world.remove(pod)
        await self.scale(pod["metadata"]["namespace"], 1)

    async def _schedule(self) -> None:
        while True:
            if not self._line:
                await asyncio.sleep(0.02)
                continue
            pod = self._line.popleft()
            if not self.world.there(pod) or self.world.node_of(pod):
                continue
            answer = await self.world.filter(self.service, pod)
            if answer.error:
                self._line.append(pod)  # Not seen by the service yet.
                await asyncio.sleep(0.02)
            elif answer.node:
                error = await self.world.bind(self.service, pod, answer.node)
                if error and self.world.there(pod):
                    self._line.append(pod)
                elif self.world.there(pod):
                    await self.world.set_status(pod, phase="Running")
