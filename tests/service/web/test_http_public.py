"""Webhook, health, metrics and API, and where they listen."""

from __future__ import annotations

import asyncio
import io
import socket

import aiohttp
import pytest
from fastapi import APIRouter

from hami.domain.errors import ConfigError
from hami.http.addresses import Bind, address_of, open_socket, parse_bind
from hami.scheduler.settings.config import SchedulerConfig
from hami.scheduler.web.applications import whole_app
from hami.scheduler.web.bodies import BodyLimits
from hami.scheduler.web.listeners import Served, listeners_of
from hami.scheduler.web.quota_webhook import PATHS as QUOTA_PATHS
from hami.scheduler.web.server import Listener, serving
from hami.scheduler.web.tls import self_signed
from hami.wire.admission import AdmissionResponse, AdmissionReview
from hami.wire.bodies import BadBody

from .http_builders import (
    HERE,
    Answering,
    NoMetrics,
    Reviewing,
    State,
    a_public_app,
    an_extender_app,
    calling,
    connected,
    request,
    served,
)

ALLOWED = AdmissionReview(
    api_version="admission.k8s.io/v1",
    kind="AdmissionReview",
    response=AdmissionResponse(uid="u", allowed=True),
)


def an_api() -> APIRouter:
    router = APIRouter(prefix="/api/v1")

    @router.get("/nodes")
    async def nodes() -> dict[str, int]:
        return {"count": 2}

    return router


# The webhook's route.


async def test_a_review_is_answered_in_json():
    app = a_public_app(Reviewing(ALLOWED))
    async with calling(app) as client, client.post("/webhook", data=b"{}") as answer:
        assert (answer.status, answer.content_type) == (200, "application/json")
        assert await answer.json() == {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {"uid": "u", "allowed": True},
        }


async def test_a_body_that_is_no_review_gets_400():
    refused = BadBody(expected="AdmissionReview", problem="it has no request")
    app = a_public_app(Reviewing(refused))
    async with calling(app) as client, client.post("/webhook", data=b"{}") as answer:
        text = await answer.text()
        assert (answer.status, text) == (
            400,
            "the body is no AdmissionReview: it has no request\n",
        )


async def test_a_bug_gets_500_so_that_the_failure_policy_decides(logged):
    app = a_public_app(Reviewing(KeyError("gone")))
    async with calling(app) as client, client.post("/webhook", data=b"{}") as answer:
        assert answer.status == 500
        assert "failed at /webhook: KeyError: 'gone'" in await answer.text()
    assert [(e["log_level"], e["route"]) for e in logged] == [("error", "webhook")]


async def test_a_review_may_be_shorter_than_a_filter():
    app = a_public_app(Reviewing(ALLOWED))
    async with calling(app) as client:
        async with client.post("/webhook", data=io.BytesIO(b" " * (1 << 22))) as answer:
            assert answer.status == 200
        async with client.post("/webhook", data=io.BytesIO(b" " * ((1 << 22) + 1))) as answer:
            assert (answer.status, await answer.text()) == (
                413,
                "the body is longer than 4194304 bytes\n",
            )


@pytest.mark.parametrize("chunked", [False, True], ids=["announced", "chunked"])
async def test_no_more_is_held_at_once_than_the_limit_of_all_requests(chunked):
    async def pieces():
        for _ in range(5):
            yield b" " * 100

    app = a_public_app(Reviewing(ALLOWED), limits=BodyLimits(review=1000, held=1000))
    async with served(app) as url, aiohttp.ClientSession(url) as client:
        async with connected(url) as (_, begun):
            begun.write(request("/webhook", b" " * 1000)[:-1])
            await begun.drain()
            async with asyncio.timeout(20):
                status = 200
                while status == 200:  # Until what the first one has sent is there.
                    data = pieces() if chunked else b" " * 500
                    async with client.post("/webhook", data=data) as answer:
                        status, text = answer.status, await answer.text()
            assert (status, answer.headers["retry-after"]) == (503, "1")
            assert text == "requests of 999 bytes wait for their answers; try again later\n"
            async with client.post("/webhook", data=b" ") as answer:
                assert answer.status == 200
        async with asyncio.timeout(20):
            while status != 200:
                async with client.post("/webhook", data=b" " * 1000) as answer:
                    status = answer.status


