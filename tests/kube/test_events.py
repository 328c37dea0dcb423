"""Events: written once, counted after that, bounded always."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from hami.domain.kubernetes.objects import Metadata, Node, Pod, ResourceQuota
from hami.kube import events
from hami.kube.errors import ApiError
from hami.kube.events import QUEUED, EventLimits, EventRecorder

from .fake_api import running, until
from .test_pace import Clock

POD = Pod(metadata=Metadata(name="p", namespace="ns", uid="u-1", resource_version="7"))
OTHER = Pod(metadata=Metadata(name="q", namespace="ns", uid="u-2"))
NODE = Node(metadata=Metadata(name="n1", uid="u-3"))
FREE = EventLimits(rate=0, object_rate=0)


class Date:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def date():
    return Date()


@pytest.fixture
def problems():
    return []


@pytest.fixture
def recorder(client, problems, date):
    return EventRecorder(
        client, component="hami-scheduler", instance="host-1", limits=FREE,
        on_problem=problems.append, now=date,
    )  # fmt: skip


def written(api):
    return sorted(
        (e["involvedObject"]["name"], e["reason"], e["count"])
        for e in api.objects["events"].values()
    )


async def test_an_event_says_what_about_whom_and_by_whom(api, recorder):
    recorder.record(POD, "FilteringFailed", "no node", warning=True)
    async with running(recorder.run()):
        await recorder.flush(20)
    ((namespace, name), event) = next(iter(api.objects["events"].items()))
    assert (namespace, name.startswith("p.")) == ("ns", True)
    assert event["involvedObject"] == {
        "kind": "Pod", "apiVersion": "v1", "namespace": "ns", "name": "p", "uid": "u-1",
        "resourceVersion": "7",
    }  # fmt: skip
    assert {key: event[key] for key in ("reason", "message", "type", "count")} == {
        "reason": "FilteringFailed", "message": "no node", "type": "Warning", "count": 1,
    }  # fmt: skip
    assert event["source"] == {"component": "hami-scheduler", "host": "host-1"}
    assert event["firstTimestamp"] == event["lastTimestamp"] == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("about", "kind", "namespace"),
    [
        (NODE, "Node", "default"),
        (ResourceQuota(metadata=Metadata(name="rq", namespace="ns")), "ResourceQuota", "ns"),
        (Pod(metadata=Metadata(name="p")), "Pod", "default"),
    ],
)
async def test_each_kind_has_its_events_where_people_look_for_them(
    api, recorder, about, kind, namespace
):
    recorder.record(about, "R", "m", warning=False)
    async with running(recorder.run()):
        await recorder.flush(20)
    ((where, _), event) = next(iter(api.objects["events"].items()))
    assert (where, event["involvedObject"]["kind"], event["type"]) == (namespace, kind, "Normal")


async def test_repetitions_are_one_event_with_a_count(api, recorder, date):
    for _ in range(3):
        recorder.record(POD, "R", "m", warning=True)
    recorder.record(OTHER, "R", "m", warning=True)
    recorder.record(POD, "R", "another", warning=True)
    async with running(recorder.run()):
        await recorder.flush(20)
        assert written(api) == [("p", "R", 1), ("p", "R", 3), ("q", "R", 1)]
        date.now += timedelta(minutes=1)
        for _ in range(2):
            recorder.record(POD, "R", "m", warning=True)
            await recorder.flush(20)
    assert written(api) == [("p", "R", 1), ("p", "R", 5), ("q", "R", 1)]
    assert len(api.calls("POST")) == 3
    assert api.calls("PATCH")[-1].body == {"count": 5, "lastTimestamp": "2026-01-01T00:01:00Z"}


async def test_a_counted_event_that_has_expired_is_written_anew(api, recorder):
    async with running(recorder.run()):
        recorder.record(POD, "R", "m", warning=True)
        await recorder.flush(20)
        api.objects["events"].clear()
        recorder.record(POD, "R", "m", warning=True)
        await recorder.flush(20)
    assert written(api) == [("p", "R", 2)]


async def test_without_the_right_to_patch_the_first_one_stays_and_that_is_told_once(
    api, recorder, problems, date
):
    api.refuse("events", 403, method="PATCH", times=1, reason="Forbidden")
    async with running(recorder.run()):
        for _ in range(4):
            recorder.record(POD, "R", "m", warning=True)
            await recorder.flush(20)
        assert (written(api), len(problems), len(api.calls("PATCH"))) == ([("p", "R", 1)], 1, 1)
        date.now += timedelta(minutes=11)
        recorder.record(POD, "R", "m", warning=True)
        await recorder.flush(20)
    assert written(api) == [("p", "R", 1), ("p", "R", 1)]
    assert "allow our account to patch events" in problems[0]


async def test_without_the_right_to_create_each_is_told_and_dropped(api, recorder, problems):
    api.refuse("events", 403, method="POST", times=2, reason="Forbidden")
    async with running(recorder.run()):
        recorder.record(POD, "R", "m", warning=True)
        recorder.record(OTHER, "R", "m", warning=True)
        await recorder.flush(20)
    assert (recorder.dropped, len(problems)) == (2, 2)
    assert problems[0].startswith("event R about Pod ns/p: create events ns: 403 Forbidden")


async def test_a_server_that_fails_is_asked_again_and_the_event_is_there_once(
    api, recorder, problems
):
    api.refuse("events", 500, method="POST", after=True)
    async with running(recorder.run()):
        recorder.record(POD, "R", "m", warning=True)
        await recorder.flush(20)
    assert (written(api), recorder.dropped, problems) == ([("p", "R", 1)], 0, [])


async def test_after_three_failures_it_is_dropped_and_told(api, client, problems, date):
    recorder = EventRecorder(
        client, component="c", limits=FREE, on_problem=problems.append, now=date
    )
    api.refuse("events", 500, method="POST", times=3)
    async with running(recorder.run()):
        recorder.record(POD, "R", "m", warning=True)
        await until(lambda: recorder.dropped)
    assert (written(api), len(problems), len(api.calls("POST"))) == ([], 1, 3)


async def test_the_queue_is_bounded_and_recording_never_waits(recorder):
    for i in range(QUEUED + 50):
        pod = Pod(metadata=Metadata(name=f"p{i}", uid=f"u{i}"))
        recorder.record(pod, "R", "m", warning=True)
    assert recorder.dropped == 50


async def test_one_object_cannot_fill_it(client, problems):
    clock = Clock()
    limits = EventLimits(rate=0, object_rate=1, object_burst=3)
    recorder = EventRecorder(
        client, component="c", limits=limits, on_problem=problems.append, clock=clock
    )
    for i in range(10):
        recorder.record(POD, "R", f"message {i}", warning=True)
    assert recorder.dropped == 7
    recorder.record(OTHER, "R", "m", warning=True)
    assert recorder.dropped == 7
    clock.now += 2
    for i in range(3):
        recorder.record(POD, "R", f"later {i}", warning=True)
    assert recorder.dropped == 8


async def test_all_together_are_written_at_a_rate(api, client, problems):
    limits = EventLimits(rate=0.001, burst=2, object_rate=0)
    recorder = EventRecorder(client, component="c", limits=limits, on_problem=problems.append)
    for i in range(5):
        recorder.record(POD, "R", f"message {i}", warning=True)
    async with running(recorder.run()):
        await until(lambda: len(api.objects["events"]) == 2)
        await recorder.flush(0.05)
    assert len(api.objects["events"]) == 2


async def test_a_long_message_and_a_long_name_are_cut_to_what_the_server_takes(api, recorder):
    node = Node(metadata=Metadata(name="n" * 250))
    recorder.record(node, "R", "é" * 2000, warning=True)
    async with running(recorder.run()):
        await recorder.flush(20)
    ((_, name), event) = next(iter(api.objects["events"].items()))
    assert len(name) <= 253
    assert len(event["message"].encode()) <= 1024
    assert event["message"].endswith("é…")


async def test_flush_without_anything_recorded_returns(recorder):
    await recorder.flush(20)


# What happens during a write.


class Writing:
    """The client, whose creates do nothing until they may go on."""

    def __init__(self, client, monkeypatch):
        self.begun = asyncio.Event()
        self.go_on = asyncio.Event()
        self.faults = []
        self._create = client.create
        monkeypatch.setattr(client, "create", self)

    async def __call__(self, *arguments, **options):
        self.begun.set()
        await self.go_on.wait()
        if self.faults:
            raise self.faults.pop(0)
        return await self._create(*arguments, **options)


@pytest.fixture
def writing(client, monkeypatch):
    return Writing(client, monkeypatch)


@pytest.mark.parametrize(
    ("faults", "dropped", "left"),
    [
        pytest.param([], 0, [("p", "R", 2)], id="and the write succeeds"),
        pytest.param([403], 1, [("p", "R", 2)], id="and the write is refused"),
        pytest.param([404, 404], 2, [], id="and both are refused"),
        pytest.param([500], 0, [("p", "R", 2)], id="and the write is tried again"),
        pytest.param([500] * 3, 1, [], id="and it is tried in vain"),
    ],
)
async def test_the_same_event_recorded_during_its_write(
    api, recorder, writing, problems, faults, dropped, left
):
    writing.faults = [ApiError("no", status=status) for status in faults]
    async with running(recorder.run()):
        recorder.record(POD, "R", "m", warning=True)
        await writing.begun.wait()
        recorder.record(POD, "R", "m", warning=True)
        writing.go_on.set()
        await recorder.flush(20)
        assert (written(api), recorder.dropped, len(problems)) == (left, dropped, dropped)
        recorder.record(OTHER, "R", "m", warning=True)
        await recorder.flush(20)
    assert ("q", "R", 1) in written(api)


@pytest.mark.parametrize("faults", [[], [403], [500]])
async def test_an_event_forgotten_during_its_write_harms_no_other(
    api, recorder, writing, monkeypatch, faults
):
    monkeypatch.setattr(events, "REMEMBERED", 2)
    writing.faults = [ApiError("no", status=status) for status in faults]
    async with running(recorder.run()):
        recorder.record(POD, "R", "m", warning=True)
        await writing.begun.wait()
        for i in range(5):
            recorder.record(OTHER, "R", f"message {i}", warning=True)
        recorder.record(POD, "R", "m", warning=True)
        writing.go_on.set()
        await recorder.flush(20)
    others = [event for event in written(api) if event[0] == "q"]
    assert others == [("q", "R", 1)] * 5
    assert ("p", "R", 1) in written(api)


async def test_a_failure_that_nobody_expected_costs_one_event_and_is_told(
    api, recorder, writing, problems
):
    writing.faults = [RuntimeError("broken")]
    writing.go_on.set()
    async with running(recorder.run()):
        recorder.record(POD, "R", "m", warning=True)
        recorder.record(OTHER, "R", "m", warning=True)
        await recorder.flush(20)
    assert (written(api), recorder.dropped) == ([("q", "R", 1)], 1)
    assert problems == ["event R about Pod ns/p: RuntimeError: broken"]


async def test_a_message_that_is_no_unicode_is_written_as_far_as_it_goes(api, recorder):
    recorder.record(POD, "R", "half \ud800", warning=True)
    async with running(recorder.run()):
        await recorder.flush(20)
    assert [event["message"] for event in api.objects["events"].values()] == ["half ?"]
