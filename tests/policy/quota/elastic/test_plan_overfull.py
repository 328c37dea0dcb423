"""More runs than all guarantees together, as when quotas come to a cluster that is full already:
hundreds of pods have to go for one that is entitled, and the plan is made in time."""

from __future__ import annotations

from collections.abc import Mapping

from hami.policy.quota.elastic import Member
from hami.policy.quota.elastic.plans.plan import MUCH, NoPlan, Plan

from .builders import a_leaf
from .world import Pdb, World

NODES, EACH, TOO_MANY = 150, 8, 400
PODS = NODES * EACH
TIMES = 10
"""So often is a pod asked about that was looked at: taken, put back, judged."""


class Counted(World):
    """It counts how often somebody asks whether a pod may go."""

    asked = 0

    def counting(self, member: Member) -> Mapping[str, int]:
        self.asked += 1
        return super().counting(member)


def full(*, fixed: int = 0) -> Counted:
    """Every node is full of ``b``, which is guaranteed 400 pods less; ``a`` has nothing yet.

    So many of ``b`` must not be evicted.
    """
    world = Counted(
        leaves=(a_leaf("a", 10), a_leaf("b", 10 * (PODS - TOO_MANY))),
        nodes={f"n{number}": 10 * EACH for number in range(NODES)},
    )
    for number in range(PODS):
        world.runs(f"b/p{number}", 10, f"n{number % NODES}", preemptible=number >= fixed)
    return world


def test_what_is_too_much_goes_and_nodes_are_not_compared_for_ever() -> None:
    world = full()
    found = world.asks("a/p", 10)
    assert isinstance(found, Plan)
    assert found.kind == "reclaim"
    assert len(found.victims) == TOO_MANY
    assert world.asked < TIMES * MUCH


def test_what_is_not_to_be_had_is_not_sought_on_every_node() -> None:
    world = full(fixed=PODS - TOO_MANY + 10)
    found = world.asks("a/p", 10)
    assert isinstance(found, NoPlan)
    assert f"not even with {TOO_MANY - 10} evicted in the cluster" in str(found)
    assert world.asked < TIMES * MUCH


def test_budgets_are_counted_for_every_victim() -> None:
    world = full()
    world.pdbs = [Pdb({f"b/p{number}" for number in range(PODS)}, allowed=TOO_MANY - 1)]
    found = world.asks("a/p", 10)
    assert isinstance(found, Plan)
    assert len(found.victims) == TOO_MANY
    assert len(found.violating) == 1
