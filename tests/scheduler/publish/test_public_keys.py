"""The ConfigMap with the public keys: what the leader writes, when, and what may go wrong."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import pytest

from hami.domain.kubernetes.objects import Metadata
from hami.kube.errors import ApiError
from hami.kube.pace import Backoff
from hami.kube.resources import ConfigMap
from hami.scheduler.publish.public_keys import PublicKeys
from hami.signing import Signer, new_private_pem

from ..writes import refused, settled


@dataclass
class Maps:
    """An API server with at most one ConfigMap; ``answers`` come first, one per call."""

    data: dict[str, str] | None = None
    answers: list[ApiError | None] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    _came: asyncio.Event = field(default_factory=asyncio.Event)

    def _called(self, call: str) -> None:
        self.calls.append(call)
        self._came.set()
        answer = self.answers.pop(0) if self.answers else None
        if answer:
            raise answer

    def _map(self) -> ConfigMap:
        return ConfigMap(metadata=Metadata(name="keys"), data=self.data)

    async def get(self, resource, name, *, namespace=""):
        assert (name, namespace) == ("keys", "hami")
        self._called("get")
        if self.data is None:
            raise refused(404)
        return self._map()

    async def create(self, resource, body, *, namespace=""):
        assert (body["metadata"], namespace) == ({"name": "keys", "namespace": "hami"}, "hami")
        self._called("create")
        self.data = body["data"]
        return self._map()

    async def patch(self, resource, name, patch, *, namespace=""):
        self._called("patch")
        self.data = {**(self.data or {}), **patch["data"]}
        return self._map()

    async def until(self, *calls: str) -> None:
        async with asyncio.timeout(20):
            while self.calls != list(calls):
                self._came.clear()
                await self._came.wait()


@dataclass
class Around:
    """Who we are at the moment."""

    signer: Signer = field(default_factory=lambda: Signer.from_pem(new_private_pem()))
    leading: bool = True
    problems: list[str] = field(default_factory=list)


@asynccontextmanager
async def publishing(maps: Maps, around: Around, **fields: Any):
    keys = PublicKeys(
        maps, "hami", "keys", signer=lambda: around.signer, leading=lambda: around.leading,
        on_problem=around.problems.append, backoff=Backoff(first=0.001, most=0.001), **fields,
    )  # fmt: skip
    running = asyncio.create_task(keys.run())
    try:
        yield keys
    finally:
        assert not running.done()
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def published(around: Around) -> str:
    return around.signer.public_pem().decode()


@pytest.mark.parametrize(
    ("data", "calls"),
    [
        pytest.param(None, ["get", "create"], id="it is made"),
        pytest.param({}, ["get", "patch"], id="an empty one is filled"),
        pytest.param({"public.pem": "another"}, ["get", "patch"], id="another text is replaced"),
    ],
)
async def test_the_leader_publishes_the_keys(data, calls):
    maps, around = Maps(data), Around()
    async with publishing(maps, around):
        await maps.until(*calls)
        await settled()
    assert maps.data == {"public.pem": published(around)}
    assert "PRIVATE" not in maps.data["public.pem"]
    assert around.problems == []


async def test_what_is_as_it_should_be_is_left_alone_with_what_others_put_beside_it():
    around = Around()
    maps = Maps({"public.pem": published(around), "note": "ours"})
    async with publishing(maps, around):
        await maps.until("get")
        around.signer = Signer.from_pem(new_private_pem() + new_private_pem())
        await settled()
    assert maps.calls == ["get"]


async def test_other_keys_and_the_beginning_of_leadership_are_published_at_once():
    around = Around(leading=False)
    maps = Maps({"note": "ours"})
    async with publishing(maps, around) as keys:
        await settled()
        assert maps.calls == []
        around.leading = True
        keys.touch()
        await maps.until("get", "patch")
        around.signer = Signer.from_pem(new_private_pem())
        keys.touch()
        await maps.until("get", "patch", "get", "patch")
    assert maps.data == {"note": "ours", "public.pem": published(around)}


async def test_keys_that_are_not_known_yet_are_not_published():
    maps, around = Maps({"public.pem": "of before"}), Around(signer=Signer.none())
    async with publishing(maps, around, every=0.001):
        await settled()
    assert maps.calls == []


async def test_what_somebody_deleted_is_made_again():
    maps, around = Maps(), Around()
    async with publishing(maps, around, every=0.001):
        while "create" not in maps.calls:
            await asyncio.sleep(0.001)
        maps.data = None
        while maps.calls.count("create") < 2:
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("status", [0, 429, 500])
async def test_a_fault_is_told_once_and_tried_again(status):
    maps, around = Maps({}, answers=[refused(status), refused(status)]), Around()
    async with publishing(maps, around):
        await maps.until("get", "get", "get", "patch")
        await settled()
    assert maps.data == {"public.pem": published(around)}
    assert len(around.problems) == 1
    assert "cannot publish the public signing keys" in around.problems[0]


async def test_another_leader_that_was_quicker_is_no_problem():
    maps, around = Maps(answers=[None, refused(409)]), Around()
    async with publishing(maps, around):
        await maps.until("get", "create", "get", "create")
    assert around.problems == []


async def test_a_forbidden_map_is_told_with_the_remedy_and_not_asked_for_again():
    maps, around = Maps(answers=[refused(403)]), Around()
    async with publishing(maps, around, every=0.001):
        await maps.until("get")
        await settled()
    assert maps.calls == ["get"]
    assert "allow get, create and patch of ConfigMap hami/keys" in around.problems[0]
