"""One HTTP call: paced, timed and authorised; a failure becomes an :class:`ApiError`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

import hami
from hami.kube.connections import BrokenOff, Connections, HttpAnswer, NotSent
from hami.kube.errors import NO_ANSWER, TOO_MANY_REQUESTS, UNAUTHORIZED, ApiError
from hami.kube.identity.credentials import Credentials
from hami.kube.pace import TokenBucket

JSON = "application/json"
CONNECT_TIMEOUT = 10.0
CONNECTIONS = 200
"""The most connections at once, and as many more for what is sent once; each watch holds one."""

_UNTIL_DEADLINE = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT)


class ApiCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call, for metrics.

    ``status`` 0 means no answer. ``seconds`` last until the answer began; of a call that is sent
    once at most, until its end.
    """

    verb: str
    resource: str
    status: int
    seconds: float


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request; ``about`` is for messages: ``pods default/a``."""

    verb: str
    method: str
    resource: str
    about: str
    path: str
    query: Mapping[str, str] = {}
    body: bytes | None = None
    content_type: str = JSON
    most: int = 0
    """Bytes of the answer that are read; more of them are a failure. 0: as many as come."""
    paced: bool = True
    repeatable: bool = True
    """Whether a 429 may be answered by waiting and asking again. If not, it is a POST whose outcome
    must be known, and is sent once at most."""


class _Details(msgspec.Struct, rename="camel"):
    retry_after_seconds: float | None = None


class Status(msgspec.Struct):
    """The API server's refusal, meta/v1 ``Status``.

    https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
    """

    message: str = ""
    reason: str = ""
    code: int | None = None
    details: _Details | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class _Pool:
    """Connections made with one client certificate, and the number of calls under way on them.

    ``posts`` is for what must not be sent twice, and None behind a proxy.
    """

    session: aiohttp.ClientSession
    posts: Connections | None
    users: int = 0

    async def close(self) -> None:
        if self.posts is not None:
            self.posts.close()
        await self.session.close()


T = TypeVar("T")
_Once = Callable[[_Pool, Request], Awaitable[T]]
"""Sends a request over these connections."""


class Transport:
    """Sends requests over one pool of connections; made and closed within a running loop."""

    def __init__(
        self,
        credentials: Credentials,
        *,
        pace: TokenBucket,
        timeout: float,
        on_call: Callable[[ApiCall], None],
    ) -> None:
        self.server = credentials.server
        self._credentials = credentials
        self._pace = pace
        self._timeout = timeout
        self._on_call = on_call
        self._proxy = credentials.proxy
        self._server_name = credentials.server_name
        self._certificate = credentials.certificate
        self._prefix = URL(credentials.server).raw_path.rstrip("/")
        self._pool = self._open()
        self._replaced: set[_Pool] = set()

    async def close(self) -> None:
        await self._credentials.close()
        for pool in (*self._replaced, self._pool):
            await pool.close()

    async def send(self, request: Request, *, timeout: float | None = None) -> bytes:
        """Send a request; the body of a 2xx answer.

        ``timeout`` in seconds includes the wait for our own pace.

        Raises:
            ApiError: refused, or no answer in time.
        """
        limit = self._timeout if timeout is None else timeout
        awaited = "our own limit of calls per second"

        def leaves() -> None:
            nonlocal awaited
            awaited = ""

        deadline = asyncio.get_running_loop().time() + limit
        try:
            async with asyncio.timeout_at(deadline):
                if request.paced:
                    await self._pace.wait()
                if request.repeatable or self._pool.posts is None:
                    leaves()
                    return await self._persist(request, deadline)
                awaited = "a connection"
                return await self._post(request, leaves)
        except TimeoutError as error:
            text = f"no answer within {limit:g} s"
            if awaited:
                text = f"not sent within {limit:g} s: at the end it waited for {awaited}"
            raise _failure(request, text, sent=not awaited) from error

    async def lines(self, request: Request, *, idle: float) -> AsyncGenerator[bytes, None]:
        """The lines of an endless answer. Ends when the server ends it, or is silent too long.

        A server that goes away in the middle looks the same as one that ends: the caller asks again
        either way, and then learns whether the server is there.

        Raises:
            ApiError: refused, or no answer to begin with.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT, sock_read=idle)
        if request.paced:
            await self._pace.wait()
        async with self._asked(request, timeout) as response:
            parts: list[bytes] = []
            try:
                async for chunk in response.content.iter_any():
                    head, *rest = chunk.split(b"\n")
                    parts.append(head)
                    for line in rest:
                        yield b"".join(parts)
                        parts = [line]
            except (aiohttp.ClientError, TimeoutError, OSError):
                return

    async def _persist(self, request: Request, deadline: float) -> bytes:
        """Send, and again after a 429 that names a time before the deadline."""
        while True:
            try:
                async with self._asked(request, _UNTIL_DEADLINE) as response:
                    return await self._read(request, response)
            except ApiError as error:
                wait = error.retry_after
                if error.status != TOO_MANY_REQUESTS or not request.repeatable or wait is None:
                    raise
                if asyncio.get_running_loop().time() + wait >= deadline:
                    raise
            await asyncio.sleep(wait)

    async def _post(self, request: Request, leaves: Callable[[], None]) -> bytes:
        """Send it once; again only to a server that did not accept our credentials."""
        pool, body = await self._ask(request, partial(self._posted, leaves=leaves))
        await self._leave(pool)
        return body

    async def _read(self, request: Request, response: aiohttp.ClientResponse) -> bytes:
        try:
            return await _whole_body(request, response)
        except (aiohttp.ClientError, OSError) as error:
            raise _failure(request, f"the answer broke off: {_words(error)}") from error

    @asynccontextmanager
    async def _asked(
        self, request: Request, timeout: aiohttp.ClientTimeout
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """A 2xx response to read from; its connection is given back at the end."""

        async def once(pool: _Pool, request: Request) -> aiohttp.ClientResponse:
            return await self._once(pool.session, request, timeout)

        pool, response = await self._ask(request, once)
        try:
            async with response:
                yield response
        finally:
            await self._leave(pool)

    async def _ask(self, request: Request, once: _Once[T]) -> tuple[_Pool, T]:
        """Send once, and once more with renewed credentials if the server refused them (401)."""
        try:
            return await self._enter(request, once)
        except ApiError as error:
            if error.status != UNAUTHORIZED or not await self._credentials.renew():
                raise
        if self._certificate != self._credentials.certificate:
            # Watches over the old connections may go on.
            former, self._pool = self._pool, self._open()
            self._certificate = self._credentials.certificate
            self._replaced.add(former)
            await self._close_idle(former)
        return await self._enter(request, once)

    async def _enter(self, request: Request, once: _Once[T]) -> tuple[_Pool, T]:
        """One more call on the present connections, unless the call fails to start."""
        pool = self._pool
        pool.users += 1
        try:
            return pool, await once(pool, request)
        except BaseException:
            await self._leave(pool)
            raise

    async def _leave(self, pool: _Pool) -> None:
        pool.users -= 1
        await self._close_idle(pool)

    async def _close_idle(self, pool: _Pool) -> None:
        """Close replaced connections with their last call: certificates may change every hour."""
        if pool in self._replaced and not pool.users:
            self._replaced.discard(pool)
            await pool.close()

    async def _once(
        self, session: aiohttp.ClientSession, request: Request, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        started = time.perf_counter()
        status = NO_ANSWER
        try:
            response = await session.request(
                request.method,
                self._url(request),
                data=request.body,
                headers=self._headers(request),
                timeout=timeout,
                proxy=self._proxy,
                server_hostname=self._server_name,
                allow_redirects=False,
            )
            status = response.status
            if status < 300:
                return response
            async with response:
                raise self._refusal(
                    request,
                    HttpAnswer(
                        status,
                        response.reason or "",
                        {name.lower(): value for name, value in response.raw_headers},
                        await _whole_body(request, response),
                    ),
                )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise _failure(
                request, f"cannot reach {self.server}: {_words(error)}", sent=False
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise _failure(request, _words(error)) from error
        finally:
            self._told(request, status, started)

    async def _posted(self, pool: _Pool, request: Request, leaves: Callable[[], None]) -> bytes:
        """As :meth:`_once`, and the body of a 2xx answer."""
        assert pool.posts is not None
        started = time.perf_counter()
        status = NO_ANSWER
        try:
            answer = await pool.posts.post(
                f"{self._prefix}{request.path}",
                request.body or b"",
                self._headers(request),
                leaves=leaves,
            )
        except NotSent as error:
            raise _failure(request, f"cannot reach {self.server}: {error}", sent=False) from error
        except BrokenOff as error:
            raise _failure(request, str(error)) from error
        else:
            status = answer.status
            if status < 300:
                return answer.body
            raise self._refusal(request, answer)
        finally:
            self._told(request, status, started)

    def _told(self, request: Request, status: int, started: float) -> None:
        seconds = time.perf_counter() - started
        self._on_call(
            ApiCall(verb=request.verb, resource=request.resource, status=status, seconds=seconds)
        )

    def _refusal(self, request: Request, answer: HttpAnswer) -> ApiError:
        try:
            said = msgspec.json.decode(answer.body, type=Status)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            said = Status(message=answer.body[:500].decode(errors="replace").strip())
        message = said.message or answer.reason
        if answer.status == UNAUTHORIZED:
            message += f" (credentials of {self._credentials.source})"
            if self._credentials.problem:
                message += f"; they could not be renewed: {self._credentials.problem}"
        return ApiError(
            message,
            call=f"{request.verb} {request.about}",
            status=answer.status,
            reason=said.reason or answer.reason,
            retry_after=_retry_after(answer.headers.get(b"retry-after"), said),
        )

    def _url(self, request: Request) -> URL:
        query = f"?{urlencode(request.query)}" if request.query else ""
        return URL(f"{self.server}{request.path}{query}", encoded=True)

    def _headers(self, request: Request) -> dict[str, str]:
        headers = {"Accept": JSON}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        if authorization := self._credentials.authorization():
            headers["Authorization"] = authorization
        return headers

    def _open(self) -> _Pool:
        tls = self._credentials.ssl_context()
        # Unpacking 24 MB of nodes on the loop costs more than the network between us.
        headers = {"User-Agent": f"hami/{hami.__version__}", "Accept-Encoding": "identity"}
        session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls, limit=CONNECTIONS),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=headers,
            read_bufsize=1 << 18,
        )
        posts = None
        if self._proxy is None:
            posts = Connections(
                URL(self.server),
                tls=tls,
                server_name=self._server_name,
                headers=headers,
                most=CONNECTIONS,
                patience=CONNECT_TIMEOUT,
            )
        return _Pool(session=session, posts=posts)


async def _whole_body(request: Request, response: aiohttp.ClientResponse) -> bytes:
    if not request.most:
        return await response.read()
    parts, size = [], 0
    async for part in response.content.iter_any():
        parts.append(part)
        size += len(part)
        if size > request.most:
            raise _failure(request, f"the answer is longer than {request.most} bytes")
    return b"".join(parts)


def _retry_after(header: bytes | None, said: Status) -> float | None:
    if header and header.isdigit():
        return float(header)
    return said.details.retry_after_seconds if said.details else None


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__


def _failure(request: Request, text: str, *, sent: bool = True) -> ApiError:
    return ApiError(text, call=f"{request.verb} {request.about}", sent=sent)
