"""What kube-scheduler is answered when it asks which nodes take a pod."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from hami.domain.kubernetes.objects import Node, Pod
from hami.domain.scheduling import SchedulingPolicy
from hami.scheduler.bookings.reservations import Phase
from hami.scheduler.decide.extender import Extender
from hami.scheduler.metrics import Metrics
from hami.wire.extender import ExtenderArgs, ExtenderFilterResult

from ..builders import Cluster, a_node, a_pod, a_quota, debugged, granted, privileged


class Leads:
    leading = True
    term = 1
    holder = "somebody"


class World:
    def __init__(self, *nodes: Node) -> None:
        self.cluster = Cluster(*nodes)
        self.leads = Leads()
        self.told: list[str] = []
        self.extender = Extender(
            self.cluster.state,
            None,  # type: ignore[arg-type]
            self.leads,  # type: ignore[arg-type]
            Metrics(),
            policy=SchedulingPolicy,
            refused=lambda _pod, text: self.told.append(text),
        )

    async def filter(self, pod: Pod, *names: str, **more: Any) -> ExtenderFilterResult:
        nodes = list(names) or list(self.cluster.state.nodes)
        return await self.extender.filter(args_of(pod, nodes, **more))


def args_of(pod: Pod, names: list[str] | None, nodes: list[Node] | None = None) -> ExtenderArgs:
    body = {"Pod": msgspec.Raw(msgspec.json.encode(pod)), "NodeNames": names}
    if nodes is not None:
        body["Nodes"] = {"items": nodes}
    return msgspec.json.decode(msgspec.json.encode(body), type=ExtenderArgs)


async def test_the_best_node_alone_is_the_answer_and_its_devices_are_taken() -> None:
    world = World(a_node("n1"), a_node("n2"))
    world.cluster.sees(granted(a_pod("other"), "n2", "n2-d0:1000"), pod := a_pod(mem=3000))
    answer = await world.filter(pod)
    assert answer == ExtenderFilterResult(node_names=["n2"])
    assert world.cluster.used("n2") == (2, 4000)


async def test_asking_again_answers_alike_and_takes_nothing_more() -> None:
    world = World(a_node())
    world.cluster.sees(pod := a_pod(mem=3000))
    assert await world.filter(pod) == await world.filter(pod)
    assert world.cluster.used() == (1, 3000)


async def test_a_forged_body_is_not_believed() -> None:
    world = World(a_node())
    world.cluster.sees(a_pod(mem=3000))
    forged = a_pod(mem=1, annotations={"hami.io/allocation-signature": "x"})
    await world.filter(forged)
    assert world.cluster.used() == (1, 3000)


async def test_an_unknown_pod_is_waited_for() -> None:
    world = World(a_node())
    pod = a_pod(mem=3000)
    asked = asyncio.create_task(world.filter(pod))
    await asyncio.sleep(0.05)
    assert not asked.done()
    world.cluster.sees(pod)
    assert (await asked).node_names == ["n1"]


async def test_a_pod_that_never_shows_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hami.scheduler.decide.extender.PATIENCE", 0.01)
    world = World(a_node())
    assert "not seen yet" in (await world.filter(a_pod())).error
    assert not world.cluster.state.expected._expected


async def test_a_bound_pod_is_answered_with_its_node_and_never_fitted_again() -> None:
    world = World(a_node("n1"), a_node("n2"))
    world.cluster.sees(pod := granted(a_pod(mem=8000), "n1", "n1-d0:8000"))
    assert (await world.filter(pod, "n2")).node_names == ["n1"]
    assert world.cluster.used("n2") == (0, 0)


@pytest.mark.parametrize("phase", [Phase.BINDING, Phase.BOUND])
async def test_a_pod_whose_bind_is_under_way_keeps_its_node(phase: Phase) -> None:
    world = World(a_node("n1"), a_node("n2"))
    world.cluster.sees(pod := a_pod(mem=8000))
    await world.filter(pod, "n1")
    world.cluster.state.reservations[pod.uid].phase = phase
    assert (await world.filter(pod, "n1", "n2")).node_names == ["n1"]
    assert "not known yet" in (await world.filter(pod, "n2")).error
    assert world.cluster.used("n1") == (1, 8000)


async def test_every_refused_node_has_its_reason() -> None:
    world = World(a_node("n1"), a_node("n2", memory=2000), a_node("n3", devices=3))
    world.cluster.sees(
        granted(a_pod("full", mem=8000), "n1", "n1-d0:8000"), pod := a_pod(mem=3000, gpu=2)
    )
    answer = await world.filter(pod, "n1", "n2", "strange")
    assert answer == ExtenderFilterResult(
        failed_and_unresolvable_nodes={
            "n1": "NodeInsufficientDevice",
            "n2": "NodeInsufficientDevice",
            "strange": "node unregistered",
        }
    )
    world.cluster.sees(one := a_pod("one", mem=3000))
    assert await world.filter(one, "n1", "n2") == ExtenderFilterResult(
        failed_nodes={"n1": "1/1 CardInsufficientMemory", "n2": "1/1 CardInsufficientMemory"}
    )
    assert not world.told


async def test_quota_is_named_with_its_numbers() -> None:
    world = World(a_node())
    world.cluster.state.quota_changed(a_quota(mem="2000"))
    world.cluster.sees(pod := a_pod(mem=3000))
    answer = await world.filter(pod)
    said = (
        "ResourceQuota default/q: limits.acme.com/mem: used 0 MiB + asked 3000 MiB > limit 2000 MiB"
    )
    assert answer.failed_nodes == {"n1": f"1/1 ResourceQuotaNotFit: {said}"}
    assert world.told == [said]


async def test_an_unreadable_request_is_refused_everywhere_with_its_text() -> None:
    world = World(a_node())
    pod = a_pod()
    broken = msgspec.convert(
        {"metadata": {"name": "b", "uid": "b"}, "spec": {"containers": [
            {"name": "c", "resources": {"limits": {"acme.com/gpu": "1", "acme.com/mem": "-1"}}}]}},
        Pod,
    )  # fmt: skip
    world.cluster.sees(pod, broken)
    (text,) = (await world.filter(broken)).failed_and_unresolvable_nodes.values()
    assert "container c" in text
    assert "acme.com/mem" in text
    assert "-1" in text


async def test_a_privileged_pod_that_went_past_the_webhook_gets_no_slice() -> None:
    world = World(a_node("n1"), a_node("n2"))
    pod = a_pod(mem=3000)
    world.cluster.sees(pod)
    await world.filter(pod)
    world.cluster.sees(debugged(pod))
    for name, text in (("p", "container debugger"), ("q", "container helper")):
        if name == "q":
            world.cluster.sees(pod := privileged(a_pod("q", mem=3000)))
        answer = await world.filter(pod)
        refused = dict.fromkeys(["n1", "n2"], f"{text} is privileged")
        assert (answer.node_names, answer.failed_and_unresolvable_nodes) == (None, refused)
        assert world.told[-1] == f"{text} is privileged"
    assert (world.cluster.used("n1"), world.cluster.used("n2")) == ((0, 0), (0, 0))


async def test_a_pod_without_devices_may_go_anywhere() -> None:
    world = World(a_node("n1"), a_node("n2"))
    world.cluster.sees(pod := a_pod(mem=None))
    assert (await world.filter(pod)).node_names == ["n1", "n2"]


async def test_a_single_name_first_and_then_all() -> None:
    world = World(a_node("n1", memory=100), a_node("n2"))
    world.cluster.sees(pod := a_pod(mem=3000))
    assert (await world.filter(pod, "n1")).failed_nodes
    assert (await world.filter(pod)).node_names == ["n2"]


async def test_a_follower_answers_with_an_error() -> None:
    world = World(a_node())
    world.leads.leading = False
    world.cluster.sees(pod := a_pod())
    assert "somebody" in (await world.filter(pod)).error
    assert world.cluster.used() == (0, 0)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("{}", "missing pod"),
        ('{"Pod": null, "NodeNames": []}', "missing pod"),
        ('{"Pod": {}}', "missing NodeNames"),
        ('{"Pod": 7, "NodeNames": ["n1"]}', "not seen yet"),
        ('{"Pod": {"metadata": {"uid": 7}}, "NodeNames": ["n1"]}', "not seen yet"),
        ('{"Pod": {"metadata": null}, "NodeNames": ["n1"]}', "not seen yet"),
        ('{"Pod": {"spec": 3}, "Nodes": {"items": [1]}}', "cannot be read"),
        ('{"Pod": {}, "Nodes": []}', "cannot be read"),
    ],
)
async def test_what_cannot_be_meant_is_an_error(
    body: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hami.scheduler.decide.extender.PATIENCE", 0.01)
    args = msgspec.json.decode(body, type=ExtenderArgs)
    assert text in (await World(a_node()).extender.filter(args)).error


async def test_no_candidates_are_no_node() -> None:
    world = World(a_node())
    world.cluster.sees(pod := a_pod())
    answer = await world.extender.filter(args_of(pod, []))
    assert answer == ExtenderFilterResult()


class TestSimulation:
    async def test_template_nodes_are_empty_and_nothing_is_taken(self) -> None:
        world = World(a_node("n1"))
        world.cluster.sees(granted(a_pod("full", mem=8000), "n1", "n1-d0:8000"))
        template = a_node("template")
        pod = a_pod("asks", mem=8000)
        body = args_of(pod, None, [a_node("small", memory=100), template])
        answer = await world.extender.filter(body)
        assert answer.node_names is None
        items = msgspec.json.decode(answer.nodes)["items"]
        assert [item["metadata"]["name"] for item in items] == ["template"]
        assert not world.cluster.state.reservations
        assert not world.cluster.state.pending.pods

    async def test_a_follower_answers_it_too_and_refusals_have_reasons(self) -> None:
        world = World()
        world.leads.leading = False
        answer = await world.extender.filter(args_of(a_pod(mem=9000), None, [a_node("t")]))
        assert answer.failed_nodes == {"t": "1/1 CardInsufficientMemory"}

    async def test_quota_counts(self) -> None:
        world = World()
        world.cluster.state.quota_changed(a_quota(mem="100"))
        answer = await world.extender.filter(args_of(a_pod(mem=3000), None, [a_node("t")]))
        assert "ResourceQuotaNotFit" in answer.failed_nodes["t"]
