"""Builders of listeners, extenders that answer as told, and raw requests."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from hami.http.addresses import Bind
from hami.scheduler.web.applications import extender_app, public_app
from hami.scheduler.web.bodies import BodyLimits
from hami.scheduler.web.server import Listener, serving
from hami.wire.extender import (
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionResult,
)

HERE = Bind(host="127.0.0.1", port=0)
PLACED = ExtenderFilterResult(node_names=["n1"])
BOUND = ExtenderBindingResult()
VETOED = ExtenderPreemptionResult()
USUAL = BodyLimits()


@dataclass
class Answering:
    """An extender that remembers its calls, and answers or raises what it is told to."""

    filtering: Any = PLACED
    binding: Any = BOUND
    preempting: Any = VETOED
    asked: list[Any] = field(default_factory=list)

    async def filter(self, args):
        return self._answer(args, self.filtering)

    async def preempt(self, args):
        return self._answer(args, self.preempting)

    async def bind(self, args):
        return self._answer(args, self.binding)

    def _answer(self, args, answer):
        self.asked.append(args)
        if isinstance(answer, Exception):
            raise answer
        return answer


@dataclass
class Waiting(Answering):
    """An extender whose filter waits until it is released."""

    entered: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def filter(self, args):
        self.entered.set()
        await self.go.wait()
        return self.filtering


@dataclass
class State:
    """A state with the health that it is told."""

    waits: tuple[str, ...] = ()
    broken: tuple[str, ...] = ()

    def missing(self):
        return self.waits

    def failed(self):
        return self.broken


@dataclass
class Reviewing:
    """A webhook that answers or raises what it is told to."""

    answer: Any

    def review(self, body):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class NoMetrics:
    """Metrics of a service that does nothing."""

    async def pieces(self):
        yield b"# nothing"
        yield b"\n"


def an_extender_app(extender=None, *, waits=(), broken=(), limits=USUAL):
    return extender_app(extender or Answering(), State(waits, broken), limits)


def a_public_app(
    webhook=None, *, waits=(), broken=(), api_router=None, limits=USUAL, quota_webhook=None
):
    return public_app(
        webhook,
        State(waits, broken),
        NoMetrics(),
        api_router,
        limits,
        quota_webhook=quota_webhook,
    )


@asynccontextmanager
async def served(app, *, tls=None, grace=5.0):
    """The URL under which the app is served."""
    async with serving([Listener(name="it", bind=HERE, app=app, tls=tls)], grace) as servers:
        yield servers.addresses["it"]


@asynccontextmanager
async def calling(app, **options):
    """A client whose relative paths go to the app."""
    async with served(app, **options) as url, aiohttp.ClientSession(url) as session:
        yield session


@asynccontextmanager
async def connected(url: str, **options):
    """A bare connection: its reader and writer."""
    host, _, port = url.rpartition("//")[2].rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port), **options)
    try:
        yield reader, writer
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def request(path: str, body: bytes, *, method: str = "POST", headers: str = "") -> bytes:
    """A request's bytes."""
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


async def response(reader) -> tuple[int, bytes]:
    """Status and body of the next answer."""
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 30)
    status, _, fields = head.partition(b"\r\n")
    lengths = [
        int(line.partition(b":")[2])
        for line in fields.split(b"\r\n")
        if line.lower().startswith(b"content-length:")
    ]
    return int(status.split()[1]), await reader.readexactly(lengths[0])
