"""A server of its own for each test, and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
from hami_lab.api import ApiServer

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer(history=50, bookmark_seconds=0.1) as found:
        yield found


@pytest.fixture
async def client(server) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(server.url) as found:
        yield found
