"""Publishes the public halves of the signing keys in a ConfigMap, which the nodes' agents mount.

Only the scheduler may write that ConfigMap: any other writer could make nodes trust its own keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from hami.kube.errors import CONFLICT, FORBIDDEN, NOT_FOUND, ApiError
from hami.kube.pace import Backoff
from hami.kube.resources import CONFIGMAPS, HasMetadata, Resource
from hami.signing import Signer

PUBLIC_KEYS = "public.pem"
"""The entry of the ConfigMap's data that holds the PEM blocks."""

LOOK_EVERY = 30.0
"""Seconds between looks for changes that somebody else made to the ConfigMap."""

FORBIDDEN_FOR = 300.0
"""Seconds until we try again to write a ConfigMap that our role may not write."""

T = TypeVar("T", bound=HasMetadata)


class ConfigMapClient(Protocol):
    """The part of ``hami.kube.client.KubeClient`` that this needs."""

    async def get(self, resource: Resource[T], name: str, *, namespace: str = "") -> T: ...

    async def create(self, resource: Resource[T], body: Any, *, namespace: str = "") -> T: ...

    async def patch(
        self, resource: Resource[T], name: str, patch: Any, *, namespace: str = ""
    ) -> T: ...


class PublicKeys:
    """One entry of one ConfigMap; the leader writes it where it is wrong."""

    def __init__(
        self,
        client: ConfigMapClient,
        namespace: str,
        name: str,
        *,
        signer: Callable[[], Signer],
        leading: Callable[[], bool],
        on_problem: Callable[[str], None],
        backoff: Backoff | None = None,
        every: float = LOOK_EVERY,
    ) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self._signer = signer
        self._leading = leading
        self._on_problem = on_problem
        self._backoff = backoff or Backoff(first=0.5, most=LOOK_EVERY)
        self._every = every
        self._changed = asyncio.Event()
        self._told = False

    def __str__(self) -> str:
        return f"ConfigMap {self._namespace}/{self._name}"

    def touch(self) -> None:
        """The keys have changed, or this replica leads now. Never blocks."""
        self._changed.set()

    async def run(self) -> None:
        """Keep the entry right until cancelled."""
        while True:
            self._changed.clear()
            await self._pause(await self._publish())

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _publish(self) -> float:
        """Write the entry if it is wrong; the seconds until the next look."""
        signer = self._signer()
        if not (self._leading() and signer.verifies):
            return self._every
        try:
            await self._write(signer.public_pem().decode("ascii"))
        except ApiError as error:
            forbidden = error.status == FORBIDDEN
            if error.status != CONFLICT and not self._told:  # A conflict: look again.
                self._told = True
                remedy = (
                    f"; allow get, create and patch of {self}, or set public-keys to nothing and "
                    "give the agents a file"
                    if forbidden
                    else ""
                )
                self._on_problem(f"cannot publish the public signing keys: {error}{remedy}")
            return FORBIDDEN_FOR if forbidden else self._backoff.delay()
        self._told = False
        self._backoff.reset()
        return self._every

    async def _write(self, pem: str) -> None:
        data = {PUBLIC_KEYS: pem}
        try:
            there = await self._client.get(CONFIGMAPS, self._name, namespace=self._namespace)
        except ApiError as error:
            if error.status != NOT_FOUND:
                raise
            about = {"name": self._name, "namespace": self._namespace}
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": data}
            await self._client.create(CONFIGMAPS, body, namespace=self._namespace)
            return
        if (there.data or {}).get(PUBLIC_KEYS) != pem:
            patch = {"data": data}
            await self._client.patch(CONFIGMAPS, self._name, patch, namespace=self._namespace)
