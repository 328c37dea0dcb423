"""The agent when things go wrong around it: API server, disk, kubelet's record, vendor."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager, contextmanager

import pytest
from hami_lab.api import Fault
from hami_lab.live import LIVE_PODS

from hami.domain.slices import ContainerEdits
from hami.kube.client import KubeClient
from hami.kube.resources import NODES
from hami.node import agent
from hami.node.kubelet.checkpoint import CHECKPOINT
from hami.node.kubelet.device_list import DeviceList
from hami.node.kubelet.server import DevicePluginServer
from hami.node.kubelet.tokens import Token
from hami.node.settings.source import AgentSource
from hami.wire import keys

from .test_agent import all_started, events, nothing_left, refusal
from .world import NODE, RESOURCE, Wish, World

REGISTER = "hami.io/node-mock-register"
RESTARTS = {"hami.io/sim-duration": "0.1s"}
"""A container that ends again and again, and is started again each time."""


@contextmanager
def away(world, **fault):
    """The API server answers nobody."""
    lost = world.faults.add(Fault(**({"drop": "before"} | fault)))
    world.drop_watches()
    try:
        yield
    finally:
        world.faults.remove(lost)


def starts_of(world, name):
    return sum(1 for start in world.started if start.pod == name)


async def starts_again(world, name):
    """A start from now on."""
    before = starts_of(world, name)
    await world.until(f"{name} starts again", lambda: starts_of(world, name) > before)


@asynccontextmanager
async def restarting(**options):
    """A world with a pod whose container restarts."""
    async with World(**options) as world:
        name = await world.pod(Wish("a", memory=700), **RESTARTS)
        await all_started(world, name, times=2)
        yield world, name


# The API server.


async def test_containers_restart_while_the_api_server_is_away():
    async with restarting() as (world, name):
        with away(world):
            await starts_again(world, name)
        assert world.wrong() == []


async def test_an_agent_that_starts_while_the_api_server_is_away_serves_what_it_knows():
    async with restarting() as (world, name):
        with away(world):
            await world.stop_agent()
            await world.start_agent(wait=False)  # It publishes nothing meanwhile, so is not ready.
            await starts_again(world, name)
        two = await world.pod(Wish("a"))
        await all_started(world, two)
        assert world.wrong() == []


@pytest.mark.parametrize("status", [403, 409, 429, 500])
async def test_a_server_that_refuses_our_writes_keeps_no_container_from_starting(status):
    async with World() as world:
        refusing = world.faults.add(Fault(verb="patch", subresource="status", status=status))
        name = await world.pod(Wish("a"))
        await all_started(world, name)
        world.faults.remove(refusing)
        if status != 409:

            async def succeeded():
                pod = await world.get(name)
                return pod.annotations.get(keys.BIND_PHASE) == "success"

            await world.until("success", succeeded)


# The disk.


async def test_a_slices_directory_that_is_a_file_refuses_starts_until_it_is_none():
    async with World() as world:
        folder = world.node.slices / "mock"
        folder.write_text("")
        name = await world.pod(Wish("a"))
        await refusal(world, name, "something else is where a directory should be")
        assert world.started == []
        folder.unlink()
        await all_started(world, name)
        assert world.wrong() == []


async def test_a_folder_of_specs_that_is_a_file_refuses_starts_until_it_is_none():
    async with World() as world:
        world.node.cdi.rmdir()
        world.node.cdi.write_text("")
        name = await world.pod(Wish("a"))
        await refusal(world, name, "something else is where a directory should be")
        world.node.cdi.unlink()
        world.node.cdi.mkdir()
        await all_started(world, name)
        assert world.wrong() == []


@pytest.mark.parametrize("text", ["", "{", '{"format": 99}'])
async def test_a_slice_with_a_broken_record_starts_again_with_its_own_grant(text):
    async with restarting() as (world, name):
        await world.stop_agent()
        (meta,) = (world.node.slices / "mock").glob("*/meta.json")
        meta.write_text(text)
        await world.start_agent()
        await starts_again(world, name)
        assert world.wrong() == []
        await world.delete(name)
        await nothing_left(world)


# kubelet's record.


async def test_a_broken_record_is_written_again_by_kubelet_and_starts_go_on():
    async with restarting() as (world, name):
        (world.node.plugins / CHECKPOINT).write_bytes(b"\0" * 100)
        await starts_again(world, name)
        await starts_again(world, name)
        assert world.wrong() == []


async def test_an_agent_that_starts_with_a_broken_record_removes_nothing():
    async with World() as world:
        name = await world.pod(Wish("a"))
        await all_started(world, name)
        left = sorted(world.left())
        await world.stop_agent()
        (world.node.plugins / CHECKPOINT).write_bytes(b"{")
        await world.start_agent()
        assert sorted(world.left()) == left


async def test_a_forged_record_gives_nobody_anothers_slice():
    """Whoever could write it names his own pod beside another's slice."""
    async with World() as world:
        victim = await world.pod(Wish("a", memory=5000))
        thief = await world.pod(Wish("a", memory=100), **RESTARTS)
        await all_started(world, victim, thief)
        path = world.node.plugins / CHECKPOINT
        content = json.loads(path.read_text())
        entries = {e["PodUID"]: e for e in content["Data"]["PodDeviceEntries"]}
        entries[world.uids[thief]]["AllocResp"] = entries[world.uids[victim]]["AllocResp"]
        path.write_text(json.dumps(content))
        await starts_again(world, thief)
        await starts_again(world, thief)
        assert world.wrong() == []


