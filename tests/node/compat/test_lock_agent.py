"""The agent in the mode ``lock`` on a node with a kubelet, a scheduler's lock and its absence."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from hami_mock import scheduling

from hami.domain.allocations import ContainerKind
from hami.domain.kubernetes.objects import Metadata, Pod
from hami.kube.compat.node_lock import Locked, take_node_lock
from hami.kube.resources import EVENTS, NODES
from hami.wire import keys

from ..world import NODE, Wish, World

INIT, SIDECAR = ContainerKind.INIT, ContainerKind.SIDECAR
LOCK = {"identity": "lock"}


@pytest.fixture(autouse=True)
def locking(monkeypatch):
    """The mock vendor needs no lock; this one does, as NVIDIA's."""
    profile = scheduling._profile
    monkeypatch.setattr(
        scheduling, "_profile", lambda settings: replace(profile(settings), lock="mutex")
    )


async def locked_pod(world: World, name: str, *wishes: Wish, **annotations: str) -> str:
    """As a scheduler does it: the lock first, then the bind; who has to wait waits."""
    pod = Pod(metadata=Metadata(name=name, namespace="default"))

    async def taken():
        return isinstance(await take_node_lock(world.client, NODE, pod), Locked)

    # Before there is a pod, its lock would count as one of a pod that is gone.
    await world.until(f"{name} has the lock", taken)
    return await world.pod(*wishes, name=name, **annotations)


def wrong(world: World) -> list[str]:
    """What was started with anything but its own grants; the environment says which."""
    found = []
    for start in world.started:
        allocation = world.given[start.pod_uid]
        mine = next(c for c in allocation.containers if c.name == start.container)
        visible = ",".join(grant.device_id for grant in mine.grants)
        limits = [f"{grant.memory_mib}m" for grant in mine.grants]
        has = [start.env[f"MOCK_DEVICE_MEMORY_LIMIT_{n}"] for n in range(len(limits))]
        if (start.env.get("MOCK_VISIBLE_DEVICES"), has) != (visible, limits):
            found.append(f"{start.full_name} has {dict(start.env)}, not {visible} {limits}")
    return found


async def annotation_of_node(world: World, key: str) -> str | None:
    return (await world.client.get(NODES, NODE)).annotations.get(key)


async def test_pods_one_after_the_other_as_the_lock_lets_them():
    async with World(flags=LOCK) as world:
        assert await annotation_of_node(world, keys.NODE_IDENTITY) == "MOCK=lock"
        wishes = [
            (Wish("a"),),
            (Wish("init", kind=INIT, memory=500), Wish("side", kind=SIDECAR), Wish("a", count=2)),
            (Wish("a", memory=3000), Wish("b", memory=400)),
        ]
        for number, asked in enumerate(wishes):
            name = await locked_pod(world, f"q{number}", *asked)
            await world.phase(name, "Running")
        await world.until("all have started", lambda: len(world.started) == 6)
        assert wrong(world) == []
        assert await annotation_of_node(world, keys.NODE_LOCK) is None
        for number in range(3):
            pod = await world.get(f"q{number}")
            assert pod.annotations[keys.BIND_PHASE] == "success"
            assert set(pod.annotations["hami.io/mock-devices-to-allocate"]) == {";"}


async def test_replicas_are_listed_with_their_devices_names():
    async with World(flags=LOCK) as world:
        await world.phase(await locked_pod(world, "q", Wish("a", count=3)), "Running")
        (entry,) = world.node.devices.entries()
        held = {id.rpartition("-")[0] for id in entry.held.flat}
        assert len(entry.held.flat) == 3
        assert held <= set(world.device_ids)


async def test_nobody_starts_with_anothers_devices_where_nobody_takes_the_lock():
    """Pods at once, all alike to kubelet: each that starts has its own, whatever was guessed."""
    async with World(flags=LOCK) as world:
        names = await asyncio.gather(*(world.pod(Wish("a", memory=100 + n)) for n in range(8)))

        async def settled():
            pods = [await world.get(name) for name in names]
            started = {start.pod for start in world.started}
            refused = {e.involved_object.name for e in await events(world)}
            return all(p.finished or p.name in started | refused for p in pods)

        await world.until("all have started, failed or were refused", settled)
        assert wrong(world) == []


async def events(world: World):
    return [e for e in await world.client.list(EVENTS) if e.reason == "SliceRefused"]


async def test_a_container_that_restarts_after_the_agent_did_starts_with_its_own():
    async with World(flags=LOCK) as world:
        wish, script = Wish("a"), {"hami.io/sim-duration": "200ms"}
        name = await locked_pod(world, "q", wish, **script)
        await world.until("it was started", lambda: world.started)
        await world.stop_agent()
        await world.start_agent()
        before = len(world.started)
        await world.until("it was started again", lambda: len(world.started) > before)
        assert {start.pod for start in world.started} == {name}
        assert wrong(world) == []


async def test_a_pod_that_is_gone_leaves_nothing():
    async with World(flags=LOCK) as world:
        name = await locked_pod(world, "q", Wish("a"), Wish("b"))
        await world.phase(name, "Running")
        assert len(world.left()) == 2
        await world.delete(name)
        await world.until("nothing is left", lambda: not world.left())
