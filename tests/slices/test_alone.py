"""One agent for a vendor on a node."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from hami.domain.errors import ConfigError
from hami.node import agent
from hami.node.settings.source import AgentSource
from hami.slices.lock_file import alone

from ..node.world import World


async def test_a_second_agent_is_refused_and_told_which_file_the_first_one_holds(tmp_path):
    lock = tmp_path / "slices" / "mock.lock"
    async with alone(lock, "agent serves MOCK"):
        with pytest.raises(
            ConfigError, match=r"another agent serves MOCK on this node.*mock\.lock"
        ):
            async with alone(lock, "agent serves MOCK", patience=0):
                pass


async def test_a_new_agent_waits_for_the_former_one_to_end(tmp_path):
    lock = tmp_path / "mock.lock"
    first, second = asyncio.Event(), asyncio.Event()

    async def waiting():
        async with alone(lock, "agent serves MOCK"):
            second.set()

    async with alone(lock, "agent serves MOCK"):
        task = asyncio.create_task(waiting())
        first.set()
        await asyncio.sleep(0)
        assert not second.is_set()
    async with asyncio.timeout(10):
        await task
    assert second.is_set()


async def test_two_agents_at_one_kubelet_are_refused_though_their_slices_are_apart(monkeypatch):
    """Each would take the resource's name from the other."""
    monkeypatch.setattr(agent, "alone", partial(alone, patience=0))
    async with World() as world:
        world.node.slices.joinpath("other").mkdir()
        flags = world.flags | {"slices": str(world.node.slices / "other")}
        source = AgentSource(file=None, flags=flags, environment={})
        locked = f"{world.node.plugins}/hami/mock.lock"
        with pytest.raises(ConfigError, match=f"another agent serves mock .*{locked}"):
            await agent.serve(source.load(), source=source, ready=asyncio.Event().set)
        await world.node.restart()
        await world.ready()
        assert world.node.plugins.joinpath("hami/mock.lock").exists()


async def test_agents_of_two_vendors_do_not_wait_for_each_other(tmp_path):
    async with (
        alone(tmp_path / "mock.lock", "agent serves MOCK"),
        alone(tmp_path / "dcu.lock", "agent serves DCU", patience=0),
    ):
        assert sorted(path.name for path in tmp_path.iterdir()) == ["dcu.lock", "mock.lock"]
