"""What a probe is answered."""

from __future__ import annotations

import pytest

from hami.http.probes import probe_routes

from .callers import a_listener, asked


@pytest.mark.parametrize(
    ("failed", "missing", "path", "status", "body"),
    [
        pytest.param([], [], "/healthz", 200, b"ok\n", id="alive"),
        pytest.param([], [], "/readyz", 200, b"ok\n", id="ready"),
        pytest.param([], ["a: b", "c"], "/healthz", 200, b"ok\n", id="alive though it waits"),
        pytest.param([], ["a: b", "c"], "/readyz", 503, b"a: b\nc\n", id="a reason per line"),
        pytest.param(["d"], ["a"], "/healthz", 503, b"d\n", id="only a restart helps"),
        pytest.param(["d"], ["a"], "/readyz", 503, b"d\na\n", id="what failed is not ready"),
    ],
)  # fmt: skip
async def test_a_probe(failed, missing, path, status, body):
    routes = probe_routes(failed=lambda: failed, missing=lambda: missing)
    async with a_listener(routes) as address:
        request = f"GET {path} HTTP/1.1\r\nhost: it\r\n\r\n".encode()
        found, _, said = await asked(address, request)
        assert (found, said) == (status, body)
