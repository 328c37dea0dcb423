"""Callers of a listener on a real socket: honest, slow, greedy, silent."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from hami.http.addresses import parse_bind
from hami.http.connection import CallerLimits, RouteAnswer
from hami.http.listening import listening

GET = b"GET / HTTP/1.1\r\nhost: it\r\n\r\n"


async def ok() -> RouteAnswer:
    return RouteAnswer(body=b"ok\n")


ROUTES = {"/": ok}


def limits(**changed) -> CallerLimits:
    return CallerLimits(**{"request_seconds": 30.0, "answer_seconds": 30.0} | changed)


@asynccontextmanager
async def a_listener(routes=ROUTES, bind="127.0.0.1:0", grace=2.0, **changed):
    async with listening(parse_bind(bind), routes, limits(**changed), grace=grace) as url:
        parts = urlsplit(url)
        yield parts.hostname, parts.port


@dataclass
class Caller:
    """One connection, by hand."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self, *, body: bool = True) -> tuple[int, dict[str, str], bytes]:
        """The next answer: status, headers, body."""
        async with asyncio.timeout(20):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in head[1:] if line)
            length = int(headers["content-length"]) if body else 0
            return int(head[0].split()[1]), headers, await self.reader.readexactly(length)

    async def closed(self) -> bool:
        """Whether the other side ends the connection without another byte."""
        async with asyncio.timeout(20):
            with suppress(ConnectionError):
                return await self.reader.read() == b""
            return True


@asynccontextmanager
async def a_caller(address):
    reader, writer = await asyncio.open_connection(*address)
    try:
        yield Caller(reader, writer)
    finally:
        writer.transport.abort()


async def asked(address, data: bytes) -> tuple[int, dict[str, str], bytes]:
    async with a_caller(address) as caller:
        caller.send(data)
        return await caller.answer()
