"""The Lease by which an agent is known to live."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from hami.kube.leases.heartbeat import NAMESPACE, Heartbeat

from .fake_api import until


@asynccontextmanager
async def beating(client, problems):
    heart = Heartbeat(
        client, "hami-acme-n1", "n1", {"hami.io/agent": "ACME"}, every=0.05, on_problem=problems.append
    )  # fmt: skip
    task = asyncio.create_task(heart.run())
    try:
        yield heart
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def lease(api):
    return api.objects.get("leases", {}).get((NAMESPACE, "hami-acme-n1"))


async def test_it_is_made_renewed_and_owned_by_the_node(api, client):
    node = api.put("nodes", "n1")
    problems = []
    async with beating(client, problems) as heart:
        await asyncio.wait_for(heart.heard.wait(), 10)
        first = lease(api)
        assert first["spec"]["holderIdentity"] == "n1"
        assert first["metadata"]["labels"] == {"hami.io/agent": "ACME"}
        (owner,) = first["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("Node", node["metadata"]["uid"])
        renewed = first["spec"]["renewTime"]
        await until(lambda: lease(api)["spec"]["renewTime"] != renewed)
    assert problems == []


async def test_it_is_made_anew_when_somebody_took_it_away(api, client):
    api.put("nodes", "n1")
    async with beating(client, []) as heart:
        await asyncio.wait_for(heart.heard.wait(), 10)
        api.remove("leases", "hami-acme-n1", NAMESPACE)
        await until(lambda: lease(api) is not None)


@pytest.mark.parametrize(("status", "said"), [(403, "allow our account"), (500, "500")])
async def test_a_refusal_is_told_once_and_nobody_is_heard(api, client, status, said):
    api.put("nodes", "n1")
    api.refuse("leases/hami-acme-n1", status, method="PATCH", times=1000)
    problems = []
    async with beating(client, problems) as heart:
        await until(lambda: problems)
        await asyncio.sleep(0.3)
        assert len(problems) == 1
        assert said in problems[0]
        assert not heart.heard.is_set()
