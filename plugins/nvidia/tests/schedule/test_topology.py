"""Which devices are taken together under the policy ``topology-aware``."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.requests import Placement
from hami.domain.scheduling import DevicePolicy

from ..builders import (
    a_context,
    a_gpu,
    a_mig_gpu,
    asking,
    fitted,
    idle,
    linked,
    refused,
    the_vendor,
    used,
)

AWARE = DevicePolicy(topology_aware=True)
THREE_LINKED = linked("dev-0", "dev-1", "dev-2")
POSITIVE = THREE_LINKED({(0, 1): 100, (0, 2): 200, (1, 2): 150})
NEGATIVE = THREE_LINKED({(0, 1): -5, (0, 2): -3, (1, 2): -1})
UNLINKED = THREE_LINKED({})


@pytest.mark.parametrize(
    ("devices", "count", "expected"),
    [
        pytest.param(POSITIVE, 1, {"dev-1"}, id="one: the least connected"),
        pytest.param(POSITIVE, 2, {"dev-0", "dev-2"}, id="two: the best connected"),
        pytest.param(POSITIVE, 3, {"dev-0", "dev-1", "dev-2"}, id="all that there are"),
        pytest.param(NEGATIVE, 1, {"dev-0"}, id="one of negative scores: the lowest sum"),
        pytest.param(NEGATIVE, 2, {"dev-1", "dev-2"}, id="two of negative scores: the highest"),
        pytest.param(UNLINKED, 2, {"dev-1", "dev-2"}, id="zeros: the policy order decides"),
        pytest.param(UNLINKED, 1, {"dev-2"}, id="one of zeros: the policy order decides"),
    ],
)
def test_devices_are_chosen_by_their_links(devices, count, expected):
    assert set(fitted(asking(count, memory=64), idle(*devices), policy=AWARE)) == expected


class TestSixDevices:
    """Two groups of three: a c f are linked best; f is linked worst to all of them."""

    DEVICES = linked("a", "b", "c", "d", "e", "f")(
        {
            **dict.fromkeys(combinations(range(6), 2), 20),
            (0, 2): 100,
            (0, 5): 50,
            (2, 5): 50,
            (1, 5): 1,
            (3, 5): 1,
            (4, 5): 1,
            (1, 3): 60,
            (1, 4): 60,
            (3, 4): 60,
        }
    )

    def test_three_are_the_best_triple_in_policy_order(self):
        assert fitted(asking(3, memory=64), idle(*self.DEVICES), policy=AWARE) == ["f", "c", "a"]

    def test_one_is_the_least_connected(self):
        assert fitted(asking(memory=64), idle(*self.DEVICES), policy=AWARE) == ["f"]


def test_without_the_policy_links_do_not_matter():
    assert fitted(asking(memory=64), idle(*POSITIVE)) == ["dev-2"]
    assert fitted(asking(2, memory=64), idle(*POSITIVE)) == ["dev-2", "dev-1"]


def test_only_devices_that_fit_are_compared():
    dev_0, dev_1, dev_2 = POSITIVE
    states = [*idle(dev_0), *idle(dev_1), used(dev_2, memory=100)]
    assert set(fitted(asking(2, memory=64), states, policy=AWARE)) == {"dev-0", "dev-1"}


def test_too_few_devices_are_counted_as_without_the_policy():
    states = idle(*POSITIVE[:2])
    text = refused(asking(3, memory=64), states, policy=AWARE)
    assert text == "2/2 AllocatedCardsInsufficientRequest"


def test_fixed_a_device_without_scores_counts_as_unlinked():
    """HAMi follows a missing score table and crashes."""
    devices = [a_gpu("dev-9"), *POSITIVE]
    assert set(fitted(asking(2, memory=64), idle(*devices), policy=AWARE)) == {"dev-0", "dev-2"}


def test_fixed_every_numa_node_is_tried():
    """HAMi keeps the last NUMA node's devices only, and refuses when they are too few."""
    devices = [a_gpu("a", numa=0), a_gpu("b", numa=1), a_gpu("c", numa=1)]
    bound = {"nvidia.com/numa-bind": "true"}
    taken = fitted(asking(2, memory=64), idle(*devices), policy=AWARE, pod=bound)
    assert set(taken) == {"b", "c"}


def test_several_mig_slices_may_come_from_one_device():
    grants = fitted(asking(3, memory=5000), idle(a_mig_gpu()), policy=AWARE)
    assert grants == ["GPU-0"] * 3


def test_more_slices_than_can_be_searched_are_still_placed():
    states = idle(*(a_mig_gpu(f"GPU-{n}", slots=7) for n in range(4)))
    assert len(fitted(asking(7, memory=5000), states, policy=AWARE)) == 7


def test_more_devices_than_can_be_searched_are_taken_in_policy_order_when_quota_refuses_the_best():
    names = [f"dev-{n:02}" for n in range(20)]
    best = linked(*names)({(0, 1): 100})
    states = idle(*(a_gpu(d.id, memory=1000 - n, extra=d.extra) for n, d in enumerate(best)))
    taken = fitted(
        asking(2, percent=100),
        states,
        policy=AWARE,
        allowed=lambda grants: sum(grant.memory_mib for grant in grants) < 1998,
    )
    assert set(taken) == {"dev-19", "dev-18"}


