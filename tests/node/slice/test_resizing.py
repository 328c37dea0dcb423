"""A newer allocation reaches the slices; what is refused is said once, and tried again."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec
import pytest

from hami.node.slice.live_slices import LiveSlice, LiveSlices
from hami.node.slice.preparing import prepare, resize
from hami.node.slice.recovery import recover
from hami.node.slice.resizing import Resizing

from ..parts import a_grant, an_entry, slice_id, until

ONE = slice_id(1)


async def no_room(_pods) -> None:
    """Nobody makes any."""


@asynccontextmanager
async def resizing(parts, *, first_retry=0.01):
    tries, in_turn = [], parts.around.slices.in_turn

    def counted(pod, slice_id, work):
        tries.append(1)
        return in_turn(pod, slice_id, work)

    parts.around.slices.in_turn = counted
    worker = Resizing(parts.around, no_room, first_retry=first_retry)
    task = asyncio.create_task(worker.run())
    worker.tries = tries
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


def a_newer(parts, memory, generation=2, device="A", **fields):
    return parts.pod(main=[a_grant(device, memory)], generation=generation, **fields)


def reasons(parts):
    return [reason for _, reason, _ in parts.events.said]


async def test_a_newer_allocation_becomes_the_limits_and_an_event_says_so(parts, pod):
    async with resizing(parts) as worker:
        worker.pod_changed(a_newer(parts, 3000))
        await until("the page says it", lambda: parts.mib(ONE) == [3000])
        await until("it is said", lambda: parts.events.said)
    assert parts.events.said == [("p", "SliceResized", "container main now has A: 3000 MiB, 10 %")]


async def test_the_same_allocation_changes_nothing(parts, pod):
    async with resizing(parts) as worker:
        worker.pod_changed(pod)
        await asyncio.sleep(0)
    assert parts.hooks.times("enforce") == 1


@pytest.mark.parametrize(
    ("memory", "device", "fields", "words"),
    [
        (3000, "B", {}, "names other devices than it has"),
        (9000, "A", {}, "has 8000 MiB of memory"),
        (3000, "A", {"sign": False}, "has no signature"),
        (3000, "A", {"generation": 0}, "put an old one back"),
    ],
)
async def test_a_refusal_is_said_once_and_leaves_the_limits(
    parts, pod, memory, device, fields, words
):
    async with resizing(parts) as worker:
        worker.pod_changed(a_newer(parts, memory, device=device, **fields))
        await until("it is said", lambda: parts.events.said)
        await until("it is tried again", lambda: len(worker.tries) > 1)
        worker.pod_changed(a_newer(parts, memory, device=device, **fields))
    assert [(reason, words in text) for _, reason, text in parts.events.said] == [
        ("SliceNotResized", True)
    ]
    assert parts.mib(ONE) == [1000]


async def test_what_failed_is_tried_again_without_any_change_of_the_pod(parts, pod):
    parts.hooks.fails.add("enforce")
    async with resizing(parts) as worker:
        worker.pod_changed(a_newer(parts, 3000))
        await until("it is said", lambda: parts.events.said)
        parts.hooks.fails.clear()
        await until("the page says it", lambda: parts.mib(ONE) == [3000])
        await until("it is said", lambda: reasons(parts) == ["SliceNotResized", "SliceResized"])


async def test_a_better_allocation_does_not_wait_for_the_next_try(parts, pod):
    async with resizing(parts, first_retry=3600) as worker:
        worker.pod_changed(a_newer(parts, 9000))
        await until("it is said", lambda: parts.events.said)
        worker.pod_changed(a_newer(parts, 4000, generation=3))
        await until("the page says it", lambda: parts.mib(ONE) == [4000])


async def test_a_pod_that_goes_is_not_tried_again(parts, pod):
    async with resizing(parts) as worker:
        worker.pod_changed(a_newer(parts, 9000))
        await until("it is refused", lambda: worker._later)
        worker.pod_gone(pod)
        assert not (worker._later)
        assert not (worker._due)
        assert not (worker._refusals)


async def test_a_slice_of_hamis_protocol_keeps_what_its_environment_says(parts, pod):
    live = parts.around.slices.get(ONE)
    record = msgspec.structs.replace(live.record, identity="lock")
    parts.around.slices.put(LiveSlice(record, live.granted))
    async with resizing(parts) as worker:
        worker.pod_changed(a_newer(parts, 3000))
        await until("it is said", lambda: parts.events.said)
    assert "only a new pod gets others" in parts.events.said[0][2]


async def test_a_defect_is_one_pods_trouble(parts, pod, monkeypatch):
    async def broken(*_):
        raise KeyError("x")

    monkeypatch.setattr("hami.node.slice.resizing.resize", broken)
    async with resizing(parts) as worker:
        worker.pod_changed(a_newer(parts, 3000))
        await until("it is said", lambda: parts.events.said)
    assert "the node agent failed: KeyError" in parts.events.said[0][2]


STEPS = [
    ("store", "create"),
    ("store", "write_limits"),
    ("folders", "write_slice"),
    ("store", "save"),
]
"""All that a resize writes; the vendor's hook is called between the first and the second."""


@pytest.mark.parametrize("memory", [3000, 500], ids=["grows", "shrinks"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(("owner", "step"), STEPS, ids=[step for _, step in STEPS])
async def test_an_agent_killed_at_each_step_leaves_one_generation_and_the_next_ends_it(
    parts, pod, monkeypatch, owner, step, after, memory
):
    newer = a_newer(parts, memory)
    with monkeypatch.context() as killing:
        kind = type(getattr(parts, owner))
        real = getattr(kind, step)

        def killed(*args, **kwargs):
            if after:
                real(*args, **kwargs)
            raise SystemExit

        killing.setattr(kind, step, killed)
        with pytest.raises(SystemExit):
            await resize(parts.granted(newer), parts.around.slices.get(ONE), parts.around, no_room)
    (record,), _ = parts.store.recover()
    in_force = {1: 1000, 2: memory}
    assert parts.mib(ONE) == [in_force[parts.page(ONE).generation]]
    assert record.generation <= parts.page(ONE).generation, "what is written down is in the page"
    # The next agent knows the disk alone.
    found = recover(
        parts.store, parts.folders, parts.a_granting(), set, lambda _: (), parts.problems.append
    )
    parts.around = replace(parts.around, slices=LiveSlices(), granting=parts.a_granting())
    for live in found.slices:
        parts.around.slices.put(live)
    async with resizing(parts) as worker:
        worker.pod_changed(newer)
        await until("it is done", lambda: parts.store.recover()[0][0].generation == 2)
        await until("the table has it", lambda: parts.around.slices.get(ONE).record.generation == 2)
    assert parts.mib(ONE) == [memory]
    assert parts.around.slices.get(ONE).grants[0].memory_mib == memory
