"""A binding goes wrong on its way: each pod gets its devices once, and nothing stays in use that
nobody has.
"""

from __future__ import annotations

import asyncio

import pytest

from ..world.process import until
from ..world.recount import Amount

BINDING = {"verb": "create", "resource": "pods", "subresource": "binding"}
SOON = {"bind_timeout": "500ms"}
BOUND = ("create", "pods", "binding", 201)
FULL = {("n1", "GPU-n1-0"): Amount(1, 9000, 0)}
FREE = {("n1", "GPU-n1-0"): Amount()}


async def filtered(world, service, name, mem=9000):
    pod = await world.add_pod(name, gpu=1, mem=mem)
    assert (await world.filter(service, pod)).node == "n1"
    return pod


async def bound_again(world, service, pod):
    """As kube-scheduler tries again: filter, and then bind, until that works."""

    async def bound():
        answer = await world.filter(service, pod)
        return answer.node and await world.bind(service, pod, answer.node) == ""

    await until("it is bound", bound, story=service.last_lines)


@pytest.mark.parametrize("status", [403, 404, 422, 429])
async def test_a_definite_refusal_frees_at_once(world, status):
    await world.add_nodes("n1")
    service = await world.service()
    pod = await filtered(world, service, "p")
    fault = world.fault(**BINDING, status=status, times=1)
    assert str(status) in await world.bind(service, pod, "n1")
    assert fault.hits == 1
    assert await service.used() == FREE
    await world.place(service, "other", gpu=1, mem=9000)
    await world.agree(service)


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param({"status": 409}, id="409"),
        pytest.param({"status": 500}, id="500"),
        pytest.param({"status": 503}, id="503"),
        pytest.param({"status": 504}, id="504"),
        pytest.param({"drop": "before"}, id="a reset"),
        pytest.param({"latency": 0.7, "drop": "before"}, id="no answer in time"),
    ],
)
async def test_a_binding_that_did_not_happen_is_sent_again(world, fault):
    """Its devices stay its own meanwhile: whether it happened is known only later."""
    await world.add_nodes("n1")
    service = await world.service(**SOON)
    pod = await filtered(world, service, "p")
    world.fault(**BINDING, **fault, times=1)
    assert await world.bind(service, pod, "n1")
    other = await world.add_pod("other", gpu=1, mem=9000)
    assert "CardInsufficientMemory" in (await world.filter(service, other)).reasons["n1"]
    await bound_again(world, service, pod)
    await world.agree(service)
    assert world.books.bound == {pod["metadata"]["uid"]: 1}


async def test_a_binding_that_happened_without_an_answer_is_bound(world):
    """The pod is asked for, so that kube-scheduler hears the truth at once."""
    await world.add_nodes("n1")
    service = await world.service(**SOON)
    pod = await filtered(world, service, "p")
    world.fault(**BINDING, drop="after", times=1)
    assert await world.bind(service, pod, "n1") == ""
    await world.agree(service)
    assert world.writes() == [(*BOUND[:3], 0, 1)], "the one whose answer was lost"


@pytest.mark.parametrize("status", [409, 500, 503])
async def test_a_binding_that_happened_and_was_answered_with_an_error_is_bound(world, status):
    await world.add_nodes("n1")
    service = await world.service(**SOON)
    pod = await filtered(world, service, "p")
    world.server.fail_late(status)
    assert await world.bind(service, pod, "n1") == ""
    await world.agree(service)


async def test_a_binding_that_arrives_after_everybody_gave_up(world):
    """Neither a new filter of the pod nor another pod can have its devices in between."""
    await world.add_nodes("n1")
    service = await world.service(**SOON)
    pod = await filtered(world, service, "p")
    gate = world.server.gate()
    assert "no answer" in await world.bind(service, pod, "n1")
    other = await world.add_pod("other", gpu=1, mem=9000)
    assert "CardInsufficientMemory" in (await world.filter(service, other)).reasons["n1"]
    gate.release()
    await until("it is bound", lambda: world.node_of(pod))
    await world.agree(service)
    assert (await world.filter(service, pod)).node == "n1"
    assert await world.bind(service, pod, "n1") == ""
    assert world.books.bound == {pod["metadata"]["uid"]: 1}


