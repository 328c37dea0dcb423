"""From "the lease is ours" to "we may decide": what the leader before us bound is read first.

A Binding carries no fencing token. So a new leader lists the pods once more after its term has
begun (no leader before it can still have a bind on its way then), and answers only afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from hami.kube.leases.leadership import Leadership

POLL = 0.2
"""Seconds between looks at the leadership, which may end by the mere passing of time."""


class Takeover:
    """A leadership that begins once its term's cluster is known; see ``Leadership``."""

    def __init__(
        self,
        leadership: Leadership,
        *,
        relist: Callable[[], Awaitable[None]],
        began: Callable[[], None],
        ended: Callable[[], None],
    ) -> None:
        self._inner = leadership
        self._relist = relist
        self._began = began
        self._ended = ended
        self._serving: int | None = None
        self._log = structlog.get_logger("hami.leadership")

    @property
    def leading(self) -> bool:
        return self._inner.leading and self._serving == self._inner.term

    @property
    def term(self) -> int:
        return self._inner.term

    @property
    def holder(self) -> str:
        return self._inner.holder

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._inner.run())
            group.create_task(self._follow())

    async def _follow(self) -> None:
        while True:
            if self._serving is not None and not self.leading:
                self._log.warning("stopped to lead", term=self._serving, holder=self.holder)
                self._serving = None
                self._ended()
            if self._serving is None and self._inner.leading:
                await self._take_over()
            await asyncio.sleep(POLL)

    async def _take_over(self) -> None:
        term = self._inner.term
        await self._relist()
        if self._inner.leading and self._inner.term == term:
            self._serving = term
            self._began()
            self._log.info("leads", term=term)
