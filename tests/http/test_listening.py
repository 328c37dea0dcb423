"""A listener answers small requests, whatever else its callers do."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import AsyncExitStack, suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hami.domain.errors import ConfigError
from hami.http.addresses import parse_bind
from hami.http.connection import REQUEST_BYTES, RouteAnswer
from hami.http.listening import listening

from .callers import GET, ROUTES, a_caller, a_listener, asked, ok


def a_request(line: str, *headers: str) -> bytes:
    return "\r\n".join([f"{line} HTTP/1.1", "host: it", *headers, "", ""]).encode()


# What is answered.


@pytest.mark.parametrize(
    ("request_", "status", "body"),
    [
        pytest.param(GET, 200, b"ok\n", id="a GET"),
        pytest.param(a_request("GET /?a=b"), 200, b"ok\n", id="a query says nothing"),
        pytest.param(a_request("GET http://it/"), 200, b"ok\n", id="a proxy names the host too"),
        pytest.param(a_request("GET /nope"), 404, b"Not Found; there are /\n", id="no such path"),
        pytest.param(a_request("GET //"), 404, b"Not Found; there are /\n", id="not quite a path"),
        pytest.param(a_request("GET /", "upgrade: h2c", "connection: upgrade"), 200, b"ok\n", id="HTTP/2 offered"),
        pytest.param(a_request("POST /nope"), 404, b"Not Found; there are /\n", id="nowhere to post"),
        pytest.param(a_request("GET /%ff"), 404, b"Not Found; there are /\n", id="an escape is no byte"),
        pytest.param(a_request("GET /\xff"), 400, b"Bad Request\n", id="bytes that are no text"),
        pytest.param(a_request("CONNECT it:1"), 400, b"Bad Request\n", id="no proxy"),
        pytest.param(a_request("MAKE /"), 400, b"Bad Request\n", id="no method"),
        pytest.param(b"\x16\x03\x01\x02\x00", 400, b"Bad Request\n", id="TLS"),
        pytest.param(GET[:-2] + b"content-length: 2\r\n\r\n{}", 200, b"ok\n", id="a small body"),
    ],
)  # fmt: skip
async def test_an_answer(request_, status, body):
    async with a_listener() as address:
        found, _, said = await asked(address, request_)
        assert (found, said) == (status, body)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
async def test_other_methods_are_told_which_there_are(method):
    async with a_listener() as address:
        status, headers, _ = await asked(address, a_request(f"{method} /"))
        assert (status, headers["allow"]) == (405, "GET, HEAD")


async def test_a_head_is_the_answer_without_its_body():
    async with a_listener() as address, a_caller(address) as caller:
        caller.send(a_request("HEAD /"))
        assert (await caller.answer(body=False))[0] == 200
        caller.send(GET)
        status, headers, body = await caller.answer()
        assert (status, headers["content-length"], body) == (200, "3", b"ok\n")


async def test_a_connection_serves_one_request_after_the_other():
    async with a_listener() as address, a_caller(address) as caller:
        for _ in range(3):
            caller.send(GET)
            assert (await caller.answer())[1]["connection"] == "keep-alive"


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.0\r\n\r\n", id="HTTP/1.0"),
        pytest.param(a_request("GET /", "connection: close"), id="the caller says so"),
        pytest.param(GET + GET, id="a request before the former is answered"),
        pytest.param(GET + b"garbage", id="garbage after it"),
    ],
)
async def test_a_connection_that_ends_after_its_answer(data):
    async with a_listener() as address, a_caller(address) as caller:
        caller.send(data)
        assert (await caller.answer())[2] == b"ok\n"
        assert await caller.closed()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\0" * (REQUEST_BYTES + 1), id="much garbage"),
        pytest.param(b"garbage\r\n\r\n" * 2000, id="garbage in lines"),
        pytest.param(
            GET.replace(b"/ ", b"/?" + b"a" * REQUEST_BYTES + b" ") * 2, id="two too long"
        ),
    ],
)
async def test_what_cannot_be_read_is_refused_once(data, caplog):
    async with a_listener() as address, a_caller(address) as caller:
        caller.send(data)
        assert (await caller.answer())[0] in (400, 431)
        assert await caller.closed()
    assert caplog.messages == []  # as of asyncio, when a second answer is written


PIECES = [
    GET, GET[:9], GET[9:], b"POST / HTTP/1.1\r\n", b"content-length: 9\r\n", b"\r\n\r\n", b"a" * 9000,
    b"transfer-encoding: chunked\r\n", b"3\r\nabc\r\n", b"upgrade: x\r\nconnection: upgrade\r\n",
]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(PIECES) | st.binary(max_size=20), max_size=8))
def test_whatever_is_sent_the_next_caller_is_answered(pieces):
    async def sent() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, about: failures.append(about))
        async with a_listener() as address:
            async with a_caller(address) as caller:
                for piece in pieces:
                    caller.send(piece)
                    await asyncio.sleep(0)
            assert (await asked(address, GET))[0] == 200

    failures: list[dict] = []
    asyncio.run(sent())
    assert failures == []


async def test_a_request_may_come_byte_by_byte():
    async with a_listener() as address, a_caller(address) as caller:
        for byte in GET:
            caller.send(bytes([byte]))
            await caller.writer.drain()
            await asyncio.sleep(0)
        assert (await caller.answer())[0] == 200


async def test_a_route_that_fails_is_told_and_the_others_go_on():
    async def fails() -> RouteAnswer:
        raise ValueError("a bug")

    async with a_listener({"/": ok, "/fails": fails}) as address, a_caller(address) as caller:
        caller.send(a_request("GET /fails"))
        status, _, body = await caller.answer()
        assert (status, body) == (500, b"failed: ValueError; the log has the details\n")
        caller.send(GET)
        assert (await caller.answer())[0] == 200


# What it costs.


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(b"GET /" + b"a" * REQUEST_BYTES, 431, id="a long path"),
        pytest.param(a_request("GET /", "x: " + "a" * REQUEST_BYTES), 431, id="a long header"),
        pytest.param(
            a_request("GET /", *(f"x{n}: a" for n in range(REQUEST_BYTES // 8))), 431, id="many headers"
        ),
        pytest.param(
            a_request("POST /", "content-length: 999999") + b"a" * REQUEST_BYTES, 413, id="a body"
        ),
    ],
)  # fmt: skip
async def test_a_request_too_long_is_refused_before_its_end(data, status):
    async with a_listener() as address, a_caller(address) as caller:
        for begin in range(0, len(data), 4096):
            caller.send(data[begin : begin + 4096])
            await asyncio.sleep(0)
        assert (await caller.answer())[0] == status
        # Whoever writes on is not reset, by which it could lose the answer.
        for _ in range(5):
            caller.send(b"a" * 10_000)
            await caller.writer.drain()
            await asyncio.sleep(0.01)
        assert await caller.closed()


@pytest.mark.parametrize(
    "data", [b"", GET[:-2], GET[:-2] + b"content-length: 3\r\n\r\n{"], ids=["nothing", "a head", "a body"]
)  # fmt: skip
async def test_half_a_request_is_not_waited_for(data):
    async with a_listener(request_seconds=0.05) as address, a_caller(address) as caller:
        caller.send(data)
        assert await caller.closed()


async def test_a_trickle_does_not_lengthen_the_time():
    async with a_listener(request_seconds=0.2) as address, a_caller(address) as caller:

        async def trickle() -> None:
            for byte in GET * 1000:
                caller.send(bytes([byte]))
                await asyncio.sleep(0.05)

        trickling = asyncio.create_task(trickle())
        assert await caller.closed()
        trickling.cancel()


async def test_a_connection_without_another_request_ends():
    async with a_listener(idle_seconds=0.05) as address, a_caller(address) as caller:
        caller.send(GET)
        await caller.answer()
        assert await caller.closed()


async def test_silent_callers_do_not_keep_a_probe_out():
    async with a_listener(connections=4) as address:
        silent = [await asyncio.open_connection(*address) for _ in range(40)]
        assert (await asked(address, GET))[0] == 200
        for _, writer in silent:
            writer.transport.abort()


async def test_who_asks_stays_and_who_does_not_gives_way():
    async with (
        a_listener(connections=2) as address,
        a_caller(address) as asks,
        a_caller(address) as silent,
    ):
        asks.send(GET)
        await asks.answer()
        async with a_caller(address) as new:
            assert await silent.closed()
            for caller in (new, asks):
                caller.send(GET)
                assert (await caller.answer())[0] == 200


async def a_lot() -> RouteAnswer:
    return RouteAnswer(body=b"a" * 20_000_000)


async def test_an_answer_that_is_not_taken_is_given_up():
    async with a_listener({"/": a_lot}, answer_seconds=0.2) as address, a_caller(address) as caller:
        caller.send(GET)
        await asyncio.sleep(0.4)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await caller.answer()


async def test_a_long_answer_arrives_whole():
    async with a_listener({"/": a_lot}) as address, a_caller(address) as caller:
        for _ in range(2):
            caller.send(GET)
            assert len((await caller.answer())[2]) == 20_000_000


async def test_few_answers_at_once_wait_for_their_readers():
    made = 0

    async def counted() -> RouteAnswer:
        nonlocal made
        made += 1
        return await a_lot()

    async with (
        a_listener({"/": counted}, unread=1) as address,
        a_caller(address) as slow,
        a_caller(address) as another,
    ):
        for number, caller in enumerate((slow, another), start=1):
            caller.send(GET)
            while made < number:
                await asyncio.sleep(0)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await slow.answer()
        assert (await another.answer())[0] == 200


async def test_an_answer_is_not_made_for_a_caller_who_left():
    begun, ended = asyncio.Event(), asyncio.Event()

    async def slow() -> RouteAnswer:
        begun.set()
        try:
            await asyncio.sleep(30)
        finally:
            ended.set()
        raise AssertionError

    async with a_listener({"/": slow}) as address:
        async with a_caller(address) as caller:
            caller.send(GET)
            await begun.wait()
        async with asyncio.timeout(10):
            await ended.wait()


# Answers in pieces.


def in_pieces(*pieces: bytes, then=None):
    """A route that says ``begin`` and these pieces, and then does this."""

    async def more():
        for piece in pieces:
            yield piece
        if then is not None:
            await then()

    async def route() -> RouteAnswer:
        return RouteAnswer(body=b"begin ", more=more())

    return {"/": route}


async def read_all(address, data: bytes) -> bytes:
    async with a_caller(address) as caller, asyncio.timeout(20):
        caller.send(data)
        return await caller.reader.read()


CLOSING = a_request("GET /", "connection: close")
OLD = a_request("GET /", "connection: keep-alive").replace(b"1.1", b"1.0")


async def test_pieces_are_chunks():
    async with a_listener(in_pieces(b"a", b"", b"b" * 17)) as address:
        head, _, said = (await read_all(address, CLOSING)).partition(b"\r\n\r\n")
        assert b"transfer-encoding: chunked" in head
        assert b"content-length" not in head
        assert said == b"6\r\nbegin \r\n1\r\na\r\n11\r\n" + b"b" * 17 + b"\r\n0\r\n\r\n"


async def test_an_old_caller_gets_pieces_until_the_end():
    async with a_listener(in_pieces(b"a", b"b")) as address:
        head, _, said = (await read_all(address, OLD)).partition(b"\r\n\r\n")
        assert b"chunked" not in head
        assert b"connection: close" in head
        assert said == b"begin ab"


async def test_the_connection_goes_on_after_pieces():
    async with a_listener(in_pieces(b"a")) as address, a_caller(address) as caller:
        for _ in range(3):
            caller.send(GET)
            async with asyncio.timeout(20):
                assert b"keep-alive" in await caller.reader.readuntil(b"0\r\n\r\n")


async def test_a_head_takes_no_pieces():
    async def never():
        raise AssertionError

    async with a_listener(in_pieces(then=never)) as address:
        said = await read_all(address, CLOSING.replace(b"GET", b"HEAD"))
        assert said.startswith(b"HTTP/1.1 200 OK")
        assert said.endswith(b"\r\n\r\n")


async def test_an_answer_that_fails_on_the_way_has_no_end():
    async def fails():
        raise ValueError("on the way")

    async with a_listener(in_pieces(b"a", then=fails)) as address:
        with suppress(ConnectionError):
            assert not (await read_all(address, CLOSING)).endswith(b"0\r\n\r\n")
        assert (await asked(address, a_request("GET /nope")))[0] == 404


async def test_pieces_wait_for_their_reader():
    made = 0

    async def more():
        nonlocal made
        while made < 100:
            made += 1
            yield b"a" * 1_000_000

    async def route() -> RouteAnswer:
        return RouteAnswer(body=b"", more=more())

    async with a_listener({"/": route}) as address, a_caller(address) as caller:
        caller.send(CLOSING)
        await caller.reader.readexactly(1)
        for _ in range(100):
            await asyncio.sleep(0.001)
        assert made < 50
        async with asyncio.timeout(20):
            assert len(await caller.reader.read()) > 100_000_000
        assert made == 100


async def test_pieces_are_not_made_for_a_caller_who_left():
    begun, ended = asyncio.Event(), asyncio.Event()

    async def more():
        try:
            while True:
                yield b"a" * 1_000_000
                begun.set()
        finally:
            ended.set()

    async def route() -> RouteAnswer:
        return RouteAnswer(body=b"", more=more())

    async with a_listener({"/": route}) as address:
        async with a_caller(address) as caller:
            caller.send(GET)
            await begun.wait()
        async with asyncio.timeout(10):
            await ended.wait()


# Begin and end.


@pytest.mark.parametrize("bind", [":0", "127.0.0.1:0", "localhost:0"])
async def test_it_listens_where_it_is_told(bind):
    async with a_listener(bind=bind) as address:
        assert (await asked(address, GET))[0] == 200


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 in this Python")
async def test_it_listens_on_ipv6():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError as error:
        pytest.skip(f"this machine has no IPv6 loopback: {error}")
    async with a_listener(bind="[::1]:0") as address:
        assert address[0] == "::1"
        assert (await asked(address, GET))[0] == 200


async def test_a_port_in_use_is_one_line_with_the_remedy():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(
            ConfigError,
            match=rf"^cannot listen on {bind}: Address already in use.*; choose another address or "
            r"stop what uses it$",
        ):
            async with listening(parse_bind(bind), ROUTES):
                raise AssertionError("it listens")


async def test_the_end_leaves_nothing_behind():
    threads, tasks = threading.active_count(), len(asyncio.all_tasks())
    async with a_listener() as address:
        idle, half = [await asyncio.open_connection(*address) for _ in range(2)]
        half[1].write(GET[:10])
        await asked(address, GET)
    for reader, writer in (idle, half):
        assert await reader.read() == b""
        writer.transport.abort()
    assert (threading.active_count(), len(asyncio.all_tasks())) == (threads, tasks)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(*address)


async def test_an_answer_under_way_is_finished_first():
    begun, go = asyncio.Event(), asyncio.Event()

    async def waits() -> RouteAnswer:
        begun.set()
        await go.wait()
        return await ok()

    async with asyncio.timeout(20), AsyncExitStack() as serving:
        address = await serving.enter_async_context(a_listener({"/": waits}, grace=20.0))
        async with a_caller(address) as caller:
            caller.send(GET)
            await begun.wait()
            ending = asyncio.create_task(serving.aclose())
            await asyncio.sleep(0.01)
            go.set()
            status, headers, _ = await caller.answer()
            assert (status, headers["connection"]) == (200, "close")
            assert await caller.closed()
        await ending


async def test_an_answer_that_does_not_end_is_cut_off():
    begun = asyncio.Event()

    async def hangs() -> RouteAnswer:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with asyncio.timeout(20), AsyncExitStack() as serving:
        address = await serving.enter_async_context(a_listener({"/": hangs}, grace=0.05))
        async with a_caller(address) as caller:
            caller.send(GET)
            await begun.wait()
            await serving.aclose()
            assert await caller.closed()
