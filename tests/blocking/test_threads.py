"""Blocking work beside the loop: late calls are joined, stale answers forgotten, no exit kept."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest

from hami.blocking.threads import Threads, TooLate

from ..node.parts import until


class Work:
    """Counts its calls; each waits until it may end."""

    def __init__(self) -> None:
        self.calls = 0
        self.may_end = threading.Event()

    def __call__(self, fails: bool = False) -> int:
        self.calls += 1
        number = self.calls
        self.may_end.wait(20)
        if fails:
            raise ValueError("no")
        return number


@pytest.fixture
def work():
    work = Work()
    yield work
    work.may_end.set()


async def test_an_answer_in_time(work):
    work.may_end.set()
    threads = Threads("hook")
    assert await threads.call(("a",), 10, work) == 1
    assert await threads.call(("a",), 10, work) == 2


async def test_two_who_ask_for_the_same_get_one_answer(work):
    threads = Threads("hook")
    asked = [asyncio.create_task(threads.call(("a",), 10, work)) for _ in range(3)]
    await until("it is called", lambda: work.calls)
    work.may_end.set()
    assert await asyncio.gather(*asked) == [1, 1, 1]


async def test_a_late_call_is_told_of_and_joined_by_the_next(work):
    threads = Threads("hook")
    with pytest.raises(TooLate, match=r"hook enforce 7 takes longer than 0\.01 s and goes on"):
        await threads.call(("enforce", 7), 0.01, work)
    assert threads.under_way("enforce")
    assert threads.under_way("enforce", 7)
    assert not threads.under_way("enforce", 8)
    work.may_end.set()
    await threads.over(10, "enforce")
    assert await threads.call(("enforce", 7), 10, work) == 1
    assert await threads.call(("enforce", 7), 10, work) == 2


async def test_a_late_answer_is_forgotten_when_nobody_comes_for_it(work):
    threads = Threads("hook", kept=0.01)
    with pytest.raises(TooLate):
        await threads.call(("a",), 0.01, work)
    work.may_end.set()
    await until("it is forgotten", lambda: not threads._calls)
    assert await threads.call(("a",), 10, work) == 2


async def test_what_hangs_keeps_only_those_that_need_it(work):
    threads = Threads("hook", at_once=2)
    with pytest.raises(TooLate, match="still goes on"):
        await asyncio.gather(
            threads.call(("a",), 10, work), threads.over(0.01, "a"), return_exceptions=False
        )
    assert await threads.call(("b",), 10, lambda: "b") == "b"


@pytest.mark.parametrize("late", [False, True])
async def test_an_exception_is_the_askers(work, late):
    threads = Threads("hook")
    if late:
        with pytest.raises(TooLate):
            await threads.call(("a",), 0.01, work, fails=True)
    work.may_end.set()
    with pytest.raises(ValueError, match="no"):
        await threads.call(("a",), 10, work, fails=True)
    assert work.calls == 1


async def test_who_is_cancelled_leaves_the_call_to_the_next(work):
    threads = Threads("hook")
    first = asyncio.create_task(threads.call(("a",), 10, work))
    await until("it is called", lambda: work.calls)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    work.may_end.set()
    assert await threads.call(("a",), 10, work) == 1


async def test_many_at_once_are_no_more_threads_than_allowed(work):
    threads = Threads("disk", at_once=3)
    running = [asyncio.create_task(threads.run(work)) for _ in range(10)]
    await until("three are at work", lambda: work.calls == 3)
    work.may_end.set()
    assert sorted(await asyncio.gather(*running)) == list(range(1, 11))


async def test_what_waits_when_it_closes_is_never_begun(work):
    threads = Threads("disk", at_once=1)
    running = [asyncio.create_task(threads.run(work)) for _ in range(2)]
    await until("one is at work", lambda: work.calls == 1)
    threads.close()
    work.may_end.set()
    first, second = await asyncio.gather(*running, return_exceptions=True)
    assert first == 1
    assert isinstance(second, asyncio.CancelledError)
    with pytest.raises(RuntimeError, match="no more work"):
        await threads.run(work)


HANGING = """
import asyncio, threading
from hami.blocking.threads import Threads, TooLate

async def main():
    threads = Threads("hook")
    try:
        await threads.call(("a",), 0.01, threading.Event().wait)
    except TooLate as late:
        print(late)
    threads.close()

asyncio.run(main())
"""


def test_a_hook_that_hangs_does_not_keep_the_process_from_ending():
    ended = subprocess.run(
        [sys.executable, "-c", HANGING], timeout=30, capture_output=True, text=True, check=True
    )
    assert ended.stdout == "hook a takes longer than 0.01 s and goes on\n"
    assert ended.stderr == ""
