"""kubelet's socket comes, goes, and comes again as another one."""

from __future__ import annotations

import asyncio
import shutil
import socket
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from hami.node.kubelet import kubelet_socket
from hami.node.kubelet.kubelet_socket import KubeletSocket, identity_of


def make(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))


@asynccontextmanager
async def followed(folder: Path):
    problems: list[str] = []
    kubelet = KubeletSocket(folder / "kubelet.sock", problems.append)
    task = asyncio.create_task(kubelet.run())
    try:
        yield kubelet, problems
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(params=["inotify", "no inotify"])
def seeing(request, monkeypatch):
    """Each way of seeing alone: looks are too rare to be the reason, or all there is."""
    if request.param == "inotify":
        monkeypatch.setattr(kubelet_socket, "LOOK", 3600.0)
        return 0

    def broken():
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(kubelet_socket, "Inotify", broken)
    return 1


async def test_a_socket_that_appears_is_seen(folder, seeing):
    async with followed(folder) as (kubelet, problems):
        waiting = asyncio.create_task(kubelet.other_than(None))
        await asyncio.sleep(0.01)
        make(kubelet.path)
        assert await waiting == identity_of(kubelet.path)
        assert len(problems) == seeing


async def test_another_socket_in_its_place_is_seen(folder, seeing):
    make(folder / "kubelet.sock")
    async with followed(folder) as (kubelet, _):
        first = await kubelet.other_than(None)
        waiting = asyncio.create_task(kubelet.other_than(first))
        await asyncio.sleep(0.01)
        kubelet.path.unlink()
        make(kubelet.path)
        second = await waiting
        assert second not in {None, first}


async def test_a_socket_renamed_into_its_place_is_seen(folder, seeing):
    make(folder / "new")
    async with followed(folder) as (kubelet, _):
        waiting = asyncio.create_task(kubelet.other_than(None))
        await asyncio.sleep(0.01)
        (folder / "new").rename(kubelet.path)
        await waiting


async def test_a_folder_that_appears_later_is_followed(folder, seeing):
    folder.rmdir()
    async with followed(folder) as (kubelet, problems):
        waiting = asyncio.create_task(kubelet.other_than(None))
        await asyncio.sleep(0.01)
        folder.mkdir()
        make(kubelet.path)
        await waiting
        assert len(problems) == seeing


async def test_a_folder_made_anew_is_followed(folder, seeing):
    make(folder / "kubelet.sock")
    async with followed(folder) as (kubelet, _):
        known = await kubelet.other_than(None)
        for _ in range(3):
            shutil.rmtree(folder)
            await asyncio.sleep(0.01)
            folder.mkdir()
            await asyncio.sleep(0.01)
            make(kubelet.path)
            known = await kubelet.other_than(known)


async def test_without_events_it_is_looked_at_now_and_then(folder, monkeypatch):
    """As on a file system that has no inotify."""
    monkeypatch.setattr(kubelet_socket, "LOOK", 0.01)
    monkeypatch.setattr(kubelet_socket, "EVENTS", kubelet_socket.Mask.ATTRIB)
    async with followed(folder) as (kubelet, problems):
        waiting = asyncio.create_task(kubelet.other_than(None))
        await asyncio.sleep(0.02)
        make(kubelet.path)
        await waiting
        assert problems == []


async def test_no_inotify_is_told_once(folder, monkeypatch):
    monkeypatch.setattr(kubelet_socket, "LOOK_ALONE", 0.001)

    def broken():
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(kubelet_socket, "Inotify", broken)
    async with followed(folder) as (_, problems):
        while not problems:
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)
        [problem] = problems
        assert "Too many open files" in problem
        assert "fs.inotify.max_user_instances" in problem


@pytest.mark.parametrize("kind", ["nothing", "a file", "a folder"])
def test_only_a_socket_counts(folder, kind):
    path = folder / "kubelet.sock"
    if kind == "a file":
        path.write_text("")
    elif kind == "a folder":
        path.mkdir()
    assert identity_of(path) is None
