"""Nobody keeps for ever what others could use: gangs and pods that are not bound give way."""

from __future__ import annotations

import random

import pytest

from hami.domain.kubernetes.objects import (
    Pod,
)
from hami.policy.filter.gangs import SCHEDULER_PLUGINS, GroupName, needed
from hami.scheduler.bookings.reservations import Phase

from ..builders import a_node, a_pod, a_quota
from .gang_world import TTL, Gangs, member, three


class TestGivingWay:
    def test_a_pod_that_asks_again_and_again_keeps_its_first_time(self) -> None:
        world = Gangs(a_node(memory=4000))
        world.sees(holder := a_pod("holder", mem=3000), waits := a_pod("waits", mem=3000))
        world.filter(holder)
        assert world.filter(waits) == ""
        for _ in range(31):
            assert world.sweep() == set()
            world.passes(10)
            assert world.filter(holder) == "n1"
        assert world.sweep() == {"holder"}
        assert world.filter(holder) == ""
        assert "GivesWay" in world.said
        assert world.filter(waits) == "n1"

    def test_it_keeps_it_where_nobody_else_can_use_it(self) -> None:
        world = Gangs(a_node(memory=4000))
        world.sees(holder := a_pod("holder", mem=3000), large := a_pod("large", mem=9000))
        world.filter(large)
        for _ in range(40):
            assert world.filter(holder) == "n1"
            world.passes(10)
            assert world.sweep() == set()

    def test_after_its_rest_it_has_a_place_again_and_the_next_rest_is_longer(self) -> None:
        world = Gangs(a_node(memory=3000))
        world.sees(holder := a_pod("holder", mem=3000))
        rests: list[float] = []
        for number in range(3):
            world.sees(waits := a_pod(f"waits{number}", mem=3000))
            while not world.sweep():
                world.filter(holder)
                world.filter(waits)
                world.passes(10)
            begin = world.cluster.clock.now
            world.gone(waits)
            while not world.filter(holder):
                world.passes(1)
            rests.append(world.cluster.clock.now - begin)
        assert rests == [10, 20, 40]

    def test_whoever_waited_without_a_turn_comes_first_then(self) -> None:
        world = Gangs(a_node(memory=3000))
        world.sees(holder := a_pod("holder", mem=3000), waits := a_pod("waits", mem=3000))
        for seconds in (0, TTL - 10, 20):
            world.passes(seconds)
            world.filter(holder)
            world.filter(waits)
        assert world.sweep() == {"holder"}
        world.passes(30)
        assert world.filter(holder) == ""
        assert world.filter(waits) == "n1"

    def test_not_if_it_does_not_come_when_it_is_woken(self) -> None:
        world = Gangs(a_node(memory=3000))
        world.sees(holder := a_pod("holder", mem=3000), waits := a_pod("waits", mem=3000))
        for seconds in (0, TTL - 10, 20):
            world.passes(seconds)
            world.filter(holder)
            world.filter(waits)
        assert world.sweep() == {"holder"}
        world.state.pending.did_not_come(world.state.pending.pods[waits.uid], "n1", 0.0)
        world.passes(30)
        assert world.filter(holder) == "n1"

    def test_whoever_rests_is_woken_when_it_is_over(self) -> None:
        world = Gangs(a_node(memory=3000))
        world.sees(holder := a_pod("holder", mem=3000), waits := a_pod("waits", mem=3000))
        world.filter(holder)
        world.filter(waits)
        world.passes(TTL - 10)
        world.filter(holder)
        world.passes(11)
        assert world.sweep() == {"holder"}
        world.filter(holder)
        waiting = world.state.pending.pods[holder.uid]
        assert waiting.not_before == pytest.approx(world.cluster.clock.now + 10)

    def test_a_gang_that_cannot_be_complete_gives_way_as_a_whole(self) -> None:
        world = Gangs(a_node("n1", memory=6000), a_node("n2", memory=1000))
        gang = [member(f"m{number}", mem=3000) for number in range(2)]  # Of three, say.
        world.sees(*gang, single := a_pod("single", mem=3000))
        for pod in gang:
            world.filter(pod)
        assert world.filter(single) == ""
        world.passes(TTL - 10)
        world.filter(gang[0])
        world.passes(20)
        assert world.sweep() == {"m0", "m1"}
        assert [world.filter(pod) for pod in gang] == ["", ""]
        assert world.filter(single) == "n1"

    def test_two_together_give_way_to_one_who_needs_what_both_have(self) -> None:
        world = Gangs(a_node(memory=6000))
        pods = [a_pod(name, mem=3000) for name in ("a", "b")]
        world.sees(*pods, large := a_pod("large", mem=6000))
        for seconds in (0, TTL - 100, 50, 51):
            world.passes(seconds)
            for pod in pods:
                world.filter(pod)
            world.filter(large)
        assert world.sweep() == {"a", "b"}
        assert world.filter(large) == "n1"

    def test_only_who_is_in_the_way(self) -> None:
        world = Gangs(a_node("n1", memory=3000), a_node("n2", memory=3000))
        here, there = a_pod("here", mem=3000), a_pod("there", mem=3000)
        world.sees(here, there, waits := a_pod("waits", mem=3000))
        for seconds in (0, TTL - 10, 20):
            world.passes(seconds)
            world.filter(here, "n1")
            world.filter(there, "n2")
            world.filter(waits, "n2")
        assert world.sweep() == {"there"}
        assert world.held == {"here"}

    def test_not_for_another_of_the_same_gang(self) -> None:
        world = Gangs(a_node(memory=6000))
        world.least(2)
        pods = three(world)
        for seconds in (0, TTL - 10, 20):
            world.passes(seconds)
            for pod in pods:
                world.filter(pod)
        assert world.sweep() == set()

    def test_a_bind_that_is_on_its_way_gives_no_way(self) -> None:
        world = Gangs(a_node(memory=3000))
        world.sees(holder := a_pod("holder", mem=3000), waits := a_pod("waits", mem=3000))
        world.filter(holder)
        world.filter(waits)
        world.passes(TTL - 10)
        world.filter(holder)
        world.state.reservations[holder.uid].phase = Phase.BINDING
        world.passes(20)
        assert world.sweep() == set()

    def test_quota_that_is_held_makes_way_too(self) -> None:
        world = Gangs(a_node(memory=9000))
        world.state.quota_changed(a_quota(mem="3000"))
        world.sees(holder := a_pod("holder", mem=3000), waits := a_pod("waits", mem=3000))
        for seconds in (0, TTL - 10, 20):
            world.passes(seconds)
            world.filter(holder)
            world.filter(waits)
        assert world.sweep() == {"holder"}
        assert world.filter(waits) == "n1"


