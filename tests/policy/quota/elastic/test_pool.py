"""Who may have what: ceilings, guarantees, borrowing, the pool of all quotas, groups."""

from __future__ import annotations

import pytest

from hami.policy.quota.elastic import Options, Pool

from .builders import A, B, C, G, a_book, a_claim, a_group, a_leaf, a_member, may, pods, the_example

CORE = {"cpu": 1, "memory": 1}
STRICT = Options(strict_core=True)
CAPACITY = Options(pool="capacity")


def reasons(book, name, asked, **how):
    return [str(refusal) for refusal in book.refusals(a_claim(name, asked, **how))]


# Borrowing.


def test_what_others_leave_unused_may_be_borrowed_until_the_pool_is_empty():
    book = the_example(4, 3, 0)
    assert may(book, "b/new", 10)
    book.put(a_member("b/new", 10))
    assert reasons(book, "b/more", 1) == [
        "all elastic quotas: pool: nos.nebuly.com/gpu-memory: used 80 GB + asked 1 GB > limit 80 GB"
    ]
    assert book.pool == {G: Pool(used=80, free=0)}


def test_a_guarantee_that_is_lent_is_refused_until_it_is_taken_back():
    assert not may(the_example(), "c/new", 10)


def test_every_rule_that_is_broken_is_named_with_its_numbers_the_ceiling_first():
    book = a_book(a_leaf("a", 10, max=15, borrow=3), B, members=[a_member("a/p", 12)])
    assert reasons(book, "a/new", 40, preemptible=False) == [
        "ElasticQuota a/q: max: nos.nebuly.com/gpu-memory: used 12 GB + asked 40 GB > limit 15 GB",
        "ElasticQuota a/q: min of non-preemptible pods: nos.nebuly.com/gpu-memory: used 0 GB + asked 40 GB > limit 10 GB",
        "ElasticQuota a/q: borrow limit: nos.nebuly.com/gpu-memory: used 12 GB + asked 40 GB > limit 13 GB",
        "all elastic quotas: pool: nos.nebuly.com/gpu-memory: used 12 GB + asked 40 GB > limit 20 GB",
    ]


def test_ceilings_come_first_whatever_the_resource():
    book = a_book(a_leaf("a", {G: 10, "x": 90}, max={"x": 5}))
    found = book.refusals(a_claim("a/new", {G: 20, "x": 6}))
    assert [(refusal.rule, refusal.resource) for refusal in found] == [("max", "x"), ("pool", G)]


@pytest.mark.parametrize(
    ("asked", "unit"),
    [
        pytest.param({"cpu": 2}, "used 0 milli + asked 2 milli > limit 1 milli", id="cpu"),
        pytest.param({"memory": 2}, "used 0 bytes + asked 2 bytes > limit 1 bytes", id="memory"),
        pytest.param({"nvidia.com/gpumem": 2}, "used 0 MiB + asked 2 MiB > limit 1 MiB", id="MiB"),
        pytest.param({"nvidia.com/gpumem@A100": 2}, "used 0 MiB + asked 2 MiB > limit 1 MiB", id="MiB of one model"),
        pytest.param({"nvidia.com/gpu": 2}, "used 0 + asked 2 > limit 1", id="a count"),
    ],
)  # fmt: skip
def test_a_refusal_has_units(asked, unit):
    book = a_book(a_leaf("a", {}, max=dict.fromkeys(asked, 1)))
    (said,) = reasons(book, "a/new", asked)
    assert said.endswith(unit)


def test_pods_of_a_namespace_without_quota_are_never_refused():
    assert may(the_example(), "elsewhere/new", 1000)


def test_asking_nothing_is_never_refused():
    book = the_example()
    book.put(a_member("a/extra", 1000))
    assert may(book, "b/new", {G: 0, "cpu": 100})


def test_a_pods_own_charge_is_not_counted_when_it_is_placed_again():
    book = the_example()
    assert may(book, "b/p4", 10)
    assert not may(book, "b/p4", 11)
    book.put(a_member("b/p4", 4))
    assert book.used(B) == {G: 34}
    assert may(book, "b/p4", 10)
    assert not may(book, "b/gap", 7)


