"""HAMi's sign of life: who is asked, how often, and when silence counts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any

import pytest

from hami.domain.kubernetes.objects import Metadata, Node, NodeStatus
from hami.kube.pace import TokenBucket
from hami.policy.profile.profile_vendor import ProfileVendor
from hami.scheduler.cluster.handshake import Handshakes, Patience, flipped, unanswered
from hami.vendors.registry import Vendors

from ..writes import Patch, Patches, refused, settled

VENDORS = Vendors.of(
    {
        "some": ProfileVendor("""
profiles:
- key: ASKED
  resources: {count: asked.io/npu}
  liveness: handshake
  node_annotations: {register: asked.io/register, handshake: asked.io/handshake}
  pod_annotations: {allocated: asked.io/allocated}
- key: SECOND
  resources: {count: second.io/npu}
  liveness: handshake
  node_annotations: {register: second.io/register, handshake: second.io/handshake}
  pod_annotations: {allocated: second.io/allocated}
- key: COUNTED
  resources: {count: counted.io/npu}
  liveness: capacity
  node_annotations: {register: counted.io/register, handshake: counted.io/handshake}
  pod_annotations: {allocated: counted.io/allocated}
""")
    }
)
NOW = datetime(2026, 3, 4, 5, 6, 7)  # noqa: DTZ001 -- handshakes have no zone
STAMP = "Requesting_2026-03-04 05:06:07"


def a_node(name: str = "n1", *, npus: str = "0", **annotations: str) -> Node:
    """``asked_register`` stands for ``asked.io/register``."""
    keys = {key.replace("_", ".io/"): value for key, value in annotations.items()}
    return Node(
        metadata=Metadata(name=name, annotations=keys),
        status=NodeStatus(allocatable={"asked.io/npu": npus}),
    )


class Nodes:
    """A state of nodes alone, which remembers what was read anew."""

    def __init__(self, *nodes: Node) -> None:
        self.vendors = VENDORS
        self.nodes = {node.name: node for node in nodes}
        self.reread: list[str] = []

    def reread_node(self, name: str) -> None:
        self.reread.append(name)


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        pytest.param(a_node(asked_register="x"), ["asked.io/handshake"], id="never asked"),
        pytest.param(
            a_node(asked_register="x", asked_handshake="Reported 2026-03-04"),
            ["asked.io/handshake"], id="it answered",
        ),
        pytest.param(
            a_node(asked_register="x", asked_handshake="Deleted_2026-03-04 05:06:07"),
            ["asked.io/handshake"], id="an old scheduler gave it up",
        ),
        pytest.param(
            a_node(asked_register="x", asked_handshake="Requesting_2020-01-01 00:00:00"), [],
            id="asked long ago, not answered",
        ),
        pytest.param(a_node(asked_register="x", asked_handshake="Requesting_?"), [], id="asked, who knows when"),
        pytest.param(a_node(asked_handshake="Reported"), [], id="no such devices here"),
        pytest.param(a_node(), [], id="no devices at all"),
        pytest.param(a_node(counted_register="x"), [], id="a vendor that lives by its capacity"),
        pytest.param(
            a_node(asked_register="x", second_register="y"),
            ["asked.io/handshake", "second.io/handshake"], id="two vendors",
        ),
    ],
)  # fmt: skip
def test_who_is_asked(node, expected):
    """HAMi stamps every vendor's key on every node: 200 s of API calls per 100 nodes at start."""
    assert list(unanswered(node, VENDORS.profiles)) == expected


@asynccontextmanager
async def at_work(part: Any) -> AsyncIterator[None]:
    running = asyncio.create_task(part.run())
    try:
        yield
    finally:
        assert not running.done() or running.exception() is None
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def handshakes(nodes: Nodes, client: Patches, **fields: Any) -> Handshakes:
    usual = {
        "leading": lambda: True,
        "now": lambda: NOW,
        "on_problem": lambda _: None,
        "every": 0.005,
    }
    return Handshakes(nodes, client, **(usual | fields))  # type: ignore[arg-type]


