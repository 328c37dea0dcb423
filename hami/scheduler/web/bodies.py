"""The bodies of requests, read within bounds: so many bytes, so many seconds, so many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from hami.domain.errors import HamiError

TOO_BUSY = 503

Handler = Callable[[Request], Awaitable[Response]]
BodyHandler = Callable[[bytes], Awaitable[Response]]


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyLimits:
    """``body`` and ``review`` are bytes of one request, to the extender and to the webhook.

    ``body_seconds``: until all of it is there. ``held``: bytes of all requests together to the
    extender, and as many to the webhook, that are not answered yet. The API server stores 1.5 MiB
    per object, and a review has two at most.
    """

    body: int = 16 * 1024 * 1024
    review: int = 4 * 1024 * 1024
    body_seconds: float = 60.0
    held: int = 64 * 1024 * 1024


USUAL = BodyLimits()


class BodyRefused(HamiError):
    """A body that will not be read to its end: the HTTP status, and a text for the caller.

    The answer closes the connection, so that the rest need not be read.
    """


class Bodies:
    """Reads the bodies of requests of one kind; ``most`` bytes each, ``held`` all together.

    Each kind has its own: whoever fills up the webhook's does not keep kube-scheduler out.
    """

    def __init__(self, limits: BodyLimits, most: int) -> None:
        self.held = 0
        self._limits = limits
        self._most = most

    def read_by(self, handler: BodyHandler) -> Handler:
        """The route that hands the whole body to ``handler``."""

        async def route(request: Request) -> Response:
            part = _Part(self)
            try:
                return await handler(await self._read(request, part))
            finally:
                part.let_go()

        return route

    async def _read(self, request: Request, part: _Part) -> bytes:
        """The whole body, whether or not its length was announced.

        One that is not taken is read on and thrown away up to four times the limit: a connection
        that is closed while its other side still writes is reset, and the answer lost.

        Raises:
            BodyRefused: 413 when it is too long, 408 when it comes too slowly, 400 when it ends
                early, 503 when too many others are being answered.
        """
        too_long = BodyRefused(413, f"the body is longer than {self._most} bytes")
        patience = 4 * self._most
        announced = request.headers.get("content-length", "")
        if announced.isdigit() and int(announced) > patience:
            raise too_long
        refusal: BodyRefused | None = None
        length = 0
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                async for block in request.stream():
                    length += len(block)
                    if length > patience:
                        raise too_long
                    if refusal is None:
                        refusal = too_long if length > self._most else self._take(part, block)
                    if refusal is not None:
                        part.let_go()
        except TimeoutError:
            text = f"the body was not there within {self._limits.body_seconds:g} seconds"
            raise BodyRefused(408, text) from None
        except ClientDisconnect:
            raise BodyRefused(400, "the caller went away") from None
        if refusal is not None:
            raise refusal
        return part.whole()

    def _take(self, part: _Part, block: bytes) -> BodyRefused | None:
        if self.held + len(block) > self._limits.held:
            text = f"requests of {self.held} bytes wait for their answers; try again later"
            return BodyRefused(TOO_BUSY, text)
        part.take(block)
        return None


class _Part:
    """One body and its share of what is held."""

    def __init__(self, bodies: Bodies) -> None:
        self._first = b""
        self._more = bytearray()
        self._bodies = bodies

    def take(self, block: bytes) -> None:
        if self._first:
            self._more += block
        else:
            self._first = block
        self._bodies.held += len(block)

    def whole(self) -> bytes:
        """The body; it is not copied when it came in one block, as most do."""
        return self._first + self._more if self._more else self._first

    def let_go(self) -> None:
        self._bodies.held -= len(self._first) + len(self._more)
        self._first, self._more = b"", bytearray()
