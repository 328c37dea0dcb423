"""The informer's store equals the server's, and its handler hears every change once."""

from __future__ import annotations

import pytest

from hami.kube.informer import is_older
from hami.kube.resources import PODS

from .fake_api import names, running, until
from .informers import an_informer, stored, versions


async def test_the_first_list_is_handed_on_before_it_is_synced(api, informer, heard):
    for name in "cab":
        api.put("nodes", name)
    async with running(informer.run()):
        await informer.synced.wait()
        assert (heard.notes, names(informer.objects)) == (["+a", "+b", "+c"], ["a", "b", "c"])


async def test_changes_and_deletions_follow(api, informer, heard):
    api.put("nodes", "a")
    async with running(informer.run()):
        await informer.synced.wait()
        api.put("nodes", "a", metadata={"labels": {"x": "1"}})
        api.put("nodes", "b")
        api.remove("nodes", "a")
        await until(lambda: len(heard.notes) == 4)
    assert (heard.notes, heard.wrong) == (["+a", "~a", "+b", "-a"], [])
    assert versions(informer) == stored(api)


async def test_a_list_comes_in_pages(api, client, heard, problems):
    for i in range(1100):
        api.put("pods", f"p{i:04}", "default")
    informer = an_informer(client, heard, problems, PODS)
    async with running(informer.run()):
        await informer.synced.wait()
    assert len(informer.objects) == 1100
    assert limits(api) == ["500"] * 3


async def test_a_later_list_comes_in_smaller_pages(api, client, heard, problems):
    for i in range(250):
        api.put("pods", f"p{i:04}", "default")
    informer = an_informer(client, heard, problems, PODS)
    async with running(informer.run()):
        await informer.synced.wait()
    informer.begin_anew()
    async with running(informer.run()):
        await informer.synced.wait()
    assert limits(api) == ["500", *["100"] * 3]


def limits(api):
    return [a.query.get("limit") for a in api.calls("GET") if "watch" not in a.query]


async def test_a_watch_that_the_server_ends_goes_on_where_it_was(api, informer, heard, problems):
    api.put("nodes", "a")
    async with running(informer.run()):
        await informer.synced.wait()
        await until(lambda: api.open_watches)
        for i in range(5):
            api.put("nodes", f"n{i}")
            api.end_watches("nodes")
            api.put("nodes", f"m{i}")
            await until(lambda: versions(informer) == stored(api))
    assert (informer.relists, heard.wrong, problems) == (1, [], [])


async def test_a_bookmark_moves_the_place_from_which_a_watch_goes_on(api, informer, problems):
    async with running(informer.run()):
        await informer.synced.wait()
        await until(lambda: api.open_watches)
        for i in range(50):
            api.put("pods", f"p{i}", "default")
        api.bookmark("nodes")
        at = api.version
        api.end_watches("nodes")
        await until(lambda: len([a for a in api.asked if "watch" in a.query]) > 1)
    last = [a for a in api.asked if "watch" in a.query][-1]
    assert (last.query["resourceVersion"], last.query["allowWatchBookmarks"]) == (at, "true")


@pytest.mark.parametrize(
    ("type_", "back"),
    [
        pytest.param("MODIFIED", 0, id="the same event twice"),
        pytest.param("ADDED", 0, id="an addition of what is there"),
        pytest.param("MODIFIED", 2, id="an older state"),
        pytest.param("DELETED", 2, id="an older deletion"),
    ],
)
async def test_what_is_not_newer_is_dropped(api, informer, heard, type_, back):
    api.put("nodes", "other")
    body = api.put("nodes", "a")
    async with running(informer.run()):
        await informer.synced.wait()
        await until(lambda: api.open_watches)
        version = str(int(body["metadata"]["resourceVersion"]) - back)
        api.send(
            "nodes", type_, {**body, "metadata": {**body["metadata"], "resourceVersion": version}}
        )
        api.put("nodes", "z")
        await until(lambda: "+z" in heard.notes)
    assert (heard.notes, versions(informer)) == (["+a", "+other", "+z"], stored(api))


