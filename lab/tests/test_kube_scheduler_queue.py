"""The queue of the kube-scheduler stand-in: order, back-off, what wakes whom."""

from __future__ import annotations

import pytest
from hami_lab.kube_scheduler.queue import Pace, Place, SchedulingQueue
from hypothesis import given, settings
from hypothesis import strategies as st

from hami.domain.units import PodUid

A, B, C = PodUid("a"), PodUid("b"), PodUid("c")


def a_queue(**pace: float | bool) -> SchedulingQueue:
    return SchedulingQueue(Pace(**pace))


def popped(queue: SchedulingQueue, now: float = 0.0) -> list[str]:
    """Everything that can be tried now, in order; left in flight."""
    found = []
    while (entry := queue.pop(now)) is not None:
        found.append(str(entry.uid))
    return found


def refused_at(queue: SchedulingQueue, uid: PodUid, now: float) -> None:
    assert queue.pop(now).uid == uid
    queue.refused(uid, now)


def test_higher_priority_first_then_age():
    queue = a_queue()
    for uid, priority in ((A, 0), (B, 5), (C, 5)):
        queue.add(uid, priority)
    assert popped(queue) == ["b", "c", "a"]


def test_a_changed_priority_changes_the_order():
    queue = a_queue()
    queue.add(A, 0)
    queue.add(B, 0)
    queue.add(B, 9)
    assert popped(queue) == ["b", "a"]


def test_a_refused_pod_is_not_tried_again_by_itself_before_the_flush():
    queue = a_queue(flush=300.0)
    queue.add(A, 0)
    refused_at(queue, A, 0.0)
    assert queue.place(A) is Place.UNSCHEDULABLE
    assert (queue.pop(299.0), queue.next_at(299.0)) == (None, 300.0)
    assert queue.pop(300.0).uid == A


@pytest.mark.parametrize("event", ["its own change", "any change of the cluster"])
def test_an_event_wakes_a_refused_pod(event):
    queue = a_queue(eager=False)
    queue.add(A, 0)
    refused_at(queue, A, 0.0)
    if event == "its own change":
        queue.wake(A, 5.0)
    else:
        queue.wake_all(5.0)
    assert queue.pop(5.0).uid == A


def test_a_woken_pod_waits_out_its_back_off_before_1_33():
    queue = a_queue(eager=False, first=1.0)
    queue.add(A, 0)
    refused_at(queue, A, 0.0)
    queue.wake(A, 0.1)
    assert (queue.pop(0.9), queue.next_at(0.9)) == (None, 1.0)
    assert queue.pop(1.0).uid == A


def test_a_woken_pod_is_taken_out_of_its_back_off_when_nothing_else_is_to_do():
    queue = a_queue(eager=True)
    queue.add(A, 0)
    refused_at(queue, A, 0.0)
    queue.wake(A, 0.1)
    queue.add(B, 0)
    assert popped(queue, 0.1) == ["b", "a"]


def test_of_pods_that_back_off_until_the_same_second_the_more_important_one_comes_first():
    queue = a_queue(eager=True)
    for uid, priority, at in ((A, 0, 0.1), (B, 9, 0.4), (C, 99, 1.2)):
        queue.add(uid, priority)
        refused_at(queue, uid, at)
    queue.wake_all(1.2)
    assert popped(queue, 1.3) == ["b", "a", "c"]


def test_an_event_during_the_attempt_is_not_lost():
    queue = a_queue(eager=False)
    queue.add(A, 0)
    queue.pop(0.0)
    queue.wake(A, 0.0)
    queue.refused(A, 0.0)
    assert queue.place(A) is Place.BACKOFF
    assert queue.pop(1.0).uid == A


def test_an_event_of_a_former_attempt_does_not_count_for_the_next():
    queue = a_queue()
    queue.add(A, 0)
    queue.pop(0.0)
    queue.wake(A, 0.0)
    queue.refused(A, 0.0)
    refused_at(queue, A, 1.0)
    assert queue.place(A) is Place.UNSCHEDULABLE


def test_the_back_off_doubles_up_to_the_most():
    delays = [Pace(first=1.0, most=10.0).delay(attempts) for attempts in (1, 2, 3, 4, 5, 50)]
    assert delays == [1.0, 2.0, 4.0, 8.0, 10.0, 10.0]


def test_an_error_backs_off_even_when_nothing_else_is_to_do():
    queue = a_queue(eager=True)
    queue.add(A, 0)
    queue.pop(0.0)
    queue.failed(A, 0.0)
    assert (queue.pop(0.5), queue.next_at(0.5)) == (None, 1.0)
    assert queue.pop(1.0).uid == A


def test_a_gated_pod_waits_for_its_gates_and_for_no_event():
    queue = a_queue()
    queue.add(A, 0, gated=True)
    queue.wake_all(1.0)
    assert queue.pop(1000.0) is None
    queue.add(A, 0, gated=False)
    assert queue.pop(1000.0).uid == A


@pytest.mark.parametrize("when", ["waiting", "in flight", "refused"])
def test_a_pod_that_is_gone_does_not_come_back(when):
    queue = a_queue()
    queue.add(A, 0)
    if when != "waiting":
        queue.pop(0.0)
    if when == "refused":
        queue.refused(A, 0.0)
    queue.remove(A)
    queue.refused(A, 0.0)
    queue.wake_all(0.0)
    assert (queue.pop(1000.0), len(queue), queue.next_at(1000.0)) == (None, 0, None)


def test_a_pod_that_came_again_is_another_one():
    queue = a_queue()
    queue.add(A, 9)
    queue.remove(A)
    queue.add(B, 0)
    queue.add(A, 0)
    assert popped(queue) == ["b", "a"]


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "gate", "pop", "refused", "failed", "wake", "wake_all", "remove"]),
        st.sampled_from([A, B, C]),
        st.integers(0, 3),
    ),
    max_size=60,
)


@settings(deadline=None)
@given(OPERATIONS, st.booleans())
def test_every_pod_is_somewhere_and_is_tried_in_the_end(operations, eager):
    queue = a_queue(eager=eager, flush=20.0)
    there: dict[PodUid, bool] = {}
    now = 0.0
    for operation, uid, number in operations:
        now += number
        match operation:
            case "add" | "gate":
                there[uid] = gated = operation == "gate"
                queue.add(uid, number, gated=gated)
            case "pop":
                queue.pop(now)
            case "remove":
                there.pop(uid, None)
                queue.remove(uid)
            case "wake_all":
                queue.wake_all(now)
            case _:
                getattr(queue, operation)(uid, now)
        assert {u for u in (A, B, C) if u in queue} == set(there)
    for uid in there:
        queue.refused(uid, now)
        queue.add(uid, 0, gated=False)
    assert sorted(popped(queue, now + 1000.0)) == sorted(map(str, there))
