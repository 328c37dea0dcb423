"""The device plugin over real sockets, with kubelet played by the test."""

from __future__ import annotations

import asyncio

import grpc
import grpc.aio
import pytest

from hami.domain.slices import ContainerEdits
from hami.node.kubelet.api import v1beta1_pb2 as api
from hami.node.kubelet.server import CallRefused
from hami.node.kubelet.tokens import Token

from .served_agent import TWO, Agent

# The list.


async def test_a_changed_list_is_sent_and_an_equal_one_is_not(kubelet, folder):
    await kubelet.start()
    async with Agent(folder).running() as agent:
        plugin = await kubelet.registered(1)
        agent.server.publish(list(TWO))
        agent.server.publish((TWO[0], Token("slot-1", healthy=False)))
        assert await plugin.seen(2) == {"slot-0": "Healthy", "slot-1": "Unhealthy"}
        agent.devices.resend()
        await plugin.seen(3)
        assert plugin.lists[1] == plugin.lists[2]


async def test_a_numa_node_is_said_where_one_is_known(kubelet, folder):
    await kubelet.start()
    async with Agent(folder).running() as agent:
        plugin = await kubelet.registered(1)
        agent.server.publish([Token("a", True, 0), Token("b", True, 1), Token("c", True)])
        await plugin.seen(2)
        nodes = [[node.ID for node in each.topology.nodes] for each in plugin.raw[1].devices]
        assert nodes == [[0], [1], []]
        assert [each.HasField("topology") for each in plugin.raw[1].devices] == [True, True, False]


async def test_of_many_changes_the_last_one_arrives(kubelet, folder):
    await kubelet.start()
    async with Agent(folder).running() as agent:
        plugin = await kubelet.registered(1)
        for count in range(500):
            agent.server.publish([Token(f"slot-{n}", healthy=True) for n in range(count)])
            if count % 50 == 0:
                await asyncio.sleep(0)
        while len(plugin.lists[-1]) < 499:
            await plugin.news.wait()


# Calls.


async def test_an_allocation_answers_each_container_in_order(kubelet, folder):
    await kubelet.start()
    async with Agent(folder).running():
        plugin = await kubelet.registered(1)
        response = await plugin.allocate(("slot-0",), ("slot-1", "slot-2"), ())
        names = [[cdi.name for cdi in each.cdi_devices] for each in response.container_responses]
        assert names == [["x/y=slot-0"], ["x/y=slot-1", "x/y=slot-2"], []]


async def test_a_hundred_allocations_run_at_once(kubelet, folder):
    await kubelet.start()
    async with Agent(folder).running() as agent:
        plugin = await kubelet.registered(1)
        agent.calls.hold = asyncio.Event()
        burst = [asyncio.create_task(plugin.allocate((f"slot-{n}",))) for n in range(100)]
        while agent.calls.most_at_once < 100:
            await asyncio.sleep(0.001)
        agent.calls.hold.set()
        answers = await asyncio.gather(*burst)
        names = [each.container_responses[0].cdi_devices[0].name for each in answers]
        assert names == [f"x/y=slot-{n}" for n in range(100)]


async def test_preferred_ids_are_the_agents_choice(kubelet, folder):
    await kubelet.start()
    async with Agent(folder).running():
        plugin = await kubelet.registered(1)
        assert await plugin.prefer((["a", "b", "c"], ["a"], 2), (["x"], [], 1)) == [
            ["a", "c"],
            ["x"],
        ]


async def test_a_failing_choice_leaves_it_to_kubelet(kubelet, folder):
    await kubelet.start()
    async with Agent(folder).running() as agent:
        plugin = await kubelet.registered(1)
        agent.calls.refusal = KeyError("slot-9")
        assert await plugin.prefer((["a"], [], 1)) == [[]]
        assert agent.problems == ["Calls failed in kubelet's call preferred: KeyError: 'slot-9'"]


async def test_a_container_is_prepared_with_its_ids(kubelet, folder):
    await kubelet.start()
    async with Agent(folder).running() as agent:
        plugin = await kubelet.registered(1)
        await plugin.pre_start("slot-1", "slot-0")
        assert agent.calls.prepared == [frozenset({"slot-0", "slot-1"})]


async def test_a_refusal_reaches_kubelet_word_for_word(kubelet, folder):
    await kubelet.start()
    async with Agent(folder).running() as agent:
        plugin = await kubelet.registered(1)
        agent.calls.refusal = CallRefused("pod a/b, container c: 100 % of é is granted\nelsewhere")
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await plugin.pre_start("slot-0")
        assert raised.value.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert raised.value.details() == str(agent.calls.refusal)
        assert agent.problems == []


async def test_a_refusal_of_any_length_arrives_shortened(kubelet, folder):
    await kubelet.start()
    async with Agent(folder).running() as agent:
        plugin = await kubelet.registered(1)
        agent.calls.refusal = CallRefused("卡" * 10_000)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await plugin.pre_start("slot-0")
        assert raised.value.details() == "卡" * 799 + "…"


@pytest.mark.parametrize("method", ["allocate", "pre_start"])
async def test_a_fault_of_ours_is_logged_and_not_shown(kubelet, folder, method):
    await kubelet.start()
    async with Agent(folder).running() as agent:
        plugin = await kubelet.registered(1)
        agent.calls.refusal = RuntimeError("secret")
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await getattr(plugin, method)(("slot-0",) if method == "allocate" else "slot-0")
        assert raised.value.code() is grpc.StatusCode.INTERNAL
        assert raised.value.details() == "the agent failed (RuntimeError); its log says more"
        assert agent.problems == [f"Calls failed in kubelet's call {method}: RuntimeError: secret"]
        agent.calls.refusal = None
        await plugin.allocate(("slot-0",))


async def test_too_few_answers_are_our_fault(kubelet, folder):
    await kubelet.start()
    async with Agent(folder).running() as agent:
        plugin = await kubelet.registered(1)
        agent.calls.answers = [ContainerEdits()]
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await plugin.allocate(("a",), ("b",))
        assert raised.value.code() is grpc.StatusCode.INTERNAL
        assert "1 answers to 2 containers" in agent.problems[0]


@pytest.mark.parametrize("method", ["Allocate", "PreStartContainer", "GetPreferredAllocation"])
async def test_a_malformed_request_is_refused(kubelet, folder, method):
    await kubelet.start()
    async with Agent(folder).running() as agent:
        plugin = await kubelet.registered(1)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await plugin.raw_call(method, b"\xff\xff\xff")
        assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert agent.problems == []


async def test_an_unknown_method_is_refused(kubelet, folder):
    await kubelet.start()
    async with Agent(folder).running():
        plugin = await kubelet.registered(1)
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await plugin.raw_call("Deallocate", b"")
        assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_an_empty_request_gets_an_empty_answer(kubelet, folder):
    await kubelet.start()
    async with Agent(folder).running():
        plugin = await kubelet.registered(1)
        assert await plugin.allocate() == api.AllocateResponse()


async def test_a_call_that_kubelet_gives_up_ends_here_too(kubelet, folder):
    await kubelet.start()
    async with Agent(folder).running() as agent:
        plugin = await kubelet.registered(1)
        agent.calls.hold = asyncio.Event()
        preparing = asyncio.create_task(plugin.pre_start("slot-0"))
        await agent.calls.entered.wait()
        preparing.cancel()
        while agent.calls.under_way:
            await asyncio.sleep(0.001)
        assert agent.problems == []
