"""The device plugin registers, over real sockets, with kubelet played by the test."""

from __future__ import annotations

import asyncio
import socket
import stat
from pathlib import Path

import grpc
import grpc.aio
import pytest

from hami.domain.errors import ConfigError
from hami.node.kubelet.device_list import DeviceList
from hami.node.kubelet.plugin_socket import PluginSocket
from hami.node.kubelet.server import DevicePluginServer

from ..fake_kubelet import Plugin, stale_socket
from .served_agent import RESOURCE, TWO, Agent, sockets


async def test_a_registration_says_what_kubelet_needs_to_know(kubelet, folder):
    await kubelet.start()
    async with Agent(folder).running() as agent:
        plugin = await kubelet.registered(1)
        [request] = kubelet.requests
        assert (request.version, request.resource_name) == ("v1beta1", RESOURCE)
        assert request.options.pre_start_required
        assert request.options.get_preferred_allocation_available
        assert plugin.options == request.options
        assert plugin.lists == [{"slot-0": "Healthy", "slot-1": "Healthy"}]
        await agent.server.registered.wait()
        assert agent.server.registrations == 1
        assert agent.problems == []


async def test_it_waits_for_a_kubelet_that_is_not_there_yet(kubelet, folder):
    folder.rmdir()
    async with Agent(folder).running() as agent:
        await asyncio.sleep(0)
        await kubelet.start()
        await kubelet.registered(1)
        assert agent.problems == []


async def test_nothing_is_registered_before_the_first_list(kubelet, folder):
    await kubelet.start()
    agent = Agent(folder)
    agent.server = DevicePluginServer(
        RESOURCE, agent.calls, DeviceList(), folder=folder, kubelet_socket=kubelet.path, pre_start=False,
        on_problem=agent.problems.append, name="late",
    )  # fmt: skip
    async with agent.running():
        for _ in range(5):
            await asyncio.sleep(0.01)
        assert kubelet.requests == []
        agent.server.publish([])
        plugin = await kubelet.registered(1)
        assert plugin.lists == [{}]


async def test_the_socket_is_for_its_owner_alone(kubelet, folder):
    await kubelet.start()
    async with Agent(folder).running():
        plugin = await kubelet.registered(1)
        mode = plugin.path.stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600


async def test_a_restarted_kubelet_finds_a_new_socket_registered(kubelet, folder):
    await kubelet.start()
    async with Agent(folder).running() as agent:
        first = await kubelet.registered(1)
        await kubelet.restart()
        second = await kubelet.registered(2)
        assert second.path != first.path
        assert second.lists == first.lists
        await agent.server.registered.wait()
        assert sockets(folder) == [second.path.name]
        assert kubelet.overlaps == []


async def test_a_kubelet_that_restarts_many_times_is_followed_each_time(kubelet, folder):
    await kubelet.start()
    async with Agent(folder).running():
        for count in range(1, 12):
            plugin = await kubelet.registered(count)
            await plugin.allocate(("slot-0",))
            await kubelet.restart()
        await kubelet.registered(12)
        assert kubelet.overlaps == []


async def test_a_dead_kubelet_is_told_of_once_and_not_given_up(kubelet, folder):
    await kubelet.start()
    async with Agent(folder).running() as agent:
        await kubelet.registered(1)
        await kubelet.die()
        while len(agent.problems) < 2:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.2)
        lost, away = agent.problems
        assert lost == "kubelet has ended the list of nvidia.com/gpu; registering again"
        assert away.startswith(
            f"register {RESOURCE} with kubelet at {kubelet.path}: nobody answers ("
        )
        assert away.endswith(", as when kubelet does not run; trying again")
        assert not agent.server.registered.is_set()
        await kubelet.start()
        await kubelet.registered(2)


async def test_a_stream_that_kubelet_ends_is_a_lost_registration(kubelet, folder):
    await kubelet.start()
    async with Agent(folder).running() as agent:
        first = await kubelet.registered(1)
        await agent.server.registered.wait()
        await first.disconnect()
        second = await kubelet.registered(2)
        assert second.path != first.path
        await agent.server.registered.wait()
        assert kubelet.overlaps == []
        assert sockets(folder) == [second.path.name]


async def test_streams_that_end_again_and_again_are_no_busy_loop(kubelet, folder):
    await kubelet.start()
    async with Agent(folder).running():
        for count in range(1, 5):
            plugin = await kubelet.registered(count)
            await plugin.disconnect()
        assert len(kubelet.requests) <= 5
        assert kubelet.overlaps == []


async def test_registering_again_ends_the_stream_first(kubelet, folder):
    await kubelet.start()
    async with Agent(folder).running() as agent:
        first = await kubelet.registered(1)
        await agent.server.registered.wait()
        agent.server.register_again()
        second = await kubelet.registered(2)
        assert (first.path != second.path, first.open) == (True, False)
        assert (kubelet.overlaps, agent.problems) == ([], [])


async def test_another_stream_is_closed_before_the_next_registration(kubelet, folder):
    """kubelet ends one of two: it forgets both, and the open one must not meet a registration."""
    await kubelet.start()
    async with Agent(folder).running():
        first = await kubelet.registered(1)
        again = Plugin(first.path)
        again.follow()
        await again.seen(1)
        await first.disconnect()
        await again.following
        await kubelet.registered(2)
        await again.disconnect()
        assert kubelet.overlaps == []


