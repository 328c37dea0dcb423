"""What kube-scheduler gets from ``/filter``, ``/preempt`` and ``/bind``, over real connections."""

from __future__ import annotations

import asyncio
import http.client
import io
import json

import aiohttp
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hami.scheduler.web import server as servers
from hami.scheduler.web.bodies import BodyLimits
from hami.wire.extender import (
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionResult,
    MetaPod,
    MetaVictims,
)

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

POD = {"metadata": {"name": "p", "namespace": "ml", "uid": "u"}}
FILTER = {"Pod": POD, "Nodes": None, "NodeNames": ["n1", "n2"]}
PREEMPT = {
    "Pod": POD,
    "NodeNameToVictims": None,
    "NodeNameToMetaVictims": {"n1": {"Pods": [{"UID": "v"}], "NumPDBViolations": 1}},
}
BIND = {"PodName": "p", "PodNamespace": "ml", "PodUID": "u", "Node": "n1"}


@pytest.mark.parametrize(
    ("result", "text"),
    [
        pytest.param(
            ExtenderFilterResult(node_names=["node2"]),
            '{"Nodes":null,"NodeNames":["node2"],"FailedNodes":null,'
            '"FailedAndUnresolvableNodes":null,"Error":""}',
            id="placed",
        ),
        pytest.param(
            ExtenderFilterResult(failed_nodes={"node1": "1/1 CardInsufficientMemory"}),
            '{"Nodes":null,"NodeNames":null,"FailedNodes":{"node1":"1/1 CardInsufficientMemory"},'
            '"FailedAndUnresolvableNodes":null,"Error":""}',
            id="none fits",
        ),
        pytest.param(
            ExtenderFilterResult(error="extender args missing pod"),
            '{"Nodes":null,"NodeNames":null,"FailedNodes":null,'
            '"FailedAndUnresolvableNodes":null,"Error":"extender args missing pod"}',
            id="an error",
        ),
    ],
)
async def test_a_filter_is_answered_in_hamis_bytes(result, text):
    app = an_extender_app(Answering(filtering=result))
    async with calling(app) as client, client.post("/filter", json=FILTER) as answer:
        assert (answer.status, await answer.text()) == (200, text)
        assert answer.content_type == "application/json"


@pytest.mark.parametrize("error", ["", "node n1 has been locked within 5m0s"])
async def test_a_bind_is_answered_in_hamis_bytes(error):
    extender = Answering(binding=ExtenderBindingResult(error=error))
    app = an_extender_app(extender)
    async with calling(app) as client, client.post("/bind", json=BIND) as answer:
        assert (answer.status, await answer.text()) == (200, f'{{"Error":"{error}"}}')
    assert [(a.pod_name, a.pod_uid, a.node) for a in extender.asked] == [("p", "u", "n1")]


@pytest.mark.parametrize(
    ("result", "text"),
    [
        pytest.param(
            ExtenderPreemptionResult(
                node_name_to_meta_victims={
                    "n1": MetaVictims(pods=[MetaPod(uid="v")], num_pdb_violations=1)
                }
            ),
            '{"NodeNameToMetaVictims":{"n1":{"Pods":[{"UID":"v"}],"NumPDBViolations":1}}}',
            id="a node where it helps",
        ),
        pytest.param(
            ExtenderPreemptionResult(), '{"NodeNameToMetaVictims":null}', id="none where it would"
        ),
    ],
)
async def test_a_preemption_is_answered_as_kube_scheduler_reads_it(result, text):
    extender = Answering(preempting=result)
    app = an_extender_app(extender)
    async with calling(app) as client, client.post("/preempt", json=PREEMPT) as answer:
        assert (answer.status, await answer.text()) == (200, text)
        assert answer.content_type == "application/json"
    (args,) = extender.asked
    assert json.loads(bytes(args.pod)) == POD
    assert args.node_name_to_meta_victims["n1"].pods == [MetaPod(uid="v")]


async def test_the_extender_is_given_the_names_and_the_undecoded_pod():
    extender = Answering()
    async with calling(an_extender_app(extender)) as client:
        await client.post("/filter", json=FILTER)
    (args,) = extender.asked
    assert (args.node_names, args.has_nodes, json.loads(bytes(args.pod))) == (
        ["n1", "n2"],
        False,
        POD,
    )