@pytest.mark.parametrize(
    "leaf",
    [
        pytest.param(a_leaf("a", 100, max=40), id="max"),
        pytest.param(a_leaf("a", 30, borrow=10), id="borrow limit"),
        pytest.param(a_leaf("a", 40), id="pool, min of a pod that is no victim"),
    ],
)
def test_no_rule_counts_a_pods_own_charge_when_it_is_placed_again(leaf):
    others = [a_leaf("z", 100)] if leaf.borrow else []
    book = a_book(leaf, *others, members=[a_member("a/p", 30, preemptible=False)])
    fixed = leaf.max is None and leaf.borrow is None
    assert may(book, "a/p", 40, preemptible=not fixed)
    assert not may(book, "a/p", 41, preemptible=not fixed)
    assert not may(book, "a/other", 11)


def test_a_pod_that_is_gone_gives_back_all_it_held():
    book = the_example()
    book.drop("b/p4")
    book.drop("b/p4")
    assert book.used(B) == {G: 30}
    assert may(book, "c/new", 10)


# Rows of the model's table.


@pytest.mark.parametrize(
    ("options", "expected"),
    [pytest.param(Options(), True, id="admitted"), pytest.param(STRICT, False, id="as nos: refused")],
)  # fmt: skip
def test_pods_also_ask_cpu_and_memory_but_the_quota_names_only_gpu_memory(options, expected):
    book = a_book(A, B, options=options)
    assert may(book, "a/new", {G: 10, "cpu": 1, "memory": 1}) is expected
    assert may(book, "a/new", 10)


def test_a_composite_of_three_idle_namespaces_is_counted_once():
    group, x = a_leaf("n1", 30, "n2", "n3"), a_leaf("x", 10)
    book = a_book(group, x, members=pods("x", 10))
    assert may(book, "x/new", 30)
    assert not may(book, "x/new", 31)
    assert book.guaranteed(x) == {G: 7}


@pytest.mark.parametrize(
    ("leaf", "expected"),
    [
        pytest.param(a_leaf("a", 0, max=0), False, id="an explicit 0 blocks"),
        pytest.param(a_leaf("a", 0), True, id="an absent key does not"),
        pytest.param(a_leaf("elsewhere", 0, max=0), True, id="nor does an object that is gone"),
    ],
)
def test_a_hard_limit_of_nothing(leaf, expected):
    assert may(a_book(leaf, a_leaf("big", 100)), "a/new", 10) is expected


def test_a_quota_that_is_created_counts_what_runs_already():
    book = a_book()
    for member in [*pods("a", 10, 10, 10), *pods("b", 10)]:
        book.put(member)
    assert book.leaf_of("a") is None
    assert book.set_quotas([A]) == ()
    assert book.used(A) == {G: 30}
    assert may(book, "a/new", 10)
    assert not may(book, "a/new", 11)


def test_a_namespace_that_moves_from_composite_to_none_to_single_is_charged_once_each_time():
    composite, other = a_leaf("n1", 100, "a"), a_leaf("n1", 100)
    book = a_book(composite, members=[*pods("a", 10, 10), *pods("n1", 5)])
    assert book.used(composite) == {G: 25}
    book.set_quotas([other])
    assert (book.leaf_of("a"), book.used(other)) == (None, {G: 5})
    book.put(a_member("a/p3", 10))
    book.set_quotas([other, A])
    assert (book.used(other), book.used(A)) == ({G: 5}, {G: 30})
    book.drop("a/p1")
    book.set_quotas([composite])
    assert book.used(composite) == {G: 25}
    assert book.pool == {G: Pool(used=25, free=75)}


def test_a_composite_that_goes_leaves_the_single_quota_it_covered_in_force_at_once():
    composite = a_leaf("n1", 100, "a", max=50)
    book = a_book(members=pods("a", 10))
    (problem,) = book.set_quotas([composite, A])
    assert str(problem) == (
        'ElasticQuota a/q: namespaces: namespace "a" belongs to CompositeElasticQuota n1/q; '
        "this quota does not count until mended"
    )
    assert book.leaves == [composite]
    book.set_quotas([A])
    assert (book.leaf_of("a"), book.used(A)) == (A, {G: 10})
    assert book.pool == {G: Pool(used=10, free=30)}


