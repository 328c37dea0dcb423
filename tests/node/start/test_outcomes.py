"""What the cluster is told: the phase, the vendor's annotations, an event for each refusal."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager

import pytest

from hami.domain.slices import ContainerEdits
from hami.kube.errors import CONFLICT, FORBIDDEN, NO_ANSWER, NOT_FOUND, ApiError
from hami.node.pod.pods import NotGranted
from hami.node.pod.refusal_causes import RefusalCause
from hami.node.slice.live_slices import Prepared
from hami.node.slice.preparing import prepare
from hami.node.start.outcomes import CONFLICTS, Outcomes, PodWriter

from ..parts import a_grant, an_entry, slice_id, until

ONE, TWO = slice_id(1), slice_id(2)
PHASE = "hami.io/bind-phase"


class Client:
    """Patches pods; ``answers`` by pod are the failures of the next tries."""

    def __init__(self) -> None:
        self.answers: dict[str, list[int]] = {}
        self.patches: list[tuple[str, dict]] = []
        self.tries: list[str] = []
        self.hold: asyncio.Event | None = None

    async def patch(self, _resource, name, patch, *, namespace, subresource):
        assert (namespace, subresource) == ("team", "status")
        self.tries.append(name)
        if self.hold is not None:
            await self.hold.wait()
        if answers := self.answers.get(name, []):
            status = answers.pop(0)
            raise ApiError(f"patch pod {name}: {status}", status=status)
        self.patches.append((name, patch["metadata"]["annotations"]))
        assert patch["metadata"]["uid"] == f"uid-{name}"


@pytest.fixture
def client():
    return Client()


@asynccontextmanager
async def writing(client, problems):
    writer = PodWriter(client, problems.append, first_retry=0.01)
    task = asyncio.create_task(writer.run())
    try:
        yield writer
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize(
    ("answers", "written", "problems"),
    [
        ([], True, 0),
        ([FORBIDDEN, FORBIDDEN], True, 1),
        ([NO_ANSWER, 500], True, 2),
        ([CONFLICT, CONFLICT], True, 0),
        ([CONFLICT] * CONFLICTS, False, 0),
        ([CONFLICT] * (CONFLICTS - 1) + [500, CONFLICT], True, 1),
        ([NOT_FOUND], False, 0),
    ],
)
async def test_it_is_tried_until_it_is_written_or_the_pod_is_gone(
    parts, client, answers, written, problems
):
    client.answers["p"] = list(answers)
    async with writing(client, parts.problems) as writer:
        writer.annotate(parts.pod("p"), {"a": "1"})
        await until("it is settled", lambda: not writer._wanted)
    assert client.patches == ([("p", {"a": "1"})] if written else [])
    assert len(parts.problems) == problems


async def test_a_pod_that_is_refused_for_good_keeps_no_other_waiting(parts, client):
    client.answers["p"] = [FORBIDDEN] * 1000
    async with writing(client, parts.problems) as writer:
        writer.annotate(parts.pod("p"), {"a": "1"})
        await until("it is refused often", lambda: client.tries.count("p") > 4)
        writer.annotate(parts.pod("q"), {"a": "1"})
        await until("the other is written", lambda: client.patches)
    assert client.patches == [("q", {"a": "1"})]


async def test_a_server_that_does_not_answer_is_asked_for_one_pod_at_a_time(parts, client):
    client.answers["p"] = [NO_ANSWER]
    async with writing(client, parts.problems) as writer:
        for name in "pqr":
            writer.annotate(parts.pod(name), {"a": "1"})
        await until("all are written", lambda: len(client.patches) == 3)
    assert client.tries[:2] in (["p", "p"], ["p", "q"])
    assert len(parts.problems) == 1


async def test_what_is_wanted_meanwhile_is_written_too_and_the_newest_wins(parts, client):
    client.hold = asyncio.Event()
    pod = parts.pod("p")
    async with writing(client, parts.problems) as writer:
        writer.annotate(pod, {"a": "1", "b": "1"})
        await until("it is tried", lambda: client.tries)
        writer.annotate(pod, {"a": "2", "c": None})
        client.hold.set()
        await until("it is settled", lambda: not writer._wanted)
    assert client.patches == [("p", {"a": "1", "b": "1"}), ("p", {"a": "2", "b": "1"})]


def test_what_the_pod_has_already_is_not_written(parts, client):
    writer = PodWriter(client, parts.problems.append)
    pod = parts.pod("p")
    key, text = next(iter(pod.annotations.items()))
    writer.annotate(pod, {key: text, "absent": None})
    assert writer._wanted == {}


# Of what.


class Writer:
    def __init__(self) -> None:
        self.said: list[tuple[str, dict]] = []

    def annotate(self, pod, annotations) -> None:
        self.said.append((pod.name, dict(annotations)))


async def no_room(_pods) -> None:
    """Nobody makes any."""


async def test_success_is_said_once_the_last_container_may_start(parts):
    pod = parts.pod(init=["a"], a=[a_grant("A")], b=[a_grant("A")], c=[])
    writer, changed = Writer(), parts.around.slices.changed
    outcomes = Outcomes(parts.around, writer)
    for id, container in ((ONE, "a"), (TWO, "b")):
        entry = an_entry(pod, id, container)
        outcome = await prepare(entry, parts.around, no_room)
        assert not changed.is_set()
        outcomes.prepared(entry, outcome)
        assert changed.is_set()
        changed.clear()
    assert [PHASE in annotations for _, annotations in writer.said] == [False, True]
    assert writer.said[-1] == ("p", {PHASE: "success"})


async def test_the_vendors_annotations_are_written(parts):
    pod, writer = parts.pod(), Writer()
    outcomes = Outcomes(parts.around, writer)
    edits = ContainerEdits(pod_annotations={"acme.com/made": "yes"})
    outcomes.prepared(an_entry(pod, ONE), Prepared(parts.granted(pod), edits))
    assert writer.said == [("p", {"acme.com/made": "yes"})]


@pytest.mark.parametrize("known", [True, False])
def test_a_refusal_is_an_event_of_the_pod_if_it_is_known(parts, known):
    pod = parts.pod()
    outcomes = Outcomes(parts.around, Writer())
    outcomes.refused(
        an_entry(pod if known else "uid-x", ONE), NotGranted("because", RefusalCause.NO_ROOM)
    )
    assert parts.events.said == ([("p", "SliceRefused", "because")] if known else [])


async def test_success_that_a_killed_agent_did_not_say_is_said_by_the_next_one_once(parts):
    pod, half = (
        parts.pod("p", a=[a_grant("A")]),
        parts.pod("half", a=[a_grant("A")], b=[a_grant("A")]),
    )
    for one, id in ((pod, ONE), (half, TWO)):
        await prepare(an_entry(one, id, "a"), parts.around, no_room)
    writer = Writer()
    outcomes = Outcomes(parts.around, writer)
    outcomes.pod_changed(pod)
    assert writer.said == []
    outcomes.recovered()
    for _ in range(2):
        outcomes.pod_changed(pod)
        outcomes.pod_changed(half)
    assert writer.said == [("p", {PHASE: "success"})]
