"""PreStartContainer: whom kubelet may mean, who may start, and what a retry does."""

from __future__ import annotations

import asyncio
import base64
import json
from contextlib import suppress
from dataclasses import replace
from itertools import accumulate
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.node.kubelet.checkpoint import CHECKPOINT
from hami.node.kubelet.responses import encode
from hami.node.kubelet.server import CallRefused
from hami.node.pod.pods import NotGranted
from hami.node.pod.refusal_causes import RefusalCause
from hami.node.slice.live_slices import LiveSlice, Prepared
from hami.node.start import container_start
from hami.node.start.container_start import PREPARE_BUCKETS, StartCounts, Starts
from hami.node.start.kubelet_mode import ByKubelet

from ..parts import COUNT, KIND, Parts, a_grant, an_entry, slice_id, until
from ..slices import a_record

ONE, TWO, NEW = slice_id(1), slice_id(2), slice_id(9)
IDS = frozenset({"slot-0"})


class Node:
    """A checkpoint, and what becomes of each slice: a refusal's text, or it may start."""

    def __init__(self, folder, parts) -> None:
        self.folder = folder
        self.parts = parts
        self.refusals: dict[str, NotGranted] = {}
        self.asked: list[str] = []
        self.reported: list[tuple[str, str]] = []
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.specs: set[str] = set()
        self.resent = 0
        self.written_on_resend: list = []
        self.prepared_pod = parts.granted(parts.pod())

    def starts(self, **options) -> Starts:
        settings = {"rewritten_within": 0.2, "answer_within": 10.0} | options
        folders = SimpleNamespace(written=lambda: self.specs)
        around = replace(self.parts.around, folders=folders)
        return Starts(around, self.folder, self.prepare, self, self, **settings)

    async def prepare(self, entry):
        key = entry.edits.cdi_device(KIND) or f"foreign {entry.container}"
        self.asked.append(f"{entry.pod_uid}/{entry.container}")
        await self.may_end.wait()
        refused = self.refusals.get(key) or self.refusals.get(entry.pod_uid)
        if isinstance(refused, Exception):
            raise refused
        return refused or Prepared(self.prepared_pod, None)

    def prepared(self, entry, outcome) -> None:
        self.reported.append((entry.container, ""))

    def refused(self, entry, outcome) -> None:
        self.reported.append((entry.container, outcome.text))

    def resend(self) -> None:
        self.resent += 1
        if self.written_on_resend:
            self.write(*self.written_on_resend)

    def write(self, *entries, resource=COUNT) -> None:
        listed = [
            {
                "PodUID": entry.pod_uid,
                "ContainerName": entry.container,
                "ResourceName": resource,
                "DeviceIDs": {"-1": sorted(entry.ids)},
                "AllocResp": base64.b64encode(encode(entry.edits).SerializeToString()).decode(),
            }
            for entry in entries
        ]
        content = json.dumps({"Data": {"PodDeviceEntries": listed}, "Checksum": 1})
        new = self.folder / "new"
        new.write_text(content)
        new.rename(self.folder / CHECKPOINT)


@pytest.fixture
def node(tmp_path, parts, monkeypatch):
    node = Node(tmp_path, parts)
    monkeypatch.setattr(container_start, "start_foreign", lambda entry, _: node.prepare(entry))
    return node


async def refusal(starts, ids=IDS) -> str:
    with pytest.raises(CallRefused) as caught:
        await starts.start(ids)
    return str(caught.value)


NO = NotGranted("no", RefusalCause.NO_ROOM)
OVER = NotGranted("it has ended", RefusalCause.POD_ENDED, ended=True)
FOREIGN = {"env": {"X": "y"}}


@pytest.mark.parametrize(
    ("outcomes", "specs", "starts"),
    [
        ({ONE: None}, "", True),
        ({ONE: NO}, "", False),
        ({ONE: OVER}, "", False),
        ({ONE: None, TWO: None}, "", True),
        ({ONE: None, TWO: NO}, "", True),
        ({ONE: NO, TWO: NO}, "", False),
        ({ONE: None, TWO: NO}, TWO, False),
        ({ONE: None, TWO: OVER}, TWO, True),
        ({ONE: None, "foreign c1": NO}, "", False),
        ({ONE: None, "foreign c1": OVER}, "", True),
        ({ONE: NO, "foreign c1": None}, "", True),
    ],
)
async def test_a_start_goes_on_if_someone_may_and_nobody_else_could(node, outcomes, specs, starts):
    node.refusals = {key: refused for key, refused in outcomes.items() if refused}
    node.specs = {specs}
    node.write(
        *(
            an_entry(f"uid-{n}", key, f"c{n}")
            if not key.startswith("foreign")
            else an_entry(f"uid-{n}", "", f"c{n}", **FOREIGN)
            for n, key in enumerate(outcomes)
        )
    )
    if starts:
        await node.starts().start(IDS)
    else:
        said = await refusal(node.starts())
        assert all(one.text in said for one in outcomes.values() if one and not one.ended)
    assert len(node.reported) == len(outcomes)