@pytest.mark.parametrize(
    ("used", "asked", "preemptible", "expected"),
    [
        pytest.param(8, 2, False, True, id="within min"),
        pytest.param(8, 3, False, False, id="above min, though the pool has room"),
        pytest.param(8, 3, True, True, id="a pod that may be taken back borrows"),
        pytest.param(12, 1, False, False, id="fixed pods above a min that was lowered"),
    ],
)
def test_a_pod_that_is_no_victim_uses_only_the_guarantee(used, asked, preemptible, expected):
    book = a_book(a_leaf("a", 10), a_leaf("b", 50))
    book.put(a_member("a/fixed", used, preemptible=False))
    assert may(book, "a/new", asked, preemptible=preemptible) is expected


def test_fixed_pods_leave_each_other_the_guarantee_and_others_do_not_count_there():
    book = a_book(a_leaf("a", 10), a_leaf("b", 50), members=pods("a", 10, 10))
    assert may(book, "a/fixed", 10, preemptible=False)
    book.put(a_member("a/fixed", 10, preemptible=False))
    assert may(book, "a/fixed", 10, preemptible=False)
    assert not may(book, "a/fixed", 11, preemptible=False)
    assert may(book, "a/fixed", 11)
    book.put(a_member("a/fixed", 10))
    assert may(book, "a/other", 10, preemptible=False)


RESEARCH = [
    a_leaf("r1", 8, parent="research"),
    a_leaf("r2", 4, parent="research"),
    a_leaf("prod", 20, parent=""),
]


@pytest.mark.parametrize(
    ("r2", "asked", "expected"),
    [
        pytest.param(4, 1, False, id="r1 may not borrow from outside the group"),
        pytest.param(2, 2, True, id="r1 borrows what r2 leaves"),
        pytest.param(2, 3, False, id="and no more"),
    ],
)
def test_a_group_with_borrow_limit_0_shares_only_within(r2, asked, expected):
    group = a_group("research", borrow=0)
    held = [*pods("r1", 8), *pods("r2", r2), *pods("prod", 6)]
    book = a_book(*RESEARCH, nodes=[group], members=held)
    assert may(book, "r1/new", asked) is expected
    if not expected:
        assert reasons(book, "r1/new", asked) == [
            f"QuotaTree node research: borrow limit: {G}: used {8 + r2} GB + asked {asked} GB > limit 12 GB"
        ]


@pytest.mark.parametrize(
    ("lend", "asked", "expected"),
    [
        pytest.param(5, 5, True, id="up to the lend limit"),
        pytest.param(5, 6, False, id="not beyond"),
        pytest.param(0, 1, False, id="nothing is lent"),
        pytest.param(None, 12, True, id="all is lent"),
        pytest.param(None, 13, False, id="more than there is"),
    ],
)
def test_a_quota_lends_what_it_does_not_use_up_to_its_lend_limit(lend, asked, expected):
    book = a_book(a_leaf("a", 9), a_leaf("b", 12, lend=lend), members=pods("a", 9))
    assert may(book, "a/new", asked) is expected
    assert may(book, "b/new", 12)


@pytest.mark.parametrize(
    ("borrow", "most"),
    [pytest.param(1, 10, id="a borrow limit of 1"), pytest.param(None, 21, id="no borrow limit")],
)
def test_a_borrow_limit_bounds_what_is_had_beyond_the_guarantee(borrow, most):
    """Kueue's documented numbers: 9 and 12, the first borrowing at most 1."""
    book = a_book(a_leaf("a", 9, borrow=borrow), a_leaf("b", 12))
    assert may(book, "a/new", most)
    assert not may(book, "a/new", most + 1)
    assert may(book, "b/new", 21)


