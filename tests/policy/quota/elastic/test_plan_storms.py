"""What holds in any cluster: it comes to rest, guarantees are met, nobody goes for nothing.

``Storm`` asserts after every step that no limit is exceeded, and of every plan that each of its
victims is needed. HAMI_QUOTA_STORMS says how many seeds are tried; ``make soak`` tries more.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Literal

import pytest

from hami.policy.quota.elastic import Options

from .builders import a_leaf
from .storms import Storm, Weather
from .world import World, the_claim

SEEDS = int(os.environ.get("HAMI_QUOTA_STORMS", "300"))
BLOCK = 50

WEATHERS = {
    "rooms everywhere": Weather(roomy=True),
    "one resource": Weather(roomy=True, resources=(1, 1), priorities=2),
    "resources that some quotas do not name": Weather(named=0.6),
    "groups": Weather(groups=True),
    "groups and room everywhere": Weather(groups=True, roomy=True),
    "victims on one node alone": Weather(options=Options(scope="node")),
    "first fit": Weather(options=Options(labels="firstFit")),
    "largest remainders": Weather(options=Options(fair_share="hamilton")),
    "only who asks shares": Weather(options=Options(fair_share="waterfill")),
    "no common bound": Weather(options=Options(pool="off")),
}

PER_WEATHER = -(-SEEDS // len(WEATHERS))


def of_different_resources(*, often: bool = False, **options: object) -> Weather:
    """Replica sets in quotas that name few of the resources each, beside idle lenders of them all;
    nodes are short of several at once. ``often``: pods of two sizes, so that swaps fit exactly.
    """
    likeness = {"shapes": 2, "priorities": 1, "fixed": 0.0} if often else {}
    return Weather(
        resources=(2, 4), quotas=(2, 4), pods=(10, 40), nodes=(1, 2), named=0.5, lenders=(1, 2),
        scarce=True, replicas=True, options=Options(**options), **likeness,  # type: ignore[arg-type]
    )  # fmt: skip


SHARES = ("floor", "hamilton", "waterfill")
POOLS = ("sumMin", "capacity")
NAMED_APART = {
    f"{shares}, {pool}, {'pods alike' if often else 'all pods different'}": (
        of_different_resources(often=often, fair_share=shares, pool=pool)
    )
    for shares in SHARES for pool in POOLS for often in (False, True)
}  # fmt: skip
NAMED_APART |= {
    f"{shares}, groups": replace(of_different_resources(often=True, fair_share=shares), groups=True)
    for shares in SHARES
}
PER_NAMING = -(-SEEDS // 10)

NO_RULES = Weather(options=Options(rule_f1=False, rule_f2=False, rule_p1=False))
NEVER_RESTS = (84, 653, 951, 1218)
"""Seeds that a search without the rules has found."""

SHARES_OF_WHAT_IS_NOT_NAMED = [
    ("floor, sumMin, pods alike", 70),
    ("hamilton, sumMin, pods alike", 110),
    ("waterfill, capacity, pods alike", 944),
]


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_whoever_is_evicted_tries_again_and_the_cluster_comes_to_rest(first: int) -> None:
    restless = [seed for seed in _block(first, SEEDS) if not Storm(seed).settles()]
    assert restless == []


@pytest.mark.parametrize("first", range(0, PER_WEATHER, BLOCK))
@pytest.mark.parametrize("weather", WEATHERS.values(), ids=WEATHERS)
def test_it_rests_in_any_weather_with_every_guarantee_met(weather: Weather, first: int) -> None:
    for seed in _block(first, PER_WEATHER):
        storm = Storm(seed, weather)
        assert storm.settles(), f"seed {seed} does not come to rest"
        if weather.roomy:
            assert storm.left_out() == [], f"seed {seed}"


@pytest.mark.parametrize("first", range(0, PER_NAMING, BLOCK))
@pytest.mark.parametrize("weather", NAMED_APART.values(), ids=NAMED_APART)
def test_it_rests_where_guarantees_are_of_different_resources(weather: Weather, first: int) -> None:
    restless = [seed for seed in _block(first, PER_NAMING) if not Storm(seed, weather).settles()]
    assert restless == []


@pytest.mark.parametrize(("weather", "seed"), SHARES_OF_WHAT_IS_NOT_NAMED)
def test_with_shares_of_what_is_not_named_it_may_never_rest(weather: str, seed: int) -> None:
    calm = NAMED_APART[weather]
    assert Storm(seed, calm).settles()
    assert not Storm(seed, replace(calm, options=replace(calm.options, rule_f2=False))).settles()


@pytest.mark.parametrize(
    ("weather", "seed"),
    [
        ("waterfill, sumMin, all pods different", 474),
        ("waterfill, sumMin, all pods different", 2196),
        ("waterfill, capacity, all pods different", 5969),
    ],
)
def test_priority_leaves_no_guarantee_idle_for_what_is_not_guaranteed(
    weather: str, seed: int
) -> None:
    """Found by the search: memory borrowed by priority, and the GPUs of the victim claimed back."""
    assert Storm(seed, NAMED_APART[weather]).settles()


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("shares", SHARES)
def test_gpus_guaranteed_to_one_and_memory_to_the_other_beside_an_idle_lender(
    shares: Literal["floor", "hamilton", "waterfill"], pool: Literal["sumMin", "capacity"]
) -> None:
    """Devices for five pods; five of each quota want in, and whoever goes is created anew."""
    world = World(
        leaves=[a_leaf("a", {"gpu": 2}), a_leaf("b", {"memory": 20}),
                a_leaf("lender", {"gpu": 8, "memory": 80})],
        nodes={"n1": {"gpu": 10, "memory": 50}},
        options=Options(fair_share=shares, pool=pool),
        capacity={"gpu": 10, "memory": 150},
    )  # fmt: skip
    waiting = [the_claim(f"{of}/p{i}", {"gpu": 1, "memory": 10}) for i in range(5) for of in "ab"]
    evicted: list[str] = []
    for _ in range(20):
        for claim in list(waiting):
            if world.enters(claim):
                waiting.remove(claim)
            elif gone := world.evicts(world.plan(claim)):
                waiting.remove(claim)
                evicted += gone
                waiting += [the_claim(uid, {"gpu": 1, "memory": 10}) for uid in gone]
    assert len(evicted) <= 1


@pytest.mark.parametrize("seed", NEVER_RESTS)
def test_without_the_rules_on_fair_shares_and_priority_it_may_never_rest(seed: int) -> None:
    assert not Storm(seed, NO_RULES).settles()
    assert Storm(seed).settles()


def test_a_part_of_a_guarantee_does_not_go_round_in_circles_with_a_whole_one() -> None:
    """Found by the search: GPUs guaranteed to one, CPUs to the other, and room for one pod."""
    assert Storm(641).settles()


def _block(first: int, end: int) -> range:
    return range(first, min(first + BLOCK, end))
