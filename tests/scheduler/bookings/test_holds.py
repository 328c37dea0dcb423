"""What a preemption frees stays for whom it was freed."""

from __future__ import annotations

import msgspec
import pytest

from hami.domain.allocations import PodAllocation
from hami.domain.kubernetes.objects import Pod
from hami.domain.units import PodUid
from hami.policy.filter.decision import Refused
from hami.policy.quota.elastic import Member
from hami.scheduler.cluster.endings import end_promises, expire_holds

from ..builders import Cluster, a_node, a_pod, a_quota, ended, granted


@pytest.fixture
def cluster() -> Cluster:
    """One card of 8000 MiB, all of it the victim's, which is evicted for the claimant."""
    cluster = Cluster(a_node())
    cluster.sees(VICTIM, CLAIMANT)
    cluster.state.holds.begin(CLAIMANT, [VICTIM])
    return cluster


VICTIM = granted(a_pod("victim", mem=8000), "n1", "n1-d0:8000")
CLAIMANT = a_pod("claimant", mem=8000)
OTHER = a_pod("other", mem=1000)


def test_nobody_else_gets_what_the_victim_leaves(cluster: Cluster) -> None:
    cluster.sees(ended(VICTIM))
    assert isinstance(cluster.reserve(OTHER), Refused)
    assert isinstance(cluster.reserve(CLAIMANT), PodAllocation)
    assert cluster.used() == (1, 8000)


def test_the_claimant_gets_nothing_before_the_victim_is_gone(cluster: Cluster) -> None:
    assert isinstance(cluster.reserve(CLAIMANT), Refused)
    assert cluster.used() == (1, 8000)


def test_what_is_held_stays_held_when_the_claimant_is_refused(cluster: Cluster) -> None:
    cluster.sees(ended(VICTIM))
    assert isinstance(cluster.reserve(CLAIMANT, "n2"), Refused)
    assert isinstance(cluster.reserve(OTHER), Refused)
    assert isinstance(cluster.reserve(CLAIMANT, "n1"), PodAllocation)


def test_it_is_free_for_all_when_the_claimant_does_not_come_in_time(cluster: Cluster) -> None:
    cluster.sees(ended(VICTIM))
    assert expire_holds(cluster.state) == []
    cluster.clock.now += 30 + 60 + 1
    assert [hold.claimant for hold in expire_holds(cluster.state)] == [CLAIMANT]
    assert isinstance(cluster.reserve(OTHER), PodAllocation)


def test_a_victim_with_a_long_grace_is_waited_for(cluster: Cluster) -> None:
    spec = msgspec.structs.replace(VICTIM.spec, termination_grace_period_seconds=600)
    cluster.state.holds.begin(CLAIMANT, [msgspec.structs.replace(VICTIM, spec=spec)])
    cluster.clock.now += 650
    assert expire_holds(cluster.state) == []


def test_it_is_free_for_all_when_the_claimant_is_gone(cluster: Cluster) -> None:
    cluster.sees(ended(VICTIM))
    cluster.state.pod_gone(CLAIMANT)
    assert cluster.used() == (0, 0)
    assert isinstance(cluster.reserve(OTHER), PodAllocation)


def test_nothing_is_held_of_a_victim_that_stays(cluster: Cluster) -> None:
    cluster.state.holds.spares(VICTIM.uid)
    cluster.sees(ended(VICTIM))
    assert isinstance(cluster.reserve(OTHER), PodAllocation)


def test_quota_is_held_as_well() -> None:
    cluster = Cluster(a_node(devices=2))
    cluster.state.quota_changed(a_quota(mem="8000"))
    cluster.sees(VICTIM, CLAIMANT)
    cluster.state.holds.begin(CLAIMANT, [VICTIM])
    cluster.sees(ended(VICTIM))
    assert isinstance(cluster.reserve(OTHER), Refused)
    assert isinstance(cluster.reserve(CLAIMANT), PodAllocation)
    assert cluster.state.ledger.used("default", "q") == {"acme.com/mem": 8000}


