"""Watches the cluster's pods, for whoever waits for something to happen to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from hami.domain.errors import HamiError
from hami.kube.client import KubeClient
from hami.kube.errors import ApiError
from hami.kube.informer import Informer, Key
from hami.kube.resources import EVENTS
from hami_lab.cluster.problems import NotInTime
from hami_lab.live import LIVE_PODS, LivePod

T = TypeVar("T")

PATIENCE = 60.0
"""Seconds that waiting takes at most, unless it is said otherwise."""
_LOOK_AGAIN = 0.05


class Observer:
    """A mirror of the pods, and waiting on it.

    ``failure`` is told at once by every wait: nothing comes of waiting for a broken cluster.
    """

    def __init__(self, client: KubeClient, on_problem: Callable[[str], None]) -> None:
        self.failure: asyncio.Future[HamiError] = asyncio.get_running_loop().create_future()
        self._client = client
        self._informer = Informer(client, LIVE_PODS, self, on_problem=on_problem)
        self._change = asyncio.Event()

    async def run(self) -> None:
        await self._informer.run()

    @property
    def pods(self) -> Mapping[Key, LivePod]:
        """By namespace and name, live."""
        return self._informer.objects

    def changed(self, new: LivePod, old: LivePod | None) -> None:  # noqa: ARG002 -- the handler's signature
        self._change.set()

    def gone(self, last: LivePod) -> None:  # noqa: ARG002 -- the handler's signature
        self._change.set()

    async def until(
        self, what: str, look: Callable[[], T | None], *, timeout: float = PATIENCE
    ) -> T:
        """The first answer that is not None; ``look`` is asked after every change of a pod.

        Raises:
            NotInTime: names ``what``.
            HamiError: the cluster broke.
        """

        async def looked() -> T | None:
            return look()

        return await self.eventually(what, looked, timeout=timeout)

    async def eventually(
        self, what: str, look: Callable[[], Awaitable[T | None]], *, timeout: float = PATIENCE
    ) -> T:
        """As :meth:`until`, for what has to be asked elsewhere; asked again and again."""
        end = time.monotonic() + timeout
        while True:
            self._change.clear()
            if self.failure.done():
                raise self.failure.result()
            found = await look()
            if found is not None:
                return found
            if time.monotonic() >= end:
                raise NotInTime(f"{what}: not within {timeout:g} s")
            await self._pause()

    async def _pause(self) -> None:
        """Until a pod changes or the cluster breaks, but not for long."""
        change = asyncio.ensure_future(self._change.wait())
        futures: list[asyncio.Future[Any]] = [change, self.failure]
        try:
            await asyncio.wait(futures, timeout=_LOOK_AGAIN, return_when=asyncio.FIRST_COMPLETED)
        finally:
            change.cancel()

    async def story(self, namespace: str, name: str) -> str:
        """What is known of a pod, for a message: its phase, its conditions, its events."""
        pod = self.pods.get((namespace, name))
        if pod is None:
            return f"there is no pod {namespace}/{name}"
        status, node = pod.status, pod.spec.node_name or "none"
        lines = [f"pod {pod.full_name}: phase {status.phase if status else ''}, node {node}"]
        lines += [
            f"  {c.type}={c.status} {c.reason} {c.message}".rstrip()
            for c in (status.conditions if status else None) or ()
        ]
        try:
            events = await self._client.list(
                EVENTS, namespace=namespace, field_selector=f"involvedObject.name={name}"
            )
        except ApiError as error:
            return "\n".join([*lines, f"  its events cannot be read: {error}"])
        return "\n".join([*lines, *(f"  {e.reason} x{e.count or 1}: {e.message}" for e in events)])
