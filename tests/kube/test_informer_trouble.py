"""What goes wrong around an informer is told, and passes; nothing holds the loop for long."""

from __future__ import annotations

import asyncio
import time

import pytest

from hami.kube.errors import ApiError
from hami.kube.informer import Informer
from hami.kube.leases.heartbeat import Heartbeat
from hami.kube.leases.own_lease import LeaseTimes, OwnLease
from hami.kube.pace import Backoff
from hami.kube.resources import NODES, PODS

from .fake_api import connected, names, running, until
from .informers import Heard, an_informer, stored, versions


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
    for i in range(1200):
        api.put("nodes", f"n{i:04}")
    api.page_lifetime = 1
    informer = an_informer(client, heard, problems)
    async with running(informer.run()):
        await informer.synced.wait()
    assert len(informer.objects) == 1200
    assert [a.query.get("limit") for a in api.calls("GET") if "watch" not in a.query] == [
        "500", "500", "500", None,
    ]  # fmt: skip
    assert (heard.wrong, problems) == ([], [])


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


async def test_an_outage_is_told_once_and_the_next_one_again(api, informer, problems, heard):
    api.refuse("nodes", 503, times=4)
    async with running(informer.run()):
        await informer.synced.wait()
        assert len(problems) == 1
        api.put("nodes", "a")
        await until(lambda: "+a" in heard.notes)
        api.end_watches("nodes")
        api.refuse("nodes", 503, times=3)
        await until(lambda: len(problems) == 2)
        api.put("nodes", "b")
        await until(lambda: "+b" in heard.notes)
    assert len(problems) == 2


async def test_another_answer_is_told_at_once(api, informer, problems):
    api.refuse("nodes", 503, times=2)
    api.refuse("nodes", 403, times=2, reason="Forbidden")
    async with running(informer.run()):
        await informer.synced.wait()
    assert len(problems) == 2


async def test_forbidden_names_verb_resource_and_remedy_and_is_tried_again(api, informer, problems):
    api.refuse("nodes", 403, times=2, reason="Forbidden", message="user x cannot list nodes")
    async with running(informer.run()):
        await informer.synced.wait()
    assert len(problems) == 1
    assert problems[0].startswith(
        "list nodes: 403 Forbidden: user x cannot list nodes; allow our account to list and watch "
        "nodes; trying again in "
    )


async def test_a_server_that_fails_is_asked_again(api, informer, problems):
    api.refuse("nodes", 500, times=3, message="boom")
    api.refuse("nodes", 429, times=1, message="slowly", Retry_After="0")
    async with running(informer.run()):
        await informer.synced.wait()
    assert [p.split(": ")[1] for p in problems] == ["500 Internal Server Error"]
    assert len(api.calls("GET", "nodes")) >= 5


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


async def test_a_long_list_never_holds_the_loop_for_long(api, client, heard, problems):
    api.put("pods", "first", "default")

    class Slow(Heard):
        def changed(self, new, old):
            end = time.perf_counter() + 0.0002
            while time.perf_counter() < end:
                pass

    informer = an_informer(client, Slow(), problems, PODS)
    async with running(informer.run()):
        await informer.synced.wait()
    for i in range(3000):
        api.put("pods", f"p{i}", "default", metadata={"annotations": {"pad": "x" * 4000}})
    informer.begin_anew()
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


async def test_an_unreachable_server_is_told_until_it_is_there(
    api, tmp_path, heard, problems, monkeypatch
):
    monkeypatch.setattr("hami.kube.outages.TELL_EVERY", 0.0)
    api.url = "http://127.0.0.1:1"
    async with connected(tmp_path, api) as client:
        informer = an_informer(client, heard, problems)
        async with running(informer.run()):
            await until(lambda: len(problems) > 2)
    assert "cannot reach http://127.0.0.1:1" in problems[0]
    assert not informer.synced.is_set()


async def test_that_nobody_answers_is_told_once_for_all_who_ask(api, tmp_path, problems):
    """Two informers, an agent's Lease and a leader's, for many tries of each."""
    api.url = "http://127.0.0.1:1"
    async with connected(tmp_path, api) as client:
        tries = Backoff(first=0.001, most=0.001)
        informers = [
            Informer(client, kind, Heard(), on_problem=problems.append, backoff=tries)
            for kind in (NODES, PODS)
        ]
        beat = Heartbeat(client, "x", "n1", {}, on_problem=problems.append, every=0.01)
        times = LeaseTimes(retry=0.01)
        lease = OwnLease(client, "ns", "hami", "a", times=times, on_problem=problems.append)
        async with running(*(part.run() for part in (*informers, beat, lease))):
            await asyncio.sleep(1)
    about = sorted(problem.split()[0] for problem in problems)
    assert about[0] == "lease"
    assert len(about) == 2, "one for all, and the leader's, whose trouble is more than silence"


def test_an_api_error_says_what_was_asked():
    error = ApiError("gone", call="get pods a/b", status=404, reason="NotFound")
    assert str(error) == "get pods a/b: 404 NotFound: gone"
