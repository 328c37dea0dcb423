"""How the time of one device is divided: cases, laws, and what a model of the whole makes of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from hami.policy.compute.demand import (
    NOISE,
    WAITED,
    WHOLE,
    ComputeDemand,
    Entitlement,
    Seen,
    demand,
)
from hami.policy.compute.shares import FLOOR, Contender, divide

from .model import BACKLOG, Tenant, between, in_bursts, run, steadily

HUNGRY = Seen(use=3000, waited=WHOLE, launched=True)
IS_IDLE = Seen(use=0, waited=0, launched=False)


def a_slice(seen=HUNGRY, *, cores=30, limit=0, policy="default", priority=1):
    entitlement = Entitlement.of_page(
        cores=cores, cores_limit=limit, policy=policy, priority=priority
    )
    return Contender(entitlement=entitlement, seen=seen)


def using(percent):
    return Seen(use=percent * 100, waited=0, launched=True)


def shares(*slices, floor=FLOOR, ticks=1):
    """In percent, after so many ticks in which the same is seen."""
    named = {str(number): one for number, one in enumerate(slices)}
    division = divide(named, {}, floor=floor)
    for _ in range(ticks - 1):
        division = divide(named, division.demands, floor=floor)
    return [division.shares[name] / 100 for name in named]


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        pytest.param([a_slice()], [100], id="alone, all of it"),
        pytest.param([a_slice(policy="force")], [30], id="alone under force, its guarantee"),
        pytest.param([a_slice(limit=80)], [80], id="alone with a limit, that"),
        pytest.param([a_slice(limit=10)], [30], id="a limit below the guarantee is the guarantee"),
        pytest.param([a_slice(limit=80, policy="force")], [30], id="force makes the guarantee the limit"),
        pytest.param([a_slice(policy="disable")], [0], id="disabled, nothing is handed out"),
        pytest.param([a_slice(cores=0)], [0], id="no guarantee and alone, nothing is handed out"),
        pytest.param([a_slice(cores=100)], [0], id="a whole device is not held"),
        pytest.param([a_slice(cores=0), a_slice(cores=0)], [0, 0], id="nobody named any: the driver divides"),
        pytest.param([a_slice(), a_slice(cores=70)], [30, 70], id="a full device"),
        pytest.param([a_slice(cores=20), a_slice(cores=30)], [40, 60], id="the rest in proportion"),
        pytest.param([a_slice(cores=20, limit=30), a_slice(cores=30)], [30, 70], id="the rest beside a limit"),
        pytest.param([a_slice(cores=20, limit=30), a_slice(cores=30, limit=50)], [30, 50], id="both at their limits"),
        pytest.param([a_slice(), a_slice(IS_IDLE, cores=70)], [100, 70], id="the idle one keeps its guarantee as a cap"),
        pytest.param([a_slice(), a_slice(cores=0)], [30, 70], id="no guarantee: what was not booked"),
        pytest.param([a_slice(), a_slice(cores=0), a_slice(cores=0)], [30, 35, 35], id="two without: half of that each"),
        pytest.param([a_slice(cores=100), a_slice(cores=0)], [0, 0.99], id="all is booked: about a percent is left"),
        pytest.param([a_slice(cores=80), a_slice(cores=80)], [50, 50], id="booked twice: in proportion"),
        pytest.param([a_slice(using(50), cores=60), a_slice(cores=40)], [60, 40], id="its guarantee at first sight"),
        pytest.param([a_slice(using(95), policy="disable"), a_slice()], [0, 30], id="beside one that nothing holds, its own"),
    ],
)  # fmt: skip
def test_who_may_use_how_much(slices, expected):
    assert shares(*slices) == expected


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        pytest.param([a_slice(using(20), cores=60), a_slice(cores=40)], [60, 76], id="what it leaves is lent, but for room to grow"),
        pytest.param([a_slice(using(58), cores=60), a_slice(cores=40)], [60, 40], id="who uses nearly all has all"),
        pytest.param([a_slice(using(20)), a_slice(using(30))], [66, 76], id="where nobody wants more, each has room"),
    ],
)  # fmt: skip
def test_who_is_content_leaves_the_rest(slices, expected):
    assert shares(*slices, ticks=20) == expected


HIGH = a_slice(cores=50, priority=0)


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        pytest.param([HIGH, a_slice(cores=50)], [95, 5], id="all but the floor"),
        pytest.param([a_slice(using(10), cores=50, priority=0), a_slice(cores=50)], [95, 5], id="however little it uses"),
        pytest.param([a_slice(IS_IDLE, cores=50, priority=0), a_slice(cores=50)], [50, 100], id="not while it is idle"),
        pytest.param([replace(HIGH, seen=Seen(use=0, waited=WHOLE, launched=True)), a_slice(cores=50)], [50, 50], id="nor because it says so"),
        pytest.param([HIGH, a_slice(IS_IDLE, cores=50)], [100, 5], id="an idle one takes nothing"),
        pytest.param([HIGH, a_slice(cores=3)], [97, 3], id="the floor is no more than the guarantee"),
        pytest.param([a_slice(cores=0, priority=0), a_slice(cores=0)], [0, 5], id="without guarantees too"),
        pytest.param([a_slice(IS_IDLE, cores=0, priority=0), a_slice(cores=0)], [0, 100], id="and back"),
        pytest.param([HIGH, a_slice(cores=50, policy="disable")], [50, 0], id="nothing holds one that is not limited"),
    ],
)  # fmt: skip
def test_lower_priority_waits(slices, expected):
    assert shares(*slices) == expected


def test_a_floor_of_nothing_is_a_word_that_holds():
    assert shares(HIGH, a_slice(cores=50), floor=0) == [99.99, 0.01]


# Laws.

figures = st.integers(-WHOLE, 3 * WHOLE)
sightings = st.one_of(
    st.sampled_from([HUNGRY, IS_IDLE]),
    st.builds(Seen, use=figures, waited=figures, launched=st.sampled_from([None, False, True])),
)
demands = st.builds(
    ComputeDemand,
    wants=st.integers(0, WHOLE),
    computes=st.booleans(),
    use=st.integers(0, WHOLE),
    late=st.integers(0, 2),
)


@st.composite
def devices(draw, *, seen=sightings, priorities=(0, 1), policies=("default", "force", "disable")):
    """Slices of one device whose guarantees fit on it, and what they wanted before."""
    left, slices = 100, {}
    for number in range(draw(st.integers(1, 6))):
        cores = draw(st.integers(0, left))
        left -= cores
        slices[f"s{number}"] = a_slice(
            draw(seen),
            cores=cores,
            limit=draw(st.integers(0, 100)),
            policy=draw(st.sampled_from(policies)),
            priority=draw(st.sampled_from(priorities)),
        )
    return slices, draw(st.dictionaries(st.sampled_from(sorted(slices)), demands))


def _used(division, slices):
    """What each can make use of, of those that are held."""
    return {
        name: min(division.shares[name], division.demands[name].wants)
        for name in slices
        if division.shares[name]
    }


@given(devices())
def test_no_more_is_handed_out_to_those_that_want_it_than_there_is(device):
    slices, before = device
    division = divide(slices, before)
    assert sum(_used(division, slices).values()) <= WHOLE


@given(devices())
def test_a_share_lies_between_something_and_the_limit(device):
    slices, before = device
    division = divide(slices, before)
    for name, share in division.shares.items():
        assert 0 <= share <= slices[name].entitlement.limit


@given(devices(priorities=(1,)))
def test_who_wants_its_guarantee_has_it_at_once(device):
    slices, before = device
    unnamed = sum(one.entitlement.guarantee == 0 for one in slices.values())
    division = divide(slices, before)
    for name, one in slices.items():
        if division.shares[name]:
            assert division.shares[name] >= one.entitlement.guarantee - 100 * unnamed


@given(devices(priorities=(1,), policies=("default", "force")))
def test_nothing_is_idle_that_somebody_wants(device):
    slices, before = device
    division = divide(slices, before)
    used = _used(division, slices)
    below = [name for name in used if used[name] < division.demands[name].wants]
    taken = sum(division.demands[name].wants for name in slices if not division.shares[name])
    assert not below or sum(used.values()) + taken >= WHOLE - 2 * len(slices)


@given(devices(), st.randoms(use_true_random=False))
def test_the_order_of_slices_says_nothing(device, random):
    slices, before = device
    names = list(slices)
    random.shuffle(names)
    assert divide({name: slices[name] for name in names}, before) == divide(slices, before)


@given(devices(seen=st.one_of(st.sampled_from([HUNGRY, IS_IDLE]))))
def test_who_wants_all_or_nothing_has_the_same_share_each_time(device):
    slices, before = device
    second = divide(slices, divide(slices, before).demands)
    assert divide(slices, second.demands) == second


@given(st.integers(0, WHOLE), st.integers(0, 100), demands)
def test_a_steady_use_is_a_steady_demand(use, cores, before):
    seen = Seen(use=use, waited=WAITED - 1, launched=True)
    entitlement = a_slice(cores=cores).entitlement
    wants = [before]
    for _ in range(40):
        wants.append(demand(seen, entitlement, cores * 100, wants[-1]))
    first, *later = [one.wants for one in wants[1:]]
    assert later == sorted(later, reverse=True) or later[0] == WHOLE
    assert all(one <= first for one in later)
    assert later[-1] == min(WHOLE, use + 2 * NOISE)


@pytest.mark.parametrize(
    ("use", "before", "wants"),
    [
        pytest.param(90, 90, 30, id="a long kernel keeps the guarantee"),
        pytest.param(20, 30, 30, id="others are in its way"),
        pytest.param(20, 90, 0, id="it has ended meanwhile"),
        pytest.param(0, 0, 0, id="nothing runs"),
    ],
)
def test_what_runs_was_launched_before(use, before, wants):
    seen = Seen(use=use * 100, waited=0, launched=False)
    for wanted in (0, 2000, WHOLE):
        then = ComputeDemand(wants=wanted, computes=True, use=before * 100)
        assert demand(seen, a_slice().entitlement, 3000, then).wants == wants * 100


@given(devices(priorities=(1,)), sightings)
def test_no_lie_wins_more_than_to_want_all_the_time(device, lie):
    """That is the guarantee, and in proportion to it a part of what is idle."""
    slices, before = device
    liar, *others = slices
    lying = divide(slices | {liar: replace(slices[liar], seen=lie)}, before)
    wanting = divide(slices | {liar: replace(slices[liar], seen=HUNGRY)}, before)
    rounding = len(slices)
    most = max(wanting.shares[liar], slices[liar].entitlement.guarantee)
    assert lying.shares[liar] <= most + rounding
    for name in others:
        assert lying.shares[name] >= wanting.shares[name] - rounding


@given(st.integers(1, 99), sightings, demands)
def test_nobody_waits_for_what_one_says_of_itself(cores, lie, before):
    """Of higher priority, the driver's figures must have seen it."""
    slices = {
        "high": a_slice(replace(lie, use=0), cores=cores, priority=0),
        "low": a_slice(cores=100 - cores),
    }
    division = divide(slices, {"high": replace(before, use=0)})
    assert division.shares["low"] >= (100 - cores) * 100


