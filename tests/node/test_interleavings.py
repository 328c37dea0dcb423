"""Any order of pods coming and going, restarts and races: nobody starts with another's grant.

The pods ask for equal counts, so that kubelet's ids never tell them apart; each container has an
amount of memory of its own, so that its limits page does.
"""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import suppress

import pytest

from hami.domain.allocations import ContainerKind

from .world import NoRoom, Wish, World

SEEDS = int(os.environ.get("HAMI_NODE_STORMS", "16"))
STEPS = 14
KINDS = (ContainerKind.INIT, ContainerKind.SIDECAR, ContainerKind.APP)


class Storm:
    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.random = random.Random(seed)
        self.memory = 100
        self.alive: list[str] = []
        self.log: list[str] = []

    async def run(self) -> None:
        actions = {
            self.comes: 6, self.goes: 3, self.is_forced: 2, self.restarts_agent: 2,
            self.restarts_kubelet: 1, self.kubelet_waits: 1, self.stale_checkpoint: 1,
            self.forgotten_allocation: 1, self.lost_stream: 1, self.slow_server: 1,
            self.lost_watch: 1,
        }  # fmt: skip
        for _ in range(STEPS):
            action = self.random.choices(list(actions), list(actions.values()))[0]
            self.log.append(action.__name__)
            await action()
            await asyncio.sleep(self.random.choice((0, 0, 0.02, 0.1)))
            assert self.world.wrong() == [], self.log
            assert self.world.overfull() == [], self.log
        await self.settles()

    def wish(self, name: str, kind: ContainerKind) -> Wish:
        """A third of a device, so that pods wait for each other's room."""
        self.memory += 1
        return Wish(name, memory=5000 + self.memory, cores=5, kind=kind)

    async def comes(self) -> None:
        kinds = [*self.random.choices(KINDS, k=self.random.randint(0, 2)), ContainerKind.APP]
        inits = [k for k in kinds if k is not ContainerKind.APP]
        apps = [k for k in kinds if k is ContainerKind.APP]
        wishes = [self.wish(f"c{n}", kind) for n, kind in enumerate([*inits, *apps])]
        lasting = self.random.choice(("0.05s", "0.3s", "60s", "60s"))
        script = {"hami.io/sim-duration": lasting, "hami.io/sim-init-duration": "0.02s"}
        script["hami.io/sim-stop-duration"] = self.random.choice(("0s", "0.2s", "1s"))
        with suppress(NoRoom):
            self.alive.append(await self.world.pod(*wishes, **script))

    async def goes(self, *, force: bool = False) -> None:
        if self.alive:
            name = self.alive.pop(self.random.randrange(len(self.alive)))
            await self.world.delete(name, force=force)

    async def is_forced(self) -> None:
        """What it leaves is given to others at once, while it runs on."""
        await self.goes(force=True)
        await self.comes()
        await self.comes()

    async def restarts_agent(self) -> None:
        await self.world.stop_agent()
        await self.world.start_agent(wait=False)

    async def restarts_kubelet(self) -> None:
        await self.world.node.restart()

    async def kubelet_waits(self) -> None:
        """kubelet starts before the agent is there: no PreStartContainer until it registers."""
        await self.world.stop_agent()
        await self.world.node.restart()
        await asyncio.sleep(0.1)
        await self.world.start_agent(wait=False)

    async def stale_checkpoint(self) -> None:
        self.world.node.races.stale_checkpoints += 1
        await self.comes()

    async def forgotten_allocation(self) -> None:
        self.world.node.races.forgotten_allocations += 1
        await self.comes()
        await self.comes()

    async def lost_stream(self) -> None:
        self.world.node.devices.drop_stream(self.world.resource)

    async def slow_server(self) -> None:
        with self.world.slow(0.05):
            await self.comes()
            await asyncio.sleep(0.1)

    async def lost_watch(self) -> None:
        self.world.drop_watches()

    async def settles(self) -> None:
        """Whoever is left runs, or has ended; then all go, and nothing stays."""
        world = self.world
        await world.ready()
        for name in self.alive:
            await world.until(
                f"{name} started or ended; {self.log}",
                lambda name=name: world.came_to_something(name),
            )
        assert world.wrong() == [], self.log
        for name in self.alive:
            await world.delete(name)
        await world.until(f"nothing is left; {self.log}", lambda: not world.left())


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_no_container_starts_with_anothers_grant(seed: int) -> None:
    async with World(devices="mockx2") as world:
        await Storm(world, seed).run()