@pytest.mark.parametrize("since", ["before the list", "after the list"])
async def test_a_late_event_does_not_bring_back_what_was_deleted(api, informer, heard, since):
    body = dict(api.put("nodes", "a")) if since == "before the list" else None
    async with running(informer.run()):
        await informer.synced.wait()
        await until(lambda: api.open_watches)
        body = body or dict(api.put("nodes", "a"))
        late = {**body, "metadata": dict(body["metadata"])}
        api.remove("nodes", "a")
        api.send("nodes", "MODIFIED", late)
        api.put("nodes", "z")
        await until(lambda: "+z" in heard.notes)
    assert heard.notes == ["+a", "-a", "+z"]


async def test_the_deletion_of_a_predecessor_leaves_its_successor(api, informer, heard):
    api.put("nodes", "a")
    async with running(informer.run()):
        await informer.synced.wait()
        await until(lambda: api.open_watches)
        before = {"name": "a", "uid": "another", "resourceVersion": "not-a-number"}
        api.send("nodes", "DELETED", {"kind": "Node", "metadata": before})
        api.put("nodes", "z")
        await until(lambda: "+z" in heard.notes)
    assert heard.notes == ["+a", "+z"]


async def test_an_old_event_does_not_move_the_place_from_which_a_watch_goes_on(
    api, informer, heard
):
    body = api.put("nodes", "a")
    old = {**body, "metadata": dict(body["metadata"])}
    async with running(informer.run()):
        await informer.synced.wait()
        await until(lambda: api.open_watches)
        api.put("nodes", "b")
        at = api.version
        api.send("nodes", "MODIFIED", old)
        api.end_watches("nodes")
        await until(lambda: len([a for a in api.asked if "watch" in a.query]) > 1)
    last = [a for a in api.asked if "watch" in a.query][-1]
    assert last.query["resourceVersion"] == at


async def test_an_object_replaced_under_its_name_is_gone_first(api, informer, heard):
    api.put("nodes", "a")
    async with running(informer.run()):
        await informer.synced.wait()
        await until(lambda: api.open_watches)
        replaced = {
            "kind": "Node",
            "metadata": {"name": "a", "uid": "other", "resourceVersion": "9999"},
        }
        api.send("nodes", "MODIFIED", replaced)
        await until(lambda: len(heard.notes) == 3)
    assert (heard.notes, heard.wrong) == (["+a", "-a", "+a"], [])


async def test_a_large_event_in_many_pieces_is_one(api, informer, heard, problems):
    async with running(informer.run()):
        await informer.synced.wait()
        await until(lambda: api.open_watches)
        api.put("nodes", "a", metadata={"annotations": {"big": "x" * 3_000_000}})
        await until(lambda: "+a" in heard.notes)
    assert len(informer.objects["", "a"].annotations["big"]) == 3_000_000
    assert (informer.relists, problems) == (1, [])


async def test_selectors_and_namespace_reach_list_and_watch(api, client, heard, problems):
    informer = an_informer(
        client, heard, problems, PODS, namespace="ns", label_selector="a=b",
        field_selector="metadata.name=p",
    )  # fmt: skip
    api.put("pods", "p", "other", metadata={"labels": {"a": "b"}})
    async with running(informer.run()):
        await informer.synced.wait()
        await until(lambda: api.open_watches)
    assert {(a.path, a.query["labelSelector"], a.query["fieldSelector"]) for a in api.asked} == {
        ("/api/v1/namespaces/ns/pods", "a=b", "metadata.name=p")
    }
    assert informer.objects == {}


@pytest.mark.parametrize(
    ("version", "than", "older"),
    [
        ("9", "10", True),
        ("10", "9", False),
        ("10", "10", False),
        ("a", "b", False),
        ("", "5", False),
        ("5", "", False),
    ],
)
def test_versions_that_are_integers_have_an_order(version, than, older):
    assert is_older(version, than=than) is older


async def test_cancelling_ends_the_watch(api, informer):
    async with running(informer.run()):
        await until(lambda: api.open_watches == 1)
    api.bookmark("nodes")
    await until(lambda: api.open_watches == 0)


async def test_a_second_run_goes_on_where_the_first_was_and_lists_anew_when_told_to(
    api, informer, heard
):
    api.put("nodes", "a")
    async with running(informer.run()):
        await informer.synced.wait()
        await until(lambda: api.open_watches)
    api.put("nodes", "b")
    async with running(informer.run()):
        await until(lambda: "+b" in heard.notes)
    assert informer.relists == 1
    informer.begin_anew()
    api.remove("nodes", "a")
    async with running(informer.run()):
        await informer.synced.wait()
        assert (informer.relists, heard.notes) == (2, ["+a", "+b", "-a"])
