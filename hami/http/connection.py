"""One connection: a small request is read within its time, answered, and the next one awaited."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import Protocol, cast

import httptools
import structlog

REQUEST_BYTES = 16 * 1024
"""Of one request, a body included; nothing here reads bodies."""

TEXT = "text/plain; charset=utf-8"
JSON_TYPE = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteAnswer:
    """What a route says: ``body``, then what ``more`` yields, as fast as the caller reads."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    type: str = TEXT
    more: AsyncGenerator[bytes, None] | None = None


Route = Callable[[], Awaitable[RouteAnswer]]
Routes = Mapping[str, Route]
"""By path, which must be exactly this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerLimits:
    """What callers may cost.

    ``request_seconds``: for a request to arrive, also the first one. ``idle_seconds``: between two
    requests. ``answer_seconds``: until an answer is made and taken. ``connections``: at once.
    ``unread``: connections at once whose answer does not fit the socket's buffers.
    """

    request_seconds: float = 10.0
    idle_seconds: float = 75.0
    answer_seconds: float = 30.0
    connections: int = 64
    unread: int = 4


class Callers(Protocol):
    """Those who are connected, as one connection tells of itself."""

    def came(self, connection: Connection) -> None: ...

    def asked(self, connection: Connection) -> None:
        """A whole request is there."""

    def waits(self, connection: Connection) -> None:
        """Its answer does not fit the socket's buffers."""

    def reads(self, connection: Connection) -> None:
        """Its answer fits again."""

    def left(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    """HTTP/1.1 for GET and HEAD, one request after the other.

    A request that comes before the former one is answered ends the connection after that answer;
    the caller sends it again (RFC 9112, 9.3.2).
    """

    def __init__(self, routes: Routes, limits: CallerLimits, callers: Callers) -> None:
        self._routes = routes
        self._limits = limits
        self._callers = callers
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._bytes = 0
        self._answering: asyncio.Task[None] | None = None
        self._readable = asyncio.Event()
        self._readable.set()
        self._last = False
        self._has_body = False

    # asyncio's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._deadline = self._within(self._limits.request_seconds)
        self._callers.came(self)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's
        self._deadline.cancel()
        self._readable.set()
        if self._answering is not None:
            self._answering.cancel()
        self._callers.left(self)

    def data_received(self, data: bytes) -> None:
        if self._last:
            return  # Read, so that closing does not reset the connection and lose the answer.
        if not self._bytes:
            self._again_within(self._limits.request_seconds)
        self._bytes += len(data)
        refusal = self._fed(data)
        if refusal is None and self._bytes > REQUEST_BYTES:
            refusal = (
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE
                if self._has_body
                else HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            )
        if refusal is not None:
            self._refuse(refusal)

    def _fed(self, data: bytes) -> HTTPStatus | None:
        """What to answer to what cannot be read; None as long as it can."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._last = True  # Answered as if nothing else had been offered.
        except httptools.HttpParserCallbackError:
            raise
        except httptools.HttpParserError:
            return HTTPStatus.BAD_REQUEST
        return None

    def pause_writing(self) -> None:
        self._readable.clear()
        self._callers.waits(self)

    def resume_writing(self) -> None:
        self._readable.set()
        self._callers.reads(self)

    # httptools' side.

    def on_message_begin(self) -> None:
        self._url, self._has_body = b"", False

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_body(self, _: bytes) -> None:
        self._has_body = True

    def on_message_complete(self) -> None:
        if self._answering is not None:
            self._last = True
        if self._last or self._bytes > REQUEST_BYTES:
            return
        self._bytes = 0
        self._last = not self._parser.should_keep_alive()
        self._callers.asked(self)
        self._again_within(self._limits.answer_seconds)
        method = self._parser.get_method().decode("ascii", "replace")
        self._answering = self._loop.create_task(self._answer(method, self._url))

    # What the listener asks of it.

    def finish(self) -> None:
        """End it after the answer that is under way."""
        self._last = True
        if self._answering is None:
            self._transport.close()

    def abort(self) -> None:
        """End it now."""
        self._transport.abort()

    # Answers.

    async def _answer(self, method: str, url: bytes) -> None:
        try:
            answer = await self._found(method, url)
        except Exception as error:  # noqa: BLE001 -- the caller is told, the log has the rest
            structlog.get_logger("hami.http").exception("a request failed", url=str(url))
            text = f"failed: {type(error).__name__}; the log has the details\n"
            answer = RouteAnswer(body=text.encode(), status=HTTPStatus.INTERNAL_SERVER_ERROR)
        if answer.more is None or method == "HEAD":
            self._write(answer, head_only=method == "HEAD")
        else:
            await self._stream(answer, answer.more)
        await self._readable.wait()
        self._answering = None
        if self._last:
            self._end()
        else:
            limits = self._limits
            self._again_within(limits.request_seconds if self._bytes else limits.idle_seconds)

    async def _stream(self, answer: RouteAnswer, more: AsyncGenerator[bytes, None]) -> None:
        """Each piece when the former one is in the socket's buffers, so that few are in memory.

        In chunks (RFC 9112, 7.1), or for HTTP/1.0 until the end of the connection. What fails on
        the way cuts the answer off: its end is missing, which the caller sees.
        """
        chunked = self._parser.get_http_version() == "1.1"
        self._last |= not chunked
        self._transport.write(self._head(answer, *(["transfer-encoding: chunked"] * chunked)))
        try:
            async with aclosing(more):
                self._write_piece(answer.body, chunked=chunked)
                async for piece in more:
                    await self._readable.wait()
                    self._write_piece(piece, chunked=chunked)
        except Exception:  # noqa: BLE001 -- the caller sees no end, the log has the rest
            structlog.get_logger("hami.http").exception("an answer failed on the way")
            self._transport.abort()
            return
        if chunked:
            self._transport.write(b"0\r\n\r\n")

    def _write_piece(self, piece: bytes, *, chunked: bool) -> None:
        """Nothing for an empty piece, because an empty chunk is the end."""
        if not chunked:
            self._transport.write(piece)
        elif piece:
            # Three writes, so that a large piece is not copied.
            self._transport.write(b"%x\r\n" % len(piece))
            self._transport.write(piece)
            self._transport.write(b"\r\n")

    async def _found(self, method: str, url: bytes) -> RouteAnswer:
        try:
            path = (httptools.parse_url(url).path or b"").decode()
        except (httptools.HttpParserInvalidURLError, UnicodeDecodeError):
            return _said(HTTPStatus.BAD_REQUEST)
        route = self._routes.get(path)
        if route is None:
            return _said(HTTPStatus.NOT_FOUND, f"; there are {', '.join(sorted(self._routes))}")
        if method not in ("GET", "HEAD"):
            return _said(HTTPStatus.METHOD_NOT_ALLOWED, "; GET and HEAD are")
        return await route()

    def _refuse(self, status: HTTPStatus) -> None:
        """Answer what is no request that we read; nothing after it is read either."""
        self._last = True
        if self._answering is None:
            self._write(_said(status), head_only=False)
            self._end()

    def _write(self, answer: RouteAnswer, *, head_only: bool) -> None:
        head = self._head(answer, f"content-length: {len(answer.body)}")
        self._transport.writelines([head] if head_only else [head, answer.body])

    def _head(self, answer: RouteAnswer, *length: str) -> bytes:
        lines = [
            f"HTTP/1.1 {answer.status.value} {answer.status.phrase}",
            f"date: {formatdate(usegmt=True)}",
            f"content-type: {answer.type}",
            *length,
        ]
        if answer.status is HTTPStatus.METHOD_NOT_ALLOWED:
            lines.append("allow: GET, HEAD")
        lines.append(f"connection: {'close' if self._last else 'keep-alive'}")
        return "\r\n".join([*lines, "", ""]).encode()

    def _end(self) -> None:
        """No more answers; the caller closes, or the time to ask is over."""
        if self._transport.can_write_eof():
            self._transport.write_eof()
        self._again_within(self._limits.request_seconds)

    def _within(self, seconds: float) -> asyncio.TimerHandle:
        return self._loop.call_later(seconds, self._transport.abort)

    def _again_within(self, seconds: float) -> None:
        self._deadline.cancel()
        self._deadline = self._within(seconds)


def _said(status: HTTPStatus, more: str = "") -> RouteAnswer:
    return RouteAnswer(body=f"{status.phrase}{more}\n".encode(), status=status)