# The whole: device, gates, late figures.

DELAYS = (0.1, 0.4, 1.0)


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize(
    ("guarantees", "expected"),
    [
        pytest.param((30, 70), (30, 70), id="full"),
        pytest.param((20, 30), (40, 60), id="room to spare"),
        pytest.param((10, 20, 30), (16.7, 33.3, 50), id="three"),
        pytest.param((0, 70), (30, 70), id="one without"),
    ],
)
def test_a_full_device_is_used_and_divided(guarantees, expected, delay):
    tenants = {
        str(number): Tenant(load=steadily(BACKLOG), guarantee=guarantee)
        for number, guarantee in enumerate(guarantees)
    }
    run(tenants, 15, delay=delay)
    parts = [tenant.part(5, 15) for tenant in tenants.values()]
    assert parts == pytest.approx(expected, abs=1)
    assert sum(parts) >= 97
    for tenant in tenants.values():
        assert len(set(tenant.shares[2:])) == 1


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize("wakes", [10.01, 10.24, 10.49])
def test_a_guarantee_comes_back_and_what_is_idle_is_lent(wakes, delay):
    """Within a second of when figures can have told; a wake-up is told by the program itself."""
    sleeper = Tenant(load=between(wakes, wakes + 5), guarantee=70)
    other = Tenant(load=steadily(BACKLOG), guarantee=30)
    run({"sleeper": sleeper, "other": other}, 20, delay=delay)
    assert other.part(wakes - 3, wakes) > 97
    assert sleeper.part(wakes + 1, wakes + 2) > 67
    assert sleeper.part(wakes + 2, wakes + 5) == pytest.approx(70, abs=2)
    told = wakes + 5 + 1 + delay
    assert other.part(told, told + 1) > 97


