"""``hami quota`` beside a service that runs: what it shows is what was decided."""

from __future__ import annotations

import asyncio
import json

from typer.testing import CliRunner

from hami.cli.app import app

from ..world.process import until
from .test_elastic import CARD, cluster, nos_example, place, wants

__all__ = ["cluster"]
"""The fixture."""

MEMORY = "nos.nebuly.com/gpu-memory"


async def asked(service, *arguments):
    result = await asyncio.to_thread(
        CliRunner().invoke, app, ["quota", *arguments, "--server", service.plain, "--json"]
    )
    assert result.exit_code in (0, 1), result.output
    return json.loads(result.stdout), result.exit_code


async def test_it_shows_what_is_borrowed_and_why_a_pod_waits(world, cluster):
    service = cluster
    await nos_example(world)
    for number in range(4):
        await place(world, service, "a", number)
    for number in range(4):
        await place(world, service, "b", number)

    async def borrowed():
        found, _ = await asked(service)
        quotas = {item["namespace"]: item["resources"][MEMORY] for item in found["items"]}
        return {
            team: (quota["used"], quota["borrowed"], quota["guaranteedOverQuota"], quota["left"])
            for team, quota in quotas.items()
        } == {"a": (40, 0, 15, 0), "b": (40, 30, 3, 0), "c": (0, 0, 11, 0)}

    await until("the numbers of nos' example are shown", borrowed, story=service.last_lines)
    pods, _ = await asked(service, "--namespace", "b", "--pods")
    capacity = {pod["name"]: pod["capacity"] for pod in pods["items"][0]["pods"]}
    assert capacity == {"b-0": "in-quota"} | dict.fromkeys(("b-1", "b-2", "b-3"), "over-quota")
    newest, code = await asked(service, "b/b-3")
    assert (newest["elastic"]["capacity"], code) == ("over-quota", 0)

    # 40 + 40 and nothing free: b is beyond its share, so it waits and nobody goes for it.
    await wants(world, service, "b", "b-9", mem=CARD)

    async def told():
        why, code = await asked(service, "b/b-9")
        assert code == 1
        return why["elastic"]["notEvicted"]

    why = await until("it is said why nobody is evicted", told, story=service.last_lines)
    assert "used 40 GB + asked 10 GB > min 10 GB + 3 GB" in str(why)
