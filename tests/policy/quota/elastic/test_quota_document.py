"""The steps of docs/quota.md's example, taken one after the other."""

from __future__ import annotations

from pathlib import Path

from hami.policy.quota.elastic.plans.plan import Plan

from .world import doc

TEXT = (Path(__file__).parents[4] / "docs" / "quota.md").read_text()


def steps() -> list[list[str]]:
    table = TEXT.partition("\n| who wants 10 GB more")[2].partition("\n\n")[0]
    lines = [line.strip("|").split("|") for line in table.splitlines()[2:]]
    return [[cell.strip() for cell in line] for line in lines]


def test_the_steps_of_the_example_are_as_documented() -> None:
    world, taken = doc(), steps()
    assert len(taken) == 7
    for number, (who, plan, evicted, used) in enumerate(taken):
        found = world.asks(f"{who.removeprefix('team-')}/new-{number}", 10)
        said = f"`{found.kind}`" if isinstance(found, Plan) else "none"
        assert plan.partition(":")[0] == said, number
        gone = [f"team-{victim.partition('/')[0]}'s newest pod" for victim in world.evicts(found)]
        assert ", ".join(gone) == evicted, number
        assert ", ".join(map(str, world.used("a", "b", "c"))) == used, number
