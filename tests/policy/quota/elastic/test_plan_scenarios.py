"""Who is evicted for whom, case by case; numbers are GB of GPU memory unless a resource is named."""

from __future__ import annotations

from hami.policy.quota.elastic import Options
from hami.policy.quota.elastic.plans.plan import NoPlan, Plan

from .builders import A, B, C, a_group, a_leaf
from .world import Pdb, World, doc, the_claim

GPU = "nvidia.com/gpu"


def planned(found: Plan | NoPlan) -> Plan:
    assert isinstance(found, Plan), str(found)
    return found


def refused(found: Plan | NoPlan) -> str:
    assert isinstance(found, NoPlan), found
    return str(found)


# Priority inside a quota.


def a_composite_at_its_max(**how: object) -> World:
    world = World(leaves=(a_leaf("n1", 10, "n2", max=10), a_leaf("x", 10)), **how)
    world.runs("n1/low", 10)
    return world


def test_priority_goes_before_in_another_namespace_of_the_same_quota() -> None:
    world = a_composite_at_its_max()
    found = planned(world.asks("n2/high", 10, priority=100))
    assert (found.kind, world.evicts(found)) == ("own", ["n1/low"])


def test_equal_priority_never_evicts() -> None:
    assert "no pod" in refused(a_composite_at_its_max().asks("n2/high", 10))


def test_of_its_own_pods_the_lowest_priority_and_then_the_newest_goes() -> None:
    world = World(leaves=(a_leaf("a", 30, max=30),))
    for name, priority in (("a/p1", 5), ("a/p2", 1), ("a/p3", 1), ("a/p4", 9)):
        world.runs(name, 5, priority=priority)
    world.runs("a/p5", 10, priority=50)
    assert world.gets("a/new", 15, priority=10) == ["a/p3", "a/p2", "a/p1"]


def borrowing_all() -> World:
    """A quota of 10 borrows 10 of the other's 10; its pods are of 5."""
    world = World(leaves=(a_leaf("a", 10), a_leaf("b", 10)))
    for i in range(1, 4):
        world.runs(f"a/p{i}", 5)
    return world


def test_priority_swaps_and_does_not_make_its_quota_borrow_more() -> None:
    world = borrowing_all()
    world.sizes["n1"] = {"nos.nebuly.com/gpu-memory": 15}
    assert world.gets("a/high", 10, priority=1) == ["a/p3", "a/p2"]
    assert world.used("a") == [15]


def test_as_nos_does_it_may_grow_when_the_rule_is_off() -> None:
    world = borrowing_all()
    world.sizes["n1"] = {"nos.nebuly.com/gpu-memory": 20}
    world.runs("b/old", 4)
    assert (
        world.asks("a/high", 6, priority=1).victims == world.asks("a/high", 6, priority=1).victims
    )  # type: ignore[union-attr]
    assert len(planned(world.asks("a/high", 6, priority=1)).victims) == 2
    world.options = Options(rule_p1=False)
    assert len(planned(world.asks("a/high", 6, priority=1)).victims) == 1


# One node, or all.


def borrowed_on_two_nodes(**how: object) -> World:
    """Each node has room for 10 more; quota is what is missing."""
    world = World(
        leaves=(a_leaf("a", 10), a_leaf("b", 0)), nodes={"n1": 15, "n2": 15},
        options=Options(**how),  # type: ignore[arg-type]
    )  # fmt: skip
    world.runs("b/p1", 5, "n1")
    world.runs("b/p2", 5, "n2")
    return world


def test_quota_that_is_borrowed_on_several_nodes_is_given_back_for_one_pod() -> None:
    world = borrowed_on_two_nodes(scope="cluster")
    found = planned(world.asks("a/new", 10))
    assert sorted(world.evicts(found)) == ["b/p1", "b/p2"]


