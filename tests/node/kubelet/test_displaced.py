"""Another plugin takes the resource's name and goes: the agent says so, and takes it back."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from itertools import pairwise

import pytest

from hami.domain.kubernetes.objects import Metadata, Node, NodeStatus
from hami.kube.errors import ApiError
from hami.node.kubelet import displacement as displaced
from hami.node.kubelet.displacement import Displacement
from lab.tests.fake_plugin import FakePlugin

from ..parts import Events, until
from ..test_agent import events
from ..world import RESOURCE, Wish, World


class Server:
    """One that kubelet follows; it counts how often it is registered again."""

    resource, healthy, ids = "acme.com/gpu", 4, frozenset({"a", "b"})

    def __init__(self, folder) -> None:
        self.folder = folder
        self.registered = asyncio.Event()
        self.registered.set()
        self.again: list[float] = []

    def register_again(self) -> None:
        self.again.append(asyncio.get_running_loop().time())


@asynccontextmanager
async def watching(server, **allocatable):
    """``allocatable``: what the node says; ``fresh``: what the API server says of it."""
    said = Events()

    def node(has):
        status = None if has is None else NodeStatus(allocatable=has)
        return Node(metadata=Metadata(name="n1"), status=status)

    known = allocatable.get("known", {})
    fresh = allocatable.get("fresh", known)

    async def asked():
        if fresh is ApiError:
            raise ApiError(500, "away")
        return node(fresh)

    said.record = lambda node, reason, message, **_: said.said.append((node.name, reason, message))
    watch = Displacement(lambda: node(known), asked, said)
    task = asyncio.create_task(watch.watch(server))
    try:
        yield said.said
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def one_starts(world):
    """Of pods made one after the other: kubelet rejects one that comes between two plugins' lists."""

    async def ended():
        pod = await world.get(name)
        return any(start.pod == name for start in world.started) or pod.status.phase == "Failed"

    for _ in range(20):
        name = await world.pod(Wish("a"))
        await world.until(f"{name} is started or rejected", ended)
        if any(start.pod == name for start in world.started):
            return
    pytest.fail(f"none was started; kubelet gives {world.healthy_slots()} away")


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(displaced, "LOOK_EVERY", 0.005)
    monkeypatch.setattr(displaced, "PATIENCE", 0.05)


async def test_a_resource_that_another_plugin_took_is_told_and_taken_back(quick):
    async with World() as world:
        ours = world.slots()
        async with FakePlugin(world.node.plugins, "other", resource=RESOURCE):
            await world.until("it has the name", lambda: world.slots() == 1)
        await world.until("ours count again", lambda: world.healthy_slots() == ours)
        await one_starts(world)
        assert world.wrong() == []

        async def told():
            return await events(world, "DevicePluginDisplaced")

        (event, *_) = await world.until("it is told", told)
        assert event.involved_object.kind == "Node"
        assert str(world.node.plugins) in event.message


@pytest.mark.parametrize(
    ("known", "fresh"),
    [
        ({"acme.com/gpu": "4"}, {}),
        ({}, {"acme.com/gpu": "4"}),
        ({}, ApiError),
        (None, None),
    ],
)
async def test_where_the_node_has_it_or_nobody_can_say_nothing_is_done(
    quick, tmp_path, known, fresh
):
    server = Server(tmp_path)
    async with watching(server, known=known, fresh=fresh) as said:
        await asyncio.sleep(0.3)
    assert (server.again, said) == ([], [])


async def test_a_plugin_that_stays_is_told_and_the_name_taken_back(quick):
    async with World() as world:
        ours = world.slots()
        others = [f"other-{n}" for n in range(ours)]
        async with FakePlugin(world.node.plugins, *others, resource=RESOURCE) as other:

            async def told():
                return await events(world, "DevicePluginDisplaced")

            (event, *_) = await world.until("it is told", told)
            assert f"kubelet has {ours} ids of {RESOURCE} that are not listed here" in event.message
            await world.until("the other one is let go", other.stream_ended.is_set)
            assert world.slots() == ours
            await one_starts(world)
            assert other.called("allocate") == []
        assert world.wrong() == []


@pytest.mark.parametrize(
    ("record", "told"),
    [
        pytest.param('{"Data": {"RegisteredDevices": {"acme.com/gpu": ["a"]}}}', False, id="ours"),
        pytest.param('{"Data": {"RegisteredDevices": {"acme.com/gpu": ["a", "x"]}}}', True, id="others"),
        pytest.param('{"Data": {"RegisteredDevices": {"other.com/gpu": ["x"]}}}', False, id="another name"),
        pytest.param('{"Data": {"RegisteredDevices": null}}', False, id="none"),
        pytest.param("{", False, id="damaged"),
    ],
)  # fmt: skip
async def test_whose_ids_kubelet_has(quick, tmp_path, record, told):
    (tmp_path / "kubelet_internal_checkpoint").write_text(record)
    server = Server(tmp_path)
    async with watching(server, known={"acme.com/gpu": "4"}) as said:
        await asyncio.sleep(0.3)
    assert (said != []) is told


@pytest.mark.parametrize("state", ["nothing healthy", "not registered"])
async def test_what_kubelet_need_not_count_is_not_missed(quick, tmp_path, state):
    server = Server(tmp_path)
    if state == "nothing healthy":
        server.healthy = 0
    else:
        server.registered.clear()
    async with watching(server) as said:
        await asyncio.sleep(0.3)
    assert (server.again, said) == ([], [])


async def test_of_two_that_fight_neither_is_fast(quick, tmp_path):
    """Each try waits longer than the one before by its rule: twice as long, cut by half at most."""
    server = Server(tmp_path)
    begin = asyncio.get_running_loop().time()
    async with watching(server, known={"acme.com/gpu": "0"}) as said:
        await until("it was tried four times", lambda: len(server.again) == 4)
    times = [begin, *server.again]
    waits = [later - sooner for sooner, later in pairwise(times)]
    assert all(wait >= 0.05 * 2**n / 2 for n, wait in enumerate(waits))
    assert len(said) == 4
    assert "kubelet has none of acme.com/gpu although 4 are healthy here" in said[0][2]
