"""Plain requests are answered without ASGI, and nobody can tell from the answers."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hami.scheduler.web.bodies import BodyLimits
from hami.scheduler.web.fast_path import FastPath
from hami.wire.extender import ExtenderFilterResult

from .http_builders import (
    Answering,
    Waiting,
    an_extender_app,
    calling,
    connected,
    request,
    response,
    served,
)

BIND = json.dumps({"PodName": "p", "PodNamespace": "ml", "PodUID": "u", "Node": "n1"}).encode()
FILTER = json.dumps({"Pod": {"metadata": {"uid": "u"}}, "NodeNames": ["n1", "n2"]}).encode()
GO = "User-Agent: Go-http-client/1.1\r\nContent-Type: application/json\r\nAccept-Encoding: gzip\r\n"
LAST = b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
DATE = re.compile(rb"\r\ndate: [^\r]*")
SMALL = BodyLimits(body=1000, held=1500)


def counted(app):
    """The app, and the paths of all requests that it was asked as ASGI has them."""
    asked = []
    by_asgi = type(app).__call__

    class Counting(type(app)):
        async def __call__(self, scope, receive, send):
            asked.append(scope["path"])
            await by_asgi(self, scope, receive, send)

    app.__class__ = Counting
    return app, asked


def slow(app):
    """The same without a fast path."""
    app.fast_routes.clear()
    return app


async def said(url: str, *parts: bytes, seconds: float = 0.5) -> bytes:
    """Everything that is answered to these parts, until it ends or nothing comes."""
    found = bytearray()
    async with connected(url) as (reader, writer):
        with suppress(ConnectionError, TimeoutError):
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0)
            while block := await asyncio.wait_for(reader.read(1 << 16), seconds):
                found += block
    return DATE.sub(b"", bytes(found))


# What is plain.


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param("", id="host and length"),
        pytest.param(GO, id="as Go writes it"),
        pytest.param("Authorization: Bearer x\r\n", id="with credentials"),
        pytest.param("Traceparent: 00-1-2-01\r\n", id="traced"),
    ],
)
@pytest.mark.parametrize("path", ["/filter", "/bind", "/preempt"])
async def test_a_plain_request_does_without_asgi(path, headers):
    app, asked = counted(an_extender_app())
    async with served(app) as url, connected(url) as (reader, writer):
        for _ in range(2):
            writer.write(request(path, FILTER, headers=headers))
            assert (await response(reader))[0] == 200
    assert asked == []


async def test_a_body_in_many_blocks_is_plain_too():
    app, asked = counted(an_extender_app())
    text = request("/filter", FILTER + b" " * 300_000, headers=GO)
    async with served(app) as url, connected(url) as (reader, writer):
        for begin in range(0, len(text), 4096):
            writer.write(text[begin : begin + 4096])
            await writer.drain()
        assert (await response(reader))[0] == 200
    assert asked == []


NOT_PLAIN = [
    pytest.param(b"POST /bind?x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", id="a query"),
    pytest.param(b"POST /%62ind HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", id="an escape"),
    pytest.param(b"POST http://x/bind HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", id="a whole URL"),
    pytest.param(b"POST /bind HTTP/1.0\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", id="HTTP/1.0"),
    pytest.param(b"post /bind HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", id="a method in small letters"),
    pytest.param(b"PUT /bind HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", id="another method"),
    pytest.param(b"HEAD /bind HTTP/1.1\r\nHost: x\r\n\r\n", id="HEAD"),
    pytest.param(b"POST /other HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", id="another path"),
    pytest.param(b"POST /bind HTTP/1.1\r\nHost: x\r\n\r\n", id="no length"),
    pytest.param(b"POST /bind HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}", id="two lengths"),
    pytest.param(b"POST /bind HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}}", id="two different lengths"),
    pytest.param(b"POST /bind HTTP/1.1\r\nHost: x\r\nContent-Length: +2\r\n\r\n{}", id="a signed length"),
    pytest.param(b"POST /bind HTTP/1.1\r\nHost: x\r\nContent-Length: 0x2\r\n\r\n{}", id="a length in another base"),
    pytest.param(b"POST /bind HTTP/1.1\r\nHost: x\r\nContent-Length: 2 \r\n\r\n{}", id="a length with a space"),
    pytest.param(b"POST /bind HTTP/1.1\r\nHost: x\r\nContent-Length : 2\r\n\r\n{}", id="a name with a space"),
    pytest.param(b"POST /bind HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", id="a length and chunks"),
    pytest.param(b"POST /bind HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", id="chunks"),
    pytest.param(b"POST /bind HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n{}", id="Expect"),
    pytest.param(b"POST /bind HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}", id="the last one"),
    pytest.param(b"POST /bind HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\n{}", id="an upgrade"),
    pytest.param(b"POST /bind HTTP/1.1\r\nHost: x\r\n folded\r\nContent-Length: 2\r\n\r\n{}", id="a folded line"),
    pytest.param(b"POST /bind HTTP/1.1\r\nHost: x\x00y\r\nContent-Length: 2\r\n\r\n{}", id="a zero byte"),
    pytest.param(b"POST /bind HTTP/1.1\nHost: x\nContent-Length: 2\n\n{}", id="bare line feeds"),
    pytest.param(b"POST /bind HTTP/1.1\r\nHost: x\rContent-Length: 2\r\n\r\n{}", id="a bare carriage return"),
    pytest.param(b"\r\n\r\nPOST /bind HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", id="empty lines before it"),
    pytest.param(b"GARBAGE\r\n\r\n", id="no HTTP"),
    pytest.param(b"\x16\x03\x01\x02\x00\x01\x00", id="TLS"),
]  # fmt: skip


@pytest.mark.parametrize("text", NOT_PLAIN)
async def test_what_is_not_plain_is_answered_as_ever(text):
    first = request("/bind", BIND, headers=GO)
    async with served(an_extender_app()) as fast_url, served(slow(an_extender_app())) as slow_url:
        for parts in ((text, LAST), (first, text, LAST), (first + text + LAST,)):
            found, expected = await asyncio.gather(said(fast_url, *parts), said(slow_url, *parts))
            assert found == expected


# The same answers.

LENGTHS = st.sampled_from(["exact", "short", "long", "none"])
HEADERS = st.lists(
    st.sampled_from(
        [
            "Host: x",
            "User-Agent: a/1",
            "Accept: */*",
            "Accept-Encoding: gzip",
            "Content-Type: application/json",
            "content-type: application/json",
            "Connection: keep-alive",
            "Connection: close",
            "Expect: 100-continue",
            "X-Other: 1",
            "Transfer-Encoding: chunked",
            "Host:",
            "Authorization: \t x",
        ]
    ),
    max_size=4,
)
BODIES = st.sampled_from([b"", b"{}", b"{", BIND, FILTER, b" " * 1200, b" " * 4100])


@st.composite
def requests(draw) -> bytes:
    method = draw(st.sampled_from(["POST"] * 6 + ["GET", "PUT", "HEAD"]))
    paths = ["/filter", "/bind", "/preempt"] * 3 + ["/healthz", "/nothing", "/bind/", "/filter?a"]
    body = draw(BODIES)
    lines = [f"{method} {draw(st.sampled_from(paths))} HTTP/1.1", *draw(HEADERS)]
    more = {"exact": 0, "short": -1, "long": 1}.get(draw(LENGTHS))
    if more is not None:
        place = draw(st.integers(1, len(lines)))
        lines.insert(place, f"Content-Length: {max(0, len(body) + more)}")
    return "\r\n".join([*lines, "", ""]).encode() + body


@st.composite
def conversations(draw) -> list[bytes]:
    """Several requests, cut into parts anywhere."""
    text = b"".join(draw(st.lists(requests(), min_size=1, max_size=3))) + LAST
    if draw(st.integers(0, 4)) == 0:
        place = draw(st.integers(0, len(text) - 1))
        text = text[:place] + draw(st.binary(min_size=1, max_size=2)) + text[place + 1 :]
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=3)))
    return [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True) if a < b]


async def test_nobody_can_tell_the_fast_path_from_the_slow_one():
    loop = asyncio.get_running_loop()
    limits = BodyLimits(body=1000, body_seconds=0.2)
    async with (
        served(an_extender_app(limits=limits)) as fast_url,
        served(slow(an_extender_app(limits=limits))) as slow_url,
        calling(an_extender_app()) as client,
    ):

        async def both(parts: list[bytes]) -> tuple[bytes, bytes]:
            return tuple(await asyncio.gather(said(fast_url, *parts), said(slow_url, *parts)))

        @settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
        @given(conversations())
        def equal(parts):
            found, expected = asyncio.run_coroutine_threadsafe(both(parts), loop).result(60)
            assert found == expected

        await asyncio.to_thread(equal)
        async with client.get("/healthz") as answer:
            assert answer.status == 200


@pytest.mark.parametrize("path", ["/filter", "/bind"])
async def test_a_request_may_be_cut_anywhere(path):
    text = request(path, FILTER if path == "/filter" else BIND, headers=GO)
    async with served(an_extender_app()) as url:
        async with connected(url) as (reader, writer):
            writer.write(text)
            expected = await response(reader)
        for place in range(1, len(text)):
            async with connected(url) as (reader, writer):
                writer.write(text[:place])
                await writer.drain()
                await asyncio.sleep(0.001)
                writer.write(text[place:])
                assert await response(reader) == expected


async def test_no_bytes_at_all_end_the_listener():
    loop = asyncio.get_running_loop()
    async with served(an_extender_app()) as url:

        async def statuses(parts: list[bytes]) -> set[int]:
            answered = await said(url, *parts, seconds=0.02)
            assert (await said(url, LAST)).startswith(b"HTTP/1.1 200 ")
            return {
                int(status) for status in re.findall(rb"^HTTP/1\.1 (\d+) ", answered, re.MULTILINE)
            }

        head = st.just(b"POST /bind HTTP/1.1\r\nHost: x\r\nContent-Length: ")

        @settings(deadline=None, max_examples=80, suppress_health_check=list(HealthCheck))
        @given(st.lists(head | st.binary(max_size=40) | requests(), min_size=1, max_size=4))
        def only_refused(parts):
            done = asyncio.run_coroutine_threadsafe(statuses(parts), loop).result(60)
            assert done <= {100, 200, 400, 404, 405, 408}

        await asyncio.to_thread(only_refused)


# Bounds.


@pytest.mark.parametrize(
    ("parts", "not_plain"),
    [
        pytest.param([3], [3], id="in one block"),
        # The first waits here, the others in the socket, where they may become one block.
        pytest.param([1, 1, 1], [0, 2, 3], id="one by one"),
    ],
)
async def test_what_is_asked_ahead_waits_for_its_turn(parts, not_plain):
    extender = Waiting()
    app, asked = counted(an_extender_app(extender))
    async with served(app) as url, connected(url) as (reader, writer):
        writer.write(request("/filter", FILTER))
        await extender.entered.wait()
        for count in parts:
            writer.write(request("/bind", BIND) * count)
            await writer.drain()
            await asyncio.sleep(0.01)
        assert extender.asked == []
        extender.go.set()
        assert [(await response(reader))[0] for _ in range(4)] == [200] * 4
    assert [a.node for a in extender.asked] == ["n1"] * 3
    assert asked in [["/bind"] * count for count in not_plain]


async def test_whoever_asks_far_ahead_is_not_read(monkeypatch):
    blocks, receive = [], FastPath.data_received

    def counting(self, data):
        blocks.append(data)
        receive(self, data)

    monkeypatch.setattr(FastPath, "data_received", counting)
    extender = Waiting()
    async with served(an_extender_app(extender)) as url, connected(url) as (reader, writer):
        writer.write(request("/filter", FILTER))
        await extender.entered.wait()
        blocks.clear()

        async def ask_for_ever():
            while True:
                writer.write(request("/bind", BIND + b" " * 65_000))
                await writer.drain()

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ask_for_ever(), 0.5)
        assert len(blocks) == 1
        extender.go.set()
        assert [(await response(reader))[0] for _ in range(20)] == [200] * 20


async def test_more_than_may_be_held_gets_503_and_leaves_nothing_behind():
    extender = Waiting()
    app = an_extender_app(extender, limits=SMALL)
    async with served(app) as url, connected(url) as (reader, writer):
        writer.write(request("/filter", b"{}" + b" " * 900))
        await extender.entered.wait()
        async with connected(url) as (other, others):
            others.write(request("/filter", b"{}" + b" " * 700))
            status, text = await response(other)
            assert (status, text) == (
                503,
                b"requests of 902 bytes wait for their answers; try again later\n",
            )
        extender.go.set()
        assert (await response(reader))[0] == 200
    assert app.fast_routes[b"/filter"].bodies.hold(SMALL.held) is None


@pytest.mark.parametrize("sent", [10, 1000], ids=["in its body", "while it is answered"])
async def test_a_caller_that_goes_away_leaves_nothing_behind(sent):
    extender = Waiting()
    app = an_extender_app(extender, limits=SMALL)
    text = request("/filter", b"{}" + b" " * 900)
    async with served(app) as url:
        async with connected(url) as (_, writer):
            writer.write(text[: len(text) - 900 + sent])
            await writer.drain()
            await asyncio.sleep(0.05)
        extender.go.set()
        await asyncio.sleep(0.05)
        async with connected(url) as (reader, writer):
            writer.write(request("/filter", b"{}" + b" " * 990))
            assert (await response(reader))[0] == 200
    assert app.fast_routes[b"/filter"].bodies.hold(SMALL.held) is None


async def test_more_connections_than_may_be_are_refused(monkeypatch):
    monkeypatch.setattr("hami.scheduler.web.server.MOST_CONNECTIONS", 2)
    async with served(an_extender_app()) as url:
        async with connected(url) as (first, writer), connected(url) as (second, others):
            await asyncio.sleep(0.05)
            others.write(request("/bind", BIND))
            assert (await response(second))[0] == 503
        await asyncio.sleep(0.05)
        async with connected(url) as (first, writer):
            writer.write(request("/bind", BIND))
            assert (await response(first))[0] == 200


async def test_a_long_answer_to_a_slow_reader_arrives_whole():
    many = {f"node-{number:05}": "1/1 CardInsufficientMemory" for number in range(50_000)}
    app = an_extender_app(Answering(filtering=ExtenderFilterResult(failed_nodes=many)))
    async with served(app) as url, connected(url, limit=1 << 24) as (reader, writer):
        for _ in range(2):
            writer.write(request("/filter", FILTER))
        await asyncio.sleep(0.2)
        for _ in range(2):
            status, text = await response(reader)
            assert (status, len(json.loads(text)["FailedNodes"])) == (200, 50_000)
