"""A pod's own HTTP server, asked through the API server."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from .cluster import MERGE, a_pod


def address(*, real: bool) -> str:
    """Of this machine; a real API server goes to no loopback address."""
    if not real:
        return "127.0.0.1"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError as error:
            pytest.skip(f"this machine has no address but the loopback's: {error}")
        return probe.getsockname()[0]


@asynccontextmanager
async def answering(host: str) -> AsyncIterator[int]:
    """Yields the port of a server that says what it was asked."""

    async def said(request: web.Request) -> web.Response:
        body = {"method": request.method, "path": request.path, "query": request.query_string}
        return web.json_response(body, status=418 if request.path == "/teapot" else 200)

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", said)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, host, 0)
    await site.start()
    try:
        yield site._server.sockets[0].getsockname()[1]
    finally:
        await runner.cleanup()


async def a_pod_at(api, host: str | None) -> None:
    await api.created("pods", a_pod("p"))
    if host:
        status = {"podIP": host, "podIPs": [{"ip": host}]}
        path = api.path("pods", "p", "status")
        answer = await api.call("PATCH", path, {"status": status}, type=MERGE)
        assert answer.status == 200, answer


async def test_a_get_is_passed_on(api):
    host = address(real=api.real)
    async with answering(host) as port:
        await a_pod_at(api, host)
        path = api.path("pods", f"http:p:{port}", "proxy")
        answer = await api.get(f"{path}/api/v1/node", a="b")
        said = {"method": "GET", "path": "/api/v1/node", "query": "a=b"}
        assert (answer.status, answer.body) == (200, said)
        assert (await api.get(f"{path}/teapot")).status == 418
        assert (await api.get(f"{api.path('pods', f'p:{port}', 'proxy')}/")).body["path"] == "/"


async def test_nobody_answers(api):
    host = address(real=api.real)
    async with answering(host) as port:
        pass
    await a_pod_at(api, host)
    answer = await api.get(f"{api.path('pods', f'http:p:{port}', 'proxy')}/")
    assert answer.refusal == (503, "ServiceUnavailable")
    assert answer.message.startswith("error trying to reach service: ")


@pytest.mark.parametrize(("pod", "refusal"), [("q", (404, "NotFound")), ("p", (400, "BadRequest"))])
async def test_no_address(api, pod, refusal):
    await a_pod_at(api, None)
    answer = await api.get(f"{api.path('pods', f'http:{pod}:80', 'proxy')}/")
    assert answer.refusal == refusal
