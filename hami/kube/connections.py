"""Persistent HTTP/1.1 connections to one server, for calls that must not be sent twice.

A caller learns for certain whether any byte of its call has left. Beside aiohttp's they cost a
third, which is most of what a bind costs us.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import httptools
from yarl import URL

IDLE = 15.0
"""Seconds after which an idle connection is not used again; a server ends them after some more."""
MOST_ANSWER = 64 * 1024 * 1024
"""Bytes of an answer's body, and of its headers; nothing that is asked for here is as long."""

_SENDABLE = re.compile(r"[\x20-\x7e]*")


class NotSent(OSError):
    """There was no connection: the server has seen nothing of the call."""


class BrokenOff(OSError):
    """The answer did not come, or not to its end: what was asked may have happened."""


@dataclass(slots=True)
class HttpAnswer:
    """The names of ``headers`` are in small letters."""

    status: int
    reason: str
    headers: Mapping[bytes, bytes]
    body: bytes


class Connections:
    """``most`` at once, made when they are needed, each with one call at a time on it.

    ``headers`` go with every call.
    """

    def __init__(
        self,
        server: URL,
        *,
        tls: ssl.SSLContext,
        server_name: str | None,
        headers: Mapping[str, str],
        most: int,
        patience: float,
    ) -> None:
        """``server_name`` is what its certificate is checked against, ``patience`` in seconds."""
        self._server = server
        self._tls = tls if server.scheme == "https" else None
        self._server_name = server_name
        self._fields = _fields({"Host": _host_of(server), **headers})
        self._places = asyncio.Semaphore(most)
        self._patience = patience
        self._idle: list[_Connection] = []
        self._all: set[_Connection] = set()

    async def post(
        self,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        leaves: Callable[[], None] = lambda: None,
    ) -> HttpAnswer:
        """One call on a connection, which ends with whoever is cancelled here.

        ``leaves`` is called when its first byte is about to leave: nobody has seen it before.

        Raises:
            NotSent: no connection could be made; nobody has seen the call.
            BrokenOff: whether it was carried out is not known.
            ValueError: the path or a header is not printable ASCII; nobody has seen the call.
        """
        length = {"Content-Length": str(len(body))}
        head = (
            f"POST {_sendable(path)} HTTP/1.1\r\n{self._fields}{_fields({**headers, **length})}\r\n"
        )
        message = head.encode("ascii") + body
        async with self._places:
            connection = self._rested() or await self._made()
            try:
                leaves()
                answer = await connection.ask(message)
            except BaseException:
                connection.abort()
                raise
            if connection.reusable:
                connection.since = time.monotonic()
                self._idle.append(connection)
            else:
                connection.abort()
            return answer

    def close(self) -> None:
        for connection in list(self._all):
            connection.abort()

    def _rested(self) -> _Connection | None:
        """The connection that was used last, if it is fit for one more call."""
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable and time.monotonic() - connection.since < IDLE:
                return connection
            connection.abort()
        return None

    async def _made(self) -> _Connection:
        host, port = self._server.host, self._server.port
        if host is None or port is None:
            raise NotSent(f"{self._server} names no host")
        patience = asyncio.timeout(self._patience)
        try:
            async with patience:
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: _Connection(self._all),
                    host,
                    port,
                    ssl=self._tls,
                    server_hostname=(self._server_name or host) if self._tls else None,
                    happy_eyeballs_delay=0.25,
                )
        except (OSError, ValueError) as error:
            # The system's own timeout is a TimeoutError too.
            late = f"no connection within {self._patience:g} s" if patience.expired() else ""
            raise NotSent(late or str(error) or type(error).__name__) from error
        return connection


class _Connection(asyncio.Protocol):
    """``since``: when it was last of use (monotonic seconds). ``known``: all that are open."""

    def __init__(self, known: set[_Connection]) -> None:
        self.since = 0.0
        self._known = known
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._awaited: asyncio.Future[HttpAnswer] | None = None
        self._broken = False
        self._room = 0
        self._begin()

    @property
    def reusable(self) -> bool:
        return not (self._broken or self._transport is None or self._transport.is_closing())

    async def ask(self, message: bytes) -> HttpAnswer:
        """Raises: BrokenOff."""
        assert self._transport is not None
        self._awaited = asyncio.get_running_loop().create_future()
        self._room = MOST_ANSWER
        self._transport.write(message)
        try:
            return await self._awaited
        finally:
            self._awaited = None

    def abort(self) -> None:
        self._broken = True
        if self._transport is not None:
            self._transport.abort()

    @property
    def _asked(self) -> asyncio.Future[HttpAnswer] | None:
        """Whoever waits for an answer; what comes when nobody does ends the connection."""
        if self._awaited is None or self._awaited.done():
            self._broken = True
            return None
        return self._awaited

    def _fail(self, text: str) -> None:
        if self._asked is not None:
            self._asked.set_exception(BrokenOff(text))
        self.abort()

    # asyncio's calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._known.add(self)

    def data_received(self, data: bytes) -> None:
        self._room -= len(data)
        if self._room < 0:
            self._fail(f"the answer is longer than {MOST_ANSWER} bytes")
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._fail(f"the answer is no HTTP: {error}")

    def eof_received(self) -> None:
        lengths = (b"content-length", b"transfer-encoding")
        if self._in_body and not any(name in self._fields for name in lengths):
            self.on_message_complete()  # Its end is the connection's.

    def connection_lost(self, exc: Exception | None) -> None:
        self._known.discard(self)
        self._fail(str(exc or "") or "the server has closed the connection")

    # The parser's calls.

    def _begin(self) -> None:
        self._in_body = False
        self._reason = b""
        self._fields: dict[bytes, bytes] = {}
        self._body: list[bytes] = []

    def on_message_begin(self) -> None:
        if self._asked is not None:
            self._begin()

    def on_status(self, reason: bytes) -> None:
        self._reason += reason

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields[name.lower()] = value

    def on_headers_complete(self) -> None:
        self._in_body = True

    def on_body(self, part: bytes) -> None:
        self._body.append(part)

    def on_message_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            return  # The answer itself is yet to come.
        self._in_body = False
        if (asked := self._asked) is not None:
            self._broken = self._broken or not self._parser.should_keep_alive()
            reason, body = self._reason.decode("latin-1"), b"".join(self._body)
            asked.set_result(HttpAnswer(status, reason, self._fields, body))


def _host_of(server: URL) -> str:
    host = f"[{server.host}]" if ":" in (server.host or "") else str(server.raw_host)
    return host if server.is_default_port() else f"{host}:{server.port}"


def _fields(headers: Mapping[str, str]) -> str:
    return "".join(f"{name}: {_sendable(value)}\r\n" for name, value in headers.items())


def _sendable(text: str) -> str:
    """Raises ValueError: it would be read as more than it is."""
    if not _SENDABLE.fullmatch(text):
        raise ValueError("a header or the path of a call is not printable ASCII")
    return text
