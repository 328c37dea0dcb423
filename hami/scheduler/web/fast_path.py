"""Plain requests to an application's fast routes, answered without ASGI.

A request is plain when it is written as Go's client writes one: ``POST``, no query, no header but
those of :data:`_HEAD`, each of which says nothing of how the message is to be read except
``Content-Length``, and its whole head in one block. Whatever is not plain goes to uvicorn byte by
byte as it came, and so does everything that follows on that connection; the answers are the same.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Any

from starlette.responses import PlainTextResponse, Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from hami.scheduler.web.bodies import FastRoute, HeldBody

_HEADER = (
    rb"(?:Host|User-Agent|Content-Type|Accept|Accept-Encoding|Authorization|Traceparent|Tracestate)"
    rb":[\t\x20-\x7e]*+\r\n"
)
_HEAD = re.compile(
    rb"POST (/[a-z]++) HTTP/1\.1\r\n(?:%b)*+Content-Length: (\d{1,9}+)\r\n(?:%b)*+\r\n"
    % (_HEADER, _HEADER)
)
_BUG = PlainTextResponse("Internal Server Error", 500, {"connection": "close"})


class FastPath(HttpToolsProtocol):
    """uvicorn's protocol, which gets to see what is not plain.

    ``loop``, ``transport``, ``flow``, ``tasks``, ``connections`` and ``server_state`` are its.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._routes: Mapping[bytes, FastRoute] = getattr(self.config.app, "fast_routes", {})
        self._request: _Request | None = None
        self._last = False

    def data_received(self, data: bytes) -> None:
        if self._request is not None:
            self._goes_on(self._request, data)
        elif not self._routes or not self._begins(data):
            self._routes = {}
            self.slow_data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._request is not None and self._request.task is None:
            self._request.forget()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        if self._request is None:
            super().shutdown()
        self._last = True

    def slow_data_received(self, data: bytes) -> None:
        """Nothing that is received from now on is plain."""
        super().data_received(data)

    def head_received(self) -> None:
        """The whole head of a plain request is there."""

    def write_now(self, answer: bytes) -> None:
        """Send an answer that is complete."""
        self.transport.write(answer)

    # Reading.

    def _begins(self, data: bytes) -> bool:
        """Whether this is a plain request, or its beginning; nothing has happened if not."""
        head = _HEAD.match(data)
        route = self._routes.get(head[1]) if head else None
        if head is None or route is None or self._is_crowded():
            return False
        length, body = int(head[2]), data[head.end() :]
        if len(body) > length or length > route.bodies.most:
            return False
        part = HeldBody(route.bodies)
        if part.take(body):
            return False
        self._unset_keepalive_if_required()
        self.head_received()
        self._request = request = _Request(route, part, length)
        if len(body) == length:
            self._start(request)
        else:
            request.head = data[: head.end()]
            request.deadline = self.loop.call_later(route.bodies.seconds, self._too_slow, request)
        return True

    def _is_crowded(self) -> bool:
        most = self.limit_concurrency
        return most is not None and (len(self.connections) >= most or len(self.tasks) >= most)

    def _goes_on(self, request: _Request, data: bytes) -> None:
        if request.task is not None:
            # Nobody has counted these bytes: no more of them until the answer is written.
            request.ahead += data
            self.flow.pause_reading()
        elif len(request.part) + len(data) > request.length or request.part.take(data):
            # More than one request, or more than there is room for: uvicorn sees it from its start.
            self._request, self._routes = None, {}
            begun = request.head + request.part.whole()
            request.forget()
            self.slow_data_received(begun + data)
            if self._last:
                super().shutdown()  # uvicorn was not told while this was plain.
        elif len(request.part) == request.length:
            self._start(request)

    def _too_slow(self, request: _Request) -> None:
        refusal = request.route.bodies.too_slow()
        request.forget()
        self._reply(request, refusal.answer())

    # Answering.

    def _start(self, request: _Request) -> None:
        if request.deadline is not None:
            request.deadline.cancel()
        request.task = task = self.loop.create_task(self._answer(request))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _answer(self, request: _Request) -> None:
        answer: bytes | Response
        try:
            answer = await request.route.handler(request.part.whole())
            if self.flow.write_paused:
                await self.flow.drain()
        except BaseException as error:  # As uvicorn does: also cancelled at the end.
            self.logger.critical("A request failed.", exc_info=error)
            answer = _BUG
        finally:
            request.forget()
        self._reply(request, answer)

    def _reply(self, request: _Request, answer: bytes | Response) -> None:
        self._request = None
        if self.transport.is_closing():
            return
        closes = self._last or (
            isinstance(answer, Response) and answer.headers.get("connection") == "close"
        )
        self.write_now(self._written(answer, closes=closes))
        self.server_state.total_requests += 1
        if closes:
            self.transport.close()
            return
        self.flow.resume_reading()
        if request.ahead:
            self.data_received(request.ahead)
        else:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _written(self, answer: bytes | Response, *, closes: bool) -> bytes:
        """As uvicorn writes it: the server's headers, the answer's, and its own at the end."""
        headers = self.server_state.default_headers
        if isinstance(answer, Response):
            status, body = answer.status_code, bytes(answer.body)
            headers = [*headers, *answer.raw_headers]
            closes = closes and "connection" not in answer.headers
        else:
            status, body = 200, answer
        lines = [STATUS_LINE[status], *(b"%b: %b\r\n" % header for header in headers)]
        if body is answer:
            lines.append(b"content-length: %d\r\ncontent-type: application/json\r\n" % len(body))
        lines += (b"connection: close\r\n\r\n" if closes else b"\r\n", body)
        return b"".join(lines)


class _Request:
    """One plain request from its head on, until it is answered.

    ``head`` is kept while its body is not there, ``ahead`` is what came after it.
    """

    __slots__ = ("ahead", "deadline", "head", "length", "part", "route", "task")

    def __init__(self, route: FastRoute, part: HeldBody, length: int) -> None:
        self.route = route
        self.part = part
        self.length = length
        self.head = b""
        self.ahead = b""
        self.deadline: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None

    def forget(self) -> None:
        """Its body and its deadline. Idempotent."""
        self.part.let_go()
        if self.deadline is not None:
            self.deadline.cancel()