def test_with_victims_on_its_node_alone_the_claim_waits_with_a_reason() -> None:
    found = refused(borrowed_on_two_nodes(scope="node").asks("a/new", 10))
    assert "not even with 1 evicted on node n" in found
    assert "5 too much" in found


def test_with_victims_on_its_node_alone_a_smaller_claim_is_served() -> None:
    assert len(borrowed_on_two_nodes(scope="node").gets("a/new", 5)) == 1


def test_devices_are_freed_on_one_node_and_quota_elsewhere() -> None:
    world = World(leaves=(a_leaf("a", 20), a_leaf("b", 5)), nodes={"n1": 10, "n2": 10, "n3": 5})
    for i, node in enumerate(("n1", "n1", "n2", "n2", "n3"), start=1):
        world.runs(f"b/p{i}", 5, node)
    found = planned(world.asks("a/new", 10))
    assert {v.node for v in found.victims} in ({found.node}, {found.node, "n3"})
    assert len(found.victims) == 2
    assert world.evicts(found)


def test_a_node_with_room_costs_nobody_its_devices() -> None:
    world = World(leaves=(a_leaf("a", 10), a_leaf("b", 0)), nodes={"full": 10, "free": 10})
    world.runs("b/p1", 10, "full")
    found = planned(world.asks("a/new", 10))
    assert (found.node, [v.uid for v in found.victims]) == ("free", ["b/p1"])


def test_the_node_where_the_least_is_lost_is_chosen() -> None:
    world = World(leaves=(a_leaf("a", 20), a_leaf("b", 0)), nodes={"n1": 10, "n2": 10, "n3": 10})
    world.runs("b/p1", 10, "n1", priority=7)
    world.runs("b/p2", 5, "n2")
    world.runs("b/p3", 5, "n2")
    world.runs("b/p4", 10, "n3")
    world.leaves = (a_leaf("a", 30), a_leaf("b", 10))
    world.book.set_quotas(world.leaves)
    found = planned(world.asks("a/new", 10))
    assert (found.node, world.evicts(found)) == ("n3", ["b/p4"])


def test_pods_that_cover_a_guarantee_keep_their_devices() -> None:
    world = World(leaves=(a_leaf("a", 10), a_leaf("b", 10)), nodes={"n1": 10})
    world.runs("b/p1", 10, "n1")
    assert "no pod" in refused(world.asks("a/new", 10))


# Who is not evicted.


def test_a_budget_that_allows_nobody_is_broken_only_when_nothing_else_helps() -> None:
    world = doc(pdbs=[Pdb({"b/p4"})])
    found = planned(world.asks("a/new", 10))
    assert (found.violating, world.evicts(found)) == (frozenset(), ["b/p3"])


def test_a_broken_budget_is_told_also_when_only_quota_is_missing() -> None:
    world = doc(pdbs=[Pdb({"b/p2", "b/p3", "b/p4"})])
    found = planned(world.asks("a/new", 10))
    assert (found.violating, world.evicts(found)) == ({"b/p4"}, ["b/p4"])


def test_a_budget_that_allows_one_spares_the_second() -> None:
    world = World(leaves=(a_leaf("a", 20), a_leaf("b", 0)), pdbs=[Pdb({"b/p3", "b/p4"}, allowed=1)])
    for i in range(1, 5):
        world.runs(f"b/p{i}", 5)
    found = planned(world.asks("a/new", 10))
    assert (found.violating, world.evicts(found)) == (frozenset(), ["b/p4", "b/p2"])


def test_a_pod_that_never_preempts_waits() -> None:
    assert "preemptionPolicy: is Never" in refused(doc().asks("a/new", 10, never=True))


def test_a_pod_that_has_not_run_for_long_enough_is_spared_until_it_has() -> None:
    world = World(
        leaves=(a_leaf("a", 10), a_leaf("b", 0)), options=Options(min_runtime=60), now=1000
    )
    world.runs("b/p1", 10, since=970)
    found = world.asks("a/new", 10)
    assert isinstance(found, NoPlan)
    assert found.again == 1030
    world.now = 1030
    assert world.gets("a/new", 10) == ["b/p1"]