async def test_what_the_webhook_holds_keeps_no_filter_out():
    limits = BodyLimits(review=1000, held=1000)
    app = whole_app(Answering(), Reviewing(ALLOWED), State(), NoMetrics(), limits=limits)
    async with (
        served(app) as url,
        aiohttp.ClientSession(url) as client,
        connected(url) as (_, begun),
        asyncio.timeout(20),
    ):
        begun.write(request("/webhook", b" " * 1000)[:-1])
        status = 200
        while status == 200:
            async with client.post("/webhook", data=b" " * 500) as answer:
                status = answer.status
        assert status == 503
        async with client.post("/filter", data=b"{}" + b" " * 900) as answer:
            assert answer.status == 200


# Health, metrics, API.


@pytest.mark.parametrize("make", [a_public_app, an_extender_app])
@pytest.mark.parametrize(
    ("waits", "broken", "healthz", "readyz"),
    [
        ((), (), (200, "ok\n"), (200, "ok\n")),
        (("pods", "quotas"), (), (200, "ok\n"), (503, "waiting for pods, quotas\n")),
        ((), ("informer",), (503, "failed: informer\n"), (503, "waiting for informer\n")),
    ],
    ids=["ready", "not synced", "broken"],
)
async def test_health_says_what_is_missing(make, waits, broken, healthz, readyz):
    async with calling(make(waits=waits, broken=broken)) as client:
        for path, expected in (("/healthz", healthz), ("/readyz", readyz)):
            async with client.get(path) as answer:
                assert (answer.status, await answer.text()) == expected


async def test_metrics_are_text_for_prometheus():
    async with calling(a_public_app()) as client, client.get("/metrics") as answer:
        assert await answer.read() == b"# nothing\n"
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"


async def test_the_api_is_described_and_nothing_else_is():
    async with calling(a_public_app(Reviewing(ALLOWED), api_router=an_api)) as client:
        async with client.get("/api/v1/nodes") as answer:
            assert await answer.json() == {"count": 2}
        async with client.get("/openapi.json") as answer:
            assert set((await answer.json())["paths"]) == {"/api/v1/nodes"}


@pytest.mark.parametrize(
    "path", ["/filter", "/preempt", "/bind", "/docs", "/redoc", "/openapi.json", "/"]
)
async def test_the_public_listener_takes_no_extender_calls_and_shows_no_pages(path):
    async with calling(a_public_app(Reviewing(ALLOWED))) as client:
        for method in ("GET", "POST"):
            async with client.request(method, path) as answer:
                assert (answer.status, await answer.json()) == (404, {"detail": "Not Found"})


# Where they listen.


def a_served(**changes) -> Served:
    parts = {
        "extender": Answering(),
        "webhook": Reviewing(ALLOWED),
        "quota_webhook": Reviewing(ALLOWED),
        "health": State(),
        "metrics": NoMetrics(),
    }
    return Served(**(parts | changes))


ANYWHERE = {
    "extender_bind": "127.0.0.1:0",
    "public_bind": "127.0.0.1:0",
    "metrics_bind_address": "127.0.0.1:0",
}
EXTENDER = {"/filter", "/preempt", "/bind"}
WEBHOOKS = {"/webhook", *QUOTA_PATHS}
HEALTH = {"/healthz", "/readyz"}
PATHS = (*EXTENDER, *WEBHOOKS, *HEALTH, "/metrics")


async def served_paths(config: SchedulerConfig) -> dict[str, set[str]]:
    """What each listener does not answer with 404."""
    found: dict[str, set[str]] = {}
    connector = aiohttp.TCPConnector(ssl=False)
    async with (
        serving(listeners_of(config, a_served())) as servers,
        aiohttp.ClientSession(connector=connector) as session,
    ):
        for name, url in servers.addresses.items():
            found[f"{name} {url.partition(':')[0]}"] = set()
            for path in PATHS:
                async with session.get(url + path) as answer:
                    if answer.status != 404:
                        found[f"{name} {url.partition(':')[0]}"].add(path)
    return found


