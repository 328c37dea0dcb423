"""An API server in memory and a client of it."""

from __future__ import annotations

import pytest

from .fake_api import connected, serving


@pytest.fixture
async def api():
    async with serving() as api:
        yield api


@pytest.fixture
async def client(api, tmp_path):
    async with connected(tmp_path, api) as client:
        yield client