def test_a_pod_that_does_not_run_yet_has_no_run_time_to_lose() -> None:
    world = World(leaves=(a_leaf("a", 10), a_leaf("b", 0)), options=Options(min_runtime=60))
    world.runs("b/p1", 10, since=None)
    assert world.gets("a/new", 10) == ["b/p1"]


def test_a_non_preemptible_pod_is_no_victim_and_the_older_ones_beside_it_are() -> None:
    world = World(leaves=(a_leaf("a", 10), a_leaf("b", 10)))
    world.runs("b/old", 10)
    world.runs("b/fixed", 10, preemptible=False)
    assert world.gets("a/new", 10) == ["b/old"]


def test_a_non_preemptible_pod_beyond_its_min_is_refused_though_others_have_room() -> None:
    world = World(leaves=(a_leaf("a", 10), a_leaf("b", 50)))
    world.runs("a/fixed", 8, preemptible=False)
    found = refused(world.asks("a/new", 3, preemptible=False))
    assert "min of non-preemptible pods" in found
    assert "used 8 GB + asked 3 GB > limit 10 GB" in found


def test_pods_with_and_without_elastic_quota_never_evict_each_other() -> None:
    world = World(leaves=(a_leaf("a", 10),), nodes={"n1": 10})
    world.runs("free/p1", 10, "n1")
    assert "no pod" in refused(world.asks("a/new", 10, priority=100))
    world.goes("free/p1")
    world.runs("a/p1", 10, "n1")
    assert "no pod" in refused(world.asks("free/new", 10, priority=100))


def test_what_is_promised_to_one_claimant_is_not_promised_to_another() -> None:
    world = doc()
    first = planned(world.asks("c/new", 10))
    going = {victim.uid for victim in first.victims}
    second = planned(world.plan(the_claim("c/other", 10), going))
    assert going.isdisjoint(victim.uid for victim in second.victims)


def test_a_pod_for_which_there_is_room_evicts_nobody() -> None:
    assert "node n1 has room" in refused(doc(3, 4).asks("a/new", 10))


def test_a_pod_that_is_larger_than_its_max_evicts_nobody() -> None:
    world = World(leaves=(a_leaf("a", 10, max=10), a_leaf("b", 10)))
    assert "limit 10 GB" in refused(world.asks("a/new", 11))


def test_nobody_is_evicted_where_that_is_not_enough() -> None:
    world = World(leaves=(a_leaf("a", 20), a_leaf("b", 0)), nodes={"n1": 20})
    world.runs("a/p1", 4, "n1")
    world.runs("free/p", 6, "n1")
    world.runs("b/p1", 10, "n1")
    assert "no room" in refused(world.asks("a/new", 12))


# What victims are told.


def test_a_victim_is_told_who_takes_back_what() -> None:
    found = planned(doc(5, 3).asks("c/new", 10))
    assert found.reasons == {
        "b/p3": "reclaimed by ElasticQuota c/q for pod c/new: of nos.nebuly.com/gpu-memory it uses "
        "0 GB of its min 30 GB, and ElasticQuota b/q 30 GB of 10 GB"
    }


def test_a_victim_of_fair_share_is_told_both_shares() -> None:
    found = planned(doc().asks("a/new", 10))
    assert found.reasons == {
        "b/p4": "fair share: of nos.nebuly.com/gpu-memory ElasticQuota a/q may use 40 GB + 15 GB, "
        "which pod a/new asks for, and ElasticQuota b/q uses 40 GB of 10 GB + 3 GB"
    }


def test_a_victim_of_priority_is_told_both_priorities() -> None:
    found = planned(a_composite_at_its_max().asks("n2/high", 10, priority=100))
    assert found.reasons == {
        "n1/low": "priority: pod n2/high (100) goes before this pod (0) in "
        "CompositeElasticQuota n1/q"
    }


