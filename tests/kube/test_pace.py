"""Tokens and back-off, on a clock of our own."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.kube.pace import Backoff, TokenBucket


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_burst_is_free_and_then_the_rate_counts():
    clock = Clock()
    bucket = TokenBucket(rate=10, burst=3, clock=clock)
    assert [round(bucket.reserve(), 3) for _ in range(5)] == [0, 0, 0, 0.1, 0.2]
    clock.now += 0.25
    assert round(bucket.reserve(), 3) == 0.05


def test_no_rate_is_no_limit():
    bucket = TokenBucket(rate=0, burst=1, clock=Clock())
    assert {bucket.reserve() for _ in range(100)} == {0.0}
    assert bucket.take()


def test_take_never_borrows():
    clock = Clock()
    bucket = TokenBucket(rate=1, burst=2, clock=clock)
    assert [bucket.take() for _ in range(3)] == [True, True, False]
    clock.now += 1
    assert [bucket.take() for _ in range(2)] == [True, False]


async def test_a_cancelled_wait_gives_its_token_back():
    clock = Clock()
    bucket = TokenBucket(rate=0.001, burst=1, clock=clock)
    await bucket.wait()
    task = asyncio.create_task(bucket.wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    clock.now += 1000
    assert bucket.reserve() == 0


@given(st.lists(st.floats(0, 5), max_size=60), st.floats(0.1, 50), st.integers(1, 20))
def test_never_more_than_burst_and_rate_allow(pauses, rate, burst):
    clock = Clock()
    bucket = TokenBucket(rate=rate, burst=burst, clock=clock)
    taken = 0
    for pause in pauses:
        clock.now += pause
        taken += bucket.take()
        assert taken <= burst + (clock.now - 1000.0) * rate + 1e-6


def test_back_off_doubles_to_its_limit_and_starts_again_after_success():
    backoff = Backoff(first=1, most=6)
    delays = [backoff.delay() for _ in range(5)]
    assert all(most / 2 <= d <= most for d, most in zip(delays, [1, 2, 4, 6, 6], strict=True))
    backoff.reset()
    assert backoff.delay() <= 1