async def test_all_vendors_of_a_node_are_asked_with_one_write():
    client = Patches()
    nodes = Nodes(a_node(asked_register="x", second_register="y"))
    async with at_work(handshakes(nodes, client, every=60)):
        await client.until(1)
        await settled()
    stamps = {"asked.io/handshake": STAMP, "second.io/handshake": STAMP}
    assert client.calls == [Patch("n1", {"metadata": {"annotations": stamps}})]


async def test_a_node_is_asked_again_only_when_it_has_answered():
    nodes = Nodes(a_node(asked_register="x"))

    def shown_by_the_informer(call: Patch) -> None:
        nodes.nodes["n1"] = a_node(asked_register="x", asked_handshake=STAMP)

    client = Patches(answer=shown_by_the_informer)
    async with at_work(handshakes(nodes, client)):
        await client.until(1)
        await settled()
        assert len(client.calls) == 1
        nodes.nodes["n1"] = a_node(asked_register="x", asked_handshake="Reported now")
        await client.until(2)


async def test_a_follower_asks_nobody():
    client, leading = Patches(), False
    async with at_work(
        handshakes(Nodes(a_node(asked_register="x")), client, leading=lambda: leading)
    ):
        await settled()
        assert client.calls == []
        leading = True
        await client.until(1)


async def test_writes_are_rationed():
    nodes = Nodes(*(a_node(f"n{i}", asked_register="x") for i in range(50)))
    client = Patches()
    ration = TokenBucket(rate=0.01, burst=3)
    async with at_work(handshakes(nodes, client, pace=ration)):
        await client.until(3)
        await settled()
    assert len(client.calls) == 3


async def test_a_role_that_may_not_write_is_named_once_for_all_nodes():
    problems: list[str] = []
    nodes = Nodes(*(a_node(f"n{i}", asked_register="x") for i in range(5)))
    client = Patches(answers=[refused(403)] * 10)
    async with at_work(handshakes(nodes, client, on_problem=problems.append)):
        await client.until(10)
    assert len(problems) == 1
    assert "cannot ask node n0" in problems[0]


async def test_one_nodes_failure_keeps_no_other_from_being_asked():
    nodes = Nodes(*(a_node(f"n{i}", asked_register="x") for i in range(3)))
    client = Patches(answers=[refused(404), refused(500)])
    async with at_work(handshakes(nodes, client, every=60)):
        await client.until(3)
    assert [call.name for call in client.calls] == ["n0", "n1", "n2"]


# Silence.


def asked_ago(seconds: float, *, npus: str = "0") -> Node:
    at = NOW - timedelta(seconds=seconds)
    return a_node(
        npus=npus, asked_register="x", asked_handshake=f"Requesting_{at:%Y-%m-%d %H:%M:%S}"
    )


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        pytest.param(asked_ago(62), True, id="its minute ended a moment ago"),
        pytest.param(asked_ago(50), False, id="it may still answer"),
        pytest.param(asked_ago(70), False, id="it was silent before already"),
        pytest.param(asked_ago(62, npus="4"), False, id="kubelet still counts its devices"),
        pytest.param(a_node(asked_register="x", asked_handshake="Reported"), False, id="it answered"),
        pytest.param(a_node(), False, id="nobody asked"),
    ],
)  # fmt: skip
def test_when_silence_begins_to_count(node, expected):
    assert flipped(node, VENDORS.profiles, NOW - timedelta(seconds=5), NOW) is expected


def test_a_clock_set_back_counts_too():
    assert flipped(asked_ago(62), VENDORS.profiles, NOW, NOW - timedelta(seconds=5))


async def test_the_state_reads_a_silent_node_anew_once():
    nodes = Nodes(asked_ago(0), a_node("n2"))
    now = NOW
    async with at_work(Patience(nodes, now=lambda: now, every=0.001)):
        await settled()
        assert nodes.reread == []
        now = NOW + timedelta(seconds=61)
        async with asyncio.timeout(20):
            while not nodes.reread:
                await asyncio.sleep(0.001)
        await settled()
    assert nodes.reread == ["n1"]
