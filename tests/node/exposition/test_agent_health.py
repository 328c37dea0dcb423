"""What only a restart mends: threads that all hang."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from hami.blocking.threads import Threads
from hami.node.exposition import agent_health
from hami.node.exposition.agent_health import failed

from ..parts import until


@pytest.fixture
def parts(monkeypatch):
    """Two threads for hooks, one for the disk, one for pages."""
    monkeypatch.setattr(agent_health, "STUCK", 0.1)
    threads = [Threads("hook", 2), Threads("disk", 1), Threads("page", 1)]
    hooks, disk, pages = threads
    yield SimpleNamespace(around=SimpleNamespace(hooks=hooks, disk=disk, pages=pages))
    for one in threads:
        one.close()


@pytest.fixture
def hang():
    """``hang(threads, n)``: n calls that do not end before the test does."""
    may_end = threading.Event()
    tasks = []

    def begin(threads, times):
        tasks.extend(asyncio.create_task(threads.run(may_end.wait, 30)) for _ in range(times))

    yield begin
    may_end.set()
    for task in tasks:
        task.cancel()


@pytest.mark.parametrize(("which", "at_once"), [("hooks", 2), ("disk", 1)])
async def test_work_that_no_thread_takes_is_a_failure(parts, hang, which, at_once):
    threads = getattr(parts.around, which)
    hang(threads, at_once + 1)
    await until("it is told", lambda: list(failed(parts)))
    (reason,) = failed(parts)
    assert reason.startswith(f"the {threads.name} threads hang: none took the work that waits")


async def test_a_thread_that_is_left_takes_the_work(parts, hang):
    hang(parts.around.hooks, 1)
    for _ in range(5):
        await parts.around.hooks.run(lambda: None)
        await asyncio.sleep(0.05)
    assert list(failed(parts)) == []


async def test_all_threads_may_hang_while_no_work_waits(parts, hang):
    hang(parts.around.hooks, 2)
    await asyncio.sleep(0.3)
    assert list(failed(parts)) == []


async def test_many_that_wait_are_no_failure_while_they_go_on(parts):
    pause = threading.Event()
    tasks = [asyncio.create_task(parts.around.disk.run(pause.wait, 0.03)) for _ in range(15)]
    while not all(task.done() for task in tasks):
        assert list(failed(parts)) == []
        await asyncio.sleep(0.01)


async def test_pages_may_wait_for_a_tenant(parts, hang):
    hang(parts.around.pages, 2)
    await until("they wait", lambda: parts.around.pages.stalled() > agent_health.STUCK)
    assert list(failed(parts)) == []
