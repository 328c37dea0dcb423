"""Ticks: again and again, on time, whatever a vendor or a disk does."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import structlog

from hami.blocking.threads import Threads
from hami.monitor.measuring.vendor_measuring import VendorMeasuring
from hami.monitor.table import NodeTable
from hami.monitor.tick.node_round import NodeRound

MEASURE_PART = 0.8
"""Of a tick: so long it waits for the vendors; a later answer is the next tick's."""
SLOW = 10.0
"""Seconds without a finished tick after which the process is of no use."""


class Ticking:
    """``table`` is what the newest tick found, replaced whole; ``listeners`` get each one.

    ``every``: seconds from one tick to the next.
    """

    def __init__(
        self,
        vendors: Sequence[VendorMeasuring],
        node_round: NodeRound,
        pages: Threads,
        *,
        node: str,
        every: float,
        listeners: Sequence[Callable[[NodeTable], None]] = (),
    ) -> None:
        self._vendors = vendors
        self._round = node_round
        self._pages = pages
        self._every = every
        self._listeners = listeners
        self._finished_at = time.monotonic()
        self._log = structlog.get_logger("hami.ticks")
        self.table = NodeTable(node=node, taken_at=0.0)
        self.first = asyncio.Event()

    @property
    def late_by(self) -> float:
        """Seconds since a tick last finished."""
        return time.monotonic() - self._finished_at

    async def run(self) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            await self.tick()
            due = max(due + self._every, loop.time())
            await asyncio.sleep(due - loop.time())

    async def tick(self) -> None:
        """One of them."""
        began = time.monotonic()
        slices = await self._pages.run(self._round.look)
        answers = await asyncio.gather(
            *(
                vendor.measure(slices[vendor.key], self._every * MEASURE_PART)
                for vendor in self._vendors
            )
        )
        self.table = await self._pages.run(self._round.finish, answers, began)
        self._finished_at = time.monotonic()
        self.first.set()
        for listener in self._listeners:
            listener(self.table)
