"""The caBundle of webhook configurations: written where it is wrong, and nothing else is."""

from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from hami.scheduler.certificates.ca_bundles import (
    CaBundles,
    NamedConfiguration,
    WebhookConfiguration,
)

from ..writes import refused

OURS = base64.b64encode(b"ours").decode()
NAMED = NamedConfiguration("mutating", "hami-webhook")


class Configurations:
    """An API server with one configuration; ``error`` is raised at ``get``."""

    def __init__(self, *bundles: str, error: Exception | None = None) -> None:
        webhooks = [
            {"name": f"w{n}", "clientConfig": {"caBundle": b}} for n, b in enumerate(bundles)
        ]
        self.found = {"metadata": {"resourceVersion": "7"}, "webhooks": webhooks}
        self.error = error
        self.patches: list[Any] = []

    async def get(self, resource, name, *, namespace=""):
        assert (resource.plural, name) == ("mutatingwebhookconfigurations", "hami-webhook")
        if self.error:
            raise self.error
        return msgspec.convert(self.found, WebhookConfiguration)

    async def patch(self, resource, name, patch, *, namespace="", kind="merge"):
        assert kind == "json"
        self.patches.append(patch)


async def kept(client: Configurations) -> tuple[bool, list[str]]:
    problems: list[str] = []
    bundles = CaBundles(client, [NAMED], problems.append)
    first = await bundles.keep(b"ours")
    assert await bundles.keep(b"ours") == first
    return first, problems


async def test_what_is_right_is_left_alone():
    client = Configurations(OURS, OURS)
    assert await kept(client) == (True, [])
    assert client.patches == []


async def test_only_the_wrong_one_is_written_and_only_if_it_is_what_we_saw():
    client = Configurations(OURS, "")
    assert await kept(client) == (True, [])
    assert client.patches[0] == [
        {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
        {"op": "test", "path": "/webhooks/1/name", "value": "w1"},
        {"op": "add", "path": "/webhooks/1/clientConfig/caBundle", "value": OURS},
    ]


@pytest.mark.parametrize(
    ("status", "said"),
    [
        pytest.param(403, "allow get and patch of it", id="no right"),
        pytest.param(404, "correct webhook-configurations, or create it", id="no such object"),
        pytest.param(500, "trying again", id="a fault"),
        pytest.param(409, "", id="somebody else was quicker"),
        pytest.param(422, "", id="it was changed meanwhile"),
    ],
)
async def test_a_fault_is_told_once_with_its_remedy(status, said):
    right, problems = await kept(Configurations(OURS, error=refused(status)))
    assert not right
    assert len(problems) == bool(said)
    assert all(said in text and str(NAMED) in text for text in problems)
