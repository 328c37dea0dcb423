"""Thousands of pods claim their guarantee at once: how much that makes the API server write.

The real service on the embedded API server; owners create every evicted pod anew.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.rows import Row
from tests.service.world.process import Forge
from tests.service.world.reclaim import ReclaimStorm, Size, Written, budget
from tests.service.world.world import a_world

SIZE = Size(teams=20, each=250)


def measure() -> list[Row]:
    written = asyncio.run(_storm())
    named = f"{SIZE.claims} claims, {2 * SIZE.teams} quotas"
    total = Row(
        what=f"Reclaim storm of {named}: writes per pod that comes in",
        value=round(written.all / written.came, 2),
        unit="writes",
        seen=f"{written.went} evicted, {written.came} bound in {written.settled:.0f} s",
    )
    rows = [
        Row(what=f"Reclaim storm: {what}", value=found, unit="writes", most=most)
        for what, (found, most) in budget(written, SIZE).items()
    ]
    return [total, *rows]


async def _storm() -> Written:
    forge = Forge()
    try:
        with TemporaryDirectory(prefix="hami-bench-") as folder:
            async with a_world(Path(folder), forge) as world:
                storm = ReclaimStorm(world, SIZE)
                await storm.prepare()
                return await storm.run(await world.service(log_level="warning"))
    finally:
        forge.close()
