"""A listener on the process's own loop: it answers GET and HEAD for kubelet, Prometheus, people.

httptools reads the requests: the client of the API server has loaded it anyway, so that this costs
a process 32 KiB. uvicorn would cost it 2.5 MiB and wake it ten times a second, aiohttp's server
1.6 MiB.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hami.http.addresses import Bind, address_of, open_socket
from hami.http.connection import CallerLimits, Connection, Routes

GRACE = 2.0
"""Seconds that answers under way get at the end."""

USUAL_LIMITS = CallerLimits()


class _Connected:
    """Who is connected, the one heard of longest ago first, which gives way when all are taken.

    So whoever opens connections and says nothing does not keep kubelet's probe out: a liveness
    probe without an answer restarts the process.
    """

    def __init__(self, limits: CallerLimits) -> None:
        self._limits = limits
        self._all: dict[Connection, None] = {}
        self._unread: dict[Connection, None] = {}
        self._gone = asyncio.Event()
        self._gone.set()

    def came(self, connection: Connection) -> None:
        self._gone.clear()
        if len(self._all) >= self._limits.connections:
            self._cut_off(next(iter(self._all)))
        self._all[connection] = None

    def asked(self, connection: Connection) -> None:
        del self._all[connection]
        self._all[connection] = None

    def waits(self, connection: Connection) -> None:
        self._unread[connection] = None
        if len(self._unread) > self._limits.unread:
            self._cut_off(next(iter(self._unread)))

    def reads(self, connection: Connection) -> None:
        self._unread.pop(connection, None)

    def left(self, connection: Connection) -> None:
        self._all.pop(connection, None)
        self._unread.pop(connection, None)
        if not self._all:
            self._gone.set()

    def _cut_off(self, connection: Connection) -> None:
        connection.abort()
        self.left(connection)  # It says so itself in the loop's next turn, and others come in this.

    async def end(self, grace: float) -> None:
        """Finish what is under way within ``grace`` seconds, and cut off the rest."""
        for connection in list(self._all):
            connection.finish()
        try:
            async with asyncio.timeout(grace):
                await self._gone.wait()
        except TimeoutError:
            for connection in list(self._all):
                connection.abort()
            await self._gone.wait()


@asynccontextmanager
async def listening(
    bind: Bind, routes: Routes, limits: CallerLimits = USUAL_LIMITS, *, grace: float = GRACE
) -> AsyncIterator[str]:
    """Answer ``routes`` on this address while entered; yields the URL that reaches it.

    Raises:
        ConfigError: the address cannot be used.
    """
    connected = _Connected(limits)
    with open_socket(bind) as opened:
        server = await asyncio.get_running_loop().create_server(
            lambda: Connection(routes, limits, connected), sock=opened
        )
        try:
            yield address_of(opened, "http")
        finally:
            server.close()
            await connected.end(grace)
            if bind.path is not None:
                bind.path.unlink(missing_ok=True)
