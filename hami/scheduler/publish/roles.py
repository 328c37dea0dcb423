"""Labels our own pod as leader or follower, so that a Service can select the leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from hami.kube.errors import FORBIDDEN, ApiError
from hami.kube.pace import Backoff
from hami.kube.resources import PODS, HasMetadata, Resource
from hami.wire.keys import SCHEDULER_ROLE

FORBIDDEN_FOR = 300.0
"""Seconds until we try again to write a label that our role may not write."""

T = TypeVar("T", bound=HasMetadata)


class PodClient(Protocol):
    """The part of ``hami.kube.client.KubeClient`` that this needs."""

    async def patch(
        self, resource: Resource[T], name: str, patch: Any, *, namespace: str = ""
    ) -> T: ...


class RoleLabel:
    """The label of one pod; the last value wins, however often a write fails."""

    def __init__(
        self,
        client: PodClient,
        namespace: str,
        name: str,
        *,
        on_problem: Callable[[str], None],
        backoff: Backoff | None = None,
        forbidden_for: float = FORBIDDEN_FOR,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._on_problem = on_problem
        self._backoff = backoff or Backoff(first=0.5, most=30.0)
        self._forbidden_for = forbidden_for
        self._wanted = "follower"
        self._written = ""
        self._changed = asyncio.Event()
        self._changed.set()
        self._told = False

    def set(self, *, leading: bool) -> None:
        """Set the role from now on; never blocks."""
        self._wanted = "leader" if leading else "follower"
        self._changed.set()

    async def run(self) -> None:
        """Write the label until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            delay = await self._write()
            if delay is not None:
                await self._pause(delay)

    async def _pause(self, seconds: float) -> None:
        """Wait until it is time to try again, or until the role changes."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            self._changed.set()

    async def _write(self) -> float | None:
        """Write the label; the seconds until the next try, or None when the label is right."""
        wanted = self._wanted
        if wanted == self._written:
            return None
        patch = {"metadata": {"labels": {SCHEDULER_ROLE: wanted}}}
        try:
            await self._client.patch(PODS, self._name, patch, namespace=self._namespace)
        except ApiError as error:
            self._written = ""  # The write may or may not have happened.
            forbidden = error.status == FORBIDDEN
            if not self._told:
                self._told = True
                remedy = "; allow patch of pods in our namespace" if forbidden else ""
                self._on_problem(
                    f"cannot label our pod {self._namespace}/{self._name} as {wanted}: "
                    f"{error}{remedy}"
                )
            return self._forbidden_for if forbidden else self._backoff.delay()
        self._written, self._told = wanted, False
        self._backoff.reset()
        return None