@pytest.mark.parametrize(
    "entry",
    [
        None,
        an_entry("uid", ONE, "main", "slot-1"),
        an_entry("uid", ONE, "main", "slot-0", "slot-1"),
    ],
)
async def test_ids_that_nobody_holds_as_they_are_start_nothing(node, entry):
    node.write(*([entry] if entry else []))
    assert "names no container that holds slot-0 of acme.com/gpu" in await refusal(node.starts())
    assert node.asked == []


async def test_another_resources_ids_are_not_ours(node):
    node.write(an_entry("uid", ONE), resource="bolt.com/gpu")
    await refusal(node.starts())
    assert node.asked == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"Data": 3}', "\0" * 100])
async def test_a_broken_checkpoint_is_named_and_nobody_starts(node, text):
    (node.folder / CHECKPOINT).write_text(text)
    assert "cannot be read" in await refusal(node.starts())


# A checkpoint that is older than our answer.


async def test_a_stale_checkpoint_is_written_again_and_read_again(node):
    starts = node.starts(rewritten_within=10)
    starts.issue(IDS, NEW)
    node.write(an_entry("uid-old", ONE))
    node.written_on_resend = [an_entry("uid-new", NEW)]
    await starts.start(IDS)
    assert (node.resent, node.asked) == (1, ["uid-new/main"])


async def test_without_any_entry_kubelet_is_made_to_write_although_we_know_of_no_answer(node):
    """The agent was started again between Allocate and the start."""
    node.write()
    node.written_on_resend = [an_entry("uid-new", NEW)]
    await node.starts(rewritten_within=10).start(IDS)
    assert node.asked == ["uid-new/main"]


async def test_a_broken_checkpoint_is_written_again(node):
    (node.folder / CHECKPOINT).write_text("{")
    node.written_on_resend = [an_entry("uid", ONE)]
    await node.starts(rewritten_within=10).start(IDS)
    assert node.asked == ["uid/main"]


async def test_an_answer_that_was_never_admitted_is_waited_for_once(node):
    starts = node.starts(rewritten_within=0.1)
    starts.issue(IDS, NEW)
    node.write(an_entry("uid", ONE))
    await starts.start(IDS)
    await starts.start(IDS)
    assert node.resent == 1


async def test_the_newest_answer_for_the_ids_is_the_one_that_counts(node):
    starts = node.starts()
    starts.issue(IDS, ONE)
    starts.issue(IDS, NEW)
    node.write(an_entry("uid", NEW))
    await starts.start(IDS)
    assert node.resent == 0


# Retries, late ones, defects.


async def test_retries_join_what_is_under_way(node):
    node.write(an_entry("uid", ONE))
    starts = node.starts()
    node.may_end.clear()
    calls = [asyncio.create_task(starts.start(IDS)) for _ in range(3)]
    await until("it is asked", lambda: node.asked)
    assert node.parts.around.slices.busy(ONE)
    node.may_end.set()
    await asyncio.gather(*calls)
    assert (node.asked, node.reported) == (["uid/main"], [("main", "")])
    assert not node.parts.around.slices.busy(ONE)


async def test_who_is_late_is_refused_goes_on_and_is_joined(node):
    node.write(an_entry("uid", ONE))
    starts = node.starts(answer_within=0.02)
    node.may_end.clear()
    assert "still being prepared" in await refusal(starts)
    node.may_end.set()
    await starts.start(IDS)
    assert node.asked in (["uid/main"], ["uid/main", "uid/main"])


async def test_containers_of_one_pod_wait_for_each_other_and_those_of_two_do_not(node):
    node.write(
        an_entry("uid-p", ONE, "a"), an_entry("uid-p", TWO, "b"), an_entry("uid-q", NEW, "c")
    )
    node.may_end.clear()
    starting = asyncio.create_task(node.starts().start(IDS))
    await until("two are asked", lambda: len(node.asked) == 2)
    assert node.asked == ["uid-p/a", "uid-q/c"]
    node.may_end.set()
    await starting
    assert node.asked[2] == "uid-p/b"


async def test_a_slice_id_that_two_pods_have_is_asked_about_for_each(node):
    """Forged, or kubelet's record is broken: neither gets the other's answer."""
    node.write(an_entry("uid-p", ONE), an_entry("uid-q", ONE))
    node.refusals["uid-q"] = NO
    await node.starts().start(IDS)
    assert node.asked == ["uid-p/main", "uid-q/main"]
    assert node.reported == [("main", ""), ("main", "no")]


async def test_a_defect_refuses_the_start_and_is_said(node):
    node.write(an_entry("uid", ONE))
    node.refusals[ONE] = KeyError("x")
    assert "the node agent failed: KeyError: 'x'" in await refusal(node.starts())