def test_what_a_lender_takes_back_of_its_own_is_not_missing_above_its_lend_limit():
    book = a_book(a_leaf("a", 10), a_leaf("b", 20, lend=5), members=pods("a", 14))
    assert may(book, "b/new", 16)
    assert not may(book, "b/new", 17)
    assert reasons(book, "b/new", 17) == [
        f"all elastic quotas: pool: {G}: used 14 GB + asked 17 GB > limit 30 GB"
    ]


def test_a_guarantee_that_was_never_lent_is_there_however_much_others_are_over():
    book = a_book(a_leaf("a", 10, lend=0), a_leaf("b", 5), members=pods("b", 9))
    assert book.pool == {G: Pool(used=9, free=-4)}
    assert not may(book, "b/new", 1)
    assert may(book, "a/new", 10)
    assert not may(book, "a/new", 11)
    assert book.room(a_claim("a/new", 1), G) == 10


def test_a_groups_own_quota_is_for_its_members_and_what_it_lends():
    nodes = [a_group("one", own=10, lend=4), a_group("two")]
    leaves = [a_leaf("a", 5, parent="one"), a_leaf("b", 5, parent="two")]
    book = a_book(*leaves, nodes=nodes)
    assert book.pool == {G: Pool(used=0, free=9)}
    assert may(book, "a/new", 20)
    assert not may(book, "a/new", 21)
    assert may(book, "b/new", 9)
    assert not may(book, "b/new", 10)


def test_a_groups_max_bounds_its_members_together():
    leaves = [a_leaf("a", 10, parent="one"), a_leaf("b", 10, parent="one"), a_leaf("c", 40)]
    book = a_book(*leaves, nodes=[a_group("one", max=25)], members=pods("b", 10))
    assert may(book, "a/new", 15)
    assert reasons(book, "a/new", 16) == [
        f"QuotaTree node one: max: {G}: used 10 GB + asked 16 GB > limit 25 GB"
    ]


def test_groups_may_be_nested_and_every_one_of_them_bounds():
    nodes = [a_group("top", borrow=2), a_group("low", parent="top", borrow=7)]
    leaves = [a_leaf("a", 10, parent="low"), a_leaf("b", 5, parent="top"), a_leaf("c", 50)]
    book = a_book(*leaves, nodes=nodes)
    assert may(book, "a/new", 17)
    assert [r.quota for r in book.refusals(a_claim("a/new", 18))] == [
        "QuotaTree node low", "QuotaTree node top"
    ]  # fmt: skip
    book.put(a_member("b/p", 5))
    assert may(book, "a/new", 12)
    assert [r.quota for r in book.refusals(a_claim("a/new", 13))] == ["QuotaTree node top"]


@pytest.mark.parametrize(
    ("options", "capacity", "usable"),
    [
        pytest.param(CAPACITY, 100, 100, id="what the cluster has beyond all guarantees is used too"),
        pytest.param(CAPACITY, 60, 60, id="guarantees beyond what it has are worth nothing"),
        pytest.param(CAPACITY, None, 80, id="as long as nothing is known of it, the guarantees"),
        pytest.param(Options(), 100, 80, id="sumMin: only what is guaranteed"),
        pytest.param(Options(pool="off"), 100, 10_000, id="off: no common bound"),
    ],
)  # fmt: skip
def test_the_pool_is_what_is_guaranteed_or_what_the_cluster_has(options, capacity, usable):
    book = a_book(A, B, C, capacity=capacity, options=options)
    assert may(book, "b/new", usable)
    if options.pool != "off":
        assert not may(book, "b/new", usable + 1)


def test_a_cluster_that_grows_or_shrinks_changes_the_pool_at_once():
    book = a_book(A, B, C, capacity=100, options=CAPACITY, members=pods("a", 40, 55))
    assert not may(book, "b/new", 10)
    book.set_capacity({G: 120})
    assert book.pool == {G: Pool(used=95, free=25)}
    assert may(book, "b/new", 25)
    book.set_capacity({G: 90})
    assert not may(book, "b/new", 1)


