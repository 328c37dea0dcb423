"""Gangs have devices together or not at all."""

from __future__ import annotations

import msgspec
import pytest

from hami.domain.kubernetes.objects import (
    GangPolicy,
    GroupPolicy,
    Metadata,
    Pod,
    PodGroup,
    PodGroupSpec,
)
from hami.policy.filter.gangs import KUBERNETES, SCHEDULER_PLUGINS
from hami.scheduler.bookings.reservations import Phase
from hami.scheduler.decide import gangs

from ..builders import a_node, a_pod, a_quota, an_elastic_quota, granted
from .gang_world import Gangs, member, three, tolerating


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
