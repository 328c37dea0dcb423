"""The listeners: several uvicorn servers on the service's own loop.

uvicorn alone would install signal handlers, wait for a request's headers for as long as the
caller likes, and take headers of any size.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import uvicorn

from hami.http.addresses import Bind, address_of, open_socket
from hami.scheduler.web.fast_path import FastPath
from hami.scheduler.web.tls import LiveTls, TlsOrigin

HEADER_SECONDS = 15.0
"""Until a request's headers are there; HAMi's ReadHeaderTimeout."""
HEADER_BYTES = 64 * 1024
KEEP_ALIVE_SECONDS = 120
"""Longer than the 90 s after which Go's clients give an idle connection up.

The side that closes must be the client: a request sent into a closing connection is lost, and
kube-scheduler does not send a bind twice.
"""
MOST_CONNECTIONS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One address, the ASGI application behind it, and TLS where there is a certificate for it."""

    name: str
    bind: Bind
    app: Any
    tls: TlsOrigin | None = None


class Servers:
    """Running listeners. ``addresses`` are URLs by the listeners' names."""

    def __init__(self, addresses: Mapping[str, str], tasks: Sequence[asyncio.Task[None]]) -> None:
        self.addresses = addresses
        self._tasks = tasks

    async def failed(self) -> None:
        """Wait until one of them ends by itself, which none should, and raise what it raised."""
        done, _ = await asyncio.wait(self._tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        raise RuntimeError("a listener has stopped")


@asynccontextmanager
async def serving(listeners: Sequence[Listener], grace: float = 10.0) -> AsyncIterator[Servers]:
    """Serve them all; at the end nothing new is accepted, and what is under way is finished.

    ``grace``: seconds until requests that are under way are cut off.

    Raises:
        ConfigError: an address or a certificate cannot be used; then none of them is served.
    """
    async with contextlib.AsyncExitStack() as stack:
        opened: list[tuple[Listener, socket.socket, LiveTls | None]] = []
        for listener in listeners:
            tls = LiveTls(listener.tls) if listener.tls else None
            opened.append((listener, _opened(stack, listener.bind), tls))
        servers = [_Server(_config(listener, tls, grace)) for listener, _, tls in opened]
        addresses = {
            listener.name: address_of(sock, "https" if tls else "http")
            for listener, sock, tls in opened
        }
        tasks = [
            asyncio.create_task(server.serve(sockets=[sock]), name=f"listener {listener.name}")
            for server, (listener, sock, _) in zip(servers, opened, strict=True)
        ]
        watches = [asyncio.create_task(tls.run()) for _, _, tls in opened if tls]
        try:
            await asyncio.gather(*(_started(*pair) for pair in zip(servers, tasks, strict=True)))
            yield Servers(addresses, tasks)
        finally:
            for watch in watches:
                watch.cancel()
            for server in servers:
                server.should_exit = True
            await asyncio.gather(*watches, *tasks, return_exceptions=True)
            for server in servers:
                server.close()


def _opened(stack: contextlib.AsyncExitStack, bind: Bind) -> socket.socket:
    opened = open_socket(bind)
    stack.callback(opened.close)
    if bind.path is not None:
        stack.callback(bind.path.unlink, missing_ok=True)
    return opened


async def _started(server: uvicorn.Server, task: asyncio.Task[None]) -> None:
    while not server.started:
        if task.done():
            task.result()
            raise RuntimeError("a listener has stopped before it served")
        await asyncio.sleep(0.005)


def _config(listener: Listener, tls: LiveTls | None, grace: float) -> uvicorn.Config:
    config = uvicorn.Config(
        listener.app,
        http=_Protocol,
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=max(1, round(grace)),
    )
    config.load()
    config.ssl = tls.context if tls else None
    return config


class _Server(uvicorn.Server):
    """Signals are the command's business."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def close(self) -> None:
        """Cut off what did not end in time, or what a failed server has left open."""
        for listening in getattr(self, "servers", ()):
            listening.close()
        for connection in list(self.server_state.connections):
            connection.transport.abort()


class _OneWrite:
    """A transport that sends in one call what is written in one turn of the loop.

    uvicorn writes an answer's head and its body apart; a system call for each is a tenth of a
    filter. ``flush`` is for an answer that is whole: it need not wait for the next turn.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self.is_closing = transport.is_closing
        self._transport = transport
        self._loop = loop
        self._written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._written.append(data)
        if len(self._written) == 1:
            self._loop.call_soon(self.flush)

    def write_now(self, data: bytes) -> None:
        self.flush()
        self._transport.write(data)

    def close(self) -> None:
        self.flush()
        self._transport.close()

    def flush(self) -> None:
        if self._written:
            written, self._written = self._written, []
            self._transport.write(b"".join(written))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


class _Protocol(FastPath):
    """uvicorn's, with bounds on the headers of a request."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._header_bytes = 0
        self._in_headers = True
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._writer = _OneWrite(transport, self.loop)
        super().connection_made(cast("asyncio.Transport", self._writer))
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget_deadline()
        super().connection_lost(exc)

    def slow_data_received(self, data: bytes) -> None:
        if self._in_headers:
            self._header_bytes += len(data)
            if self._deadline is None:
                self._await_headers()
        super().slow_data_received(data)
        if self._in_headers and self._header_bytes > HEADER_BYTES:
            self.logger.warning("A request's headers are longer than %d bytes.", HEADER_BYTES)
            self.transport.abort()

    def on_headers_complete(self) -> None:
        self._in_headers = False
        self._header_bytes = 0
        self._forget_deadline()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_headers = True

    def on_response_complete(self) -> None:
        self._writer.flush()
        super().on_response_complete()

    def head_received(self) -> None:
        self._forget_deadline()

    def write_now(self, answer: bytes) -> None:
        self._writer.write_now(answer)

    def _await_headers(self) -> None:
        self._deadline = self.loop.call_later(HEADER_SECONDS, self._give_up)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self.transport.close()
