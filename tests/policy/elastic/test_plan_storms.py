"""What holds in any cluster: it comes to rest, guarantees are met, nobody goes for nothing.

``Storm`` asserts after every step that no limit is exceeded, and of every plan that each of its
victims is needed. HAMI_QUOTA_STORMS says how many seeds are tried; ``make soak`` tries more.
"""

from __future__ import annotations

import os

import pytest

from hami.policy.quota.elastic import Options

from .storms import Storm, Weather

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

NO_RULES = Weather(options=Options(rule_f1=False, rule_p1=False))
NEVER_RESTS = (84, 653, 951, 1218)
"""Seeds that a search without the two rules has found."""


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


@pytest.mark.parametrize("seed", NEVER_RESTS)
def test_without_the_rules_on_fair_share_and_priority_it_may_never_rest(seed: int) -> None:
    assert not Storm(seed, NO_RULES).settles()
    assert Storm(seed).settles()


def test_a_part_of_a_guarantee_does_not_go_round_in_circles_with_a_whole_one() -> None:
    """Found by the search: GPUs guaranteed to one, CPUs to the other, and room for one pod."""
    assert Storm(641).settles()


def _block(first: int, end: int) -> range:
    return range(first, min(first + BLOCK, end))
