"""Watches: what happened since a version, in order, once, and as each selector sees it."""

from __future__ import annotations

import asyncio

import pytest

from .cluster import Answer


async def version(api) -> str:
    return (await api.get(api.path("configmaps"))).version


async def test_a_watch_tells_what_happens_after_a_version(api):
    since = await version(api)
    await api.config_map("a")
    async with api.watch(api.path("configmaps"), resourceVersion=since) as events:
        assert await events.take(1) == [("ADDED", "a")]
        await api.patch(api.path("configmaps", "a"), {"data": {"x": "1"}})
        await api.config_map("b")
        await api.delete(api.path("configmaps", "a"))
        assert await events.take(3) == [("MODIFIED", "a"), ("ADDED", "b"), ("DELETED", "a")]


async def test_an_event_carries_the_object_as_it_was_written(api):
    since = await version(api)
    created = await api.config_map("a", labels={"x": "y"})
    async with api.watch(api.path("configmaps"), resourceVersion=since) as events:
        type, body = await events.next()
    assert (type, body) == ("ADDED", created.body)


async def test_a_deletion_has_a_version_of_its_own(api):
    created = await api.config_map("a")
    async with api.watch(api.path("configmaps"), resourceVersion=created.version) as events:
        await api.delete(api.path("configmaps", "a"))
        type, body = await events.next()
    assert type == "DELETED"
    assert int(body["metadata"]["resourceVersion"]) > int(created.version)


async def test_versions_only_grow(api):
    since = await version(api)
    async with api.watch(api.path("configmaps"), resourceVersion=since) as events:
        await asyncio.gather(*(api.config_map(f"m{i}") for i in range(10)))
        seen = [int((await events.next())[1]["metadata"]["resourceVersion"]) for _ in range(10)]
    assert seen == sorted(set(seen))
    assert seen[0] > int(since)


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}], ids=["no version", "version 0"])
async def test_without_a_version_a_watch_begins_with_what_there_is(api, query):
    for name in ("a", "b"):
        await api.config_map(name, labels={"g": "1"})
    async with api.watch(api.path("configmaps"), labelSelector="g=1", **query) as events:
        assert await events.take(2) == [("ADDED", "a"), ("ADDED", "b")]
        await api.config_map("c", labels={"g": "1"})
        assert await events.take(1) == [("ADDED", "c")]


async def test_an_update_that_changes_nothing_is_not_told(api):
    created = await api.config_map("a")
    async with api.watch(api.path("configmaps"), resourceVersion=created.version) as events:
        await api.put(api.path("configmaps", "a"), created.body)
        await api.config_map("b")
        assert await events.take(1) == [("ADDED", "b")]


async def test_a_selector_sees_objects_come_and_go(api):
    since = await version(api)
    path = api.path("configmaps", "a")
    async with api.watch(
        api.path("configmaps"), resourceVersion=since, labelSelector="g=1"
    ) as events:
        await api.config_map("a", labels={"g": "1"})
        await api.config_map("other", labels={"g": "2"})
        away = await api.patch(path, {"metadata": {"labels": {"g": "2"}}})
        await api.patch(path, {"data": {"x": "1"}})
        await api.patch(path, {"metadata": {"labels": {"g": "1"}}})
        await api.patch(path, {"data": {"x": "2"}})
        await api.delete(path)
        seen = [await events.next() for _ in range(5)]
    assert [type for type, _ in seen] == ["ADDED", "DELETED", "ADDED", "MODIFIED", "DELETED"]
    gone = seen[1][1]["metadata"]
    # As it was when it was last selected, at the version of the change.
    assert gone["labels"] == {"g": "1"}
    assert gone["resourceVersion"] == away.version


async def test_a_kubelet_sees_the_pods_of_its_node(api):
    since = (await api.get(api.path("pods"))).version
    async with api.watch(
        api.path("pods"), resourceVersion=since, fieldSelector="spec.nodeName=n1"
    ) as events:
        await api.pod("a")
        await api.pod("b")
        await api.bound("b", "n2")
        await api.bound("a", "n1")
        assert await events.take(1) == [("ADDED", "a")]


async def test_a_watch_of_one_object_is_a_field_selector(api):
    since = await version(api)
    async with api.watch(
        api.path("configmaps"), resourceVersion=since, fieldSelector="metadata.name=b"
    ) as events:
        await api.config_map("a")
        await api.config_map("b")
        assert await events.take(1) == [("ADDED", "b")]


async def test_a_watch_of_all_namespaces_has_this_one(api):
    since = await version(api)
    async with api.watch(
        "/api/v1/configmaps", resourceVersion=since, fieldSelector="metadata.name=only-here"
    ) as events:
        await api.config_map("only-here")
        _, body = await events.next()
    assert body["metadata"]["namespace"] == api.namespace


async def test_a_watch_ends_when_its_time_is_over(api):
    since = await version(api)
    async with api.watch(api.path("configmaps"), resourceVersion=since, timeoutSeconds=1) as events:
        assert await events.ended()


async def test_a_watch_can_begin_with_a_list_and_say_where_it_ends(api):
    for name in ("a", "b"):
        await api.config_map(name, labels={"g": "1"})
    async with api.watch(
        api.path("configmaps"),
        labelSelector="g=1",
        sendInitialEvents="true",
        resourceVersionMatch="NotOlderThan",
        allowWatchBookmarks="true",
    ) as events:
        assert await events.take(2) == [("ADDED", "a"), ("ADDED", "b")]
        type, body = await events.next()
        assert type == "BOOKMARK"
        assert body["kind"] == "ConfigMap"
        assert body["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert int(body["metadata"]["resourceVersion"]) > 0


async def test_a_streamed_list_says_how_old_it_may_be(api):
    answer: Answer = await api.get(api.path("configmaps"), watch="1", sendInitialEvents="true")
    assert answer.refusal == (422, "Invalid")


async def test_many_watches_see_the_same(api):
    since = await version(api)

    async def seen() -> list[tuple[str, str]]:
        async with api.watch(api.path("configmaps"), resourceVersion=since) as events:
            return await events.take(5)

    watches = [asyncio.create_task(seen()) for _ in range(8)]
    for number in range(5):
        await api.config_map(f"m{number}")
    expected = [("ADDED", f"m{number}") for number in range(5)]
    assert await asyncio.gather(*watches) == [expected] * 8
