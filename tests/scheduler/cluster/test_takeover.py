"""When a replica begins to answer, and when it stops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hami.scheduler.cluster import takeover
from hami.scheduler.cluster.takeover import Takeover


class Lease:
    """A leadership that goes as it is told."""

    def __init__(self) -> None:
        self.leading = False
        self.term = 0
        self.holder = "another"

    async def run(self) -> None:
        await asyncio.Event().wait()

    def gain(self) -> None:
        self.leading, self.term = True, self.term + 1


class World:
    def __init__(self) -> None:
        self.lease = Lease()
        self.said: list[str] = []
        self.listed = asyncio.Event()
        self.takeover = Takeover(
            self.lease,
            relist=self.relist,
            began=lambda: self.said.append("began"),
            ended=lambda: self.said.append("ended"),
        )

    async def relist(self) -> None:
        self.said.append("lists")
        await self.listed.wait()


@asynccontextmanager
async def running() -> AsyncIterator[World]:
    world = World()
    task = asyncio.create_task(world.takeover.run())
    try:
        yield world
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(world: World, *said: str) -> None:
    async with asyncio.timeout(10):
        while world.said != list(said):
            await asyncio.sleep(0.01)


async def test_a_new_leader_answers_once_it_has_listed_the_pods_anew() -> None:
    async with running() as world:
        assert not world.takeover.leading
        world.lease.gain()
        await until(world, "lists")
        assert not world.takeover.leading
        world.listed.set()
        await until(world, "lists", "began")
        assert world.takeover.leading


async def test_it_stops_at_once_when_the_lease_runs_out() -> None:
    async with running() as world:
        world.listed.set()
        world.lease.gain()
        await until(world, "lists", "began")
        world.lease.leading = False
        assert not world.takeover.leading
        await until(world, "lists", "began", "ended")


async def test_a_lease_lost_and_won_between_two_looks_is_a_new_term() -> None:
    async with running() as world:
        world.listed.set()
        world.lease.gain()
        await until(world, "lists", "began")
        world.lease.gain()
        assert not world.takeover.leading
        await until(world, "lists", "began", "ended", "lists", "began")


async def test_a_lease_lost_while_listing_begins_nothing() -> None:
    async with running() as world:
        world.lease.gain()
        await until(world, "lists")
        world.lease.leading = False
        world.listed.set()
        await asyncio.sleep(2 * takeover.POLL)
        assert world.said == ["lists"]
