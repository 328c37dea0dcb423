"""The API server under test: the embedded one, or a real one that a kubeconfig names.

``HAMI_TEST_KUBECONFIG=/path/to/kubeconfig pytest lab/tests/api`` runs the same tests on a real
Kubernetes. Every test has its own namespace, so tests run side by side on one server. With
``HAMI_TEST_KEEP_NAMESPACES`` the namespaces stay: a server that is thrown away afterwards need not
search all its resources for each one.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from hami_lab.api import ApiServer, TlsFiles

from .cluster import Api, Target, target_of_kubeconfig

TOKEN = "of-the-embedded-server"


@pytest.fixture(scope="session")
def target(tmp_path_factory) -> Iterator[Target]:
    """Where the server is, and what it wants to see."""
    if kubeconfig := os.environ.get("HAMI_TEST_KUBECONFIG"):
        yield target_of_kubeconfig(Path(kubeconfig))
        return
    files = TlsFiles.self_signed(tmp_path_factory.mktemp("api"))
    with EmbeddedServer(files) as url:
        yield Target(url=url, token=TOKEN, authority=files.certificate.read_text(), real=False)


class EmbeddedServer:
    """The embedded server on a thread with its own loop, for the whole session."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self) -> str:
        self._thread.start()
        assert self._ready.wait(10), "the embedded API server did not start"
        return self._url

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)
        assert not self._thread.is_alive(), "the embedded API server did not stop"

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with ApiServer(token=TOKEN, tls=self._files) as server:
            self._url = server.url
            self._ready.set()
            await self._stop.wait()


@pytest.fixture
async def api(target: Target) -> AsyncIterator[Api]:
    """A client, and a namespace for this test alone."""
    name = f"t-{secrets.token_hex(6)}"
    async with Api(target, name) as client:
        created = await client.post("/api/v1/namespaces", {"metadata": {"name": name}})
        assert created.status == 201, created
        await client.eventually(lambda: client.get(client.path("serviceaccounts", "default")))
        try:
            yield client
        finally:
            if not os.environ.get("HAMI_TEST_KEEP_NAMESPACES"):
                await client.delete(f"/api/v1/namespaces/{name}")
