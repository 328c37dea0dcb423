"""Calls that are sent once at most, against servers that answer as told, or badly."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from contextlib import asynccontextmanager

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from yarl import URL

from hami.kube import connections
from hami.kube.connections import BrokenOff, Connections, NotSent

OK = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok"
BODY = b'{"kind":"Binding"}'


class Scripted:
    """A server that gives one of ``answers`` to each request, and then the last one again.

    An answer may be several blocks; None ends the connection. ``made`` counts connections.
    """

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked: list[bytes] = []
        self.made = 0

    async def serve(self, reader, writer):
        self.made += 1
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                self.asked.append(head + await reader.readexactly(len(BODY)))
                blocks = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
                for block in blocks if isinstance(blocks, list) else [blocks]:
                    if block is None:
                        return
                    writer.write(block)
                    await writer.drain()
                    await asyncio.sleep(0.005)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def served(script, **options):
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    pool = a_pool(port, **options)
    try:
        yield pool
    finally:
        pool.close()
        server.close()
        await asyncio.sleep(0)


def a_pool(
    port: int, *, scheme: str = "http", most: int = 10, patience: float = 2.0
) -> Connections:
    return Connections(
        URL(f"{scheme}://127.0.0.1:{port}"),
        tls=ssl.create_default_context(),
        server_name=None,
        headers={"User-Agent": "us"},
        most=most,
        patience=patience,
    )


async def post(pool: Connections, path: str = "/a", **headers: str):
    async with asyncio.timeout(10):
        return await pool.post(path, BODY, {"Accept": "application/json", **headers})


async def test_what_is_sent():
    script = Scripted(OK)
    async with served(script) as pool:
        await post(pool, "/api/x%2Fy", Authorization="Bearer t")
    (asked,) = script.asked
    head, _, body = asked.partition(b"\r\n\r\n")
    first, host, *others = head.decode().split("\r\n")
    assert (first, body) == ("POST /api/x%2Fy HTTP/1.1", BODY)
    assert host.startswith("Host: 127.0.0.1:")
    assert others == [
        "User-Agent: us",
        "Accept: application/json",
        "Authorization: Bearer t",
        f"Content-Length: {len(BODY)}",
    ]


@pytest.mark.parametrize(
    ("answer", "status", "body"),
    [
        pytest.param(OK, 201, b"ok", id="with a length"),
        pytest.param([OK[:9], OK[9:30], OK[30:]], 201, b"ok", id="in pieces"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1\r\nk\r\n0\r\n\r\n", 200, b"ok", id="in chunks"),
        pytest.param(b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 201, b"ok", id="after a 100"),
        pytest.param([b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", OK], 201, b"ok", id="after hints"),
        pytest.param([b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nok", None], 200, b"ok", id="until the end"),
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", id="nothing"),
        pytest.param(b"HTTP/1.1 409 Conflict\r\nContent-Length: 2\r\n\r\nno", 409, b"no", id="refused"),
    ],
)  # fmt: skip
async def test_an_answer_is_read(answer, status, body):
    async with served(Scripted(answer, OK)) as pool:
        found = await post(pool)
        assert (found.status, found.body) == (status, body)
        assert (await post(pool)).body == b"ok"


async def test_its_reason_and_headers_are_kept():
    script = Scripted(b"HTTP/1.1 429 Too Many\r\nRETRY-after: 7\r\nContent-Length: 0\r\n\r\n")
    async with served(script) as pool:
        found = await post(pool)
    assert (found.reason, found.headers[b"retry-after"]) == ("Too Many", b"7")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param([None], id="nothing"),
        pytest.param([OK[:20], None], id="half a head"),
        pytest.param([OK[:-1], None], id="half a body"),
        pytest.param([b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nok", None], id="half a chunk"),
        pytest.param(b"SSH-2.0-x\r\n", id="no HTTP"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", id="two lengths"),
        pytest.param(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", id="something else"),
    ],
)  # fmt: skip
async def test_a_bad_answer_may_have_happened_and_ends_the_connection(answer):
    script = Scripted(answer, OK)
    async with served(script) as pool:
        with pytest.raises(BrokenOff):
            await post(pool)
        assert (await post(pool)).body == b"ok"
    assert script.made == 2


async def test_an_answer_that_is_too_long_is_not_kept(monkeypatch):
    monkeypatch.setattr(connections, "MOST_ANSWER", 1000)
    script = Scripted(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + b"x" * 5000)
    async with served(script) as pool:
        with pytest.raises(BrokenOff, match="longer than 1000 bytes"):
            await post(pool)


async def test_one_connection_takes_many_calls_one_after_the_other():
    script = Scripted(OK)
    async with served(script) as pool:
        for _ in range(5):
            await post(pool)
    assert (len(script.asked), script.made) == (5, 1)


async def test_calls_at_once_have_a_connection_each_up_to_the_most():
    script = Scripted(OK)
    async with served(script, most=3) as pool:
        await asyncio.gather(*(post(pool) for _ in range(9)))
    assert (len(script.asked), script.made) == (9, 3)


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok", id="it is said"),
        pytest.param(b"HTTP/1.0 201 Created\r\nContent-Length: 2\r\n\r\nok", id="HTTP/1.0"),
        pytest.param(OK + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged", id="a second answer"),
        pytest.param(OK + b"HTTP/1.1 200 OK\r\nContent-", id="half a second answer"),
        pytest.param([OK, b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"], id="a second answer later"),
        pytest.param([OK, None], id="the server ends it"),
    ],
)  # fmt: skip
async def test_a_connection_that_is_not_clean_is_not_used_again(answer):
    script = Scripted(answer, OK)
    async with served(script) as pool:
        assert (await post(pool)).body == b"ok"
        await asyncio.sleep(0.05)
        assert (await post(pool)).body == b"ok"
    assert script.made == 2


async def test_a_connection_that_was_idle_for_long_is_not_used_again(monkeypatch):
    script = Scripted(OK)
    async with served(script) as pool:
        await post(pool)
        monkeypatch.setattr(connections, "IDLE", 0.0)
        await post(pool)
    assert script.made == 2


async def test_whoever_gives_up_ends_the_connection():
    script = Scripted([OK[:5]], OK)
    async with served(script) as pool:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await pool.post("/a", BODY, {})
        assert (await post(pool)).body == b"ok"
    assert script.made == 2


async def test_closing_fails_what_is_under_way():
    async with served(Scripted([b"HTTP/1.1 "])) as pool:
        call = asyncio.create_task(post(pool))
        await asyncio.sleep(0.1)
        pool.close()
        with pytest.raises(BrokenOff):
            await call


async def test_what_reaches_nobody_was_not_sent():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # And nobody listens.
        with pytest.raises(NotSent):
            await post(a_pool(taken.getsockname()[1]))


async def test_the_systems_own_timeout_is_told_as_such(monkeypatch):
    async def timed_out(*_):
        raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")

    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", timed_out)
    with pytest.raises(NotSent, match="Connection timed out"):
        await post(a_pool(1))


async def test_our_own_patience_is_told_in_seconds():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        pool = a_pool(silent.getsockname()[1], scheme="https", patience=0.05)
        with pytest.raises(NotSent, match=r"^no connection within 0\.05 s$"):
            await post(pool)


async def test_whoever_calls_knows_when_it_leaves():
    """Not before there is a connection, and once for each call."""
    left = []
    script = Scripted(OK)
    async with served(script) as pool:
        for expected in ([1], [1, 1]):
            await pool.post("/a", BODY, {}, leaves=lambda: left.append(script.made))
            assert left == expected


async def test_a_server_that_speaks_no_tls_has_seen_nothing():
    script = Scripted(OK)
    server = await asyncio.start_server(script.serve, "127.0.0.1", 0)
    async with server:
        with pytest.raises(NotSent):
            await post(a_pool(server.sockets[0].getsockname()[1], scheme="https"))
    assert script.asked == []


@pytest.mark.parametrize("text", ["a\r\nX-Forged: 1", "a\nb", "a\0", "ä"])
@pytest.mark.parametrize("where", ["path", "header"])
async def test_nothing_can_be_written_that_is_read_as_more(where, text):
    script = Scripted(OK)
    async with served(script) as pool:
        with pytest.raises(ValueError, match="printable ASCII"):
            await (post(pool, f"/{text}") if where == "path" else post(pool, Authorization=text))
    assert script.asked == []


async def test_whatever_a_server_says_a_call_ends():
    loop = asyncio.get_running_loop()
    blocks = st.sampled_from(
        [OK, OK[:15], b"HTTP/1.1 ", b"200 OK\r\n", b"Content-Length: 3\r\n", b"\r\n", b"0\r\n\r\n",
         b"Transfer-Encoding: chunked\r\n", b"3\r\nabc\r\n", b"Connection: close\r\n", b"\0"]
    ) | st.binary(max_size=10)  # fmt: skip

    async def asked(answer):
        async with served(Scripted([*answer, None], OK)) as pool:
            try:
                found = await post(pool)
            except BrokenOff:
                return
            assert found.status >= 200

    @settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))
    @given(st.lists(blocks, max_size=6))
    def ends(answer):
        asyncio.run_coroutine_threadsafe(asked(answer), loop).result(60)

    await asyncio.to_thread(ends)
