"""What a watch can still go on from, and what happens to one that is too late or too slow."""

from __future__ import annotations

import asyncio
import json

from .conftest import CONFIG_MAPS


async def version(client) -> str:
    async with client.get(CONFIG_MAPS) as answer:
        return (await answer.json())["metadata"]["resourceVersion"]


async def first_event(client, **query) -> dict:
    async with client.get(CONFIG_MAPS, params={"watch": "1", **query}) as answer:
        assert answer.status == 200
        async with asyncio.timeout(5):
            return json.loads(await answer.content.readline())


async def make(server, count: int, begin: int = 0) -> None:
    for number in range(begin, begin + count):
        await server.create({"kind": "ConfigMap", "metadata": {"name": f"m{number:04}"}})


async def test_a_version_that_is_forgotten_is_gone(server, client):
    since = await version(client)
    await make(server, 200)  # four times the history
    event = await first_event(client, resourceVersion=since)
    assert event["type"] == "ERROR"
    status = event["object"]
    assert (status["kind"], status["code"], status["reason"]) == ("Status", 410, "Expired")
    assert status["message"].startswith(f"too old resource version: {since} (")


async def test_a_version_within_the_history_is_not_gone(server, client):
    since = await version(client)
    await make(server, 50)
    event = await first_event(client, resourceVersion=since)
    assert (event["type"], event["object"]["metadata"]["name"]) == ("ADDED", "m0000")


async def test_the_history_can_be_forgotten_at_once(server, client):
    since = await version(client)
    await make(server, 1)
    now = await version(client)
    server.forget_history()
    assert (await first_event(client, resourceVersion=since))["type"] == "ERROR"
    event = asyncio.create_task(first_event(client, resourceVersion=now))
    await asyncio.sleep(0.05)
    await make(server, 1, begin=1)
    assert (await event)["type"] == "ADDED"


async def test_what_other_resources_do_makes_no_version_too_old(server, client):
    since = await version(client)
    for number in range(300):
        await server.create({"kind": "Namespace", "metadata": {"name": f"n{number}"}})
    async with client.get(
        "/api/v1/nodes", params={"watch": "1", "resourceVersion": since, "timeoutSeconds": "1"}
    ) as answer:
        assert await answer.read() == b""


async def test_a_page_of_a_list_that_is_too_long_ago_is_gone(server, client):
    await make(server, 3)
    async with client.get(CONFIG_MAPS, params={"limit": "1"}) as answer:
        token = (await answer.json())["metadata"]["continue"]
    for number in range(100):
        await make(server, 1, begin=10 + number)
        async with client.get(CONFIG_MAPS, params={"limit": "1"}):
            pass
    async with client.get(CONFIG_MAPS, params={"limit": "1", "continue": token}) as answer:
        body = await answer.json()
    assert (answer.status, body["reason"]) == (410, "Expired")


async def test_a_watch_that_asks_for_bookmarks_gets_them(server, client):
    await make(server, 3)
    now = await version(client)
    event = await first_event(client, resourceVersion=now, allowWatchBookmarks="true")
    assert event["type"] == "BOOKMARK"
    assert event["object"]["kind"] == "ConfigMap"
    assert event["object"]["metadata"]["resourceVersion"] == now


async def test_a_bookmark_is_no_older_than_what_was_told(server, client):
    """Whoever goes on from a bookmark misses nothing and sees nothing twice."""
    seen: list[tuple[str, int]] = []
    query = {
        "watch": "1",
        "resourceVersion": "0",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": "1",
    }

    async def watch() -> None:
        async with client.get(CONFIG_MAPS, params=query) as answer:
            async for line in answer.content:
                event = json.loads(line)
                seen.append((event["type"], int(event["object"]["metadata"]["resourceVersion"])))

    watching = asyncio.create_task(watch())
    for number in range(40):
        await make(server, 1, begin=number)
        await asyncio.sleep(0.02)
    await watching
    assert {"BOOKMARK", "ADDED"} <= {type for type, _ in seen}
    latest = 0
    for type, newer in seen:
        assert newer >= latest if type == "BOOKMARK" else newer > latest
        latest = newer


async def test_a_watch_that_reads_too_slowly_is_ended_without_an_error(server, client):
    since = await version(client)
    async with client.get(CONFIG_MAPS, params={"watch": "1", "resourceVersion": since}) as answer:
        data = "x" * 200_000
        for number in range(300):
            body = {"kind": "ConfigMap", "metadata": {"name": f"m{number}"}, "data": {"a": data}}
            await server.create(body)
            await asyncio.sleep(0)
        types = [json.loads(line)["type"] for line in await all_lines(answer)]
    assert set(types) == {"ADDED"}
    assert len(types) < 300


async def all_lines(answer) -> list[bytes]:
    async with asyncio.timeout(20):
        return [line for line in (await answer.content.read()).split(b"\n") if line]
