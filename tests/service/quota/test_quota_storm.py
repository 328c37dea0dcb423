"""How often the API server is written to while hundreds of pods claim what is guaranteed to them."""

from __future__ import annotations

from ..world.reclaim import ReclaimStorm, Size, budget

SIZE = Size(teams=10, each=10)


async def test_a_storm_of_claims_keeps_the_budget_of_writes(world):
    """docs/quota.md states it; ``python -m benchmarks quota-storm`` does it with 5000 claims."""
    storm = ReclaimStorm(world, SIZE)
    await storm.prepare()
    service = await world.service()
    written = await storm.run(service)
    assert written.came >= SIZE.claims, "every claim was served"
    beyond = {
        what: amounts for what, amounts in budget(written, SIZE).items() if amounts[0] > amounts[1]
    }
    assert beyond == {}, written
    await world.agree(service)


async def test_nothing_is_written_once_all_is_said(world):
    """A restart writes what is missing and no more, and then rests."""
    storm = ReclaimStorm(world, Size(teams=2, each=4))
    await storm.prepare()
    service = await world.service()
    await storm.rest(service)
    assert storm.labelled == 0, "who was bound has its label already"
    await service.kill()
    world.calls.clear()
    await service.start()
    await storm.rest(service)
    assert world.writes() == []