class Storm:
    """A kube-scheduler that asks for every pod every second, and binds a gang when it is complete.

    ``sizes``: how many pods each gang should have, though some may never come.
    """

    def __init__(self, seed: int, nodes: int, slots: int) -> None:
        self.random = random.Random(seed)
        self.slots = slots
        self.world = Gangs(*(a_node(f"n{n}", memory=slots * 1000) for n in range(nodes)), ttl=20.0)
        self.sizes: dict[str, int] = {}
        self.pods: dict[str, Pod] = {}
        self.bound: set[str] = set()
        self.bound_at: dict[str, float] = {}

    def add_gang(self, name: str, size: int, present: int, *, says: bool) -> None:
        self.sizes[name] = size
        if says:
            self.world.least(size, name)
        for number in range(present):
            self._add(member(f"{name}-{number}", name, mem=1000))

    def add_pod(self, name: str, slots: int) -> None:
        self._add(a_pod(name, mem=slots * 1000))

    def _add(self, pod: Pod) -> None:
        self.pods[pod.name] = pod
        self.world.sees(pod)

    def ticks(self, seconds: int) -> None:
        for second in range(seconds):
            self._round()
            self.world.passes(1)
            if second % 5 == 0:
                self.world.sweep()

    def _round(self) -> None:
        waiting = [name for name in self.pods if name not in self.bound]
        self.random.shuffle(waiting)
        given = [name for name in waiting if self.world.filter(self.pods[name])]
        self._check()
        for name in given:
            gang = self._gang(name)
            mates = [each for each in given if self._gang(each) == gang] if gang else [name]
            still = self.pods[name].uid in self.world.state.reservations
            if still and len(mates) >= self.sizes.get(gang, 1):
                self.world.bind(self.pods[name])
                self.bound.add(name)
        self._check()

    def _gang(self, name: str) -> str:
        return name.partition("-")[0] if "-" in name else ""

    def _check(self) -> None:
        for node in self.world.state.nodes:
            assert self.world.cluster.used(node)[1] <= self.slots * 1000, "more than there is"
        for gang, size in self.sizes.items():
            self._all_or_none(gang, size)

    def _all_or_none(self, gang: str, size: int) -> None:
        state = self.world.state
        uids = state.groups.members(GroupName(SCHEDULER_PLUGINS, "default", gang))
        held = [uid for uid in uids if uid in state.reservations]
        bound = sum(bool(state.pods[uid].spec.node_name) for uid in uids)
        least = state.groups.least(GroupName(SCHEDULER_PLUGINS, "default", gang))
        need = needed(least, bound=bound, others=0, waiting=len(uids) - bound)
        assert not held or len(held) >= need, f"{len(held)} of the {need} of {gang}, {size} in all"


@pytest.mark.parametrize("seed", range(15))
def test_whatever_gangs_there_are_a_pod_that_fits_is_bound_at_last(seed: int) -> None:
    """Incomplete gangs hold devices for a time, and of complete ones all run or none does."""
    choose = random.Random(seed)
    storm = Storm(seed, nodes=choose.randint(1, 3), slots=4)
    for number in range(choose.randint(1, 4)):
        present, missing = choose.randint(1, 4), choose.randint(0, 2)
        storm.add_gang(f"g{number}", present + missing, present, says=choose.random() < 0.5)
    storm.ticks(15)
    storm.add_pod("single", slots := choose.randint(1, 4))
    storm.ticks(6 * int(storm.world.ttl))
    if "single" not in storm.bound:
        assert all(storm.slots - taken < slots for taken in bound_slots(storm).values())


def bound_slots(storm: Storm) -> dict[str, int]:
    taken = dict.fromkeys(storm.world.state.nodes, 0)
    for name in storm.bound:
        pod = storm.world.state.pods[storm.pods[name].uid]
        taken[pod.spec.node_name] += 1
    return taken


def test_incomplete_gangs_starve_no_complete_one() -> None:
    """Each of them alone is not in its way; both are."""
    storm = Storm(1, nodes=1, slots=4)
    storm.add_gang("a", 3, 2, says=True)
    storm.add_gang("b", 3, 2, says=True)
    storm.ticks(10)
    storm.add_gang("c", 4, 4, says=True)
    storm.ticks(40)
    assert {name for name in storm.bound if name.startswith("c")} == {"c-0", "c-1", "c-2", "c-3"}
