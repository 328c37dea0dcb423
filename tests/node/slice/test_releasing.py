"""When a slice is freed: after the pod, after its last process, and not under anybody's hands."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager

import pytest

from hami.node.slice.preparing import prepare
from hami.node.slice.releasing import Releasing
from hami.slices.files import store_failures
from tests.slices.cgroup_trees import cgroupfs, fill

from ..parts import an_entry, slice_id, until

ONE, TWO = slice_id(1), slice_id(2)


async def no_room(_pods) -> None:
    """Nobody makes any."""


@asynccontextmanager
async def releasing(parts, *, busy=lambda _: False):
    parts.around.slices.busy = busy
    worker = Releasing(parts.around, every=0.01)
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def pod(parts):
    pod = parts.pod()
    await prepare(an_entry(pod, ONE), parts.around, no_room)
    return pod


def runs(parts, pod, *pids):
    return fill(cgroupfs(parts.folder / "cgroup", pod.uid, "burstable"), *pids)


def leaves(parts, worker, pod):
    del parts.pods.by_uid[pod.uid]
    worker.pod_gone(pod)


def ends(parts, worker, pod, phase="Succeeded"):
    ended = parts.pod(pod.name, phase=phase)
    worker.pod_changed(ended)


async def nothing_left(parts):
    await until("nothing is left", lambda: not len(parts.around.slices))
    assert parts.folders.written() == set()
    assert parts.store.recover() == ([], [])


@pytest.mark.parametrize("how", ["gone", "Succeeded", "Failed"])
async def test_a_pod_that_is_over_leaves_nothing(parts, pod, how):
    async with releasing(parts) as worker:
        if how == "gone":
            leaves(parts, worker, pod)
        else:
            ends(parts, worker, pod, how)
        await nothing_left(parts)
    assert parts.hooks.calls[-1] == ("release", ONE)


async def test_not_before_the_last_process_has_ended(parts, pod):
    cgroup = runs(parts, pod, 4711)
    async with releasing(parts) as worker:
        leaves(parts, worker, pod)
        await worker.make_room([pod.uid], patience=0.1)
        assert parts.hooks.times("release") == 0
        assert parts.folders.written() == {ONE}
        fill(cgroup)
        await nothing_left(parts)


async def test_not_while_nobody_can_say_which_pods_there_are(parts, pod):
    parts.pods.synced.clear()
    async with releasing(parts) as worker:
        leaves(parts, worker, pod)
        await worker.make_room([pod.uid], patience=0.05)
        assert parts.hooks.times("release") == 0
        parts.pods.synced.set()
        await nothing_left(parts)


async def test_not_while_nobody_can_say_what_runs(parts, pod):
    (parts.folder / "cgroup" / "kubepods").rmdir()
    async with releasing(parts) as worker:
        leaves(parts, worker, pod)
        await until("it is said", lambda: parts.problems)
        assert "no slice is released" in parts.problems[0]
        (parts.folder / "cgroup" / "kubepods").mkdir()
        await nothing_left(parts)


async def test_not_while_it_is_being_prepared(parts, pod):
    busy = {ONE}
    async with releasing(parts, busy=busy.__contains__) as worker:
        leaves(parts, worker, pod)
        await worker.make_room([pod.uid], patience=0.05)
        assert parts.hooks.times("release") == 0
        busy.clear()
        await nothing_left(parts)


async def test_not_while_the_vendor_is_late_with_enforcing_it(parts, pod):
    """It would make things for a slice that is no more."""
    parts.hooks.may_end.clear()
    around = parts.around
    late = asyncio.create_task(
        around.hooks.call(("hami_enforce", ONE, 1), 30, lambda: parts.hooks.may_end.wait(20))
    )
    async with releasing(parts) as worker:
        leaves(parts, worker, pod)
        await worker.make_room([pod.uid], patience=0.1)
        assert parts.hooks.times("release") == 0
        parts.hooks.may_end.set()
        await late
        await nothing_left(parts)


async def test_a_vendor_that_fails_is_asked_again(parts, pod, monkeypatch):
    monkeypatch.setattr("hami.node.slice.releasing.FIRST_RETRY", 0.01)
    parts.hooks.fails.add("release")
    async with releasing(parts) as worker:
        leaves(parts, worker, pod)
        await until("it is tried again", lambda: parts.hooks.times("release") >= 2)
        (record,), _ = parts.store.recover()
        assert record.state == "releasing"
        assert parts.folders.written() == set(), "nothing starts with it any more"
        parts.hooks.fails.clear()
        await nothing_left(parts)


async def test_a_full_disk_does_not_keep_what_would_free_it(parts, pod, monkeypatch):
    def full(*_):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("hami.node.disk.store.write_whole", full)
    async with releasing(parts) as worker:
        leaves(parts, worker, pod)
        await nothing_left(parts)


async def test_one_that_cannot_be_released_keeps_no_other(parts, pod, monkeypatch):
    other = parts.pod("q")
    await prepare(an_entry(other, TWO), parts.around, no_room)
    release = type(parts.store).remove

    def refuses(store, slice_id):
        if slice_id == ONE:
            raise OSError(16, os.strerror(16))
        release(store, slice_id)

    monkeypatch.setattr(type(parts.store), "remove", _wrapped(refuses))
    async with releasing(parts) as worker:
        leaves(parts, worker, pod)
        leaves(parts, worker, other)
        await until("the other is free", lambda: parts.around.slices.get(TWO) is None)
        assert parts.around.slices.get(ONE) is not None


async def test_a_new_pod_of_the_same_name_is_not_the_one_that_went(parts, pod):
    again = parts.pod(pod.name, uid="uid-again")
    await prepare(an_entry(again, TWO), parts.around, no_room)
    async with releasing(parts) as worker:
        leaves(parts, worker, pod)
        await until("it is free", lambda: parts.around.slices.get(ONE) is None)
    assert parts.around.slices.get(TWO).pod_uid == "uid-again"


def _wrapped(remove):
    def wrapped(store, slice_id):
        with store_failures("remove", store.state_dir(slice_id)):
            remove(store, slice_id)

    return wrapped
