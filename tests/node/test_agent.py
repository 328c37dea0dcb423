"""The agent on a node with a kubelet: pods start with what they were given, and nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hami.domain.allocations import ContainerKind
from hami.slices.limits_page import read_page
from hami.wire import keys

from .world import PATIENCE, RESOURCE, Wish, World

INIT, SIDECAR = ContainerKind.INIT, ContainerKind.SIDECAR


async def all_started(world, *names, times=1):
    """Until every container of these pods was started so often."""

    def done():
        starts = [(start.pod, start.container) for start in world.started]
        wanted = [(n, c.name) for n in names for c in world.given[world.uids[n]].containers]
        return all(starts.count(one) >= times for one in wanted)

    await world.until(f"{names} started", done)


async def nothing_left(world):
    def left():
        slices = world.node.slices / "mock"
        return [*(p.name for p in slices.iterdir() if len(p.name) == 24), *world.node.cdi.iterdir()]

    await world.until("nothing is left", lambda: not left())


async def events(world, reason):
    from hami.kube.resources import EVENTS

    return [e for e in await world.client.list(EVENTS) if e.reason == reason]


async def refusal(world, *words):
    """The event about a container that must not start, once it says all these words."""

    async def said():
        for event in await events(world, "SliceRefused"):
            if all(word in event.message for word in words):
                return event.message
        return None

    return await world.until(f"refused: {words}", said)


async def test_each_container_of_a_pod_starts_with_its_own_slice():
    async with World() as world:
        name = await world.pod(
            Wish("init", kind=INIT, memory=500),
            Wish("side", kind=SIDECAR, memory=700),
            Wish("a"),
            Wish("b", count=2, memory=2000),
        )
        await all_started(world, name)
        assert [start.container for start in world.started] == ["init", "side", "a", "b"]
        assert world.wrong() == []


async def test_a_pod_that_is_gone_leaves_nothing():
    async with World() as world:
        name = await world.pod(Wish("a"), Wish("b"))
        await all_started(world, name)
        await world.delete(name)
        await nothing_left(world)
        assert await world.get(name) is None


async def test_a_pod_says_success_once_its_last_container_may_start():
    async with World() as world:
        name = await world.pod(Wish("a"), Wish("b"))

        async def succeeded():
            pod = await world.get(name)
            return pod.annotations.get(keys.BIND_PHASE) == "success"

        await world.until("success", succeeded)
        assert len(world.started) >= 1


async def test_sixty_pods_with_equal_counts_at_once():
    async with World(devices="mockx8") as world:
        names = await asyncio.gather(
            *(world.pod(Wish("a", memory=100 + n), Wish("b", memory=300 + n)) for n in range(30))
        )
        await all_started(world, *names)
        assert world.wrong() == []
        await asyncio.gather(*(world.delete(name) for name in names))
        await nothing_left(world)


async def test_an_edited_allocation_never_starts():
    async with World() as world:
        name = await world.pod(Wish("a"), **{"hami.io/sim-duration": "1s"})
        await all_started(world, name)
        pod = await world.get(name)
        allocated = next(key for key in pod.annotations if key.endswith("-allocated"))
        forged = pod.annotations[allocated].replace(",1000,", ",9000,")
        await world.annotate(name, {allocated: forged})
        message = await refusal(world, name, "container a", "signature")
        assert "edited" in message
        assert [start.attempt for start in world.started] == [0]


async def test_an_unsigned_allocation_never_starts():
    async with World() as world:
        name = await world.pod(Wish("a"), sign=False)
        await refusal(world, name, "has no signature")
        assert world.started == []


async def test_a_restarted_agent_loses_no_slice_and_serves_on():
    async with World() as world:
        one = await world.pod(Wish("a", memory=1500))
        await all_started(world, one)
        before = sorted(p.name for p in world.node.cdi.iterdir())
        await world.stop_agent()
        assert sorted(p.name for p in world.node.cdi.iterdir()) == before
        await world.start_agent()
        two = await world.pod(Wish("a", memory=2500))
        await all_started(world, two)
        assert world.wrong() == []
        await world.delete(one)
        await world.delete(two)
        await nothing_left(world)


async def test_a_pod_that_goes_while_the_agent_is_away_leaves_nothing():
    async with World() as world:
        name = await world.pod(Wish("a"))
        await all_started(world, name)
        await world.stop_agent()
        await world.delete(name)

        async def gone():
            return await world.get(name) is None

        await world.until("the pod is gone", gone)
        await world.start_agent()
        await nothing_left(world)


async def test_a_restarted_kubelet_finds_the_agent_and_its_pods_run_on():
    async with World() as world:
        name = await world.pod(Wish("init", kind=INIT), Wish("a"))
        await all_started(world, name)
        # Where kubelet is first, it rejects pods whose init container, which has ended, had devices.
        world.hears = lambda: world.node.devices.healthy(RESOURCE)
        await world.node.restart()
        async with asyncio.timeout(PATIENCE):
            await world.node.synced.wait()
        pod = await world.get(name)
        assert pod.status.phase == "Running", pod.status
        two = await world.pod(Wish("a"))
        await all_started(world, two)
        assert world.wrong() == []


async def test_a_resize_reaches_the_page_of_the_running_container():
    async with World() as world:
        name = await world.pod(Wish("a", memory=1000))
        await all_started(world, name)
        await world.resize(name, memory=3000, generation=2)
        page = next(
            m.host_path for m in world.started[0].mounts if m.container_path.endswith("limits")
        )

        def resized():
            limits = read_page(Path(page).read_bytes())
            return limits.devices[0].memory_bytes >> 20 == 3000

        await world.until("the page says 3000", resized)


async def test_a_force_deleted_pod_that_runs_on_keeps_its_device():
    async with World(devices="mockx1") as world:
        name = await world.pod(Wish("a", memory=9000), **{"hami.io/sim-stop-duration": "4s"})
        await all_started(world, name)
        await world.delete(name, force=True)
        two = await world.pod(Wish("a", memory=9000))
        await refusal(world, two, name, "held by pod")
        await all_started(world, two)
        assert world.wrong() == []


async def test_a_device_that_fails_takes_no_new_pod_and_recovers():
    async with World(devices="mockx2") as world:
        bad = world.device_ids[0]
        world.unhealthy(bad)
        await world.until("half of it", lambda: world.healthy_slots() == world.slots() // 2)
        world.unhealthy()
        await world.until("all of it", lambda: world.healthy_slots() == world.slots())