class Theirs:
    """Another agent, which served this node before ours."""

    def __init__(self, device):
        self.device = device

    async def allocate(self, requests):
        return [ContainerEdits(env={"MOCK_VISIBLE_DEVICES": self.device}) for _ in requests]

    async def prefer(self, _available, _must_include, _size):
        return ()

    async def prepare(self, _ids): ...


@asynccontextmanager
async def served_by(world, calls):
    plugins = world.node.plugins
    server = DevicePluginServer(
        RESOURCE,
        calls,
        DeviceList(),
        folder=plugins,
        kubelet_socket=plugins / "kubelet.sock",
        pre_start=False,
        on_problem=world.problems.append,
        name="theirs",
    )
    server.publish([Token(f"{calls.device}-{n}", healthy=True) for n in range(10)])
    task = asyncio.create_task(server.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("right", [True, False])
async def test_what_another_agent_answered_starts_if_it_names_the_devices_of_the_pod(right):
    async with World() as world:
        await world.stop_agent()
        device = world.device_ids[0 if right else 1]
        async with served_by(world, Theirs(device)):
            await world.node.devices.healthy(RESOURCE)
            name = await world.pod(Wish("a"), **RESTARTS)
            assert world.given[world.uids[name]].grants[0].device_id == world.device_ids[0]
            await all_started(world, name, times=2)
        await world.start_agent()
        if right:
            await world.until("it is said", lambda: events(world, "ForeignSlice"))
            await starts_again(world, name)
        else:
            await refusal(world, name, f"another agent gave it {device}")


# The vendor.


def failing(*hooks, how="raise", seconds=0.2, devices="mockx4"):
    mock = {"devices": devices, "node": "n1"}
    return {"mock": mock | {"fail": dict.fromkeys(hooks, how), "slowSeconds": seconds}}


async def configure(world, mock):
    """A changed device configuration; it is read while the agent runs."""
    world._config = mock
    world._write_config()


async def test_a_vendor_that_fails_refuses_the_start_and_is_asked_again():
    async with World(config=failing("hami_enforce", "hami_reconcile")) as world:
        name = await world.pod(Wish("a"))
        message = await refusal(world, name, "hami_enforce fails because mock.fail says so")
        assert "container a" in message
        await configure(world, failing())
        await all_started(world, name)
        assert world.wrong() == []


async def test_a_slow_vendor_is_waited_for():
    slow = failing("hami_enforce", "hami_discover", "hami_reconcile", how="slow")
    async with World(config=slow) as world:
        names = [await world.pod(Wish("a"), Wish("b")) for _ in range(3)]
        await all_started(world, *names)
        assert world.wrong() == []
        await asyncio.gather(*(world.delete(name) for name in names))
        await nothing_left(world)


async def test_a_vendor_that_cannot_release_keeps_the_slice_until_it_can():
    async with World(config=failing("hami_release")) as world:
        name = await world.pod(Wish("a"))
        await all_started(world, name)
        await world.delete(name)
        await world.until("its spec is gone", lambda: not list(world.node.cdi.iterdir()))
        assert [path.name for path in (world.node.slices / "mock").iterdir()]
        await configure(world, failing())
        await nothing_left(world)


async def test_a_changed_configuration_changes_the_devices():
    async with World(config=failing(devices="mockx2")) as world:
        before = world.slots()
        await configure(world, failing(devices="mockx3"))
        await world.until("there are more", lambda: world.slots() == before // 2 * 3)
        await configure(world, {"mock": {"devices": 7}})
        await configure(world, failing(devices="mockx1"))
        await world.until("there are fewer", lambda: world.slots() == before // 2)


async def test_static_devices_are_kubelets_to_give():
    static = failing(devices="mockx2")
    static["mock"]["static"] = {"mock.hami.io/whole": "mockx3", RESOURCE: "mockx1"}
    async with World(config=static) as world:
        capacity = world.node.devices.counts
        await world.until(
            "they are served", lambda: capacity().capacity.get("mock.hami.io/whole") == 3
        )
        body = {
            "metadata": {"name": "static", "namespace": "default"},
            "spec": {
                "nodeName": "n1",
                "containers": [
                    {
                        "name": "a",
                        "image": "i",
                        "resources": {"limits": {"mock.hami.io/whole": "2"}},
                    }
                ],
            },
        }
        await world.client.create(LIVE_PODS, body, namespace="default")
        await world.until("it started", lambda: world.started)
        visible = world.started[0].env["MOCK_VISIBLE_DEVICES"].split(",")
        assert len(visible) == 2
        assert all(id.startswith("mock.hami.io-whole-") for id in visible)


async def test_a_flapping_device_keeps_what_it_has():
    async with restarting(devices="mockx2") as (world, name):
        world.unhealthy(world.device_ids[0])
        await world.until("half of it", lambda: world.healthy_slots() < world.slots())
        await starts_again(world, name)
        world.unhealthy()
        await world.until("all of it", lambda: world.healthy_slots() == world.slots())
        await starts_again(world, name)
        assert world.wrong() == []


# What it may do.


class Watched(KubeClient):
    """Keeps what is asked for but is no mere reading."""

    written: set[tuple[str, str]]

    async def _asked(self, verb, resource, *args, subresource="", **named):
        self.written.add((verb, f"{resource.plural}/{subresource}".rstrip("/")))
        more = {"subresource": subresource} if subresource else {}
        return await getattr(super(), verb)(resource, *args, **named, **more)

    async def create(self, *args, **named):
        return await self._asked("create", *args, **named)

    async def patch(self, *args, **named):
        return await self._asked("patch", *args, **named)

    async def update(self, *args, **named):
        return await self._asked("update", *args, **named)

    async def delete(self, *args, **named):
        return await self._asked("delete", *args, **named)

    async def bind(self, *_args, **_named):
        raise AssertionError("an agent binds nobody")


async def test_the_agent_writes_statuses_events_and_its_lease_and_nothing_else(monkeypatch):
    Watched.written = written = set()
    monkeypatch.setattr(agent, "KubeClient", Watched)
    async with World() as world:
        name = await world.pod(Wish("a"), **RESTARTS)
        await all_started(world, name, times=2)
        bad = await world.pod(Wish("a"), sign=False)
        await refusal(world, bad, "has no signature")
        await world.resize(name, memory=3000, generation=2)
        await world.until("it is resized", lambda: events(world, "SliceResized"))
        await world.until("an event is counted up", lambda: ("patch", "events") in written)
        for pod in (name, bad):
            await world.delete(pod)
        await nothing_left(world)
    assert written == {
        ("patch", "pods/status"),
        ("patch", "nodes/status"),
        ("create", "events"),
        ("patch", "events"),
        ("create", "leases"),
        ("patch", "leases"),
    }


async def test_the_agent_is_ready_once_the_node_says_what_it_has():
    async with World() as world:
        await world.stop_agent()
        await world.client.patch(NODES, NODE, {"metadata": {"annotations": {REGISTER: None}}})
        refusing = world.faults.add(
            Fault(verb="patch", resource="nodes", subresource="status", status=500)
        )
        source = AgentSource(file=None, flags=world.flags, environment={})
        ready = asyncio.Event()
        task = asyncio.create_task(agent.serve(source.load(), source=source, ready=ready.set))
        try:
            await world.until("two refused writes", lambda: refusing.hits >= 2)
            assert not ready.is_set()
            world.faults.remove(refusing)
            await world.until("ready", ready.is_set)
            assert REGISTER in (await world.client.get(NODES, NODE)).annotations
        finally:
            task.cancel()
            await asyncio.wait([task])
