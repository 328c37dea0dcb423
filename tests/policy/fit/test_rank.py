"""The order of devices and nodes, row by row as HAMi's users know it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.devices import Usage
from hami.domain.requests import Invalid
from hami.domain.scheduling import DevicePolicy, NodePolicy, SchedulingPolicy, ScoringWeights
from hami.policy.fit.rank import (
    device_policy,
    device_score,
    in_order,
    node_policy,
    node_score,
    read_policy,
    scoring_weights,
)

from ..builders import a_device, a_pod, a_policy, a_request, a_state


def filled(id: str, percent: int, *, numa: int = 0, index: int = 0, slots: int = 0):
    """A device whose score is 10 x percent/100 before the request."""
    return a_state(a_device(id, memory=100, cores=100, slots=100, numa=numa, index=index),
                   Usage(slots, percent, 0))  # fmt: skip


def order(policy: str, *states, numa_bind: bool = False) -> str:
    found = in_order(states, a_request(memory=0), a_policy(policy), numa_bind=numa_bind)
    return "".join(state.device.id for state in found)


@pytest.mark.parametrize(
    ("policy", "states", "bind", "expected"),
    [
        pytest.param("binpack", [filled("a", 10), filled("b", 20)], False, "ba", id="binpack takes the fuller first"),
        pytest.param("binpack", [filled("a", 10, numa=1), filled("b", 20)], False, "ba", id="binpack looks at the score before numa"),
        pytest.param("binpack", [filled("a", 10), filled("b", 10, numa=1)], False, "ba", id="binpack ties go to the higher numa node"),
        pytest.param("spread", [filled("a", 20), filled("b", 10)], False, "ba", id="spread takes the emptier first"),
        pytest.param("spread", [filled("a", 10), filled("b", 10, numa=1)], False, "ba", id="spread ties go to the higher numa node"),
        pytest.param("nonsense", [filled("a", 20), filled("b", 10)], False, "ba", id="an unknown policy means spread"),
        pytest.param("topology-aware", [filled("a", 20), filled("b", 10)], False, "ba", id="topology-aware alone sorts as spread"),
        pytest.param("mutex", [filled("a", 0, slots=2), filled("b", 0)], False, "ba", id="mutex takes the unused first"),
        pytest.param("mutex", [filled("a", 0), filled("b", 0, numa=1)], False, "ba", id="mutex ties go to the higher numa node"),
        pytest.param("binpack", [filled("a", 99), filled("b", 5, numa=1)], True, "ab", id="binpack bound to numa starts at the lowest numa node"),
        pytest.param("binpack", [filled("a", 10), filled("b", 20)], True, "ba", id="binpack bound to numa takes the fuller within a node"),
        pytest.param("spread", [filled("a", 5), filled("b", 99, numa=1)], True, "ba", id="spread bound to numa starts at the highest numa node"),
        pytest.param("spread", [filled("a", 20), filled("b", 10)], True, "ba", id="spread bound to numa takes the emptier within a node"),
        pytest.param("numa", [filled("a", 1), filled("b", 9, numa=1)], False, "ba", id="numa takes the highest numa node first"),
        pytest.param("numa", [filled("a", 1, index=1), filled("b", 9, index=3)], False, "ba", id="numa ties go to the higher index"),
        pytest.param("binpack,numa", [filled("a", 5), filled("b", 5, numa=1)], False, "ba", id="chain binpack then numa"),
        pytest.param("spread,numa", [filled("a", 5), filled("b", 5, numa=1)], False, "ba", id="chain spread then numa"),
        pytest.param("numa,spread", [filled("a", 1), filled("b", 9, numa=1), filled("c", 3, numa=1)], False, "cba", id="chain numa then spread"),
        pytest.param("numa,binpack", [filled("a", 1), filled("b", 9, numa=1), filled("c", 3, numa=1)], False, "bca", id="chain numa then binpack"),
        pytest.param("mutex,spread", [filled("a", 20), filled("b", 10)], False, "ba", id="mutex in a chain only filters"),
        pytest.param("mutex,topology-aware", [filled("a", 20), filled("b", 10)], False, "ba", id="a chain without an order means spread"),
        pytest.param("binpack,spread", [filled("a", 99), filled("b", 5, numa=1)], True, "ba", id="a bound chain puts numa first"),
        pytest.param("spread,numa", [filled("a", 1), filled("b", 99, numa=1)], True, "ba", id="a bound chain moves numa to the front"),
        pytest.param("binpack,topology-aware", [filled("a", 99), filled("b", 5, numa=1)], True, "ba", id="a bound chain starts at the highest numa node, plain binpack alone at the lowest"),
        pytest.param(" binpack , numa ", [filled("a", 1), filled("b", 9)], False, "ba", id="blanks in a chain do not count"),
        pytest.param("spread", [filled("a", 5, index=1), filled("b", 5)], False, "ab", id="equal scores are deterministic: the higher index first"),
        pytest.param("spread", [filled("a", 5), filled("b", 5)], False, "ba", id="equal in everything: the higher id first"),
    ],
)  # fmt: skip
def test_device_order(policy, states, bind, expected):
    assert order(policy, *states, numa_bind=bind) == expected
    assert order(policy, *reversed(states), numa_bind=bind) == expected


@given(
    st.permutations([filled(i, p, numa=n) for i, p, n in
                     [("a", 5, 0), ("b", 5, 1), ("c", 50, 0), ("d", 50, 1), ("e", 0, 0)]]),
    st.sampled_from(["binpack", "spread", "mutex", "numa", "binpack,numa", "numa,spread"]),
    st.booleans(),
)  # fmt: skip
def test_device_order_does_not_depend_on_arrival(states, policy, bind):
    assert order(policy, *states, numa_bind=bind) == order(
        policy, *sorted(states, key=lambda s: s.device.id), numa_bind=bind
    )


WEIGHED = a_device(memory=100, cores=100, slots=10)


@pytest.mark.parametrize(
    ("device", "usage", "weights", "expected"),
    [
        pytest.param(a_device(memory=0, cores=100), Usage(1, 0, 1), ScoringWeights(), 0.0, id="no capacity, no score"),
        pytest.param(a_device(memory=8192, cores=4), Usage(2, 2048, 1), ScoringWeights(), 7.0, id="used shares add up"),
        pytest.param(a_device(memory=8192, cores=4), Usage(3, 3072, 2), ScoringWeights(), 11.75, id="the request counts once per device"),
        pytest.param(WEIGHED, Usage(2, 50, 90), ScoringWeights(), 16.0, id="equal weights, A"),
        pytest.param(WEIGHED, Usage(8, 60, 10), ScoringWeights(), 15.0, id="equal weights, B"),
        pytest.param(WEIGHED, Usage(2, 50, 90), ScoringWeights(memory=3), 26.0, id="memory weighs three times, A"),
        pytest.param(WEIGHED, Usage(8, 60, 10), ScoringWeights(memory=3), 27.0, id="memory weighs three times, B"),
        pytest.param(WEIGHED, Usage(2, 50, 90), ScoringWeights(core=3), 34.0, id="cores weigh three times, A"),
        pytest.param(WEIGHED, Usage(8, 60, 10), ScoringWeights(core=3), 17.0, id="cores weigh three times, B"),
    ],
)  # fmt: skip
def test_device_score(device, usage, weights, expected):
    assert device_score(device, usage, weights) == pytest.approx(expected)


def test_fix_the_request_counts_in_the_device_order_of_unequal_devices():
    """HAMi compares a model name with the vendor's word, so a request never counted."""
    small = a_state(a_device("s", memory=1000), Usage(0, 100, 0))
    large = a_state(a_device("l", memory=9000), Usage(0, 1000, 0))
    policy = a_policy("binpack")
    found = in_order([small, large], a_request(memory=800), policy)
    assert [s.device.id for s in found] == ["s", "l"]


