"""Which agents are silent, by the changes of their Leases that were seen."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from hami.domain.kubernetes.objects import Metadata
from hami.domain.units import VendorKey
from hami.kube.leases.heartbeat import SILENCE
from hami.kube.resources import Lease, LeaseSpec
from hami.scheduler.cluster.agents import Agents

from ..builders import Clock

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
ACME = VendorKey("ACME")


class World:
    def __init__(self) -> None:
        self.clock = Clock()
        self.told: list[str] = []
        self.agents = Agents(self.told.append, clock=self.clock, now=lambda: NOW)

    def hears(self, ago: float = 0.0, node: str = "n1", vendor: str = "ACME") -> None:
        """By a clock that is this far behind."""
        self.agents.changed(a_lease(ago, node, vendor), None)

    def passes(self, seconds: float) -> None:
        self.clock.now += seconds
        self.agents.look()

    @property
    def silent(self) -> bool:
        return self.agents.silent("n1", ACME)


def a_lease(ago: float = 0.0, node: str | None = "n1", vendor: str = "ACME") -> Lease:
    renewed = (NOW - timedelta(seconds=ago)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    labels = {"hami.io/agent": vendor} if vendor else {}
    spec = LeaseSpec(holder_identity=node, renew_time=renewed)
    return Lease(metadata=Metadata(name="x", labels=labels), spec=spec)


@pytest.fixture
def world() -> World:
    return World()


def test_who_never_had_a_lease_is_silent_until_the_first_one(world):
    assert world.silent
    world.hears()
    assert not world.silent
    assert world.told == ["n1"]


def test_an_agent_that_is_not_heard_any_more_is_silent_and_its_node_is_told_of(world):
    world.hears()
    world.passes(SILENCE)
    assert not world.silent
    world.passes(1)
    assert world.silent
    assert world.told == ["n1", "n1"]
    world.passes(1)
    assert world.told == ["n1", "n1"]


@pytest.mark.parametrize("looked", [False, True])
def test_one_that_is_heard_again_is_back_at_once(world, looked):
    world.hears(ago=60)
    if looked:
        world.passes(1)
    world.hears(ago=50)
    assert not world.silent
    assert world.told == ["n1"]


def test_what_counts_is_the_change_and_not_the_clock_of_the_agent(world):
    world.hears()
    for behind in range(10_000, 9_000, -20):
        world.passes(20)
        world.hears(ago=behind)
        assert not world.silent


@pytest.mark.parametrize("again", [False, True])
def test_a_lease_that_is_old_when_it_is_first_seen_vouches_for_nobody(world, again):
    """After a rollback and a restart of the scheduler, whatever comes again from a list."""
    world.hears(ago=SILENCE + 1)
    if again:
        world.hears(ago=SILENCE + 1)
    assert world.silent


def test_the_same_lease_once_more_is_no_sign_of_life(world):
    world.hears()
    world.passes(SILENCE + 1)
    world.hears()
    assert world.silent


def test_each_vendor_and_node_speaks_for_itself(world):
    world.hears()
    world.hears(vendor="BOLT")
    world.hears(node="n2")
    world.passes(30)
    world.hears(ago=-30, vendor="BOLT")
    world.passes(30)
    assert world.silent
    assert not world.agents.silent("n1", VendorKey("BOLT"))
    assert world.agents.silent("n2", ACME)


def test_a_lease_that_somebody_took_away_vouches_for_nobody_until_it_is_made_anew(world):
    world.hears()
    world.agents.gone(a_lease())
    assert world.silent
    world.hears(ago=-1)
    assert not world.silent


def test_a_node_that_is_gone_is_forgotten(world):
    world.hears()
    world.passes(SILENCE + 1)
    world.agents.gone(a_lease())
    world.told.clear()
    world.agents.gone(a_lease())
    world.passes(1)
    assert world.told == []


@pytest.mark.parametrize("lease", [a_lease(node=None), a_lease(node=""), a_lease(vendor="")])
def test_somebody_elses_lease_is_nothing(world, lease):
    world.agents.changed(lease, None)
    world.agents.gone(lease)
    assert world.told == []
