"""After a start: what is kept, what is removed, and that nothing on disk ends the agent."""

from __future__ import annotations

import asyncio
import os
import shutil

import pytest

from hami.domain.errors import Malformed
from hami.node.running.slice_seen import slices_in_use
from hami.node.slice.preparing import prepare
from hami.node.slice.reconciling import reconcile
from hami.node.slice.recovery import recover
from tests.slices.cgroup_trees import cgroupfs, fill

from ..parts import ACME, an_entry, slice_id, until

ONE, TWO, ORPHAN = slice_id(1), slice_id(2), slice_id(3)
UNREADABLE = Malformed(annotation="checkpoint", position="", text="", problem="is half a file")


async def no_room(_pods) -> None:
    """Nobody makes any."""


async def made(parts, *ids):
    for id in ids:
        await prepare(an_entry(parts.pod(id[-1]), id), parts.around, no_room)


def recovered(parts, named=()):
    names = named if isinstance(named, Malformed) else set(named)

    def in_use(ids):
        return slices_in_use(ids, ACME, parts.around.cgroups, parts.folder / "proc")

    return recover(
        parts.store, parts.folders, parts.a_granting(), lambda: names, in_use, parts.problems.append
    )


def corrupt(parts, id, text="{"):
    (parts.store.state_dir(id) / "meta.json").write_text(text)


async def test_what_was_made_lives_on_whether_kubelet_names_it_or_not(parts):
    await made(parts, ONE, TWO)
    found = recovered(parts, [ONE])
    assert sorted(live.id for live in found.slices) == [ONE, TWO]
    assert all(live.granted.grants for live in found.slices)
    assert parts.folders.written() == {ONE, TWO}


@pytest.mark.parametrize(
    ("named", "kept"), [([ONE], True), ([], False), ([TWO], False), (UNREADABLE, True)]
)
async def test_a_damaged_slice_is_kept_while_its_container_may_run(parts, named, kept):
    await made(parts, ONE)
    corrupt(parts, ONE)
    found = recovered(parts, named)
    assert (found.slices, found.kept) == ((), (ONE,) if kept else ())
    assert parts.store.state_dir(ONE).exists() is kept
    assert parts.folders.written() == ({ONE} if kept else set())
    assert any(ONE in text and "damaged" in text for text in parts.problems)


@pytest.mark.parametrize(
    ("runs", "kept"),
    [
        (f"36 35 98:0 /acme/{ONE}/limits /run/hami/acme/limits ro - ext4 /dev/sda1 rw", True),
        (f"36 35 98:0 /slices/acme/{ONE}/more /etc/more ro - ext4 /dev/sda1 rw", True),
        (f"36 35 98:0 /slices/acme/{TWO}/limits /run/hami/acme/limits ro - ext4 /dev/sda1 rw", False),
        (f"36 35 98:0 /slices/other/{ONE}/limits /run/hami/other/limits ro - ext4 /dev/sda1 rw", False),
        (None, False),
        (PermissionError, True),
        (NotADirectoryError, True),
    ],
    ids=["its page", "another file of it", "another slice", "another vendor's", "ended", "may not be looked at", "no cgroups"],
)  # fmt: skip
async def test_a_damaged_slice_that_a_process_has_is_kept_though_kubelets_record_is_lost(
    parts, runs, kept
):
    await made(parts, ONE)
    corrupt(parts, ONE)
    fill(cgroupfs(parts.folder / "cgroup", "some-pod", "burstable") / "abc", 17)
    table = parts.folder / "proc" / "17" / "mountinfo"
    match runs:
        case str():
            table.parent.mkdir(parents=True)
            table.write_text(f"{runs}\n")
        case type() if runs is PermissionError:
            table.mkdir(parents=True)  # also root cannot read it
        case type():
            shutil.rmtree(parts.folder / "cgroup")
    found = recovered(parts, [])
    assert found.kept == ((ONE,) if kept else ())
    assert parts.store.state_dir(ONE).exists() is kept
    assert parts.folders.written() == ({ONE} if kept else set())


@pytest.mark.parametrize(("named", "kept"), [([], False), ([ORPHAN], True), (UNREADABLE, True)])
def test_a_spec_without_a_slice_goes_when_nobody_may_start_with_it(parts, named, kept):
    parts.folders.write(ORPHAN, b"{}")
    recovered(parts, named)
    assert parts.folders.written() == ({ORPHAN} if kept else set())


@pytest.mark.parametrize("text", ["", "{", "null", '{"slice_id": "x"}', "\0" * 50])
async def test_a_damaged_slice_is_made_anew_at_its_next_start(parts, text):
    await made(parts, ONE)
    parts.around.slices.drop(ONE)
    corrupt(parts, ONE, text)
    recovered(parts, [ONE])
    await made(parts, ONE)
    assert [live.id for live in recovered(parts, [ONE]).slices] == [ONE]


async def test_what_cannot_be_removed_is_said_and_does_not_end_the_agent(parts, monkeypatch):
    await made(parts, ONE, TWO)
    corrupt(parts, ONE)

    def refuses(*_, **__):
        raise OSError(30, os.strerror(30))

    monkeypatch.setattr(os, "rename", refuses)
    found = recovered(parts)
    assert [live.id for live in found.slices] == [TWO]
    assert found.kept == (ONE,)
    assert any("read-only" in text.lower() for text in parts.problems)


async def test_the_temporary_files_of_another_vendors_agent_are_left_alone(parts):
    ours, theirs = ".hami-acme-abc.json.0f3a.tmp", ".hami-acme-big-abc.json.0f3a.tmp"
    for name in (ours, theirs):
        (parts.folder / "cdi" / name).touch()
    recovered(parts)
    assert [path.name for path in (parts.folder / "cdi").iterdir()] == [theirs]


# What belongs to nobody.


async def test_leftovers_are_undone_again_and_again_and_sooner_after_a_failure(parts, monkeypatch):
    monkeypatch.setattr("hami.node.slice.reconciling.FIRST_RETRY", 0.01)
    monkeypatch.setattr("hami.node.slice.reconciling.RECONCILE_EVERY", 0.01)
    await made(parts, ONE)
    parts.hooks.fails.add("reconcile")
    undoing = asyncio.create_task(reconcile(parts.around, [TWO]))
    await until("it is tried again", lambda: parts.hooks.times("reconcile") >= 2)
    parts.hooks.fails.clear()
    tried = parts.hooks.times("reconcile")
    await until("it goes on", lambda: parts.hooks.times("reconcile") >= tried + 2)
    undoing.cancel()
    assert {about for hook, about in parts.hooks.calls if hook == "reconcile"} == {f"{ONE},{TWO}"}


async def test_a_damaged_slice_that_lives_again_is_named_once(parts):
    await made(parts, ONE)
    undoing = asyncio.create_task(reconcile(parts.around, [ONE]))
    await until("it was undone", lambda: parts.hooks.times("reconcile"))
    undoing.cancel()
    assert ("reconcile", ONE) in parts.hooks.calls
