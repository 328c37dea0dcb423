"""The read-only API is made when it is called, so that a start need not wait for it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from fastapi import APIRouter

from .http_builders import a_public_app, calling
from .test_http_public import an_api


def test_a_start_does_not_load_fastapi():
    program = "import sys, hami.scheduler.service; sys.exit('fastapi' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60, check=False).returncode == 0


async def test_the_api_is_made_at_its_first_call():
    made = []

    def router() -> APIRouter:
        made.append(1)
        return an_api()

    async with calling(a_public_app(api_router=router)) as client:
        for path, so_far in (("/healthz", 0), ("/api/v1/nodes", 1), ("/api/v1/nodes", 1)):
            async with client.get(path) as answer:
                assert (answer.status, len(made)) == (200, so_far)


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/api/v1/none", 404), ("POST", "/api/v1/nodes", 405), ("GET", "/apis", 404)],
)
async def test_what_the_api_lacks_is_said_as_elsewhere(method, path, status):
    app = a_public_app(api_router=an_api)
    async with calling(app) as client, client.request(method, path) as answer:
        assert (answer.status, set(await answer.json())) == (status, {"detail"})
