"""What is needed to keep a status in the API server up to date without writing anything twice.

However many quotas and pods change at once, the API server is written to at a pace: whoever waits
longer is written once, with what is right by then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from hami.kube.pace import Backoff, TokenBucket
from hami.kube.resources import PODS, HasMetadata, Resource

T = TypeVar("T", bound=HasMetadata)

STATUSES, LABELS = 50.0, 100.0
"""Patches a second of all quota objects together, and of pods' labels; of each twice as many at
once. A kube-scheduler binds 50 to 100 pods a second with what it allows itself."""


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
    """A client that patches no faster than this: pods at one pace, everything else at another."""

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
        """As the client's, which it is handed to once there is a place for it."""
        pace = self._labels if resource.plural == PODS.plural else self._statuses
        await pace.wait()
        return await self._client.patch(
            resource, name, patch, namespace=namespace, subresource=subresource
        )


@dataclass(slots=True, eq=False)
class Publication(Generic[T]):
    """About one object: when it may be written again, and what our last writes made of it.

    ``seen`` is what the informer showed at that time; once it shows something else, that counts.
    """

    rest_until: float = 0.0
    backoff: Backoff = field(default_factory=lambda: Backoff(first=1.0, most=60.0))
    seen: T | None = None
    made: T | None = None

    def known(self, shown: T) -> T:
        """The object as it is by now, while the informer still shows what it was."""
        return self.made if self.made is not None and self.seen is shown else shown
