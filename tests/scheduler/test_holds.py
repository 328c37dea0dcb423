"""What a preemption frees stays for whom it was freed."""

from __future__ import annotations

import msgspec
import pytest

from hami.domain.allocations import PodAllocation
from hami.policy.filter import Refused

from .builders import Cluster, a_node, a_pod, a_quota, ended, granted


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
    assert cluster.state.expire_holds() == []
    cluster.clock.now += 30 + 60 + 1
    assert [hold.claimant for hold in cluster.state.expire_holds()] == [CLAIMANT]
    assert isinstance(cluster.reserve(OTHER), PodAllocation)


def test_a_victim_with_a_long_grace_is_waited_for(cluster: Cluster) -> None:
    spec = msgspec.structs.replace(VICTIM.spec, termination_grace_period_seconds=600)
    cluster.state.holds.begin(CLAIMANT, [msgspec.structs.replace(VICTIM, spec=spec)])
    cluster.clock.now += 650
    assert cluster.state.expire_holds() == []


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
    cluster.state.end_holds()
    assert cluster.used() == (0, 0)
