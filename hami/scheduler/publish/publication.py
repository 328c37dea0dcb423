"""Keeps a status in the API server up to date at a pace, without writing anything twice.

However many quotas and pods change at once, the writes keep that pace. An object that has to wait
longer is written once, with what is right by then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from hami.kube.pace import Backoff, TokenBucket
from hami.kube.resources import PODS, HasMetadata, Resource

T = TypeVar("T", bound=HasMetadata)

STATUSES, LABELS = 50.0, 100.0
"""Patches a second: of all quota objects together, and of pods' labels; the burst is twice as many.
A kube-scheduler binds 50 to 100 pods a second at its default client limits."""


class PatchClient(Protocol):
    """The part of ``hami.kube.client.KubeClient`` that this needs."""

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        patch: Any,
        *,
        namespace: str = "",
        subresource: str = "",
    ) -> T: ...


class PacedPatches:
    """A client whose patches keep a pace: one for pods, another for everything else."""

    def __init__(
        self, client: PatchClient, *, statuses: float = STATUSES, labels: float = LABELS
    ) -> None:
        self._client = client
        self._statuses = TokenBucket(rate=statuses, burst=int(2 * statuses))
        self._labels = TokenBucket(rate=labels, burst=int(2 * labels))

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        patch: Any,
        *,
        namespace: str = "",
        subresource: str = "",
    ) -> T:
        """Patch through the client once the pace allows it."""
        pace = self._labels if resource.plural == PODS.plural else self._statuses
        await pace.wait()
        return await self._client.patch(
            resource, name, patch, namespace=namespace, subresource=subresource
        )


@dataclass(slots=True, eq=False)
class Publication(Generic[T]):
    """The writes to one object: when the next is allowed, and what the last ones made of it.

    ``seen`` is what the informer showed at that time. Once it shows something else, that counts.
    """

    rest_until: float = 0.0
    backoff: Backoff = field(default_factory=lambda: Backoff(first=1.0, most=60.0))
    seen: T | None = None
    made: T | None = None

    def known(self, shown: T) -> T:
        """The object as of now: our last write's result until the informer shows something new."""
        return self.made if self.made is not None and self.seen is shown else shown