async def test_a_refused_registration_is_told_once_and_tried_again(kubelet, folder):
    kubelet.refuses = [(grpc.StatusCode.UNKNOWN, "too old")] * 4
    await kubelet.start()
    async with Agent(folder).running() as agent:
        await kubelet.registered(1)
        assert len(kubelet.requests) == 5
        [problem] = agent.problems
        assert problem == (
            f"register {RESOURCE} with kubelet at {kubelet.path}: refused with UNKNOWN: too old; "
            "trying again"
        )
        assert len({request.endpoint for request in kubelet.requests}) == 1


async def test_a_kubelet_that_answers_late_is_registered_once(kubelet, folder):
    """It follows the list before it answers: that is the registration."""
    kubelet.hold_answers = asyncio.Event()
    await kubelet.start()
    async with Agent(folder).running() as agent:
        plugin = await kubelet.registered(1)
        agent.server.publish(TWO[:1])
        assert await plugin.seen(2) == {"slot-0": "Healthy"}
        kubelet.hold_answers.set()
        await agent.server.registered.wait()
        assert len(kubelet.requests) == 1


async def test_a_kubelet_that_never_answers_is_left_for_the_next_one(kubelet, folder):
    kubelet.hold_answers = asyncio.Event()
    kubelet.follows = False
    await kubelet.start()
    async with Agent(folder).running() as agent:
        await kubelet.asked(1)
        await kubelet.die()
        kubelet.hold_answers = None
        kubelet.follows = True
        await kubelet.start()
        await kubelet.registered(len(kubelet.plugins) + 1)
        await agent.server.registered.wait()


async def test_a_registration_without_a_stream_is_made_again(kubelet, folder, monkeypatch):
    monkeypatch.setattr("hami.node.kubelet.server.PATIENCE", 0.05)
    kubelet.follows = False
    await kubelet.start()
    async with Agent(folder).running() as agent:
        await kubelet.asked(1)
        while not agent.problems:
            await asyncio.sleep(0.01)
        assert "did not ask for the list" in agent.problems[0]
        assert not agent.server.registered.is_set()
        kubelet.follows = True
        await kubelet.asked(2)
        await agent.server.registered.wait()


async def test_our_deleted_socket_is_made_anew(kubelet, folder):
    kubelet.refuses = [(grpc.StatusCode.INTERNAL, "not now")]
    await kubelet.start()
    async with Agent(folder).running():
        await kubelet.asked(1)
        for path in folder.glob("hami-*"):
            path.unlink()
        plugin = await kubelet.registered(1)
        assert plugin.path.exists()


async def test_what_killed_processes_left_is_removed_and_nothing_else(kubelet, folder):
    await kubelet.start()
    stale_socket(folder / "hami-nvidia-gpu-0123abcd.sock")
    others = ["hami-nvidia-gpu-x-0123abcd.sock", "hami-hygon-dcu-0123abcd.sock", "nvidia-gpu.sock"]
    for name in others:
        stale_socket(folder / name)
    with socket.socket(socket.AF_UNIX) as live:
        live.bind(str(folder / "hami-nvidia-gpu-89abcdef.sock"))
        live.listen()
        async with Agent(folder).running():
            plugin = await kubelet.registered(1)
            left = {path.name for path in folder.iterdir()} - {plugin.path.name, "kubelet.sock"}
    assert left == {*others, "hami-nvidia-gpu-89abcdef.sock"}


async def test_a_socket_that_cannot_be_made_is_told_and_tried_again(kubelet, folder, monkeypatch):
    """As in a folder that is mounted read-only for a while."""
    await kubelet.start()
    bind = PluginSocket.bind
    failures = ["Failed to bind"] * 3

    def failing(self):
        if failures:
            raise RuntimeError(failures.pop())
        bind(self)

    monkeypatch.setattr(PluginSocket, "bind", failing)
    async with Agent(folder).running() as agent:
        await kubelet.registered(1)
        [problem] = agent.problems
        assert problem.startswith(f"cannot listen in {folder}: Failed to bind; the agent needs")


async def test_a_stopped_agent_leaves_no_socket(kubelet, folder):
    await kubelet.start()
    async with Agent(folder).running():
        plugin = await kubelet.registered(1)
    assert sockets(folder) == []
    await plugin.following
    assert not plugin.open


async def test_a_stopped_agent_lets_a_call_under_way_finish(kubelet, folder):
    await kubelet.start()
    async with Agent(folder).running() as agent:
        plugin = await kubelet.registered(1)
        agent.calls.hold = asyncio.Event()
        allocating = asyncio.create_task(plugin.allocate(("slot-0",)))
        await agent.calls.entered.wait()
        asyncio.get_running_loop().call_later(0.1, agent.calls.hold.set)
    assert len((await allocating).container_responses) == 1


@pytest.mark.parametrize("name", ["", "a b", "a/b", "../x", "-a", "a\n"])
def test_a_name_that_is_no_name_is_refused(name):
    with pytest.raises(ConfigError, match="name"):
        Agent(Path("/tmp"), name)


def test_a_resource_name_is_a_name(folder):
    Agent(folder, "nvidia-mig-1g.5gb")


def test_a_path_too_long_for_a_socket_is_refused_at_once():
    with pytest.raises(ConfigError, match="107"):
        Agent(Path("/" + "x" * 100))