# Others' worked examples.


def test_volcanos_queues_of_2_and_6_cpus_end_with_2_and_6_running() -> None:
    world = World(
        leaves=(a_leaf("q1", {"cpu": 2000}), a_leaf("q2", {"cpu": 6000})), nodes={"n1": {"cpu": 8000}}
    )  # fmt: skip
    for i in range(1, 9):
        assert world.enters(the_claim(f"q1/p{i}", {"cpu": 1000}))
    evicted = [uid for i in range(1, 9) for uid in world.gets(f"q2/p{i}", {"cpu": 1000})]
    assert evicted == ["q1/p8", "q1/p7", "q1/p6", "q1/p5", "q1/p4", "q1/p3"]
    assert world.used("q1", "q2") == [2000, 6000]


def gpus(world: World, namespace: str, *numbers: int) -> None:
    for number in numbers:
        world.born += 1
        assert world.enters(the_claim(f"{namespace}/p{world.born}", {GPU: number}))


def test_ten_gpus_borrowed_given_back_and_then_nobody_claims_any_more() -> None:
    """The first story of Kubernetes' capacity scheduling proposal: A 4 to 6, B 6 to 8."""
    a = a_leaf("a", {GPU: 4}, max={GPU: 6})
    b = a_leaf("b", {GPU: 6}, max={GPU: 8})
    world = World(leaves=(a, b), nodes={"n1": {GPU: 10}})
    gpus(world, "a", 1, 1)
    gpus(world, "b", 1, 1, 1)
    gpus(world, "a", 1, 1)
    gpus(world, "a", 1, 1)
    assert not world.enters(the_claim("a/more", {GPU: 1}))
    assert "max" in refused(world.asks("a/more", {GPU: 1}))
    gpus(world, "b", 1)
    assert [len(world.gets(f"b/back{i}", {GPU: 1})) for i in (1, 2)] == [1, 1]
    assert world.used("a", "b") == [4, 6]
    assert refused(world.asks("a/more", {GPU: 1}))
    assert refused(world.asks("b/more", {GPU: 1}))


def test_a_guarantee_is_claimed_in_another_quota_and_what_is_beyond_in_ones_own() -> None:
    """The second story: minimums 3, 4, 3; B claims from A, and over its min from itself."""
    leaves = [
        a_leaf(ns, {GPU: n}, max={GPU: 4 + 2 * (ns == "b")})
        for ns, n in zip("abc", (3, 4, 3), strict=True)
    ]
    world = World(leaves=leaves, nodes={"n1": {GPU: 10}})
    gpus(world, "a", 1, 1, 1, 1)
    gpus(world, "b", 1, 1, 1)
    gpus(world, "c", 1, 1, 1)
    found = planned(world.asks("b/back", {GPU: 1}))
    assert (found.kind, [v.namespace for v in found.victims]) == ("reclaim", ["a"])
    world.evicts(found)
    world.goes(next(m.uid for m in world.book.members(leaves[0])))
    gpus(world, "b", 1)
    assert world.used("a", "b", "c") == [2, 5, 3]
    found = planned(world.asks("b/beyond", {GPU: 1}, priority=10))
    assert (found.kind, [v.namespace for v in found.victims]) == ("own", ["b"])


def test_only_gpus_named_and_all_in_use_a_guarantee_comes_back() -> None:
    """A uses all 5 of 4 + 1; B asks for its 1. Pods also ask for cpu, which no quota names."""
    world = World(leaves=(a_leaf("a", {GPU: 4}, max={GPU: 5}), a_leaf("b", {GPU: 1}, max={GPU: 5})),
                  nodes={"n1": {GPU: 5, "cpu": 5000}})  # fmt: skip
    for i in range(1, 6):
        world.runs(f"a/p{i}", {GPU: 1, "cpu": 1000})
    assert world.gets("b/new", {GPU: 1, "cpu": 1000}) == ["a/p5"]


# Groups.


