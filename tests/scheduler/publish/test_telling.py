"""An owner is told once; what a start finds is told when it is over, at a pace."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from structlog.testing import capture_logs

from hami.scheduler.bookings.problems import Problem
from hami.scheduler.publish.telling import NAMED, Telling

from ..builders import a_pod


class Owners:
    """What was told, as texts, and when; what was counted."""

    def __init__(self):
        self.told = []
        self.counted = Counter()

    def telling(self, pace):
        return Telling(lambda problem: self.told.append(problem.text), self.count, pace=pace)

    def count(self, reason, times):
        self.counted[reason] += times


@pytest.fixture
def owners():
    return Owners()


def problem(number, reason="UnsignedAllocation"):
    return Problem(a_pod(f"p{number}"), reason, f"problem {number}")


async def test_during_a_start_nobody_is_told(owners):
    telling = owners.telling(pace=1000)
    with capture_logs() as logged:
        for number in range(100):
            telling.tell(problem(number))
    assert (owners.told, logged, owners.counted) == ([], [], {})


async def test_a_start_is_one_line_for_each_reason_and_an_event_for_each_problem(owners):
    telling = owners.telling(pace=1000)
    for number in range(100):
        telling.tell(problem(number, "OverAllocated" if number == 40 else "UnsignedAllocation"))
    with capture_logs() as logged:
        await telling.started()
    assert owners.told == [f"problem {number}" for number in range(100)]
    assert [(line["reason"], line["count"], line["first"]) for line in logged] == [
        ("UnsignedAllocation", 99, [f"problem {number}" for number in range(NAMED)]),
        ("OverAllocated", 1, ["problem 40"]),
    ]
    assert owners.counted == {"UnsignedAllocation": 99, "OverAllocated": 1}


async def test_what_comes_after_a_start_waits_for_nobody(owners):
    telling = owners.telling(pace=0.001)  # The second problem's turn would come in 17 minutes.
    for number in range(10):
        telling.tell(problem(number))
    late = asyncio.ensure_future(telling.started())
    await asyncio.sleep(0)
    assert owners.told == ["problem 0"], "at a pace"
    with capture_logs() as logged:
        telling.tell(problem("now"))
    assert owners.told == ["problem 0", "problem now"]
    assert [line["problem"] for line in logged] == ["problem now"]
    late.cancel()
