"""The label that says who leads: it follows the leadership, whatever goes wrong on the way."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from hami.kube.pace import Backoff
from hami.scheduler.publish.roles import RoleLabel

from ..writes import Patch, Patches, refused, settled


@asynccontextmanager
async def labelling(client: Patches, problems: list[str] | None = None, **fields: Any):
    label = RoleLabel(
        client, "hami", "scheduler-0", on_problem=(problems if problems is not None else []).append,
        backoff=Backoff(first=0.001, most=0.001), **fields,
    )  # fmt: skip
    running = asyncio.create_task(label.run())
    try:
        yield label
    finally:
        assert not running.done() or running.exception() is None
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


def roles(client: Patches) -> list[str]:
    return [call.patch["metadata"]["labels"]["hami.io/scheduler-role"] for call in client.calls]


async def test_the_label_follows_the_leadership():
    client = Patches()
    async with labelling(client) as label:
        await client.until(1)
        label.set(leading=True)
        await client.until(2)
        label.set(leading=False)
        await client.until(3)
    assert roles(client) == ["follower", "leader", "follower"]
    assert client.calls[0] == Patch(
        "scheduler-0", {"metadata": {"labels": {"hami.io/scheduler-role": "follower"}}}, "hami"
    )


async def test_nothing_is_written_without_a_change():
    client = Patches()
    async with labelling(client) as label:
        await client.until(1)
        label.set(leading=False)
        await settled()
    assert roles(client) == ["follower"]


@pytest.mark.parametrize("status", [0, 409, 500, 404])
async def test_a_failed_write_is_tried_again_and_said_once(status):
    client, problems = Patches(answers=[refused(status)] * 3), []
    async with labelling(client, problems):
        await client.until(4)
        await settled()
    assert roles(client) == ["follower"] * 4
    assert len(problems) == 1


async def test_a_change_does_not_wait_for_a_forbidden_write():
    client, problems = Patches(answers=[refused(403)]), []
    async with labelling(client, problems, forbidden_for=600) as label:
        await client.until(1)
        await settled()
        assert len(client.calls) == 1
        label.set(leading=True)
        await client.until(2)
    assert roles(client) == ["follower", "leader"]
    assert len(problems) == 1
    assert "allow patch of pods" in problems[0]


async def test_a_write_whose_outcome_is_unknown_is_repeated_even_if_the_role_is_back():
    client = Patches(answers=[None, refused(0)])
    async with labelling(client) as label:
        await client.until(1)
        label.set(leading=True)
        await client.until(2)
        label.set(leading=False)
        await client.until(3)
    assert roles(client)[-1] == "follower"