def research_and_production() -> World:
    """Research has 4 of its own beside what its quotas have; production has borrowed them."""
    world = World(
        leaves=(
            a_leaf("r1", 4, parent="research"), a_leaf("r2", 4, parent="research"),
            a_leaf("p1", 6, parent="production"),
        ),
        groups=(a_group("research", own=4), a_group("production")),
    )  # fmt: skip
    for i in range(1, 11):
        world.runs(f"p1/p{i}", 1)
    for i in range(1, 5):
        world.runs(f"r1/p{i}", 1)
    for i in range(1, 5):
        world.runs(f"r2/p{i}", 1)
    return world


def test_what_a_group_has_of_its_own_is_claimed_back_from_other_groups() -> None:
    world = research_and_production()
    found = planned(world.asks("r1/new", 2))
    assert (found.kind, world.evicts(found)) == ("reclaim", ["p1/p10", "p1/p9"])
    assert "within QuotaTree node research" in found.reasons["p1/p10"]


def test_a_groups_own_is_claimed_up_to_what_it_has_and_then_shared_inside() -> None:
    world = research_and_production()
    assert world.gets("r1/first", 4) == ["p1/p10", "p1/p9", "p1/p8", "p1/p7"]
    assert "used 8 GB + asked 1 GB > min 4 GB" in refused(world.asks("r1/next", 1))


def test_inside_a_group_a_quota_claims_from_its_sister_and_from_nobody_else() -> None:
    """The group may not borrow: what production has in excess is of no use to it."""
    world = World(
        leaves=(
            a_leaf("r1", 4, parent="research"), a_leaf("r2", 4, parent="research"),
            a_leaf("p1", 0, parent="production"), a_leaf("p2", 6, parent="production"),
        ),
        groups=(a_group("research", borrow={"nos.nebuly.com/gpu-memory": 0}), a_group("production")),
    )  # fmt: skip
    for i in range(1, 7):
        world.runs(f"p1/p{i}", 1)
    for i in range(1, 9):
        world.runs(f"r2/p{i}", 1)
    found = planned(world.asks("r1/new", 2))
    assert (found.kind, world.evicts(found)) == ("reclaim", ["r2/p8", "r2/p7"])


# Resources that a quota does not name.


def test_who_is_guaranteed_all_it_asks_goes_before_who_is_guaranteed_a_part() -> None:
    world = World(leaves=(a_leaf("gpus", {GPU: 4}), a_leaf("both", {GPU: 4, "cpu": 4})))
    for i in range(1, 5):
        world.runs(f"gpus/p{i}", {GPU: 1, "cpu": 1})
    assert world.gets("both/new", {GPU: 1, "cpu": 2}) == ["gpus/p4", "gpus/p3"]
    assert "guaranteed no cpu" in refused(world.asks("gpus/again", {GPU: 1, "cpu": 1}))


def test_who_is_guaranteed_a_part_takes_what_is_over_and_nobodys_guarantee() -> None:
    """Guaranteed GPUs and not CPUs: the other's pod is larger than what it has too much."""
    world = World(
        leaves=(a_leaf("gpus", {GPU: 6}), a_leaf("both", {GPU: 6, "cpu": 12})),
        nodes={"n1": {GPU: 9, "cpu": 100}},
    )  # fmt: skip
    world.runs("both/p1", {GPU: 3, "cpu": 1})
    world.runs("both/p2", {GPU: 6, "cpu": 1})
    assert "no pod" in refused(world.asks("gpus/new", {GPU: 4, "cpu": 1}))
    assert world.gets("gpus/plain", {GPU: 4}) == ["both/p2"]


# Plain priority, without elastic quota.


def a_full_node(**how: object) -> World:
    world = World(nodes={"n1": 10}, **how)  # type: ignore[arg-type]
    world.runs("x/p1", 5, "n1", priority=3)
    world.runs("y/p2", 5, "n1", priority=1)
    return world


