"""Fifty storms; see ``world_storm``. A seed that fails fails again: ``-k seeds-10`` runs its group."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from .world.storm import Storm
from .world.world import a_world

GROUP = 10
FLAGS = {"bind_timeout": "500ms", "log_level": "warning"}


async def a_storm(folder: Path, forge, seed: int) -> None:
    folder.mkdir()
    async with a_world(folder, forge, seed=seed) as world:
        service = await world.service(**FLAGS)
        storm = Storm(world, service, seed, pods=18, alive=16, kills=2 if seed % 5 == 0 else 0)
        await storm.run()
        await storm.settle()
        assert max(world.books.bound.values()) == 1, "no pod is bound twice"
        assert len(world.books.bound) > 5, "something happened"
        await storm.clear()
        assert world.complaints() == []


@pytest.mark.parametrize("first", range(0, 50, GROUP), ids=lambda first: f"seeds-{first}")
async def test_storms(tmp_path, forge, first):
    async with asyncio.TaskGroup() as group:
        for seed in range(first, first + GROUP):
            group.create_task(a_storm(tmp_path / str(seed), forge, seed), name=f"seed {seed}")
