"""An API server in memory, a client of it, and an informer of its nodes."""

from __future__ import annotations

import pytest

from .fake_api import connected, serving
from .informers import Heard, an_informer


@pytest.fixture
async def api():
    async with serving() as api:
        yield api


@pytest.fixture
async def client(api, tmp_path):
    async with connected(tmp_path, api) as client:
        yield client


@pytest.fixture
def heard():
    return Heard()


@pytest.fixture
def problems():
    return []


@pytest.fixture
def informer(client, heard, problems):
    return an_informer(client, heard, problems)
