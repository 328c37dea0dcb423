"""The informer's store equals the server's, and its handler hears every change once."""

from __future__ import annotations

import asyncio
import time

import pytest

from hami.kube.errors import ApiError
from hami.kube.informer import Informer, is_older
from hami.kube.pace import Backoff
from hami.kube.resources import NODES, PODS

from .fake_api import names, running, until


class Heard:
    """A handler whose notes replay to a store; a doubled or impossible note is an error."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.store: dict[tuple[str, str], object] = {}
        self.wrong: list[str] = []

    def changed(self, new, old):
        key = (new.metadata.namespace, new.metadata.name)
        if self.store.get(key) is not old:
            self.wrong.append(f"{key}: changed from something else than was there")
        if old is not None and old.metadata.uid != new.metadata.uid:
            self.wrong.append(f"{key}: replaced without being gone")
        if old is not None and old.metadata.resource_version == new.metadata.resource_version:
            self.wrong.append(f"{key}: told twice")
        self.store[key] = new
        self.notes.append(f"{'~' if old else '+'}{new.metadata.name}")

    def gone(self, last):
        key = (last.metadata.namespace, last.metadata.name)
        if self.store.pop(key, None) is None:
            self.wrong.append(f"{key}: gone without having been there")
        self.notes.append(f"-{last.metadata.name}")


@pytest.fixture
def heard():
    return Heard()


@pytest.fixture
def problems():
    return []


@pytest.fixture
def informer(client, heard, problems):
    return an_informer(client, heard, problems)


def an_informer(client, heard, problems, resource=NODES, **options):
    backoff = Backoff(first=0.01, most=0.05)
    return Informer(client, resource, heard, on_problem=problems.append, backoff=backoff, **options)


def versions(informer):
    return {key: o.metadata.resource_version for key, o in informer.objects.items()}


def stored(api, plural="nodes"):
    return {key: body["metadata"]["resourceVersion"] for key, body in api.objects[plural].items()}


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
    assert len([a for a in api.calls("GET") if "watch" not in a.query]) == 5


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


async def lose_history(api, informer):
    """Changes that no watch brings, since the server has forgotten them."""
    await informer.synced.wait()
    await until(lambda: api.open_watches)
    api.refuse("nodes", 500, method="WATCH", times=3)
    api.end_watches("nodes")
    await until(lambda: not api.open_watches)
    api.remove("nodes", "gone")
    api.put("nodes", "changed", metadata={"labels": {"x": "1"}})
    api.put("nodes", "new")
    api.remove("nodes", "again")
    api.put("nodes", "again")
    api.expire()
    await until(lambda: versions(informer) == stored(api) and not api.faults)


async def test_410_lists_again_and_tells_only_what_differs(api, informer, heard):
    for name in ("again", "changed", "gone", "same"):
        api.put("nodes", name)
    async with running(informer.run()):
        await lose_history(api, informer)
        del heard.notes[:4]
    assert sorted(heard.notes) == ["+again", "+new", "-again", "-gone", "~changed"]
    assert heard.notes.index("-again") < heard.notes.index("+again")
    assert (heard.wrong, informer.relists) == ([], 2)


async def test_410_as_an_event_lists_again(api, informer, heard, problems):
    api.put("nodes", "a")
    async with running(informer.run()):
        await informer.synced.wait()
        await until(lambda: api.open_watches)
        api.send("nodes", "ERROR", {"kind": "Status", "code": 410, "reason": "Expired"})
        await until(lambda: informer.relists == 2)
        api.put("nodes", "b")
        await until(lambda: "+b" in heard.notes)
    assert (heard.notes, problems) == (["+a", "+b"], [])


async def test_another_error_event_is_told_and_the_watch_goes_on(api, informer, heard, problems):
    async with running(informer.run()):
        await informer.synced.wait()
        await until(lambda: api.open_watches)
        api.send("nodes", "ERROR", {"kind": "Status", "code": 500, "message": "etcd is away"})
        api.put("nodes", "a")
        await until(lambda: "+a" in heard.notes)
    assert informer.relists == 1
    assert [p.split(";")[0] for p in problems] == ["watch nodes: 500: etcd is away"]


async def test_a_page_that_has_expired_asks_for_everything_at_once(api, client, heard, problems):
    for i in range(600):
        api.put("nodes", f"n{i:03}")
    api.page_lifetime = 1
    informer = an_informer(client, heard, problems)
    async with running(informer.run()):
        await informer.synced.wait()
    assert len(informer.objects) == 600
    assert [a.query.get("limit") for a in api.calls("GET") if "watch" not in a.query] == [
        "250", "250", "250", None,
    ]  # fmt: skip
    assert (heard.wrong, problems) == ([], [])


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


async def test_a_late_event_does_not_bring_back_what_was_deleted(api, informer, heard):
    body = dict(api.put("nodes", "a"))
    async with running(informer.run()):
        await informer.synced.wait()
        await until(lambda: api.open_watches)
        api.remove("nodes", "a")
        api.send("nodes", "MODIFIED", body)
        api.put("nodes", "z")
        await until(lambda: "+z" in heard.notes)
    assert heard.notes == ["+a", "-a", "+z"]


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


@pytest.mark.parametrize("failing", ["changed", "gone"])
async def test_a_handler_that_fails_is_named_and_the_rest_goes_on(api, client, problems, failing):
    class Broken(Heard):
        def changed(self, new, old):
            super().changed(new, old)
            if failing == "changed" and new.metadata.name == "a":
                raise ZeroDivisionError("by nothing")

        def gone(self, last):
            super().gone(last)
            if failing == "gone":
                raise ZeroDivisionError("by nothing")

    broken = Broken()
    informer = an_informer(client, broken, problems)
    for name in "ab":
        api.put("nodes", name)
    async with running(informer.run()):
        await informer.synced.wait()
        await until(lambda: api.open_watches)
        api.remove("nodes", "a")
        api.put("nodes", "c")
        await until(lambda: "+c" in broken.notes)
    assert broken.notes == ["+a", "+b", "-a", "+c"]
    assert problems == [f"Broken.{failing} failed for Node a: ZeroDivisionError: by nothing"]


BAD = {"status": {"allocatable": 7}}


async def test_an_object_that_cannot_be_read_is_named_and_passed_over(
    api, informer, heard, problems
):
    api.put("nodes", "a")
    api.put("nodes", "bad", **BAD)
    async with running(informer.run()):
        await informer.synced.wait()
        await until(lambda: api.open_watches)
        api.put("nodes", "worse", **BAD)
        api.put("nodes", "bad")
        await until(lambda: "+bad" in heard.notes)
        api.remove("nodes", "worse")
        api.put("nodes", "c")
        await until(lambda: "+c" in heard.notes)
    assert (heard.notes, heard.wrong) == (["+a", "+bad", "+c"], [])
    assert [p.split(":")[0] for p in problems] == [
        "Node bad cannot be read and is passed over",
        "Node worse cannot be read and is passed over",
    ]
    assert "Expected `object | null`, got `int` - at `$.status.allocatable`" in problems[0]


async def test_the_last_readable_state_stays_until_it_is_deleted(api, informer, heard, problems):
    api.put("nodes", "a")
    async with running(informer.run()):
        await informer.synced.wait()
        await until(lambda: api.open_watches)
        api.put("nodes", "a", **BAD)
        await until(lambda: problems)
        assert names(informer.objects) == ["a"]
        api.remove("nodes", "a")
        await until(lambda: "-a" in heard.notes)
    assert informer.objects == {}


async def test_an_unreadable_object_in_a_new_list_is_not_gone(api, informer, heard, problems):
    api.put("nodes", "a")
    async with running(informer.run()):
        await informer.synced.wait()
        await until(lambda: api.open_watches)
        api.put("nodes", "a", **BAD)
        api.send("nodes", "ERROR", {"kind": "Status", "code": 410})
        await until(lambda: informer.relists == 2 and len(problems) == 2)
    assert heard.notes == ["+a"]


async def test_an_unreadable_object_under_the_name_of_another_ends_the_other(api, informer, heard):
    api.put("nodes", "a")
    async with running(informer.run()):
        await informer.synced.wait()
        await until(lambda: api.open_watches)
        api.remove("nodes", "a")
        api.put("nodes", "a", **BAD)
        await until(lambda: "-a" in heard.notes)
    assert informer.objects == {}


async def test_a_line_that_is_no_event_is_told_and_the_watch_goes_on(
    api, informer, heard, problems
):
    async with running(informer.run()):
        await informer.synced.wait()
        await until(lambda: api.open_watches)
        api.send_line("nodes", b'{"type": "ADDED", "obj')
        await until(lambda: problems)
        api.put("nodes", "a")
        await until(lambda: "+a" in heard.notes)
    assert problems[0].startswith("watch nodes: 200 Unreadable: the answer cannot be read: ")


async def test_an_event_cut_off_by_the_end_of_the_connection_comes_again(
    api, informer, heard, problems
):
    async with running(informer.run()):
        await informer.synced.wait()
        await until(lambda: api.open_watches)
        api.send_part("nodes", b'{"type": "ADDED", "object": {"metada')
        api.end_watches("nodes")
        api.put("nodes", "a")
        await until(lambda: "+a" in heard.notes)
    assert problems == []


async def test_a_large_event_in_many_pieces_is_one(api, informer, heard):
    async with running(informer.run()):
        await informer.synced.wait()
        await until(lambda: api.open_watches)
        api.put("nodes", "a", metadata={"annotations": {"big": "x" * 3_000_000}})
        await until(lambda: "+a" in heard.notes)
    assert len(informer.objects["", "a"].annotations["big"]) == 3_000_000


async def test_forbidden_names_verb_resource_and_remedy_and_is_tried_again(api, informer, problems):
    api.refuse("nodes", 403, times=2, reason="Forbidden", message="user x cannot list nodes")
    async with running(informer.run()):
        await informer.synced.wait()
    assert len(problems) == 2
    assert problems[0].startswith(
        "list nodes: 403 Forbidden: user x cannot list nodes; allow our account to list and watch "
        "nodes; trying again in "
    )


async def test_a_server_that_fails_is_asked_again(api, informer, problems):
    api.refuse("nodes", 500, times=3, message="boom")
    api.refuse("nodes", 429, times=1, message="slowly", Retry_After="0")
    async with running(informer.run()):
        await informer.synced.wait()
    assert [p.split(": ")[1] for p in problems] == ["500 Internal Server Error"] * 3


async def test_a_watch_refused_again_and_again_lists_again(api, informer, heard):
    async with running(informer.run()):
        await informer.synced.wait()
        await until(lambda: api.open_watches)
        api.refuse("nodes", 400, method="WATCH", times=3, message="invalid resource version")
        api.end_watches("nodes")
        await until(lambda: informer.relists == 2)


async def test_a_silent_watch_is_given_up_and_asked_again(api, client, heard, problems):
    informer = an_informer(client, heard, problems, idle=0.05)
    async with running(informer.run()):
        await informer.synced.wait()
        await until(lambda: len([a for a in api.asked if "watch" in a.query]) >= 3)
        api.put("nodes", "a")
        await until(lambda: "+a" in heard.notes)
    assert informer.relists == 1


async def test_watches_that_end_at_once_are_not_asked_for_in_a_loop(api, client, heard, problems):
    informer = Informer(
        client, NODES, heard, on_problem=problems.append, backoff=Backoff(first=5.0, most=5.0)
    )
    async with running(informer.run()):
        await informer.synced.wait()
        await until(lambda: api.open_watches)
        api.end_watches("nodes")
        await until(lambda: not api.open_watches)
        await asyncio.sleep(0.3)
    assert len([a for a in api.asked if "watch" in a.query]) == 1


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


async def test_a_long_list_never_holds_the_loop_for_long(api, client, heard, problems):
    for i in range(3000):
        api.put("pods", f"p{i}", "default", metadata={"annotations": {"pad": "x" * 4000}})

    class Slow(Heard):
        def changed(self, new, old):
            end = time.perf_counter() + 0.0002
            while time.perf_counter() < end:
                pass

    informer = an_informer(client, Slow(), problems, PODS)
    rounds = 0

    async def count():
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    async with running(informer.run()):
        await asyncio.sleep(0)
        async with running(count()):
            await informer.synced.wait()
    # 3000 x 0.2 ms of work in turns of half a millisecond.
    assert rounds > 800


async def test_a_burst_of_events_never_holds_the_loop_for_long(api, client, problems):
    class Slow(Heard):
        def changed(self, new, old):
            super().changed(new, old)
            end = time.perf_counter() + 0.0002
            while time.perf_counter() < end:
                pass

    slow = Slow()
    informer = an_informer(client, slow, problems)
    between: list[int] = []

    async def note():
        while True:
            between.append(len(slow.notes))
            await asyncio.sleep(0)

    async with running(informer.run()):
        await informer.synced.wait()
        await until(lambda: api.open_watches)
        async with running(note()):
            for i in range(1000):
                api.put("nodes", f"n{i}")
            await until(lambda: len(slow.notes) == 1000)
    assert len(set(between)) > 250


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


async def test_an_unreachable_server_is_told_until_it_is_there(api, tmp_path, heard, problems):
    from .fake_api import connected

    api.url = "http://127.0.0.1:1"
    async with connected(tmp_path, api) as client:
        informer = an_informer(client, heard, problems)
        async with running(informer.run()):
            await until(lambda: len(problems) > 2)
    assert "cannot reach http://127.0.0.1:1" in problems[0]
    assert not informer.synced.is_set()


def test_an_api_error_says_what_was_asked():
    error = ApiError("gone", call="get pods a/b", status=404, reason="NotFound")
    assert str(error) == "get pods a/b: 404 NotFound: gone"
