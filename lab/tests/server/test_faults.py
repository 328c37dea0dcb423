"""Faults on demand, and the count of calls."""

from __future__ import annotations

import asyncio
import json
import time

import aiohttp
import pytest
from hami_lab.api import Fault

from .conftest import CONFIG_MAPS, PODS


def a_map(name: str) -> dict:
    return {"metadata": {"name": name}}


async def names(client) -> list[str]:
    async with client.get(CONFIG_MAPS) as answer:
        items = (await answer.json())["items"]
    return [i["metadata"]["name"] for i in items if i["metadata"]["name"] != "kube-root-ca.crt"]


@pytest.mark.parametrize(
    ("status", "reason"),
    [(409, "Conflict"), (429, "TooManyRequests"), (500, "InternalError"), (503, "ServiceUnavailable")],
)  # fmt: skip
async def test_a_call_is_answered_with_a_status_and_not_carried_out(server, client, status, reason):
    fault = server.faults.add(Fault(verb="create", resource="configmaps", status=status, times=1))
    async with client.post(CONFIG_MAPS, json=a_map("a")) as answer:
        body = await answer.json()
    assert (answer.status, body["code"], body["reason"]) == (status, status, reason)
    assert fault.hits == 1
    assert await names(client) == []
    async with client.post(CONFIG_MAPS, json=a_map("a")) as answer:
        assert answer.status == 201


async def test_a_client_is_told_when_to_come_again(server, client):
    server.faults.add(Fault(status=429, retry_after=3))
    async with client.get(CONFIG_MAPS) as answer:
        assert answer.headers["Retry-After"] == "3"
        assert (await answer.json())["details"] == {"retryAfterSeconds": 3}


@pytest.mark.parametrize(("drop", "kept"), [("before", []), ("after", ["a"])])
async def test_a_connection_is_dropped_before_or_after_the_write(server, client, drop, kept):
    server.faults.add(Fault(verb="create", drop=drop, times=1))
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.post(CONFIG_MAPS, json=a_map("a"))
    assert await names(client) == kept
    assert server.calls.count(verb="create", status=0) == 1


async def test_a_call_is_slow(server, client):
    server.faults.add(Fault(verb="get", latency=0.2))
    start = time.monotonic()
    async with client.get("/api/v1/namespaces/default"):
        assert time.monotonic() - start >= 0.2


@pytest.mark.parametrize(
    ("fault", "hit"),
    [
        (Fault(status=500, verb="create"), True),
        (Fault(status=500, verb="delete"), False),
        (Fault(status=500, resource="configmaps"), True),
        (Fault(status=500, resource="pods"), False),
        (Fault(status=500, subresource=""), True),
        (Fault(status=500, subresource="binding"), False),
        (Fault(status=500, user_agent="hami"), True),
        (Fault(status=500, user_agent="kubectl"), False),
        (Fault(status=500, matches=lambda request: request.namespace == "default"), True),
        (Fault(status=500, matches=lambda request: request.namespace == "other"), False),
        (Fault(status=500, probability=0.0), False),
        (Fault(status=500, times=0), False),
    ],
)
async def test_a_fault_concerns_only_what_it_says(server, client, fault, hit):
    server.faults.add(fault)
    headers = {"User-Agent": "hami-scheduler/1"}
    async with client.post(CONFIG_MAPS, json=a_map("a"), headers=headers) as answer:
        assert answer.status == (500 if hit else 201)
    assert fault.hits == hit


async def test_no_faults_are_left_when_they_are_cleared(server, client):
    server.faults.add(Fault(status=500))
    server.faults.clear()
    async with client.get(CONFIG_MAPS) as answer:
        assert answer.status == 200


async def lines(client, **query) -> list[str]:
    """What a watch tells until it ends: ``TYPE name``."""
    found = []
    shown = {
        "watch": "1",
        "timeoutSeconds": "5",
        "fieldSelector": "metadata.name!=kube-root-ca.crt",
    }
    async with client.get(CONFIG_MAPS, params={**shown, **query}) as answer:
        async for line in answer.content:
            event = json.loads(line)
            found.append(f"{event['type']} {event['object']['metadata'].get('name')}")
    return found


async def test_a_watch_is_cut_after_some_events(server, client):
    server.faults.add(Fault(verb="watch", cut_after=2, times=1))
    watch = asyncio.create_task(lines(client))
    for name in "abc":
        await server.create({"kind": "ConfigMap", **a_map(name)})
        await asyncio.sleep(0.05)
    async with asyncio.timeout(3):
        assert await watch == ["ADDED a", "ADDED b"]


async def test_open_watches_are_cut_on_the_spot(server, client):
    watch = asyncio.create_task(lines(client))
    while not server.calls.count(verb="list"):
        await names(client)
        await asyncio.sleep(0.05)
    server.faults.cut_watches("configmaps")
    async with asyncio.timeout(3):
        assert await watch == []


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault(verb="watch", duplicate=True), ["ADDED a", "ADDED a", "ADDED b", "ADDED b"]),
        (Fault(verb="watch", reorder=True), ["ADDED b", "ADDED a"]),
    ],
    ids=["twice", "backwards"],
)
async def test_a_watch_tells_events_twice_or_backwards(server, client, fault, expected):
    for name in "ab":
        await server.create({"kind": "ConfigMap", **a_map(name)})
    server.faults.add(fault)
    assert await lines(client, resourceVersion="1", timeoutSeconds="1") == expected


async def test_calls_are_counted_by_what_they_are(server, client):
    headers = {"User-Agent": "hami-scheduler/1"}
    await server.create(
        {"kind": "Pod", **a_map("p"), "spec": {"containers": [{"name": "c", "image": "b"}]}}
    )
    binding = {"metadata": {"name": "p"}, "target": {"name": "n1"}}
    for _ in range(2):
        async with client.post(f"{PODS}/p/binding", json=binding, headers=headers):
            pass
    async with client.get(PODS, headers=headers):
        pass
    calls = server.calls
    assert calls.count(resource="pods", subresource="binding", status=201) == 1
    assert calls.count(resource="pods", subresource="binding", status=409) == 1
    assert calls.count(user_agent="hami-scheduler", writes=True) == 2
    assert calls.count(user_agent="hami-scheduler") == 3
    assert calls.count(user_agent="kubectl") == 0
    assert [call.verb for call, _ in calls] == ["create", "create", "list"]
    calls.clear()
    assert calls.count() == 0
