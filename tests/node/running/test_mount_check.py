"""A container that runs without its slice: said once, stopped only where that is asked for.

However it came to be without: at its start, later, or because another plugin answered for it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from contextlib import asynccontextmanager

import msgspec
import pytest

from hami.kube.node_pod import (
    NodeContainerState,
    NodeContainerStatus,
    NodePodStatus,
    RunningState,
)
from hami.node.running.mount_check import MountCheck
from hami.node.running.slice_seen import Fine
from hami.node.slice.preparing import prepare
from hami.slices.files import MalformedFile
from tests.slices.cgroup_trees import cgroupfs, fill

from ..parts import an_entry, slice_id, until

ONE = slice_id(1)
LIMITS = "/run/hami/acme/limits"
VOLUME = "/pods/volumes/v"


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


def a_mount(root, point):
    return f"36 35 98:0 {root} {point} ro - ext4 /dev/sda1 rw\n"


def sees_its_page(parts):
    """A bind mount is the same file: so is a hard link."""
    page = parts.store.state_dir(ONE) / "limits"
    seen = parts.folder / "proc/17/root" / LIMITS.strip("/")
    seen.parent.mkdir(parents=True)
    os.link(page, seen)
    sees(parts, a_mount("/", "/") + a_mount(f"/acme/{ONE}/limits", LIMITS))
    return seen


def running(pod, id="containerd://abc", container="main"):
    state = NodeContainerState(running=RunningState()) if id else None
    status = NodeContainerStatus(name=container, container_id=id, state=state)
    return msgspec.structs.replace(pod, status=NodePodStatus(container_statuses=[status]))


@asynccontextmanager
async def checking(parts, *, stop=False, entries=(), every=60.0):
    check = MountCheck(
        parts.around, proc=parts.folder / "proc", entries=lambda: entries, stop=lambda: stop,
        every=every,
    )  # fmt: skip
    task = asyncio.create_task(check.run())
    try:
        yield check
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def looked(parts, check):
    """Until everything that is due has been looked at."""
    await until("it is looked at", lambda: not check._due)
    await asyncio.sleep(0)
    for _ in range(8):  # as many as look at once
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
        await until("it is said", lambda: parts.events.said)
        check.pod_changed(running(pod, "containerd://def"))
        await until("it is said twice", lambda: len(parts.events.said) == 2)


@pytest.mark.parametrize("about", [("", "main"), ("containerd://abc", "other")])
async def test_what_does_not_run_or_has_no_slice_is_not_looked_at(parts, pod, about):
    async with checking(parts) as check:
        check.pod_changed(running(pod, *about))
        await looked(parts, check)
    assert parts.events.said == []


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


# Later than at the start.


async def test_a_page_that_goes_later_is_found(parts, pod):
    """Another container of the pod unlinks it in a volume that both have: that detaches the mount."""
    seen = sees_its_page(parts)
    async with checking(parts, every=0.01) as check:
        check.pod_changed(running(pod))
        await until("it is fine", lambda: check._seen[pod.uid]["containerd://abc"] == Fine())
        assert parts.events.said == []
        seen.unlink()
        seen.write_bytes(b"unlimited")
        sees(parts, a_mount("/", "/") + a_mount(VOLUME, "/run/hami/acme"))
        await until("it is said", lambda: parts.events.said)
        await asyncio.sleep(0.1)
    ((_, reason, text),) = parts.events.said
    assert reason == "SliceMissing"
    assert "the pod has a volume of its own at /run/hami/acme" in text


@pytest.mark.parametrize(
    ("mounts", "had_it", "advice"),
    [
        ([], False, "let the container runtime read CDI specs"),
        ([("/", "/run")], False, "let the container runtime read CDI specs"),
        ([("/", "/run")], True, "volume of its own at /run, with"),
        ([], True, "take CAP_SYS_ADMIN from the pod"),
        ([(VOLUME, LIMITS)], False, f"volume of its own at {LIMITS}, with"),
        ([(VOLUME, "/run/hami")], False, "volume of its own at /run/hami, with"),
        ([("/acme/1/limits", LIMITS), (VOLUME, LIMITS)], True, f"own at {LIMITS}, with"),
    ],
)
async def test_the_advice_is_right_for_the_case(parts, pod, mounts, had_it, advice):
    async with checking(parts, every=0.01) as check:
        if had_it:
            sees_its_page(parts)
            check.pod_changed(running(pod))
            await until("it is fine", lambda: check._seen[pod.uid]["containerd://abc"] == Fine())
        sees(parts, "".join(a_mount(*one) for one in mounts))
        check.pod_changed(running(pod))
        await until("it is said", lambda: parts.events.said)
    assert advice in parts.events.said[0][2]


# Another plugin answered.


def nobody_made_one(parts):
    parts.around.slices.drop(ONE)


@pytest.mark.parametrize(
    ("answered", "reason", "words"),
    [
        ({"env": {"VISIBLE": "B"}}, "SliceMissing", "another agent gave it B, its allocation A"),
        ({"env": {}}, "SliceMissing", "another agent gave it no device, its allocation A"),
        (None, "SliceMissing", "kubelet gave it nothing of acme.com/gpu"),
        ({"env": {"VISIBLE": "A"}}, "ForeignSlice", "as another device plugin answered for it"),
    ],
)
async def test_what_another_plugin_served_is_said_and_stopped(
    parts, pod, monkeypatch, answered, reason, words
):
    killed = []
    monkeypatch.setattr(os, "kill", lambda pid, _: killed.append(pid))
    nobody_made_one(parts)
    entries = () if answered is None else (an_entry(pod, **answered),)
    async with checking(parts, stop=True, entries=entries, every=0.01) as check:
        check.pod_changed(running(pod))
        await until("it is said", lambda: parts.events.said)
        await asyncio.sleep(0.1)
    ((_, said, text),) = parts.events.said
    assert (said, words in text) == (reason, True), text
    assert killed == ([17] if reason == "SliceMissing" else [])


@pytest.mark.parametrize(
    "case", ["of ours", "no record", "has one", "unsigned", "asks for nothing"]
)
async def test_what_no_other_plugin_served_is_left_alone(parts, pod, case):
    nobody_made_one(parts)
    entries = ()
    match case:
        case "of ours":
            entries = (an_entry(pod, ONE),)
        case "no record":
            entries = MalformedFile(annotation="record", position="", text="", problem="garbage")
        case "has one":
            sees(parts, a_mount(f"/acme/{ONE}/limits", LIMITS))
        case "unsigned":
            pod = parts.pod(sign=False)
        case "asks for nothing":
            pod = parts.pod(main=[])
    async with checking(parts, stop=True, entries=entries, every=0.01) as check:
        check.pod_changed(running(pod))
        await looked(parts, check)
        await asyncio.sleep(0.1)
    assert parts.events.said == []


async def test_nothing_is_remembered_of_a_pod_that_is_gone(parts, pod):
    async with checking(parts) as check:
        check.pod_changed(running(pod))
        parts.around.slices.drop(ONE)
        check.pod_gone(pod)
        assert (check._pods, check._seen) == ({}, {})
