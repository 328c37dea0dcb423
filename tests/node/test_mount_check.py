"""A container that runs without its slice: said once, stopped only where that is asked for."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from contextlib import asynccontextmanager

import msgspec
import pytest

from hami.node.mount_check import MountCheck
from hami.node.pods import NodeContainerState, NodeContainerStatus, NodePodStatus, RunningState
from hami.node.preparing import prepare

from .cgroup_trees import cgroupfs, fill
from .parts import an_entry, slice_id, until

ONE = slice_id(1)


async def no_room(_pods) -> None:
    """Nobody makes any."""


@pytest.fixture
async def pod(parts):
    """Its container abc runs as process 17."""
    pod = parts.pod()
    await prepare(an_entry(pod, ONE), parts.around, no_room)
    fill(cgroupfs(parts.folder / "cgroup", pod.uid, "") / "abc", 17)
    (parts.folder / "proc" / "17").mkdir(parents=True)
    sees(parts, "")
    return pod


def sees(parts, mounted):
    (parts.folder / "proc" / "17" / "mountinfo").write_text(mounted)


def running(pod, id="containerd://abc", container="main"):
    state = NodeContainerState(running=RunningState()) if id else None
    status = NodeContainerStatus(name=container, container_id=id, state=state)
    return msgspec.structs.replace(pod, status=NodePodStatus(container_statuses=[status]))


@asynccontextmanager
async def checking(parts, *, stop=False):
    check = MountCheck(parts.around, proc=parts.folder / "proc", stop=lambda: stop)
    task = asyncio.create_task(check.run())
    try:
        yield check
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def looked(parts, check):
    """Until everything that is due has been looked at."""
    await until("it is looked at", check._due.empty)
    await parts.around.disk.run(lambda: None)
    await asyncio.sleep(0)


async def test_a_container_without_its_page_is_said_once(parts, pod):
    async with checking(parts) as check:
        for _ in range(3):
            check.pod_changed(running(pod))
        await until("it is said", lambda: parts.events.said)
        await looked(parts, check)
    ((name, reason, text),) = parts.events.said
    assert (name, reason) == ("p", "SliceMissing")
    assert "container main runs without its slice" in text
    assert "let the container runtime read CDI specs" in text


async def test_the_next_life_of_the_container_is_looked_at_again(parts, pod):
    fill(cgroupfs(parts.folder / "cgroup", pod.uid, "") / "def", 17)
    async with checking(parts) as check:
        check.pod_changed(running(pod))
        check.pod_changed(running(pod, "containerd://def"))
        await until("it is said twice", lambda: len(parts.events.said) == 2)


@pytest.mark.parametrize("about", [("", "main"), ("containerd://abc", "other")])
async def test_what_does_not_run_or_has_no_slice_is_not_looked_at(parts, pod, about):
    async with checking(parts) as check:
        check.pod_changed(running(pod, *about))
        assert check._due.empty()


@pytest.mark.parametrize("gone", ["cgroup/kubepods", "proc/17"])
async def test_where_nobody_can_look_nothing_is_said(parts, pod, gone):
    shutil.rmtree(parts.folder / gone)
    async with checking(parts) as check:
        check.pod_changed(running(pod))
        await looked(parts, check)
    assert parts.events.said == []


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (None, "it was stopped"),
        (ProcessLookupError(), "it was stopped"),
        (PermissionError(1, "Operation not permitted"), "it cannot be stopped (Operation not"),
    ],
)
async def test_where_it_is_asked_for_it_is_stopped(parts, pod, monkeypatch, error, words):
    killed = []

    def kill(pid, what):
        killed.append((pid, what))
        if error is not None:
            raise error

    monkeypatch.setattr(os, "kill", kill)
    async with checking(parts, stop=True) as check:
        check.pod_changed(running(pod))
        await until("it is said", lambda: parts.events.said)
    assert killed == [(17, signal.SIGKILL)]
    assert words in parts.events.said[0][2]


async def test_nothing_is_remembered_of_a_pod_that_is_gone(parts, pod):
    async with checking(parts) as check:
        check.pod_changed(running(pod))
        parts.around.slices.drop(ONE)
        check.pod_gone(pod)
        assert check._looked == {}
