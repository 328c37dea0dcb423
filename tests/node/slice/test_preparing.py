"""One slice made real: what is refused, what stays when a step fails, and what a resize leaves."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from hami.domain.slices import PageSettings
from hami.node.pod.pods import NotGranted
from hami.node.slice.live_slices import Prepared
from hami.node.slice.preparing import prepare, resize
from hami.node.slice.recovery import recover
from hami.node.slice.views import page_limits

from ..parts import a_grant, an_entry, slice_id, until

ONE, TWO = slice_id(1), slice_id(2)


async def no_room(_pods) -> None:
    """Nobody makes any."""


async def prepared(parts, pod, id=ONE, container="main"):
    return await prepare(an_entry(pod, id, container), parts.around, no_room)


def spec(parts, id=ONE):
    path = parts.folder / "cdi" / f"hami-acme-{id}.json"
    return path.read_text() if path.exists() else ""


def broken(parts, part):
    """A file stands where a directory of the store or of the specs should be."""
    path = parts.folder / part
    if path.exists():
        path.rmdir()
    path.write_text("")
    return path


async def test_a_slice_is_on_disk_before_its_spec_names_it(parts):
    outcome = await prepared(parts, parts.pod())
    assert isinstance(outcome, Prepared)
    (record,), damaged = parts.store.recover()
    assert (record.state, record.slice_id, damaged) == ("enforced", ONE, [])
    assert parts.mib(ONE) == [1000]
    assert '"SIZES=1000"' in spec(parts)


@pytest.mark.parametrize(
    ("pod", "entry", "words", "ended"),
    [
        ({"phase": "Succeeded"}, {}, "has ended", True),
        ({"sign": False}, {}, "has no signature", False),
        ({"node": "n2"}, {}, "is bound to node 'n2'", False),
        ({}, {"id": "../../etc"}, "is no slice id", False),
        ({}, {"id": ONE.upper() + "A"}, "is no slice id", False),
        ({}, {"container": "other"}, "gives this container nothing", False),
        ({}, {"ids": ("slot-0", "slot-1")}, "gave it 2 of acme.com/gpu, its allocation 1", False),
        ({"main": [a_grant("Z")]}, {}, "Z is not on this node", False),
        ({"main": [a_grant("A", 8001)]}, {}, "8000 MiB of memory, 0 are in use", False),
        ({"main": [a_grant("A", cores=101)]}, {}, "cores", False),
    ],
)
async def test_refused(parts, pod, entry, words, ended):
    given = {"id": ONE, "container": "main", "ids": ("slot-0",)} | entry
    entry = an_entry(parts.pod(**pod), given["id"], given["container"], *given["ids"])
    outcome = await prepare(entry, parts.around, no_room)
    assert isinstance(outcome, NotGranted)
    assert words in outcome.text
    assert outcome.ended is ended
    assert (len(parts.around.slices), parts.folders.written()) == (0, set())


async def test_a_pod_that_is_gone_has_ended_and_one_nobody_knows_has_not(parts):
    outcome = await prepare(an_entry("uid-x", ONE), parts.around, no_room)
    assert isinstance(outcome, NotGranted)
    assert outcome.ended
    parts.pods.away = True
    outcome = await prepare(an_entry("uid-x", ONE), parts.around, no_room)
    assert isinstance(outcome, NotGranted)
    assert not outcome.ended


async def test_while_the_api_server_is_away_what_was_made_before_starts_again(parts):
    pod = parts.pod()
    await prepared(parts, pod)
    parts.pods.away = True
    assert isinstance(await prepared(parts, pod), Prepared)
    parts.folders.remove(ONE)
    assert isinstance(await prepared(parts, pod), NotGranted)


async def test_while_the_api_server_is_away_specs_that_cannot_be_listed_are_named(parts):
    pod = parts.pod()
    await prepared(parts, pod)
    parts.pods.away = True
    parts.folders.remove(ONE)
    path = broken(parts, "cdi")
    outcome = await prepared(parts, pod)
    assert isinstance(outcome, NotGranted)
    assert f"container main: {path}: cannot list" in outcome.text
    assert not outcome.ended


async def test_a_slice_id_of_another_container_is_refused_with_both_named(parts):
    await prepared(parts, parts.pod("p"))
    outcome = await prepared(parts, parts.pod("q"))
    assert isinstance(outcome, NotGranted)
    assert "belongs to pod team/p" in outcome.text
    assert "uid-q" in outcome.text
    assert parts.mib(ONE) == [1000]


async def test_a_forged_id_of_a_slice_that_only_the_disk_knows_destroys_nothing(parts):
    await prepared(parts, parts.pod("p"))
    parts.around.slices.drop(ONE)
    outcome = await prepared(parts, parts.pod("q"))
    assert isinstance(outcome, NotGranted)
    assert "belongs to pod team/p" in outcome.text
    assert parts.mib(ONE) == [1000]
    assert parts.around.slices.get(ONE) is None


@pytest.mark.parametrize("memory", [5000, 8000])
async def test_two_pods_that_do_not_fit_together_never_start_together(parts, memory):
    await prepared(parts, parts.pod("p", main=[a_grant("A", 5000)]), ONE)
    outcome = await prepared(parts, parts.pod("q", main=[a_grant("A", memory)]), TWO)
    assert isinstance(outcome, NotGranted)
    assert "it is held by pod team/p" in outcome.text


@pytest.mark.parametrize("grown", [a_grant("A", 5000), a_grant("A", 1000, 60), a_grant("B", 5000)])
async def test_a_growth_that_does_not_fit_is_refused_at_the_next_start_too(parts, grown):
    """As a resize refuses it: the start after it must not take what belongs to another."""
    pod = parts.pod("p", main=[a_grant("A", 1000, 10)])
    await prepared(parts, pod, ONE)
    await prepared(parts, parts.pod("q", main=[a_grant("A", 4000, 50)]), TWO)
    await prepared(parts, parts.pod("r", main=[a_grant("B", 4000, 50)]), slice_id(3))
    outcome = await prepared(parts, parts.pod("p", main=[grown], generation=2), ONE)
    assert isinstance(outcome, NotGranted)
    assert "it is held by pod team/" in outcome.text
    assert (parts.mib(ONE), parts.around.slices.get(ONE).granted.generation) == ([1000], 1)


async def test_a_slice_starts_again_on_a_device_that_has_become_too_small(parts):
    """What it holds it was given; it asks for nothing more."""
    pod = parts.pod("p", main=[a_grant("A", 5000)])
    await prepared(parts, pod, ONE)
    parts.devices["A"] = replace(parts.devices["A"], memory_mib=500)
    assert isinstance(await prepared(parts, pod, ONE), Prepared)


async def test_room_is_asked_of_those_who_hold_it(parts):
    await prepared(parts, parts.pod("p", main=[a_grant("A", 5000)]), ONE)
    asked = []

    async def make_room(pods):
        asked.extend(pods)
        parts.around.slices.drop(ONE)

    pod = parts.pod("q", main=[a_grant("A", 5000)])
    assert isinstance(await prepare(an_entry(pod, TWO), parts.around, make_room), Prepared)
    assert asked == ["uid-p"]


# What fails on the way.


async def test_a_slices_directory_that_cannot_be_made_leaves_nothing_behind(parts):
    pod, file = parts.pod(), broken(parts, "slices")
    outcome = await prepared(parts, pod)
    assert isinstance(outcome, NotGranted)
    assert "something else is where a directory should be" in outcome.text
    assert len(parts.around.slices) == 0
    assert parts.hooks.times("enforce") == 0
    file.unlink()
    assert isinstance(await prepared(parts, pod), Prepared)


async def test_a_spec_that_cannot_be_written_keeps_what_the_vendor_may_have_made(parts):
    pod, file = parts.pod(), broken(parts, "cdi")
    assert isinstance(await prepared(parts, pod), NotGranted)
    (live,) = parts.around.slices
    assert live.record.state == "preparing"
    assert parts.mib(ONE) == [1000]
    file.unlink()
    assert isinstance(await prepared(parts, pod), Prepared)


async def test_a_vendor_that_fails_is_asked_again_at_the_next_start(parts):
    pod = parts.pod()
    parts.hooks.fails.add("enforce")
    outcome = await prepared(parts, pod)
    assert isinstance(outcome, NotGranted)
    assert "enforce does not work" in outcome.text
    assert spec(parts) == ""
    parts.hooks.fails.clear()
    assert isinstance(await prepared(parts, pod), Prepared)


async def test_a_missing_spec_of_the_vendors_is_named(parts):
    parts.hooks.needs = ("acme.com/gpu=A",)
    outcome = await prepared(parts, parts.pod())
    assert isinstance(outcome, NotGranted)
    assert "no CDI spec on this node defines acme.com/gpu=A" in outcome.text


async def test_a_spec_that_must_change_fails_the_start_once(parts):
    pod = parts.pod()
    await prepared(parts, pod)
    parts.pod(main=[a_grant("A", 2000)], generation=2)
    outcome = await prepared(parts, pod)
    assert isinstance(outcome, NotGranted)
    assert "the next start takes it" in outcome.text
    assert isinstance(await prepared(parts, pod), Prepared)


# Resize.


async def a_resize(parts, memory, cores=10, generation=2):
    pod = parts.pod(main=[a_grant("A", memory, cores)], generation=generation)
    return await resize(parts.granted(pod), parts.around.slices.get(ONE), parts.around, no_room)


@pytest.mark.parametrize(
    ("grants", "cores_limit", "page"),
    [
        ([a_grant("A", cores=30)], 80, [(30, 80)]),
        ([a_grant("A", cores=30)], 0, [(30, 0)]),
        ([a_grant("A", cores=50), a_grant("A", cores=40)], 60, [(90, 90)]),
        ([a_grant("A", cores=10), a_grant("B", cores=20)], 60, [(10, 60), (20, 60)]),
    ],
)
def test_the_page_says_what_is_guaranteed_and_what_the_limit_is(parts, grants, cores_limit, page):
    granted = parts.granted(parts.pod(main=grants, cores_limit=cores_limit))
    devices = page_limits(granted, PageSettings()).devices
    assert [(device.cores, device.cores_limit) for device in devices] == page


async def test_a_resize_is_in_the_page_the_record_and_the_table(parts):
    await prepared(parts, parts.pod())
    assert isinstance(await a_resize(parts, 3000), Prepared)
    (record,), _ = parts.store.recover()
    assert parts.mib(ONE) == [3000]
    assert [grant.memory_mib for grant in record.grants] == [3000]
    assert (record.generation, parts.page(ONE).generation) == (2, 2)
    assert parts.around.slices.get(ONE).grants[0].memory_mib == 3000


async def test_a_resize_that_fails_is_not_written_down_as_done(parts):
    await prepared(parts, parts.pod())
    parts.hooks.fails.add("enforce")
    assert isinstance(await a_resize(parts, 3000), NotGranted)
    (record,), _ = parts.store.recover()
    assert (record.generation, record.grants[0].memory_mib) == (1, 1000)
    live = parts.around.slices.get(ONE)
    assert (live.record.generation, parts.mib(ONE)) == (1, [1000])
    assert live.grants[0].memory_mib == 3000, "nobody else gets what it may already have"
    parts.hooks.fails.clear()
    assert isinstance(await a_resize(parts, 3000), Prepared)
    assert parts.mib(ONE) == [3000]


async def test_an_agent_that_is_killed_in_a_resize_begins_it_again(parts, monkeypatch):
    """The record says the old generation until the page says the new one."""
    await prepared(parts, parts.pod())

    def killed(*_):
        raise SystemExit

    monkeypatch.setattr(type(parts.store), "write_limits", killed)
    with pytest.raises(SystemExit):
        await a_resize(parts, 3000)
    found = recover(
        parts.store, parts.folders, parts.a_granting(), set, lambda _: (), parts.problems.append
    )
    assert [live.record.generation for live in found.slices] == [1]


async def test_a_resize_takes_no_more_than_there_is(parts):
    await prepared(parts, parts.pod())
    assert isinstance(await a_resize(parts, 8001), NotGranted)
    assert parts.mib(ONE) == [1000]


async def test_a_slice_shrinks_although_its_device_is_overfull(parts):
    await prepared(parts, parts.pod())
    parts.devices["A"] = replace(parts.devices["A"], memory_mib=500)
    assert isinstance(await a_resize(parts, 800), Prepared)
    assert isinstance(await a_resize(parts, 900, generation=3), NotGranted)


# The vendor's hooks, one at a time.


async def test_nothing_is_enforced_while_leftovers_are_undone(parts, monkeypatch):
    monkeypatch.setattr("hami.node.slice.preparing.ENFORCE_SECONDS", 0.05)
    parts.hooks.may_end.clear()
    around = parts.around
    undoing = asyncio.create_task(
        around.hooks.call(("hami_reconcile",), 10, around.vendor.reconcile, [], {})
    )
    await until("it is under way", lambda: parts.hooks.times("reconcile"))
    pod = parts.pod()
    outcome = await prepared(parts, pod)
    assert isinstance(outcome, NotGranted)
    assert "hami_reconcile still goes on" in outcome.text
    assert parts.hooks.times("enforce") == 0
    parts.hooks.may_end.set()
    await undoing
    assert isinstance(await prepared(parts, pod), Prepared)


async def test_a_late_answer_for_older_limits_is_not_taken_for_the_newer(parts, monkeypatch):
    pod = parts.pod()
    await prepared(parts, pod)
    monkeypatch.setattr("hami.node.slice.preparing.ENFORCE_SECONDS", 0.05)
    parts.hooks.may_end.clear()
    outcome = await prepared(parts, pod)
    assert isinstance(outcome, NotGranted)
    assert "takes longer" in outcome.text
    outcome = await a_resize(parts, 3000)
    assert isinstance(outcome, NotGranted)
    assert "still goes on" in outcome.text
    assert parts.hooks.times("enforce") == 2
    parts.hooks.may_end.set()
    monkeypatch.setattr("hami.node.slice.preparing.ENFORCE_SECONDS", 10)
    assert isinstance(await a_resize(parts, 3000), Prepared)
    assert '"SIZES=3000"' in spec(parts)
