"""The agent as a process, killed at any moment: no slice is lost, nothing starts wrongly."""

from __future__ import annotations

import asyncio
import random
import signal

import pytest

from .world import Wish, World

ROUNDS = 4

# Each starts processes one after the other, each of which is waited for.
pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("seed", range(2))
async def test_a_killed_agent_loses_nothing_and_starts_nothing_wrongly(seed):
    chance = random.Random(seed)
    async with World() as world:
        await world.stop_agent()
        names = []
        for _ in range(ROUNDS):
            agent = await world.launch_agent()
            await world.served_by(agent)
            names += [
                await world.pod(Wish("a", memory=200 + len(names)), Wish("b")) for _ in range(3)
            ]
            await asyncio.sleep(chance.uniform(0, 0.15))
            agent.kill()
            await agent.wait()
            assert world.wrong() == []
        await world.launch_agent()
        for name in names:
            await world.until(
                f"{name} came to something", lambda name=name: world.came_to_something(name)
            )
        assert world.wrong() == []
        for name in names:
            await world.delete(name)
        await world.until("nothing is left", lambda: not world.left())


async def test_sigterm_ends_the_agent_and_leaves_what_containers_need():
    async with World() as world:
        await world.stop_agent()
        agent = await world.launch_agent()
        await world.served_by(agent)
        name = await world.pod(Wish("a"))
        await world.until("it runs", lambda: world.came_to_something(name))
        before = sorted(world.left())
        agent.send_signal(signal.SIGTERM)
        assert await agent.wait() == 0
        assert sorted(world.left()) == before
        sockets = [path.name for path in world.node.plugins.iterdir() if path.is_socket()]
        assert sockets == ["kubelet.sock"]