async def test_while_nobody_can_say_what_became_of_a_binding_its_devices_are_taken(world):
    await world.add_nodes("n1", "n2")
    service = await world.service(**SOON)
    pod = await filtered(world, service, "p")
    world.fault(**BINDING, status=500, times=1)
    silence = world.fault(verb="get", resource="pods", status=500)
    assert await world.bind(service, pod, "n1")
    assert (await service.summary())["pods"]["binding"] == 1
    assert (await world.filter(service, pod)).node == "n1", "it cannot go elsewhere"
    elsewhere = await world.filter(service, pod, "n2")
    assert "not known yet" in elsewhere.error
    world.faults.remove(silence)
    await bound_again(world, service, pod)
    await world.agree(service)


async def test_a_lost_binding_is_settled_without_being_asked_again(world):
    await world.add_nodes("n1")
    service = await world.service(**SOON)
    pod = await filtered(world, service, "p")
    world.fault(**BINDING, status=500, times=1)
    silence = world.fault(verb="get", resource="pods", status=500)
    assert await world.bind(service, pod, "n1")
    world.faults.remove(silence)

    async def settled():
        return (await service.summary())["pods"]["binding"] == 0

    await until("it is known that the pod is not bound", settled)
    assert (await service.summary())["pods"]["reserved"] == 1, "its promise stands"
    await world.remove(pod)
    await world.agree(service)
    assert await service.used() == FREE


async def test_a_pod_deleted_while_its_binding_is_on_its_way(world):
    await world.add_nodes("n1")
    service = await world.service()
    pod = await filtered(world, service, "gone")
    gate = world.server.gate()
    binding = world.ask(world.bind(service, pod, "n1"))
    await gate.come()
    await world.remove(pod)
    gate.release()
    assert "404" in await binding
    await world.place(service, "next", gpu=1, mem=9000)
    await world.agree(service)


async def test_a_pod_made_anew_under_its_name_does_not_get_the_old_ones_binding(world):
    await world.add_nodes("n1")
    service = await world.service()
    old = await filtered(world, service, "p")
    gate = world.server.gate()
    binding = world.ask(world.bind(service, old, "n1"))
    await gate.come()
    await world.remove(old)
    new = await world.add_pod("p", gpu=1, mem=3000)
    gate.release()
    assert await binding
    assert world.node_of(new) == ""
    assert (await world.filter(service, new)).node == "n1"
    assert await world.bind(service, new, "n1") == ""
    await world.agree(service)
    assert await service.used() == {("n1", "GPU-n1-0"): Amount(1, 3000, 0)}


async def test_two_binds_of_one_pod_at_once_make_one_binding(world):
    await world.add_nodes("n1")
    service = await world.service()
    pod = await filtered(world, service, "p")
    gate = world.server.gate()
    first = world.ask(world.bind(service, pod, "n1"))
    await gate.come()
    assert "under way" in await world.bind(service, pod, "n1")
    gate.release()
    assert await first == ""
    assert world.writes() == [(*BOUND, 1)]


@pytest.fixture
async def bound_past_us(world):
    """A pod that was filtered to n1 and that somebody else binds to n2, without our annotations."""
    await world.add_nodes("n1", "n2")
    service = await world.service()
    pod = await filtered(world, service, "p")
    body = {
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n2"},
    }  # fmt: skip
    url = f"{world.server.url}/api/v1/namespaces/default/pods/p/binding"

    async def bind():
        world.books.following = False
        async with world.session.post(url, json=body) as answer:
            assert answer.status == 201

    return service, pod, bind


async def gave_n1_back(service):
    return {d["node"]: d["usedSlots"] for d in await service.each("devices")}["n1"] == 0