@pytest.mark.parametrize("delay", DELAYS)
def test_who_leaves_some_has_what_it_needs_and_the_rest_is_lent(delay):
    content = Tenant(load=steadily(0.8), guarantee=90)
    other = Tenant(load=steadily(BACKLOG), guarantee=10)
    run({"content": content, "other": other}, 20, delay=delay)
    assert content.part(10, 20) == pytest.approx(80, abs=1)
    assert other.part(10, 20) > 15


@pytest.mark.parametrize("delay", DELAYS)
@pytest.mark.parametrize(("on", "off"), [(0.4, 0.3), (1.5, 1.0), (0.05, 0.1), (4, 4)])
def test_bursts_cost_a_steady_one_nothing_of_its_guarantee(on, off, delay):
    steady = Tenant(load=steadily(BACKLOG), guarantee=40)
    bursts = Tenant(load=in_bursts(on, off), guarantee=60)
    run({"steady": steady, "bursts": bursts}, 25, delay=delay)
    assert steady.part(5, 25) >= 39
    assert bursts.part(5, 25) >= 0.85 * 60 * on / (on + off)


@pytest.mark.parametrize("delay", DELAYS)
def test_a_lower_priority_waits_and_does_not_starve(delay):
    high = Tenant(load=between(5, 15, 0.3), guarantee=50, priority=0)
    low = Tenant(load=steadily(BACKLOG), guarantee=50)
    run({"high": high, "low": low}, 20, delay=delay)
    assert low.part(2, 5) > 97
    assert low.part(7, 15) == pytest.approx(5, abs=0.5)
    assert high.part(7, 15) == pytest.approx(30, abs=1)
    assert low.part(17.5, 20) > 97


def test_a_liar_leaves_the_others_their_guarantees():
    liar = Tenant(load=steadily(0), guarantee=20, lies=True)
    one = Tenant(load=steadily(BACKLOG), guarantee=30)
    other = Tenant(load=steadily(BACKLOG), guarantee=50)
    run({"liar": liar, "one": one, "other": other}, 15)
    assert (one.part(5, 15), other.part(5, 15)) == (
        pytest.approx(30, abs=1), pytest.approx(50, abs=1)
    )  # fmt: skip