def test_deserved_2_of_8_and_6_of_8_when_both_want_all():
    """Volcano's numbers: the first runs 8 while it is alone, and 2 beside the second's 6."""
    one, two = a_leaf("one", {"cpu": 2}), a_leaf("two", {"cpu": 6})
    book = a_book(one, two, members=[a_member(f"one/p{i}", {"cpu": 1}, at=i) for i in range(8)])
    assert labels_of(book, one) == [False] * 2 + [True] * 6
    for i, victim in enumerate(list(book.over_quota(one))):
        assert not may(book, f"two/p{i}", {"cpu": 1})
        book.drop(victim.uid)
        assert may(book, f"two/p{i}", {"cpu": 1})
        book.put(a_member(f"two/p{i}", {"cpu": 1}, at=100 + i))
    assert (book.used(one), book.used(two)) == ({"cpu": 2}, {"cpu": 6})
    assert [list(book.over_quota(leaf)) for leaf in (one, two)] == [[], []]


def labels_of(book, leaf):
    return [book.is_over(member.uid) for member in book.members(leaf)]


def test_ceilings_hold_while_one_tenant_grows_and_the_other_takes_its_guarantee_back():
    """The KEP's first story: A 4 up to 6, B 6 up to 8, 10 devices."""
    a, b = a_leaf("a", 4, max=6), a_leaf("b", 6, max=8)
    book = a_book(a, b, members=[*pods("a", 1, 1, 1, 1), *pods("b", 1, 1, 1)])
    assert may(book, "a/new", 2)
    assert not may(book, "a/new", 3)
    for member in pods("a", 1, 1, after=10):
        book.put(a_member(f"{member.full_name}-late", 1, at=20))
    assert book.used(a) == {G: 6}
    assert may(book, "b/p4", 1)
    book.put(a_member("b/p4", 1))
    assert not may(book, "b/p5", 1)
    for number, victim in enumerate(list(book.over_quota(a)), start=5):
        book.drop(victim.uid)
        assert may(book, f"b/p{number}", 1)
        book.put(a_member(f"b/p{number}", 1))
    assert (book.used(a), book.used(b)) == ({G: 4}, {G: 6})
    assert not may(book, "a/new", 1)
    assert not may(book, "b/new", 1)
    assert not book.is_over("a/p1")


def test_only_who_is_over_can_be_asked_to_give_back():
    """The KEP's second story: A 3, B 4, C 3, and who is over changes."""
    a, b, c = a_leaf("a", 3), a_leaf("b", 4), a_leaf("c", 3)
    held = [*pods("a", *[1] * 4), *pods("b", *[1] * 3), *pods("c", *[1] * 3)]
    book = a_book(a, b, c, members=held)
    assert not may(book, "b/new", 1)
    assert [[m.uid for m in book.over_quota(leaf)] for leaf in (a, b, c)] == [["a/p4"], [], []]
    for uid in ("a/p4", "a/p3"):
        book.drop(uid)
    for member in pods("b", 1, 1, after=50):
        book.put(a_member(member.full_name + "x", 1, at=60))
    assert [[m.uid for m in book.over_quota(leaf)] for leaf in (a, b, c)] == [[], ["b/p2x"], []]
    assert not may(book, "b/new", 1)


def test_device_quotas_by_model_are_charged_for_the_model_that_was_chosen():
    kinds = {"nvidia.com/gpu@A100": 20, "nvidia.com/gpu@V100": 50}
    most = {"nvidia.com/gpu@A100": 10, "nvidia.com/gpu@V100": 10}
    book = a_book(a_leaf("a", most), a_leaf("b", {r: kinds[r] - most[r] for r in kinds}))
    book.put(a_member("b/p", {"nvidia.com/gpu": 10, "nvidia.com/gpu@A100": 10}))
    assert may(book, "a/new", {"nvidia.com/gpu": 10, "nvidia.com/gpu@A100": 10})
    assert not may(book, "a/new", {"nvidia.com/gpu": 11, "nvidia.com/gpu@A100": 11})
    assert may(book, "a/new", {"nvidia.com/gpu": 50, "nvidia.com/gpu@V100": 50})


# What can never be.


