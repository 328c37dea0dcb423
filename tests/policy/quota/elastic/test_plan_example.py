"""The worked example of nos' documentation, with every next step: min A 40, B 10, C 30."""

from __future__ import annotations

import pytest

from hami.policy.quota.elastic.plans.plan import NoPlan, Plan

from .builders import A, B, C, a_leaf, g
from .world import World, doc


def test_a_takes_the_newest_over_quota_pod_of_b() -> None:
    world = doc()
    assert g(world.book, A, B, C) == [15, 3, 11]
    found = world.asks("a/new", 10)
    assert isinstance(found, Plan)
    assert found.kind == "fair"
    assert world.evicts(found) == ["b/p4"]
    assert world.used("a", "b", "c") == [50, 30, 0]


def test_then_a_is_at_its_fair_share_and_waits() -> None:
    world = doc(5, 3)
    found = world.asks("a/new", 10)
    assert isinstance(found, NoPlan)
    assert "used 50 GB + asked 10 GB > min 40 GB + 15 GB" in str(found)


def test_and_b_is_beyond_its_fair_share_and_waits() -> None:
    world = doc(5, 3)
    found = world.asks("b/new", 10)
    assert isinstance(found, NoPlan)
    assert "used 30 GB + asked 10 GB > min 10 GB + 3 GB" in str(found)


@pytest.mark.parametrize(
    ("asked", "evicted"),
    [
        pytest.param(5, ["b/p4"], id="half a pod costs one pod"),
        pytest.param(15, ["b/p4", "b/p3"], id="exactly up to its share costs two"),
        pytest.param(16, [], id="one more than its share waits"),
    ],
)
def test_what_a_gets_ends_at_its_fair_share(asked: int, evicted: list[str]) -> None:
    assert doc().gets("a/new", asked) == evicted


def test_a_with_a_max_of_45_is_refused_by_it() -> None:
    world = doc(leaves=(a_leaf("a", 40, max=45), B, C))
    found = world.asks("a/new", 10)
    assert isinstance(found, NoPlan)
    assert "max" in str(found)
    assert world.gets("a/small", 5) == ["b/p4"]


def test_c_claims_its_min_back_pod_by_pod_and_then_waits() -> None:
    """The quota that borrows most for its min gives first, so B before A."""
    world, seen = doc(5, 3), []
    for name in ("c/p1", "c/p2", "c/p3"):
        found = world.asks(name, 10)
        assert isinstance(found, Plan)
        assert found.kind == "reclaim"
        seen.append((world.evicts(found), world.used("a", "b", "c"), g(world.book, A, B, C)))
    assert seen == [
        (["b/p3"], [50, 20, 10], [10, 2, 7]),
        (["b/p2"], [50, 10, 20], [5, 1, 3]),
        (["a/p5"], [40, 10, 30], [0, 0, 0]),
    ]
    assert isinstance(world.asks("c/p4", 10), NoPlan)


def one_large_pod() -> World:
    world = doc(4, 0)
    world.runs("b/large", 40)
    return world


def test_a_fair_share_never_takes_a_quota_below_its_min() -> None:
    world = one_large_pod()
    assert isinstance(world.asks("a/new", 10), NoPlan)


def test_as_nos_does_when_the_rule_is_off() -> None:
    world = one_large_pod()
    world.options = type(world.options)(rule_f1=False)
    assert world.gets("a/new", 10) == ["b/large"]


def test_a_guarantee_goes_before_anothers_when_a_pod_is_larger_than_what_is_over() -> None:
    world = one_large_pod()
    assert world.gets("c/new", 10) == ["b/large"]
    assert world.used("a", "b", "c") == [40, 0, 10]


def test_a_pod_that_is_bound_and_does_not_run_yet_is_over_quota_too() -> None:
    world = doc(4, 3)
    world.runs("b/bound", 10, running=False)
    assert world.gets("a/new", 10) == ["b/bound"]


def test_pods_may_ask_for_what_no_quota_names() -> None:
    world = doc()
    gb = {"nos.nebuly.com/gpu-memory": 10, "cpu": 1, "memory": 1 << 30}
    assert world.gets("a/new", gb) == ["b/p4"]