async def test_a_resize_waits_for_a_start_and_a_start_for_a_resize(node):
    node.write(an_entry("uid", ONE))
    starts, slices = node.starts(), node.parts.around.slices
    node.may_end.clear()
    seen = []

    async def resize() -> None:
        seen.append("resize")
        assert slices.busy(ONE)

    starting = asyncio.create_task(starts.start(IDS))
    await until("it is asked", lambda: node.asked)
    resizing = slices.in_turn("uid", ONE, resize)
    await asyncio.sleep(0)
    assert seen == []
    node.may_end.set()
    await asyncio.gather(starting, resizing)
    assert seen == ["resize"]
    assert not slices.busy(ONE)


async def test_closing_refuses_whoever_waits(node):
    node.write(an_entry("uid", ONE))
    starts = node.starts()
    node.may_end.clear()
    starting = asyncio.create_task(refusal(starts))
    await until("it is asked", lambda: node.asked)
    await node.parts.around.slices.close()
    assert "the node agent is stopping" in await starting


# The list for kubelet.


def tokens_of(node: Node, parts: Parts) -> ByKubelet:
    return ByKubelet(parts.around, node.folder, node, None, node)  # type: ignore[arg-type]


def lives(parts, id, *devices):
    granted = parts.granted(parts.pod(main=[a_grant(device) for device in devices]))
    record = a_record(id, pod="p", state="enforced")
    parts.around.slices.put(LiveSlice(record, granted))


def said(tokens):
    return {token.id for token in tokens if token.healthy}


async def test_who_held_what_is_not_forgotten_while_the_checkpoint_cannot_be_read(node, parts):
    by = tokens_of(node, parts)
    node.write(an_entry("uid", ONE, "main", "slot-7", "slot-99"))
    before = await by.tokens()
    assert {"slot-7", "slot-99"} <= said(before)
    (node.folder / CHECKPOINT).write_text("{")
    assert await by.tokens() == before


@pytest.mark.parametrize(
    ("unhealthy", "free"), [("", 9), ("A", 6), ("B", 6), ("C", 5), ("AB", 3), ("ABC", 0)]
)
async def test_as_many_free_ids_are_healthy_as_slots_are_left(node, parts, unhealthy, free):
    """Three devices of four slots; a container holds A and B, another one (foreign) any."""
    lives(parts, ONE, "A", "B")
    node.write(
        an_entry("uid-p", ONE, "main", "slot-0", "slot-1"),
        an_entry("uid-q", "", "main", "slot-2", **FOREIGN),
    )
    for id in unhealthy:
        device = parts.devices[id]
        parts.devices[id] = type(device)(
            id=device.id, vendor=device.vendor, slots=4, memory_mib=device.memory_mib, healthy=False
        )
    healthy = said(await tokens_of(node, parts).tokens())
    assert {"slot-0", "slot-1", "slot-2"} <= healthy
    assert len(healthy) == 3 + free


# What is counted.


def counted(starts) -> dict[str, int]:
    refused = {str(cause): times for cause, times in starts.counts.refused.items() if times}
    return refused | {"prepared": starts.counts.prepared}


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [
        pytest.param(None, {"prepared": 1}, id="it may start"),
        pytest.param(NO, {"prepared": 0, "NoRoom": 1}, id="it is refused"),
        pytest.param(OVER, {"prepared": 0, "PodEnded": 1}, id="its pod has ended"),
        pytest.param(KeyError("x"), {"prepared": 0, "Defect": 1}, id="a defect"),
    ],
)
async def test_a_start_is_counted_by_what_it_came_to(node, outcome, expected):
    node.write(an_entry("uid", ONE))
    node.refusals[ONE] = outcome
    starts = node.starts()
    with suppress(CallRefused):
        await starts.start(IDS)
    assert counted(starts) == expected
    assert sum(starts.counts.took) == starts.counts.prepared


@pytest.mark.parametrize("text", [None, "{"])
async def test_ids_of_which_kubelets_record_says_nothing_are_counted(node, text):
    if text is not None:
        (node.folder / CHECKPOINT).write_text(text)
    starts = node.starts()
    await refusal(starts)
    assert counted(starts) == {"prepared": 0, "Checkpoint": 1}


async def test_calls_that_join_count_as_one_start(node):
    node.write(an_entry("uid", ONE))
    starts = node.starts()
    node.may_end.clear()
    calls = [asyncio.create_task(starts.start(IDS)) for _ in range(3)]
    await until("it is asked", lambda: node.asked)
    node.may_end.set()
    await asyncio.gather(*calls)
    assert counted(starts) == {"prepared": 1}


@given(st.lists(st.floats(0, 100)))
def test_each_time_is_in_the_first_bucket_that_holds_it(seconds):
    counts = StartCounts()
    for one in seconds:
        counts.count(Prepared(None, None), one)
    for bound, at_most in zip(PREPARE_BUCKETS, accumulate(counts.took), strict=False):
        assert at_most == sum(one <= bound for one in seconds)
    assert (counts.prepared, counts.seconds) == (len(seconds), pytest.approx(sum(seconds)))
