"""The device plugin over real sockets, with kubelet played by the test."""

from __future__ import annotations

import asyncio
import shutil
import socket
import stat
import tempfile
from collections.abc import Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest

from hami.domain.errors import ConfigError
from hami.domain.slices import ContainerEdits
from hami.node.kubelet.api import v1beta1_pb2 as api
from hami.node.kubelet.device_list import DeviceList
from hami.node.kubelet.plugin_socket import PluginSocket
from hami.node.kubelet.server import CallRefused, DevicePluginServer
from hami.node.kubelet.tokens import Token

from ..fake_kubelet import FakeKubelet, Plugin, stale_socket

RESOURCE = "nvidia.com/gpu"
TWO = (Token("slot-0", healthy=True), Token("slot-1", healthy=True))


class Calls:
    """Answers that show what was asked."""

    def __init__(self) -> None:
        self.prepared: list[frozenset[str]] = []
        self.refusal: Exception | None = None
        self.hold: asyncio.Event | None = None
        self.under_way = 0
        self.most_at_once = 0
        self.entered = asyncio.Event()
        self.answers: Sequence[ContainerEdits] | None = None

    async def allocate(self, requests):
        self._raise()
        await self._held()
        if self.answers is not None:
            return self.answers
        return [ContainerEdits(cdi_devices=tuple(f"x/y={id}" for id in ids)) for ids in requests]

    async def prefer(self, available, must_include, size):
        self._raise()
        return [*must_include, *(id for id in reversed(available) if id not in must_include)][:size]

    async def prepare(self, ids):
        self._raise()
        await self._held()
        self.prepared.append(ids)

    def _raise(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    async def _held(self) -> None:
        self.under_way += 1
        self.most_at_once = max(self.most_at_once, self.under_way)
        self.entered.set()
        try:
            if self.hold is not None:
                await self.hold.wait()
        finally:
            self.under_way -= 1


@pytest.fixture
def folder():
    """Short: a socket's path has 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="hami-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
async def kubelet(folder):
    fake = FakeKubelet(folder)
    yield fake
    await fake.die()


class Agent:
    def __init__(self, folder: Path, name: str = "nvidia-gpu") -> None:
        self.calls = Calls()
        self.problems: list[str] = []
        self.devices = DeviceList()
        self.server = DevicePluginServer(
            RESOURCE,
            self.calls,
            self.devices,
            folder=folder,
            kubelet_socket=folder / "kubelet.sock",
            pre_start=True,
            on_problem=self.problems.append,
            name=name,
        )
        self.server.publish(TWO)

    @asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.server.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def sockets(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("hami-*"))


# Registration.


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
