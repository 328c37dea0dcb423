"""Gangs have devices together or not at all, and nobody keeps for ever what others could use."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from hami.domain.allocations import PodAllocation
from hami.domain.kubernetes.objects import (
    GangPolicy,
    GroupPolicy,
    Metadata,
    Node,
    Pod,
    PodGroup,
    PodGroupSpec,
    Toleration,
)
from hami.domain.scheduling import SchedulingPolicy
from hami.policy.filter.gangs import KUBERNETES, SCHEDULER_PLUGINS, GroupName, needed
from hami.policy.pods.pod_request import parse_pod
from hami.scheduler.bookings.reservations import Phase
from hami.scheduler.cluster.endings import expire
from hami.scheduler.cluster.feeds import PodFeed
from hami.scheduler.decide import gangs
from hami.scheduler.decide.overstayed import make_way, reserve, rest_of
from hami.scheduler.pending.pending_pods import Refusal

from ..builders import Cluster, a_node, a_pod, a_quota, an_elastic_quota, granted

TTL = 300.0


def member(name: str, group: str = "g", **asks: Any) -> Pod:
    pod = a_pod(name, **asks)
    labels = {"scheduling.x-k8s.io/pod-group": group}
    return msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(pod.metadata, labels=labels)
    )


def tolerating(pod: Pod) -> Pod:
    """Nobody knows whether it is offered the same nodes as others."""
    spec = msgspec.structs.replace(pod.spec, tolerations=[Toleration(key="gpu", operator="Exists")])
    return msgspec.structs.replace(pod, spec=spec)


class Gangs:
    """A state, and the questions that kube-scheduler asks of it."""

    def __init__(self, *nodes: Node, ttl: float = TTL) -> None:
        self.ttl = ttl
        self.cluster = Cluster(*nodes)
        self.state = self.cluster.state
        self._feed = PodFeed(self.state)

    def sees(self, *pods: Pod) -> None:
        for pod in pods:
            self._feed.changed(pod, None)

    def gone(self, pod: Pod) -> None:
        self._feed.gone(pod)

    def filter(self, pod: Pod, *candidates: str) -> str:
        """The node; empty when it is refused."""
        policy = SchedulingPolicy()
        request = parse_pod(pod, self.state.vendors, policy)
        names = list(candidates) or list(self.state.nodes)
        outcome = reserve(self.state, request, names, policy)  # type: ignore[arg-type]
        if isinstance(outcome, PodAllocation):
            return outcome.node
        self.state.pending.refused(pod, names, Refusal(at=0.0, outcome=outcome))
        rest_of(self.state, pod)
        self.said = "; ".join({str(answer) + "".join(answer.details) for answer in outcome.answers})
        return ""

    def bind(self, pod: Pod) -> None:
        """As the informer shows it."""
        held = self.state.reservations[pod.uid]
        held.phase = Phase.BOUND
        slots = [f"{grant.device_id}:{grant.memory_mib}" for grant in held.allocation.grants]
        self.sees(granted(pod, held.allocation.node, *slots))

    def least(self, number: int, group: str = "g") -> None:
        spec = PodGroupSpec(min_member=number)
        about = Metadata(name=group, namespace="default")
        self.state.groups.group_changed(SCHEDULER_PLUGINS, PodGroup(metadata=about, spec=spec))

    @property
    def held(self) -> set[str]:
        return {each.pod.name for each in self.state.reservations.values()}

    def passes(self, seconds: float) -> None:
        self.cluster.clock.now += seconds

    def sweep(self) -> set[str]:
        """Who gave way."""
        gone = make_way(self.state, self.ttl, SchedulingPolicy())
        expire(self.state, self.ttl)
        return {each.pod.name for each in gone}


def three(world: Gangs, **asks: Any) -> list[Pod]:
    pods = [member(f"m{number}", **({"mem": 3000} | asks)) for number in range(3)]
    world.sees(*pods)
    return pods


class TestTogether:
    def test_the_first_question_reserves_for_all(self) -> None:
        world = Gangs(a_node(memory=9000))
        pods = three(world)
        assert world.filter(pods[0]) == "n1"
        assert world.held == {"m0", "m1", "m2"}
        assert world.cluster.used() == (3, 9000)

    def test_the_others_find_what_was_promised_them(self) -> None:
        world = Gangs(a_node(memory=9000))
        assert [world.filter(pod) for pod in three(world)] == ["n1", "n1", "n1"]
        assert world.cluster.used() == (3, 9000)

    def test_nobody_has_anything_when_one_does_not_fit(self) -> None:
        world = Gangs(a_node(memory=8000))
        for pod in three(world):
            assert world.filter(pod) == ""
        assert world.said.startswith("PodGroupNotFit3 waiting pods of group default/g must have")
        assert "for m2, 0/1 nodes fit: 1 1/1 CardInsufficientMemory" in world.said
        assert (world.held, world.cluster.used()) == (set(), (0, 0))

    def test_a_pod_that_fits_is_not_starved_by_two_of_three(self) -> None:
        world = Gangs(a_node(memory=8000))
        gang = three(world)
        world.sees(single := a_pod("single", mem=3000))
        for pod in gang:
            world.filter(pod)
        assert world.filter(single) == "n1"

    def test_two_halves_do_not_starve_each_other(self) -> None:
        world = Gangs(a_node(memory=12000))
        first = three(world)
        world.sees(*(second := [member(f"s{n}", "h", mem=3000) for n in range(3)]))
        got = [world.filter(pod) for pair in zip(first, second, strict=True) for pod in pair]
        assert got == ["n1", "", "n1", "", "n1", ""]
        assert world.held == {"m0", "m1", "m2"}

    def test_large_members_are_placed_before_small_ones(self) -> None:
        world = Gangs(a_node("n1", memory=6000), a_node("n2", memory=2000))
        small, large = member("small", mem=2000), member("large", mem=6000)
        world.sees(small, large)
        assert world.filter(small) == "n2"
        assert world.filter(large) == "n1"

    def test_quota_counts_for_all_of_them(self) -> None:
        world = Gangs(a_node(memory=90000))
        world.state.quota_changed(a_quota(mem="8999"))
        pods = three(world)
        assert world.filter(pods[0]) == ""
        assert "ResourceQuotaNotFit" in world.said
        assert world.state.ledger.used("default", "q") == {"acme.com/mem": 0}
        world.state.quota_changed(a_quota(mem="9000"))
        assert world.filter(pods[0]) == "n1"
        assert world.state.ledger.used("default", "q") == {"acme.com/mem": 9000}

    def test_elastic_quota_counts_and_who_was_tried_in_vain_waits_for_its_share(self) -> None:
        world = Gangs(a_node(memory=90000))
        world.cluster.limits(an_elastic_quota("default", 8000, 8000))
        pods = three(world)
        assert world.filter(pods[0]) == ""
        elastic = world.state.ledger.elastic
        assert [elastic.asked(pod.uid) is not None for pod in pods] == [True, True, True]
        assert elastic.used(elastic.leaves[0]).get("acme.com/mem", 0) == 0

    @pytest.mark.parametrize(
        "other",
        [
            pytest.param(a_pod("m2", mem=None), id="asks for no device"),
            pytest.param(a_pod("m2", phase="Succeeded"), id="has ended"),
        ],
    )
    def test_a_member_that_does_not_wait_for_devices_keeps_nobody_out(self, other: Pod) -> None:
        world = Gangs(a_node(memory=6000))
        about = msgspec.structs.replace(other.metadata, labels=member("x").metadata.labels)
        world.sees(msgspec.structs.replace(other, metadata=about))
        pods = [member(f"m{number}", mem=3000) for number in range(2)]
        world.sees(*pods)
        assert [world.filter(pod) for pod in pods] == ["n1", "n1"]

    def test_groups_of_other_namespaces_and_kinds_are_others(self) -> None:
        world = Gangs(a_node(memory=3000))
        world.sees(mine := member("m", mem=3000), member("o", mem=3000, namespace="other"))
        annotated = a_pod("v", mem=3000, annotations={"scheduling.k8s.io/group-name": "g"})
        world.sees(annotated)
        assert world.filter(mine) == "n1"

    def test_a_gang_that_does_not_fit_is_judged_once_for_all_its_pods(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        world = Gangs(a_node(memory=8000))
        pods = three(world)
        world.filter(pods[0])
        monkeypatch.setattr(world.state.bookings, "try_on", pytest.fail)
        assert [world.filter(pod) for pod in pods] == ["", "", ""]

    def test_and_anew_when_something_has_come_free(self) -> None:
        world = Gangs(a_node(memory=9000))
        world.sees(runs := granted(a_pod("runs"), "n1", "n1-d0:1000"))
        pods = three(world)
        assert [world.filter(pod) for pod in pods] == ["", "", ""]
        world.gone(runs)
        assert [world.filter(pod) for pod in pods] == ["n1", "n1", "n1"]

    def test_no_more_than_so_many_are_placed_in_one_turn(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(gangs, "MOST_TOGETHER", 2)
        world = Gangs(a_node(memory=9000))
        pods = three(world)
        assert world.filter(pods[0]) == "n1"
        assert len(world.held) == 2
        assert [world.filter(pod) for pod in pods] == ["n1", "n1", "n1"]


class TestHowMany:
    def test_a_minimum_that_is_known_lets_fewer_run(self) -> None:
        world = Gangs(a_node(memory=6000))
        world.least(2)
        pods = three(world)
        assert [world.filter(pod) for pod in pods] == ["n1", "n1", ""]
        assert world.held == {"m0", "m1"}

    def test_one_more_than_the_minimum_is_refused_alone(self) -> None:
        world = Gangs(a_node(memory=6000))
        world.least(2)
        pods = three(world)
        for pod in (pods[0], pods[1], pods[2], pods[2]):
            world.filter(pod)
        assert world.held == {"m0", "m1"}

    @pytest.mark.parametrize("spec", [
        PodGroupSpec(min_member=1),
        PodGroupSpec(scheduling_policy=GroupPolicy(basic={})),
        PodGroupSpec(scheduling_policy=GroupPolicy(gang=GangPolicy(min_count=1))),
    ])  # fmt: skip
    def test_a_group_that_asks_for_nothing_together(self, spec: PodGroupSpec) -> None:
        world = Gangs(a_node(memory=3000))
        group = PodGroup(metadata=Metadata(name="g", namespace="default"), spec=spec)
        world.state.groups.group_changed(SCHEDULER_PLUGINS, group)
        assert [world.filter(pod) for pod in three(world)] == ["n1", "", ""]

    def test_another_kinds_group_of_the_same_name_says_nothing(self) -> None:
        world = Gangs(a_node(memory=3000))
        group = PodGroup(
            metadata=Metadata(name="g", namespace="default"), spec=PodGroupSpec(min_member=1)
        )
        world.state.groups.group_changed(KUBERNETES, group)
        assert [world.filter(pod) for pod in three(world)] == ["", "", ""]

    def test_once_one_is_bound_the_others_come_one_by_one(self) -> None:
        """What a gang's scheduler has let go, or a member that took another one's place."""
        world = Gangs(a_node(memory=9000))
        pods = three(world)
        for pod in pods:
            world.filter(pod)
        for pod in pods:
            world.bind(pod)
        world.gone(granted(pods[0], "n1", "n1-d0:3000"))
        world.sees(again := member("m0-again", mem=3000), member("m3", mem=3000))
        assert world.filter(again) == "n1"


class TestReleasedTogether:
    def test_when_one_is_refused_later(self) -> None:
        """Another plugin of kube-scheduler offers it less by now."""
        world = Gangs(a_node("n1", memory=3000), a_node("n2", memory=6000), a_node("n3", memory=10))
        pods = three(world)
        for pod in pods:
            assert world.filter(pod)
        assert world.filter(pods[0], "n3", "gone") == ""
        assert world.held == set()

    def test_when_one_goes(self) -> None:
        world = Gangs(a_node(memory=9000))
        pods = three(world)
        world.filter(pods[0])
        world.gone(pods[1])
        assert world.held == set()
        assert world.cluster.used() == (0, 0)

    def test_not_when_enough_remain(self) -> None:
        world = Gangs(a_node(memory=9000))
        world.least(2)
        pods = three(world)
        for pod in pods:
            world.filter(pod)
        world.gone(pods[1])
        assert world.held == {"m0", "m2"}

    def test_not_those_of_whom_a_bind_is_on_its_way(self) -> None:
        world = Gangs(a_node(memory=9000))
        pods = three(world)
        world.filter(pods[0])
        world.state.reservations[pods[0].uid].phase = Phase.BINDING
        world.gone(pods[1])
        assert world.held == {"m0"}

    def test_those_of_whom_nobody_was_told_move_for_the_one_who_asks(self) -> None:
        world = Gangs(a_node("n1", memory=3000), a_node("n2", memory=3000))
        pods = [member("a", mem=3000), tolerating(member("b", mem=3000))]
        world.sees(*pods)
        elsewhere = {"n1": "n2", "n2": "n1"}[world.filter(pods[0])]
        world.filter(pods[0], elsewhere, "gone")
        assert world.state.reservations[pods[0].uid].allocation.node == elsewhere
        assert world.held == {"a", "b"}

    def test_a_hint_that_does_not_do_loses_nobody_anything(self) -> None:
        """kube-scheduler asks about one node first, and about all of them right after."""
        world = Gangs(a_node("n1", memory=6000), a_node("n2", memory=3000), a_node("n3", memory=10))
        pods = three(world)
        for pod in pods[:2]:
            world.filter(pod)
        assert world.filter(pods[2], "n3") == ""
        assert world.held == {"m0", "m1"}
        assert world.filter(pods[2])
        assert world.held == {"m0", "m1", "m2"}


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