async def test_what_somebody_else_has_bound_elsewhere_is_told_from_what_the_watch_showed(
    world, bound_past_us
):
    service, pod, bind = bound_past_us
    await bind()
    await until("it is seen", lambda: gave_n1_back(service), story=service.last_lines)
    assert await world.bind(service, pod, "n1") == "pod default/p is bound to n2 already"
    assert world.writes() == []


async def test_what_somebody_else_has_bound_elsewhere_is_told_by_the_api_server_before(
    world, bound_past_us
):
    service, pod, bind = bound_past_us
    silence = world.fault(verb="watch", resource="pods", status=503)
    world.faults.cut_watches("pods")
    await until("no watch is open", lambda: silence.hits)
    await bind()
    assert 'already assigned to node "n2"' in await world.bind(service, pod, "n1")
    assert await gave_n1_back(service)


async def test_of_a_pod_that_somebody_else_has_bound_what_it_asks_for_is_kept_free(
    world, bound_past_us
):
    """On each device of its node, as soon as it may have started; it asks for 9000 of 16000 MiB."""
    service, pod, bind = bound_past_us
    await bind()
    await world.set_status(pod, phase="Running")

    async def unknown():
        return {d["node"]: d["known"] for d in await service.each("devices")} == {
            "n1": True,
            "n2": False,
        }

    await until("what n2 has in use is not known", unknown, story=service.last_lines)
    larger = await world.add_pod("larger", gpu=1, mem=7001)
    refused = await world.filter(service, larger, "n2")
    assert (refused.node, refused.reasons) == ("", {"n2": "1/1 CardInsufficientMemory"})
    beside = await world.add_pod("beside", gpu=1, mem=7000)
    assert (await world.filter(service, beside, "n2")).node == "n2"
    assert await gave_n1_back(service)


async def test_one_write_for_each_bound_pod_and_none_for_a_refused_one(world):
    await world.add_nodes("n1", "n2", devices=2)
    service = await world.service()
    pods = [await world.add_pod(f"p{n}", gpu=1, mem=4000) for n in range(12)]
    for pod in pods:
        answer = await world.filter(service, pod)
        assert await world.bind(service, pod, answer.node) == ""
    refused = await world.add_pod("refused", gpu=1, mem=9000)
    assert not (await world.filter(service, refused)).node
    await world.agree(service)
    await asyncio.sleep(1.2)  # For what should not come: quota status is written once a second.
    assert world.writes() == [(*BOUND, 12)]
    assert world.calls.count(user_agent="hami/", verb="get", resource="pods") == 0


class TestALostBindingThatMayYetArrive:
    """A reset or a timeout says nothing: the API server may be at work on the request still."""

    async def lost(self, world, service):
        """A pod, and the gate before which its binding to n1 stands."""
        pod = await filtered(world, service, "p")
        gate = world.server.gate()
        assert "no answer" in await world.bind(service, pod, "n1")
        return pod, gate

    async def test_keeps_the_pod_from_going_elsewhere(self, world):
        await world.add_nodes("n1", "n2")
        service = await world.service(**SOON)
        pod, gate = await self.lost(world, service)
        answer = await world.filter(service, pod, "n2")
        if answer.node:
            await world.place(service, "other", gpu=1, mem=9000)
        gate.release()
        await until("it is bound", lambda: world.node_of(pod))
        await world.agree(service)

    async def test_is_not_settled_by_a_later_ones_refusal(self, world):
        await world.add_nodes("n1")
        service = await world.service(**SOON)
        pod, gate = await self.lost(world, service)
        world.fault(**BINDING, status=429, times=1)
        assert "429" in await world.bind(service, pod, "n1")
        other = await world.add_pod("other", gpu=1, mem=9000)
        answer = await world.filter(service, other)
        if answer.node:
            await world.bind(service, other, "n1")
        gate.release()
        await until("it is bound", lambda: world.node_of(pod))
        await world.agree(service)