@pytest.mark.parametrize(
    ("name", "asked", "preemptible", "rule"),
    [
        pytest.param("a/new", 45, True, None, id="the ceiling, when all else is idle"),
        pytest.param("a/new", 46, True, "max", id="above the ceiling"),
        pytest.param("b/new", 80, True, None, id="everything that is guaranteed"),
        pytest.param("b/new", 81, True, "pool", id="more than is guaranteed to all"),
        pytest.param("b/new", 10, False, None, id="the guarantee, for a pod that is no victim"),
        pytest.param("b/new", 11, False, "min of non-preemptible pods", id="more than that"),
        pytest.param("c/new", 32, True, None, id="the borrow limit"),
        pytest.param("c/new", 33, True, "borrow limit", id="above the borrow limit"),
        pytest.param("elsewhere/new", 1000, True, None, id="no quota"),
    ],
)
def test_what_can_never_be_admitted_is_known_however_much_is_used(name, asked, preemptible, rule):
    leaves = [a_leaf("a", 40, max=45), a_leaf("b", 10), a_leaf("c", 30, borrow=2)]
    book = a_book(*leaves, members=[*pods("a", 10), *pods("b", 60)])
    book.put(a_member("b/fixed", 10, preemptible=False))
    found = book.could_ever(a_claim(name, asked, preemptible=preemptible))
    assert [refusal.rule for refusal in found] == ([rule] if rule else [])


# Odd sets of quotas.


@pytest.mark.parametrize(
    ("leaves", "nodes", "said"),
    [
        pytest.param([a_leaf("a", 1, parent="x")], [],
                     'ElasticQuota a/q: parent: there is no node "x" in any QuotaTree; it hangs on the root until mended',
                     id="an unknown parent"),
        pytest.param([], [a_group("x", parent="y")],
                     'QuotaTree t: x: parent: there is no node "y" in any QuotaTree; it hangs on the root until mended',
                     id="a node's unknown parent"),
        pytest.param([], [a_group("x", parent="y"), a_group("y", parent="x")],
                     "QuotaTree t: x: parent: x > y > x is a circle; it hangs on the root until mended",
                     id="a circle"),
        pytest.param([], [a_group("x", parent="x")],
                     "QuotaTree t: x: parent: x > x is a circle; it hangs on the root until mended",
                     id="its own parent"),
        pytest.param([], [a_group("x"), a_group("x", tree="u")],
                     'QuotaTree u: nodes: "x" is already a node of QuotaTree t', id="a node twice"),
        pytest.param([a_leaf("a", 1), a_leaf("a", 2, name="r")], [],
                     'ElasticQuota a/r: namespaces: namespace "a" belongs to ElasticQuota a/q; this quota does not count until mended',
                     id="two quotas of a namespace"),
        pytest.param([a_leaf("a", 1, "b"), a_leaf("c", 2, "b")], [],
                     'CompositeElasticQuota c/q: namespaces: namespace "b" belongs to CompositeElasticQuota a/q',
                     id="a namespace of two composites"),
    ],
)  # fmt: skip
def test_what_cannot_be_right_is_told_and_stops_nothing(leaves, nodes, said):
    book = a_book()
    for order in (1, -1):
        problems = book.set_quotas([*leaves, a_leaf("z", 40)][::order], nodes[::order])
        assert said in [str(problem) for problem in problems]
        assert may(book, "z/new", 1)


def test_a_composite_keeps_the_namespaces_that_are_its_own():
    first, second = a_leaf("n1", 10, "n2"), a_leaf("n3", 20, "n2")
    book = a_book()
    book.set_quotas([second, first])
    assert [book.leaf_of(ns).key for ns in ("n1", "n2", "n3")] == [first.key, first.key, second.key]
    assert book.pool == {G: Pool(used=0, free=30)}


def test_a_book_without_quotas_admits_everything():
    book = a_book(members=pods("a", 10))
    assert (may(book, "a/new", 10**9), book.leaves, book.pool, book.available) == (True, [], {}, {})
    assert not book.is_over("a/p1")
    assert not book.is_over("unknown")