class TestQuota:
    """Percentages of devices of different sizes are charged differently."""

    BIG, SMALL = 1000, 100

    def states(self):
        dev_0, dev_1, dev_2 = THREE_LINKED({(0, 1): 1, (0, 2): 300, (1, 2): 200})
        big, small = {"memory": self.BIG}, {"memory": self.SMALL}
        sized = zip((dev_0, dev_1, dev_2), (big, small, small), strict=True)
        return idle(*(a_gpu(d.id, extra=d.extra, **size) for d, size in sized))

    @staticmethod
    def up_to(limit):
        return lambda grants: sum(grant.memory_mib for grant in grants) <= limit

    def test_the_best_set_is_taken_when_quota_allows_it(self):
        taken = fitted(asking(2, percent=50), self.states(), policy=AWARE, allowed=self.up_to(550))
        assert set(taken) == {"dev-0", "dev-2"}

    def test_the_best_allowed_set_is_taken_otherwise(self):
        # 510 MiB admit each device alone, but no pair with dev-0.
        taken = fitted(asking(2, percent=50), self.states(), policy=AWARE, allowed=self.up_to(510))
        assert set(taken) == {"dev-1", "dev-2"}

    def test_of_several_allowed_sets_the_best_connected_is_taken(self):
        devices = linked("a", "b", "c", "d")(
            {(0, 1): 100, (0, 2): 90, (1, 2): 50, (1, 3): 70, (2, 3): 60}
        )
        sized = zip(devices, (4, 2, 1, 1), strict=True)
        states = idle(*(a_gpu(d.id, memory=memory, extra=d.extra) for d, memory in sized))
        taken = fitted(asking(2, percent=100), states, policy=AWARE, allowed=self.up_to(4))
        assert set(taken) == {"b", "d"}

    def test_one_that_quota_refuses_is_refused(self):
        vendor, request = the_vendor(), asking(memory=64)
        grant = vendor.charge(request, *idle(POSITIVE[0]), a_context())
        context = a_context(policy=AWARE, allowed=self.up_to(0))
        answer = vendor.choose(request, [(idle(POSITIVE[0])[0], grant)], context)
        assert str(answer) == "1/1 ResourceQuotaNotFit"

    def test_no_set_is_taken_when_quota_allows_none(self):
        text = refused(asking(2, percent=50), self.states(), policy=AWARE, allowed=self.up_to(60))
        assert "ResourceQuotaNotFit" in text

    def test_candidates_that_are_allowed_alone_but_not_together_are_refused_by_quota(self):
        states = idle(*(a_gpu(f"dev-{n}") for n in range(3)))
        text = refused(asking(2, memory=64), states, policy=AWARE, allowed=self.up_to(100))
        assert text == "3/3 ResourceQuotaNotFit"


@given(data=st.data())
def test_law_the_best_set_is_taken_if_quota_allows_it_and_else_one_that_it_does(data):
    size = data.draw(st.integers(1, 6))
    count = data.draw(st.integers(1, size))
    pairs = list(combinations(range(size), 2))
    values = data.draw(st.lists(st.integers(-50, 500), min_size=len(pairs), max_size=len(pairs)))
    scores = dict(zip(pairs, values, strict=True))
    memories = data.draw(st.lists(st.integers(1, 4), min_size=size, max_size=size))
    limit = data.draw(st.integers(4, 16))
    names = [f"dev-{n}" for n in range(size)]
    states = idle(
        *(
            a_gpu(device.id, memory=memory, extra=device.extra)
            for device, memory in zip(linked(*names)(scores), memories, strict=True)
        )
    )

    def rank(chosen):
        if count == 1:
            (one,) = chosen
            return -sum(score for pair, score in scores.items() if one in pair)
        return sum(scores[pair] for pair in combinations(sorted(chosen), 2))

    allowed_sets = [
        chosen
        for chosen in combinations(range(size), count)
        if sum(memories[n] for n in chosen) <= limit
    ]
    context = a_context(
        policy=AWARE, allowed=lambda grants: sum(g.memory_mib for g in grants) <= limit
    )
    answer = the_vendor().fit(asking(count, percent=100), states, context)
    assert isinstance(answer, Placement) is bool(allowed_sets)
    if allowed_sets:
        taken = tuple(names.index(grant.device_id) for grant in answer.grants)
        assert tuple(sorted(taken)) in allowed_sets
        best = max(map(rank, combinations(range(size), count)))
        if all(c in allowed_sets for c in combinations(range(size), count) if rank(c) == best):
            assert rank(taken) == best


@given(order=st.permutations(range(6)))
def test_law_the_order_of_registration_does_not_matter(order):
    devices = [TestSixDevices.DEVICES[n] for n in order]
    assert fitted(asking(3, memory=64), idle(*devices), policy=AWARE) == ["f", "c", "a"]