def test_a_pod_of_higher_priority_takes_the_place_of_the_lowest() -> None:
    found = planned(a_full_node().asks("z/new", 5, priority=10))
    assert (found.kind, [v.uid for v in found.victims]) == ("priority", ["y/p2"])


def test_of_several_only_those_go_that_have_to() -> None:
    world = World(nodes={"n1": 10})
    world.runs("x/small", 2, "n1", priority=0)
    world.runs("x/large", 8, "n1", priority=1)
    assert world.gets("x/new", 8, priority=10) == ["x/large"]


def test_equal_priority_never_evicts_without_quota_either() -> None:
    assert "no pod" in refused(a_full_node().asks("z/new", 5, priority=1))


def test_higher_priority_alone_does_not_fit_and_evicts_nobody() -> None:
    assert refused(a_full_node().asks("z/new", 10, priority=2))


def test_preemption_by_priority_can_be_switched_off() -> None:
    world = a_full_node(options=Options(priority=False))
    assert "is off" in refused(world.asks("z/new", 5, priority=10))


def test_a_resourcequota_is_made_room_in_by_its_own_namespace() -> None:
    world = World(nodes={"n1": 10, "n2": 10}, hard={"x": 5})
    world.runs("x/p1", 5, "n1", priority=1)
    world.runs("y/p2", 5, "n1", priority=0)
    found = planned(world.asks("x/new", 5, priority=10))
    assert [v.uid for v in found.victims] == ["x/p1"]


def test_a_resourcequota_over_a_full_node_costs_both() -> None:
    world = World(nodes={"n1": 10}, hard={"x": 5})
    world.runs("x/p1", 2, "n1", priority=1)
    world.runs("y/p2", 8, "n1", priority=0)
    found = planned(world.asks("x/new", 5, priority=10))
    assert sorted(v.uid for v in found.victims) == ["x/p1", "y/p2"]


def test_a_resourcequota_beside_an_elastic_quota_is_no_reason_to_take_from_others() -> None:
    world = World(leaves=(a_leaf("a", 20), a_leaf("b", 0)), hard={"a": 5})
    world.runs("a/p1", 5)
    world.runs("b/p1", 15)
    assert "a ResourceQuota of its namespace" in refused(world.asks("a/new", 5))
    assert world.gets("a/high", 5, priority=1) == ["a/p1"]


# The sizes of nos' dry-run tests.


def test_in_its_own_quota_beyond_min_the_lower_priority_goes() -> None:
    memory = {"memory": 50}
    world = World(leaves=(a_leaf("ns1", memory, max={"memory": 200}), a_leaf("ns2", {"memory": 200})),
                  nodes={"n1": {"memory": 150}})  # fmt: skip
    world.runs("ns1/p1", memory, priority=100)
    world.runs("ns2/p2", memory)
    world.runs("ns2/p3", memory)
    assert world.gets("ns1/new", memory, priority=1000) == ["ns1/p1"]


def test_its_own_min_is_claimed_from_the_over_quota_pod_whatever_its_priority() -> None:
    world = World(leaves=(a_leaf("ns1", {"memory": 150}), a_leaf("ns2", {"memory": 50})),
                  nodes={"n1": {"memory": 150}})  # fmt: skip
    world.runs("ns1/p1", {"memory": 40})
    world.runs("ns2/p2", {"memory": 50}, priority=1000)
    world.runs("ns2/p3", {"memory": 50}, priority=100)
    assert world.gets("ns1/new", {"memory": 50}, priority=0) == ["ns2/p3"]


def test_in_the_documented_example_the_order_of_quotas_is_by_what_they_borrow() -> None:
    world = World(leaves=(A, B, C))
    for i in range(1, 7):
        world.runs(f"a/p{i}", 10)
    for i in range(1, 3):
        world.runs(f"b/p{i}", 10)
    assert world.gets("c/new", 10) == ["b/p2"], "10 of 10 borrowed, and a has 20 of 40"
