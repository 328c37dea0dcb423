"""What is needed to keep a status in the API server up to date without writing anything twice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from hami.kube.pace import Backoff
from hami.kube.resources import HasMetadata, Resource

T = TypeVar("T", bound=HasMetadata)


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
