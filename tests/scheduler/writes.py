"""An API server that remembers patches and answers as told, for tests of the leader's writers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hami.kube.errors import ApiError


def refused(status: int, *, retry_after: float | None = None) -> ApiError:
    return ApiError(f"status {status}", status=status, retry_after=retry_after)


@dataclass(frozen=True)
class Patch:
    """One call."""

    name: str
    patch: Any
    namespace: str = ""
    subresource: str = ""


@dataclass
class Patches:
    """A client. ``answers`` come first, one per call; an error is raised. Then ``answer`` makes the
    object.
    """

    answers: list[Any] = field(default_factory=list)
    answer: Callable[[Patch], Any] = lambda patch: None
    calls: list[Patch] = field(default_factory=list)
    _came: asyncio.Event = field(default_factory=asyncio.Event)

    async def patch(self, resource, name, patch, *, namespace="", subresource=""):
        call = Patch(name, patch, namespace, subresource)
        self.calls.append(call)
        self._came.set()
        given = self.answers.pop(0) if self.answers else None
        if isinstance(given, Exception):
            raise given
        return self.answer(call)

    async def until(self, count: int) -> list[Patch]:
        """All calls, once there are ``count``."""
        async with asyncio.timeout(20):
            while len(self.calls) < count:
                self._came.clear()
                await self._came.wait()
        return self.calls


async def settled() -> None:
    """Wait long enough for an unwanted call to happen."""
    await asyncio.sleep(0.05)
