"""Questions of a planner about nodes that may not exist: answered beside the loop, without effect."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import msgspec
import pytest

from hami.domain.kubernetes.objects import Node, Pod
from hami.domain.profile import VendorProfile
from hami.domain.scheduling import SchedulingPolicy
from hami.hookspecs import hookimpl
from hami.policy.profile import defaults
from hami.scheduler.decide.simulation import Simulator
from hami.vendors.registry import Vendors
from hami.wire.extender import ExtenderArgs, ExtenderFilterResult

from ...builders import a_plugin
from ..builders import Cluster, a_node, a_pod, a_quota, an_elastic_quota, granted

POLICY = SchedulingPolicy()


def a_question(pod: Pod, *nodes: Node) -> ExtenderArgs:
    return of(msgspec.json.encode(pod), msgspec.json.encode({"items": nodes}))


def of(pod: bytes, nodes: bytes) -> ExtenderArgs:
    return ExtenderArgs(pod=msgspec.Raw(pod), nodes=msgspec.Raw(nodes))


async def answer_to(question: ExtenderArgs, cluster: Cluster | None = None) -> Any:
    return await Simulator((cluster or Cluster()).state).answer(question, POLICY)


def listed(answer: ExtenderFilterResult) -> list[str]:
    items = json.loads(bytes(answer.nodes))["items"]
    return [item["metadata"]["name"] for item in items]


async def test_the_best_node_alone_comes_back_as_it_was_sent() -> None:
    sent = json.loads(msgspec.json.encode(a_node("t2", memory=9000))) | {"unknown": ["kept"]}
    nodes = [json.loads(msgspec.json.encode(a_node("t1", memory=100))), sent]
    question = of(msgspec.json.encode(a_pod(mem=5000)), json.dumps({"items": nodes}).encode())
    answer = await answer_to(question)
    assert json.loads(bytes(answer.nodes)) == {"items": [sent]}
    assert answer.node_names is None, "names answer names; HAMi's answer to nodes has none either"


async def test_nothing_is_reserved_and_quota_counts() -> None:
    cluster = Cluster(a_node("n1", memory=5000))
    cluster.state.quota_changed(a_quota(mem="7000"))
    cluster.sees(pod := a_pod("a", mem=5000))
    cluster.reserve(pod, "n1")
    question = a_question(a_pod("b", mem=2000), a_node("t1", memory=5000))
    assert listed(await answer_to(question, cluster)) == ["t1"]
    refused = await answer_to(a_question(a_pod("b", mem=2001), a_node("t1", memory=5000)), cluster)
    assert refused.failed_nodes is not None
    assert "ResourceQuotaNotFit" in refused.failed_nodes["t1"]
    assert list(cluster.state.reservations) == [pod.uid]
    assert cluster.used() == (1, 5000)


async def test_on_a_node_that_exists_what_is_in_use_counts() -> None:
    cluster = Cluster(a_node("n1", memory=5000), a_node("n2", memory=5000))
    cluster.sees(promised := a_pod("a", mem=4000))
    cluster.reserve(promised, "n1")
    cluster.sees(granted(a_pod("b", mem=3000), "n2", "n2-d0:3000"))
    question = a_question(
        a_pod("c", mem=2000), a_node("n1", memory=5000), a_node("n2", memory=5000)
    )
    assert listed(await answer_to(question, cluster)) == ["n2"]
    itself = a_question(promised, a_node("n1", memory=5000))
    assert listed(await answer_to(itself, cluster)) == ["n1"]


async def test_a_pod_without_devices_gets_every_node_back() -> None:
    question = a_question(a_pod(mem=None), a_node("t1"), a_node("t2"))
    answer = await answer_to(question)
    assert (answer.node_names, listed(answer)) == (None, ["t1", "t2"])


NODES = b'{"items":[]}'


@pytest.mark.parametrize(
    ("pod", "nodes"),
    [
        pytest.param(b'{"spec":7}', NODES, id="a pod that is none"),
        pytest.param(b"{}", b'{"items":[{"metadata":3}]}', id="a node that is none"),
        pytest.param(b"{}", b"[]", id="no list"),
        pytest.param(b'{"metadata":{"name":"\xff"}}', NODES, id="no UTF-8"),
        pytest.param(b'{"spec":{"x":' + b"[" * 5000 + b"]" * 5000 + b"}}", NODES, id="depth"),
        pytest.param(b"{}", b'{"items":[{"x":' + b"[" * 5000 + b"]" * 5000 + b"}]}", id="a deep node"),
        pytest.param(b"", NODES, id="nothing"),
    ],
)  # fmt: skip
async def test_what_cannot_be_read_is_a_text(pod: bytes, nodes: bytes) -> None:
    answer = await answer_to(of(pod, nodes))
    assert isinstance(answer, str)
    assert answer.startswith("the simulated pod or node cannot be read: ")


async def test_more_nodes_than_a_planner_has_are_refused_with_the_remedy() -> None:
    bare = b'{"items":[' + b",".join([b"{}"] * 5001) + b"]}"
    answer = await answer_to(of(msgspec.json.encode(a_pod()), bare))
    assert answer == (
        "the request carries 5001 whole nodes, and 5000 are the most that is simulated; "
        "kube-scheduler's extender needs nodeCacheCapable: true"
    )


class Slow:
    """A vendor that does not say which devices a node has before it may."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.at_once: list[int] = []
        self._now = 0
        self.vendors = Vendors.of({"acme": a_plugin(self.hami_node_devices)})

    @hookimpl
    def hami_node_devices(self, profile: VendorProfile, node: Node) -> Any:
        self._now += 1
        self.at_once.append(self._now)
        self.begun.set()
        assert self.go_on.wait(20)
        self._now -= 1
        return defaults.node_devices(profile, node)