# Bad bodies.


@pytest.mark.parametrize("path", ["/filter", "/preempt", "/bind"])
@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'"x"', b"null", b"\xff\xfe", b'{"NodeNames": 7, "PodName": 7, "NodeNameToMetaVictims": 7}', b"[" * 100_000],
    ids=["nothing", "half", "a list", "a text", "null", "no UTF-8", "wrong types", "deep"],
)  # fmt: skip
async def test_a_malformed_body_gets_400_and_a_text(path, body):
    extender = Answering()
    app = an_extender_app(extender)
    async with calling(app) as client, client.post(path, data=body) as answer:
        text = await answer.text()
        assert (answer.status, answer.content_type) == (400, "text/plain")
    assert text.startswith("the body is no Extender")
    assert extender.asked == []


async def test_no_bytes_at_all_make_the_extender_fail():
    """A fuzz over one connection: every answer is 200 or 400, and the server stays."""
    bodies = st.binary(max_size=200) | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    [
                        "Pod",
                        "Nodes",
                        "NodeNames",
                        "PodUID",
                        "Node",
                        "metadata",
                        "Pods",
                        "UID",
                        "NodeNameToVictims",
                        "NodeNameToMetaVictims",
                        "NumPDBViolations",
                    ]
                ),
                inner,
            )
        ),
        max_leaves=8,
    ).map(lambda value: json.dumps(value).encode())
    loop = asyncio.get_running_loop()
    async with calling(an_extender_app()) as client:

        async def statuses(body: bytes) -> set[int]:
            found = set()
            for path in ("/filter", "/preempt", "/bind"):
                async with client.post(path, data=body) as answer:
                    await answer.read()
                    found.add(answer.status)
            return found

        @settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
        @given(bodies)
        def never_500(body):
            done = asyncio.run_coroutine_threadsafe(statuses(body), loop).result(60)
            assert done <= {200, 400}

        await asyncio.to_thread(never_500)


SMALL = BodyLimits(body=1000)
IMPATIENT = BodyLimits(body_seconds=0.2)


@pytest.mark.parametrize("chunked", [False, True], ids=["announced", "chunked"])
async def test_a_body_over_the_limit_gets_413(chunked):
    async def pieces():
        for _ in range(20):
            yield b" " * 100

    extender = Answering()
    async with calling(an_extender_app(extender, limits=SMALL)) as client:
        async with client.post("/filter", data=pieces() if chunked else b" " * 2000) as answer:
            assert (answer.status, await answer.text()) == (
                413,
                "the body is longer than 1000 bytes\n",
            )
            assert answer.headers["connection"] == "close"
        async with client.post("/filter", json={}) as answer:
            assert answer.status == 200
    assert len(extender.asked) == 1


async def test_the_default_limit_takes_five_thousand_whole_nodes():
    nodes = [{"metadata": {"name": f"n{n}", "annotations": {"a": "x" * 3000}}} for n in range(5000)]
    extender = Answering()
    body = io.BytesIO(json.dumps({"Pod": POD, "Nodes": {"Items": nodes}}).encode())
    async with (
        calling(an_extender_app(extender)) as client,
        client.post("/filter", data=body) as answer,
    ):
        assert answer.status == 200
    assert len(bytes(extender.asked[0].nodes)) > 15_000_000


@pytest.mark.parametrize("chunked", [False, True], ids=["announced", "chunked"])
async def test_a_caller_that_sends_all_of_a_long_body_still_gets_its_answer(chunked):
    def status(port: int) -> int:
        # Blocking, and not reading before it has written everything.
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            blocks = [b" " * 65536] * 320
            body = iter(blocks) if chunked else b"".join(blocks)
            headers = {"Transfer-Encoding": "chunked"} if chunked else {}
            connection.request("POST", "/filter", body, headers, encode_chunked=chunked)
            return connection.getresponse().status
        finally:
            connection.close()

    async with served(an_extender_app()) as url:
        assert await asyncio.to_thread(status, host_and_port(url)[1]) == 413