async def test_extender_and_public_and_metrics_have_listeners_of_their_own():
    assert await served_paths(SchedulerConfig(**ANYWHERE)) == {
        "extender http": EXTENDER | HEALTH,
        "public http": {"/metrics", *WEBHOOKS, *HEALTH},
        "metrics http": {"/metrics", *HEALTH},
    }


async def test_with_a_certificate_the_public_listener_alone_speaks_tls_on_loopback(tmp_path):
    files = self_signed(["127.0.0.1"]).write(tmp_path)
    config = SchedulerConfig(
        **ANYWHERE | {"metrics_bind_address": "0"}, cert_file=files.cert, key_file=files.key
    )
    assert set(await served_paths(config)) == {"extender http", "public https"}


async def test_hamis_one_listener_serves_everything(tmp_path):
    files = self_signed(["127.0.0.1"]).write(tmp_path)
    config = SchedulerConfig(
        http_bind="127.0.0.1:0",
        metrics_bind_address="127.0.0.1:0",
        cert_file=files.cert,
        key_file=files.key,
    )
    assert await served_paths(config) == {
        "public https": set(PATHS),
        "metrics http": {"/metrics", *HEALTH},
    }


async def test_an_address_in_use_is_one_sentence_and_no_listener_stays():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        bind = Bind(host="127.0.0.1", port=taken.getsockname()[1])
        first = Listener(name="a", bind=HERE, app=an_extender_app())
        with pytest.raises(ConfigError, match=rf"^cannot listen on {bind}: Address already in use"):
            async with serving([first, Listener(name="b", bind=bind, app=an_extender_app())]):
                raise AssertionError("it served")


async def test_a_unix_socket_is_served_for_its_group_and_taken_away(tmp_path):
    path = tmp_path / "s"
    # What a killed process leaves behind.
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    listener = Listener(name="it", bind=Bind(path=path), app=an_extender_app())
    async with serving([listener]) as servers:
        assert servers.addresses == {"it": f"http+unix:{path}"}
        assert path.stat().st_mode & 0o777 == 0o660
        connector = aiohttp.UnixConnector(str(path))
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.get("http://it/healthz") as answer,
        ):
            assert answer.status == 200
        with pytest.raises(ConfigError, match="Address already in use"):
            open_socket(Bind(path=path))
    assert not path.exists()


async def test_a_listener_that_dies_is_noticed():
    async with serving([Listener(name="it", bind=HERE, app=an_extender_app())]) as servers:
        watch = asyncio.create_task(servers.failed())
        await asyncio.sleep(0)
        servers._tasks[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await watch


@pytest.mark.parametrize("text", ["127.0.0.1:0", "localhost:0", ":0"])
def test_answers_are_not_held_back_for_the_callers_ack(text):
    with open_socket(parse_bind(text)) as listening:
        port = listening.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), 30):
            listening.settimeout(30)
            accepted, _ = listening.accept()
            with accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize(
    ("text", "bind", "local"),
    [
        ("127.0.0.1:80", Bind(host="127.0.0.1", port=80), True),
        ("127.1.2.3:80", Bind(host="127.1.2.3", port=80), True),
        ("localhost:80", Bind(host="localhost", port=80), True),
        ("[::1]:80", Bind(host="::1", port=80), True),
        (":80", Bind(port=80), False),
        ("0.0.0.0:80", Bind(host="0.0.0.0", port=80), False),
        ("[::]:80", Bind(host="::", port=80), False),
        ("example.org:80", Bind(host="example.org", port=80), False),
    ],
)
def test_addresses_are_read_and_written_alike(text, bind, local):
    assert (parse_bind(text), str(bind), bind.local) == (bind, text, local)


@pytest.mark.parametrize(
    "text", ["80", "a:b", ":-1", ":65536", "::1:80", ":", "unix:relative", ":٣"]
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ValueError, match=r"HOST:PORT|absolute path"):
        parse_bind(text)


def test_an_address_of_every_interface_is_reached_on_loopback():
    with open_socket(parse_bind("0.0.0.0:0")) as listening:
        assert address_of(listening, "http").startswith("http://127.0.0.1:")