def test_two_victims_leave_their_parts_one_after_the_other() -> None:
    cluster = Cluster(a_node())
    halves = [granted(a_pod(name, mem=4000), "n1", "n1-d0:4000") for name in ("a", "b")]
    cluster.sees(*halves, CLAIMANT)
    cluster.state.holds.begin(CLAIMANT, halves)
    cluster.sees(ended(halves[0]))
    assert isinstance(cluster.reserve(CLAIMANT), Refused)
    assert isinstance(cluster.reserve(OTHER), Refused)
    cluster.sees(ended(halves[1]))
    assert isinstance(cluster.reserve(CLAIMANT), PodAllocation)
    assert cluster.used() == (1, 8000)


def test_another_leader_takes_no_notice(cluster: Cluster) -> None:
    cluster.sees(ended(VICTIM))
    end_promises(cluster.state)
    assert cluster.used() == (0, 0)


# What is promised, as elastic quotas count it.


def a_member(pod: Pod, **vector: int) -> Member:
    return Member(uid=pod.uid, namespace=pod.namespace, name=pod.name, vector=vector)


def promised(cluster: Cluster, asks: Pod = OTHER) -> dict[str, dict[str, int]]:
    return {m.namespace: dict(m.vector) for m in cluster.state.holds.promised(asks.uid)}


@pytest.fixture
def two() -> Cluster:
    """A claimant of ``a`` with 10 of which two victims of ``b`` and ``c`` leave 6 and 8."""
    cluster = Cluster(a_node())
    claimant, one, other = (a_pod("p", namespace=name, uid=name) for name in "abc")
    cluster.state.holds.begin(
        claimant, [one, other], {"r": 10}, [a_member(one, r=6), a_member(other, r=8, cpu=1)]
    )
    return cluster


def test_a_plan_counts_for_all_others_as_carried_out(two: Cluster) -> None:
    assert promised(two) == {"a": {"r": 10}, "b": {"r": -6}, "c": {"r": -8, "cpu": -1}}


def test_whoever_claims_does_not_count_its_own_twice(two: Cluster) -> None:
    assert promised(two, a_pod(namespace="a", uid="a")) == {}
    assert promised(two) != {}


def test_a_victim_that_stays_takes_its_part_of_the_promise_along(two: Cluster) -> None:
    two.state.holds.spares(PodUid("b"))
    assert promised(two) == {"a": {"r": 4}, "c": {"r": -8, "cpu": -1}}
    two.state.holds.spares(PodUid("c"))
    assert promised(two) == {}


def test_a_plan_of_which_nothing_is_carried_out_promises_nothing(two: Cluster) -> None:
    """Though its claimant asks for more than those that stay would have left."""
    claimant, victim = a_pod("q", namespace="d", uid="d"), a_pod("p", namespace="e", uid="e")
    two.state.holds.begin(claimant, [victim], {"r": 10}, [a_member(victim, r=6)])
    two.state.holds.spares(PodUid("e"))
    assert "d" not in promised(two)
    assert set(two.state.holds.holds) == {PodUid("a")}


def test_a_refusal_too_late_takes_nothing_back(cluster: Cluster) -> None:
    cluster.sees(ended(VICTIM))
    cluster.state.holds.spares(VICTIM.uid)
    assert set(cluster.state.holds.spoken_for) == {VICTIM.uid}
    assert isinstance(cluster.reserve(OTHER), Refused)
    assert isinstance(cluster.reserve(CLAIMANT), PodAllocation)


def test_nothing_is_promised_once_the_claimant_has_its_place(two: Cluster) -> None:
    two.state.bookings.end_hold(PodUid("a"))
    assert promised(two) == {}


def test_a_second_plan_for_the_same_pod_replaces_what_it_will_hold(two: Cluster) -> None:
    claimant, third = a_pod("p", namespace="a", uid="a"), a_pod("p", namespace="d", uid="d")
    two.state.holds.begin(claimant, [third], {"r": 12}, [a_member(third, r=2)])
    assert promised(two)["a"] == {"r": 12}
    assert promised(two)["d"] == {"r": -2}
    end_promises(two.state)
    assert promised(two) == {}


def test_other_books_promise_nothing(two: Cluster) -> None:
    two.state.holds.forget()
    assert promised(two) == {}
