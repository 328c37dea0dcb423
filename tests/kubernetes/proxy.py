"""A proxy between two parties of a test that can hold, answer or drop single requests.

Between kube-scheduler and the service it delays a bind; between the service and the API server it
loses the answer to a write that happened. Watches stream through. Plain HTTP on its own side.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, TypeVar

from aiohttp import ClientConnectionError, ClientSession, ClientTimeout, TCPConnector, web

from .processes import until

T = TypeVar("T")
_HOP_BY_HOP = frozenset(
    {"connection", "host", "keep-alive", "te", "transfer-encoding", "upgrade", "content-length"}
)


@dataclass(slots=True, kw_only=True)
class Call:
    """One request that was received; ``status`` is upstream's, 0 without one."""

    method: str
    path: str
    status: int = 0


@dataclass(slots=True, kw_only=True)
class Rule:
    """What happens to requests whose ``METHOD path`` ``pattern`` matches, ``times`` times.

    ``forward``: the upstream gets the request first. ``status`` is the answer in the place of
    upstream's; 0: the connection is dropped; None: upstream's own answer. ``held`` requests wait
    for ``release`` before all that. ``late`` ones are then sent on even if the client has given up.
    """

    pattern: re.Pattern[str]
    times: int | None
    forward: bool
    status: int | None
    held: bool
    late: bool = False
    caught: list[Call] = field(default_factory=list)
    _released: threading.Event = field(default_factory=threading.Event)
    _waiting: list[Callable[[], object]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def wait(self, count: int = 1, seconds: float = 30) -> list[Call]:
        """Wait until ``count`` requests were caught."""
        until(
            f"{count} requests like {self.pattern.pattern!r}",
            lambda: len(self.caught) >= count,
            seconds=seconds,
        )
        return list(self.caught)

    def release(self) -> None:
        """Let all held requests go, and catch no more."""
        with self._lock:
            self.times = 0
            self._released.set()
            for wake in self._waiting:
                wake()

    def takes(self, call: Call) -> bool:
        with self._lock:
            left = self.times is None or len(self.caught) < self.times
            if not left or not self.pattern.search(f"{call.method} {call.path}"):
                return False
            self.caught.append(call)
            return True

    async def released(self) -> None:
        event, loop = asyncio.Event(), asyncio.get_running_loop()
        with self._lock:
            if self._released.is_set():
                return
            self._waiting.append(lambda: loop.call_soon_threadsafe(event.set))
        await event.wait()


class Proxy:
    """A context manager that serves from its own thread; ``upstream`` may be set at any time."""

    def __init__(self, upstream: str, *, tls: ssl.SSLContext | None = None) -> None:
        self.upstream = upstream
        self.url = ""
        self.calls: list[Call] = []
        self._tls = tls
        self._rules: list[Rule] = []
        self._arriving: set[asyncio.Future[web.StreamResponse]] = set()
        self._open: list[tuple[Call, asyncio.Transport]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._in_loop(self._start()).result(timeout=10)
        return self

    def __exit__(self, *_: object) -> None:
        for rule in self._rules:
            rule.release()
        self._in_loop(self._stop()).result(timeout=10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def hold(self, pattern: str, *, times: int | None = 1, late: bool = False) -> Rule:
        """Hold requests before upstream sees them, until the rule's ``release``.

        ``late``: they then arrive even if the client has given up, as in a slow network.
        """
        return self._add(pattern, times=times, forward=True, status=None, held=True, late=late)

    def answer(self, pattern: str, status: int, *, forward: bool, times: int | None = 1) -> Rule:
        """Answer requests so, instead of upstream or (``forward``) after upstream did what they
        ask.
        """
        return self._add(pattern, times=times, forward=forward, status=status, held=False)

    def drop(self, pattern: str, *, forward: bool, times: int | None = 1) -> Rule:
        """Drop requests' connections, before or (``forward``) after upstream did what they ask."""
        return self._add(pattern, times=times, forward=forward, status=0, held=False)

    def cut(self, pattern: str) -> None:
        """Break the connections of such requests that are being answered now: watches."""
        for call, transport in list(self._open):
            if re.search(pattern, f"{call.method} {call.path}"):
                self._loop.call_soon_threadsafe(transport.abort)

    def seen(self, pattern: str) -> list[Call]:
        return [c for c in list(self.calls) if re.search(pattern, f"{c.method} {c.path}")]

    def _add(self, pattern: str, **fields: Any) -> Rule:
        rule = Rule(pattern=re.compile(pattern), **fields)
        self._rules.append(rule)
        return rule

    def _in_loop(self, work: Any) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _start(self) -> None:
        # Nothing pooled: an upstream that was killed must not answer the next request.
        connector = TCPConnector(ssl=self._tls or True, force_close=True)
        timeout = ClientTimeout(total=None)
        self._session = ClientSession(connector=connector, timeout=timeout, auto_decompress=False)
        app = web.Application(client_max_size=64 * 2**20)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def _stop(self) -> None:
        for connection in self._runner.server.connections if self._runner.server else ():
            if connection.transport:
                connection.transport.abort()  # a watch would go on for ever
        await self._runner.cleanup()
        await asyncio.gather(*self._arriving, return_exceptions=True)
        assert self._session.connector
        await self._session.connector.close(abort_ssl=True)
        await self._session.close()
        await asyncio.sleep(0.05)  # transports close in later turns of the loop

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        call = Call(method=request.method, path=request.path_qs)
        self.calls.append(call)
        rule = next((rule for rule in list(self._rules) if rule.takes(call)), None)
        if rule and rule.late:
            await request.read()  # while the client is there
            arriving = asyncio.ensure_future(self._arrive(request, call, rule))
            self._arriving.add(arriving)
            arriving.add_done_callback(self._arriving.discard)
            return await asyncio.shield(arriving)
        if rule and rule.held:
            await rule.released()
        if rule and rule.status is not None:
            if rule.forward:
                await self._forward(request, call, keep=False)
            if rule.status == 0:
                return broken(request)
            return web.json_response(failure(rule.status), status=rule.status)
        return await self._forward(request, call, keep=True)

    async def _arrive(self, request: web.Request, call: Call, rule: Rule) -> web.StreamResponse:
        await rule.released()
        await self._forward(request, call, keep=False)
        return broken(request)

    async def _forward(self, request: web.Request, call: Call, *, keep: bool) -> web.StreamResponse:
        """``keep``: send the answer back as it comes; else read it to its end and lose it."""
        headers = {k: v for k, v in request.headers.items() if k.lower() not in _HOP_BY_HOP}
        body = await request.read() or None
        try:
            async with self._session.request(
                request.method,
                self.upstream + request.path_qs,
                headers=headers,
                data=body,
                allow_redirects=False,
            ) as answer:
                if not keep:
                    call.status = answer.status
                    await answer.read()
                    return web.Response()
                call.status = answer.status
                back = web.StreamResponse(status=answer.status)
                for name, value in answer.headers.items():
                    if name.lower() not in _HOP_BY_HOP:
                        back.headers.add(name, value)
                await back.prepare(request)
                assert request.transport
                opened = (call, request.transport)
                self._open.append(opened)
                try:
                    async for chunk in answer.content.iter_any():
                        await back.write(chunk)
                finally:
                    self._open.remove(opened)
                await back.write_eof()
                return back
        except ClientConnectionError:
            return broken(request)


def broken(request: web.Request) -> web.Response:
    """The client sees its connection close without an answer."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def failure(status: int) -> dict[str, object]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": "made up by the test's proxy",
        "reason": "InternalError",
        "code": status,
    }
