"""A plan looks at quotas and at whom it may need, not at every pod: counted in Python calls."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from hami.policy.quota.elastic.plans.plan import NoPlan, Plan, plan

from .builders import a_leaf
from .world import World, WorldGround, the_claim

QUOTAS = 20


class OneNode(WorldGround):
    """Answers without adding anything up, as the table of devices does."""

    def open_nodes(self) -> list[str]:
        return ["n1"]

    def fits(self, node: str, without: object) -> dict[str, int]:
        return dict(self.claim.vector)


def calls(pods: int, name: str, kind: str, *, priority: int = 0) -> int:
    """What one plan costs where half of the quotas have borrowed everything."""
    least = pods // QUOTAS
    world = World(leaves=[a_leaf(f"q{i}", least) for i in range(QUOTAS)])
    for i in range(pods):
        world.runs(f"q{i % (QUOTAS // 2)}/p{i}", 1, priority=i % 3)
    claim = the_claim(name, 2, priority=priority)
    seen = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal seen
        seen += event in {"call", "c_call"}

    for leaf in world.leaves:  # as the labels do, after every change
        world.book.moved(leaf)
    sys.setprofile(count)
    try:
        found: Plan | NoPlan = plan(
            world.book, claim, OneNode(world, claim), world, world.options, 0.0
        )
    finally:
        sys.setprofile(None)
    assert (found.kind if isinstance(found, Plan) else "") == kind
    return seen


@pytest.mark.parametrize(
    ("name", "kind", "priority"),
    [
        pytest.param("q15/new", "reclaim", 0, id="a guarantee is claimed back"),
        pytest.param("q1/new", "own", 9, id="priority inside a quota"),
        pytest.param("q1/new", "", 0, id="nobody may be evicted"),
    ],
)
def test_ten_times_as_many_pods_do_not_cost_ten_times_as_much(
    name: str, kind: str, priority: int
) -> None:
    few, many = (calls(pods, name, kind, priority=priority) for pods in (1000, 10_000))
    assert many < 4 * few