async def test_the_loop_goes_on_meanwhile_and_the_next_question_waits() -> None:
    slow = Slow()
    simulator = Simulator(Cluster(vendors=slow.vendors).state)
    questions = [a_question(a_pod(name), a_node("t1"), a_node("t2")) for name in "ab"]
    asked = [asyncio.create_task(simulator.answer(question, POLICY)) for question in questions]
    async with asyncio.timeout(20):
        while not slow.begun.is_set():
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.05)
    assert slow.at_once == [1]
    slow.go_on.set()
    assert [listed(answer) for answer in await asyncio.gather(*asked)] == [["t1"], ["t1"]]
    assert slow.at_once == [1, 1, 1, 1]


async def test_whoever_gave_up_keeps_nobody_waiting() -> None:
    slow = Slow()
    simulator = Simulator(Cluster(vendors=slow.vendors).state)
    first, second, third = (
        asyncio.create_task(simulator.answer(a_question(a_pod(name), a_node("t1")), POLICY))
        for name in "abc"
    )
    async with asyncio.timeout(20):
        while not slow.begun.is_set():
            await asyncio.sleep(0.001)
    second.cancel()
    await asyncio.wait([second])
    slow.go_on.set()
    assert listed(await first) == listed(await third) == ["t1"]
    assert second.cancelled()
    assert len(slow.at_once) == 2


async def test_an_elastic_quota_counts_and_stays_as_it_is() -> None:
    """Nobody waits for a share because an autoscaler has asked what would be."""
    cluster = Cluster(a_node("n1", memory=9000))
    cluster.limits(an_elastic_quota("default", 7000, 7000))
    cluster.sees(pod := a_pod("a", mem=5000))
    cluster.reserve(pod, "n1")
    book = cluster.state.ledger.elastic
    (leaf,) = book.leaves
    before = (book.used(leaf), dict(book._waiting), [m.uid for m in book.members(leaf)])
    for mem, fits in ((2000, True), (2001, False)):
        question = a_question(a_pod("b", mem=mem), a_node("t1", memory=9000))
        answer = await answer_to(question, cluster)
        if fits:
            assert listed(answer) == ["t1"]
        else:
            assert "ElasticQuota default/quota: max" in (answer.failed_nodes or {})["t1"]
    assert (book.used(leaf), dict(book._waiting), [m.uid for m in book.members(leaf)]) == before
