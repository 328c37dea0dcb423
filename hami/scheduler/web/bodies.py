"""The bodies of requests, read within bounds: so many bytes, so many seconds, so many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response

from hami.domain.errors import HamiError

TOO_BUSY = 503

JSON = "application/json"

Handler = Callable[[Request], Awaitable[Response]]
BodyHandler = Callable[[bytes], Awaitable[bytes | Response]]
"""Answers a whole body; bytes are JSON, with status 200."""


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
    """A body that will not be read to its end: the HTTP status, and a text for the caller."""

    def answer(self) -> Response:
        """It closes the connection, so that the rest need not be read."""
        status, text = self.args
        headers = {"connection": "close"}
        if status == TOO_BUSY:
            headers["retry-after"] = "1"
        return PlainTextResponse(f"{text}\n", status, headers)


class Bodies:
    """The bodies of requests of one kind: ``most`` bytes each, until ``seconds`` have passed.

    Each kind has its own: whoever fills up the webhook's does not keep kube-scheduler out.
    """

    def __init__(self, limits: BodyLimits, most: int) -> None:
        self.most = most
        self.seconds = limits.body_seconds
        self._held = 0
        self._most_held = limits.held

    def read_by(self, handler: BodyHandler) -> Handler:
        """The route that hands the whole body to ``handler``."""

        async def route(request: Request) -> Response:
            part = HeldBody(self)
            try:
                answer = await handler(await self._read(request, part))
            finally:
                part.let_go()
            return Response(answer, media_type=JSON) if isinstance(answer, bytes) else answer

        return route

    async def _read(self, request: Request, part: HeldBody) -> bytes:
        """The whole body, whether or not its length was announced.

        One that is not taken is read on and thrown away up to four times the limit: a connection
        that is closed while its other side still writes is reset, and the answer lost.

        Raises:
            BodyRefused: 413 when it is too long, 408 when it comes too slowly, 400 when it ends
                early, 503 when too many others are being answered.
        """
        too_long = BodyRefused(413, f"the body is longer than {self.most} bytes")
        patience = 4 * self.most
        announced = request.headers.get("content-length", "")
        if announced.isdigit() and int(announced) > patience:
            raise too_long
        refusal: BodyRefused | None = None
        length = 0
        try:
            async with asyncio.timeout(self.seconds):
                async for block in request.stream():
                    length += len(block)
                    if length > patience:
                        raise too_long
                    if refusal is None:
                        refusal = too_long if length > self.most else part.take(block)
                    if refusal is not None:
                        part.let_go()
        except TimeoutError:
            raise self.too_slow() from None
        except ClientDisconnect:
            raise BodyRefused(400, "the caller went away") from None
        if refusal is not None:
            raise refusal
        return part.whole()

    def too_slow(self) -> BodyRefused:
        return BodyRefused(408, f"the body was not there within {self.seconds:g} seconds")

    def hold(self, length: int) -> BodyRefused | None:
        """So many bytes more, unless they are too many by now; negative: so many fewer."""
        if self._held + length > self._most_held:
            text = f"requests of {self._held} bytes wait for their answers; try again later"
            return BodyRefused(TOO_BUSY, text)
        self._held += length
        return None


@dataclass(frozen=True, slots=True)
class FastRoute:
    """Who answers ``POST`` on a path, and within which bounds the body is read."""

    bodies: Bodies
    handler: BodyHandler


class HeldBody:
    """One body and its share of what is held."""

    def __init__(self, bodies: Bodies) -> None:
        self._first = b""
        self._more = bytearray()
        self._bodies = bodies

    def __len__(self) -> int:
        return len(self._first) + len(self._more)

    def take(self, block: bytes) -> BodyRefused | None:
        """One block more; or why it is not taken."""
        refusal = self._bodies.hold(len(block))
        if refusal is None:
            if self._first:
                self._more += block
            else:
                self._first = block
        return refusal

    def whole(self) -> bytes:
        """The body; it is not copied when it came in one block, as most do."""
        return self._first + self._more if self._more else self._first

    def let_go(self) -> None:
        self._bodies.hold(-len(self))
        self._first, self._more = b"", bytearray()