@pytest.mark.parametrize(
    ("used_", "total", "expected"),
    [
        pytest.param(Usage(125, 50, 50), Usage(250, 50, 50), 25.0, id="half the slots, all cores and memory"),
        pytest.param(Usage(5, 4000, 50), Usage(10, 8000, 100), 15.0, id="half of everything"),
        pytest.param(Usage(), Usage(), 0.0, id="nothing there"),
        pytest.param(Usage(1, 1, 1), Usage(1, 0, 1), 0.0, id="no memory at all"),
        pytest.param(Usage(1, 2000, 25), Usage(20, 16000, 200), 3.0, id="node1 of the worked example"),
        pytest.param(Usage(1, 6000, 75), Usage(20, 16000, 200), 8.0, id="node2 of the worked example"),
    ],
)  # fmt: skip
def test_node_score(used_, total, expected):
    assert node_score(used_, total) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("binpack", DevicePolicy(chain=("binpack",)), id="one word"),
        pytest.param("", DevicePolicy(), id="empty means spread"),
        pytest.param("mutex", DevicePolicy(chain=("mutex",), mutex=True), id="mutex sorts and filters"),
        pytest.param("numa,numa,binpack", DevicePolicy(chain=("numa", "binpack"), chained=True), id="a repeated word counts once"),
        pytest.param("binpack,topology-aware", DevicePolicy(chain=("binpack",), chained=True, topology_aware=True), id="topology rides along"),
        pytest.param("mutex,", DevicePolicy(chain=("spread",), chained=True, mutex=True), id="a comma makes a chain"),
    ],
)  # fmt: skip
def test_device_policy(text, expected):
    assert device_policy(text) == expected


def test_node_policy_is_binpack_unless_spread():
    assert [node_policy(t) for t in ("spread", "binpack", "")] == [
        NodePolicy.SPREAD, NodePolicy.BINPACK, NodePolicy.BINPACK,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("slot=1,core=1", "expected slot, core, and memory weights"),
        ("slot=1,core,memory=1", "expected key=value entries"),
        ("slot=1,slot=2,memory=1", 'duplicate "slot" weight'),
        ("slot=1,core=x,memory=1", '"core" weight must be an integer'),
        ("slot=1,core=1234567890,memory=1", '"core" weight must have at most 9 digits'),
        ("slot=1,core=-1,memory=1", '"core" weight must not be negative'),
        ("slot=1,core=1,disk=1", 'unknown weight "disk"'),
        ("slot=0,core=0,memory=0", "at least one weight must be positive"),
    ],
)
def test_bad_weights_name_the_annotation_and_the_problem(text, problem):
    answer = scoring_weights(text)
    assert isinstance(answer, Invalid)
    assert answer.text == f'invalid hami.io/device-scoring-weights annotation "{text}": {problem}'


def test_a_pods_annotations_override_the_defaults():
    pod = a_pod(annotations={
        "hami.io/node-scheduler-policy": "spread",
        "hami.io/gpu-scheduler-policy": "binpack",
        "hami.io/device-scoring-weights": "slot=1, core=2 ,memory=3",
    })  # fmt: skip
    assert read_policy(pod, SchedulingPolicy()) == SchedulingPolicy(
        node=NodePolicy.SPREAD,
        device=DevicePolicy(chain=("binpack",)),
        weights=ScoringWeights(slot=1, core=2, memory=3),
    )