async def test_a_body_far_over_the_limit_is_not_waited_for():
    async with (
        served(an_extender_app(limits=BodyLimits(body=1000))) as url,
        connected(url) as (reader, writer),
    ):
        writer.write(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 4001\r\n\r\n")
        assert await response(reader) == (413, b"the body is longer than 1000 bytes\n")
        assert await asyncio.wait_for(reader.read(), 30) == b""


async def test_a_body_without_an_end_is_cut_off():
    async with (
        served(an_extender_app(limits=BodyLimits(body=1000))) as url,
        connected(url) as (reader, writer),
    ):
        writer.write(b"POST /filter HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        writer.write(b"3e8\r\n" + b" " * 1000 + b"\r\n")
        for _ in range(4):
            writer.write(b"3e8\r\n" + b" " * 1000 + b"\r\n")
        assert (await response(reader))[0] == 413


async def test_a_body_that_comes_too_slowly_gets_408():
    async with (
        served(an_extender_app(limits=IMPATIENT)) as url,
        connected(url) as (reader, writer),
    ):
        writer.write(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        status, text = await response(reader)
        assert (status, text) == (408, b"the body was not there within 0.2 seconds\n")
        assert await asyncio.wait_for(reader.read(), 30) == b""


async def test_a_caller_that_goes_away_in_its_body_harms_nobody():
    extender = Answering()
    async with calling(an_extender_app(extender)) as client:
        async with connected(str(client._base_url).rstrip("/")) as (_, writer):
            writer.write(b"POST /filter HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
            await writer.drain()
        async with client.post("/filter", json={}) as answer:
            assert answer.status == 200
    assert len(extender.asked) == 1


# Headers.


async def test_headers_that_do_not_come_end_the_connection(monkeypatch):
    monkeypatch.setattr(servers, "HEADER_SECONDS", 0.1)
    async with served(an_extender_app()) as url:
        for text in (b"", b"POST /filter HTTP/1.1\r\nHost: x\r\nX-A: "):
            async with connected(url) as (reader, writer):
                writer.write(text)
                assert await asyncio.wait_for(reader.read(), 30) == b""


async def test_the_second_requests_headers_have_their_own_time(monkeypatch):
    monkeypatch.setattr(servers, "HEADER_SECONDS", 0.5)
    async with served(an_extender_app()) as url, connected(url) as (reader, writer):
        for _ in range(2):
            writer.write(request("/bind", json.dumps(BIND).encode()))
            assert (await response(reader))[0] == 200
            # Idle between two requests is no fault: kube-scheduler has nothing to ask.
            await asyncio.sleep(0.6)
        writer.write(b"POST /bind HTTP/1.1\r\n")
        assert await asyncio.wait_for(reader.read(), 30) == b""


async def test_endless_headers_end_the_connection():
    async with served(an_extender_app()) as url, connected(url) as (_, writer):

        async def send_for_ever():
            writer.write(b"POST /filter HTTP/1.1\r\nHost: x\r\n")
            while True:
                writer.write(b"X-A: %s\r\n" % (b"a" * 1000))
                await writer.drain()

        with pytest.raises(ConnectionError):
            await asyncio.wait_for(send_for_ever(), 30)


async def test_what_is_no_http_gets_400():
    async with served(an_extender_app()) as url, connected(url) as (reader, writer):
        writer.write(b"\x16\x03\x01 hello\r\n\r\n")
        assert (await response(reader))[0] == 400


# Not ready, and bugs.


async def test_before_it_is_ready_the_extender_says_so_and_is_not_asked():
    extender = Answering()
    app = an_extender_app(extender, waits=("pods", "nodes"))
    text = "hami scheduler is not ready: waiting for pods, nodes"
    async with calling(app) as client:
        for path, body in (("/filter", FILTER), ("/bind", BIND)):
            async with client.post(path, json=body) as answer:
                assert (answer.status, (await answer.json())["Error"]) == (200, text)
        async with client.post("/preempt", json=PREEMPT) as answer:
            assert (answer.status, await answer.json()) == (200, {"NodeNameToMetaVictims": None})
    assert extender.asked == []


async def test_a_bug_in_a_preemption_is_an_error_which_stops_it(logged):
    bug = ZeroDivisionError("division by zero")
    app = an_extender_app(Answering(preempting=bug))
    async with calling(app) as client, client.post("/preempt", json=PREEMPT) as answer:
        assert answer.status == 500
        assert "failed at /preempt: ZeroDivisionError" in await answer.text()
    assert [(e["route"], e["exc_info"]) for e in logged] == [("preempt", True)]


async def test_a_bug_is_named_in_the_error_field_and_logged_with_its_traceback(logged):
    bug = ZeroDivisionError("division\nby zero")
    async with calling(an_extender_app(Answering(filtering=bug, binding=bug))) as client:
        for path, body in (("/filter", FILTER), ("/bind", BIND)):
            async with client.post(path, json=body) as answer:
                error = (await answer.json())["Error"]
                assert answer.status == 200
                assert error == (
                    f"hami scheduler failed at {path}: ZeroDivisionError: division by zero; "
                    f"its log has the details"
                )
    assert [(e["route"], e["log_level"], e["exc_info"]) for e in logged] == [
        ("filter", "error", True),
        ("bind", "error", True),
    ]


# Paths and methods.


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/filter", 405),
        ("GET", "/preempt", 405),
        ("PUT", "/bind", 405),
        ("POST", "/healthz", 405),
        ("GET", "/nothing", 404),
        ("POST", "/filter/", 404),
        ("POST", "/webhook", 404),
        ("GET", "/metrics", 404),
        ("GET", "/openapi.json", 404),
    ],
)
async def test_an_unknown_path_is_404_and_a_wrong_method_405_in_json(method, path, status):
    async with calling(an_extender_app()) as client, client.request(method, path) as answer:
        assert (answer.status, answer.content_type) == (status, "application/json")
        assert set(await answer.json()) == {"detail"}


# One connection, and the end.


async def test_one_connection_serves_many_requests():
    async with served(an_extender_app()) as url, connected(url) as (reader, writer):
        for _ in range(50):
            writer.write(request("/bind", json.dumps(BIND).encode()))
            assert await response(reader) == (200, b'{"Error":""}')


async def test_requests_sent_ahead_are_answered_in_order():
    extender = Answering()
    async with served(an_extender_app(extender)) as url, connected(url) as (reader, writer):
        body = [json.dumps(BIND | {"Node": f"n{n}"}).encode() for n in range(5)]
        writer.write(b"".join(request("/bind", b) for b in body))
        assert [await response(reader) for _ in body] == [(200, b'{"Error":""}')] * 5
    assert [a.node for a in extender.asked] == ["n0", "n1", "n2", "n3", "n4"]


async def test_at_the_end_what_is_under_way_is_answered_and_nothing_new_is_taken():
    extender = Waiting()
    async with aiohttp.ClientSession() as session:
        async with served(an_extender_app(extender)) as url:
            asked = asyncio.create_task(session.post(f"{url}/filter", json=FILTER))
            idle = await asyncio.open_connection(*host_and_port(url))
            await extender.entered.wait()
            asyncio.get_running_loop().call_later(0.3, extender.go.set)
        async with await asked as answer:
            assert (answer.status, (await answer.json())["NodeNames"]) == (200, ["n1"])
            assert answer.headers["connection"] == "close"
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.get(f"{url}/healthz")
        assert await asyncio.wait_for(idle[0].read(), 30) == b""
        idle[1].close()
        await idle[1].wait_closed()


async def test_at_the_end_what_takes_too_long_is_cut_off():
    extender = Waiting()
    async with aiohttp.ClientSession() as session:
        async with served(an_extender_app(extender), grace=1.0) as url:
            asked = asyncio.create_task(session.post(f"{url}/filter", json=FILTER))
            await extender.entered.wait()
        done = (await asyncio.gather(asked, return_exceptions=True))[0]
        if isinstance(done, aiohttp.ClientResponse):
            assert done.status == 500
            done.close()
        else:
            assert isinstance(done, aiohttp.ClientError)


def host_and_port(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("http://").rpartition(":")
    return host, int(port)
