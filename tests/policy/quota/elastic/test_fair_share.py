"""Who is entitled to how much beyond its guarantee, and who lends it."""

from __future__ import annotations

from fractions import Fraction

import pytest

from hami.policy.quota.elastic import Options
from hami.policy.quota.elastic.book.fair import filled_shares, floor_shares

from .builders import A, B, C, G, a_book, a_claim, a_group, a_leaf, a_member, g, pods, the_example

FLOOR, HAMILTON = Options(), Options(fair_share="hamilton")
FILL = Options(fair_share="waterfill")
LOTS = 1000


def hungry(book, *namespaces, asked=LOTS):
    for namespace in namespaces:
        book.ask(a_claim(f"{namespace}/waiting", asked))
    return book


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(FLOOR, [15, 3, 11], id="floor"),
        pytest.param(HAMILTON, [15, 4, 11], id="hamilton"),
        pytest.param(FILL, [24, 6, 0], id="waterfill among A and B, who want more"),
    ],
)
def test_the_example_of_nos_40_40_0(options, expected):
    book = hungry(the_example(options=options), "a", "b")
    assert g(book, A, B, C) == expected
    assert book.available == {G: 30}


def test_with_waterfill_a_may_reach_64_and_b_16_of_the_example():
    book = hungry(the_example(options=FILL), "a", "b")
    assert [g(book, leaf)[0] + leaf.min[G] for leaf in (A, B)] == [64, 16]


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        pytest.param((4, 4, 0), [15, 3, 11], id="t1"),
        pytest.param((5, 3, 0), [15, 3, 11], id="t2"),
        pytest.param((4, 3, 1), [10, 2, 7], id="C has taken back 10"),
        pytest.param((4, 2, 2), [5, 1, 3], id="20"),
        pytest.param((4, 1, 3), [0, 0, 0], id="all of it"),
    ],
)
def test_shares_shrink_as_guarantees_are_taken_back(held, expected):
    assert g(the_example(*held), A, B, C) == expected


def test_a_composite_of_three_idle_namespaces_has_one_share():
    group, x = a_leaf("n1", 30, "n2", "n3"), a_leaf("x", 10)
    assert g(a_book(group, x, members=pods("x", 10)), x) == [7]


def test_29_of_100_is_29():
    assert g(a_book(a_leaf("a", 29), a_leaf("b", 71)), a_leaf("a", 29)) == [29]


@pytest.mark.parametrize("options", [FLOOR, HAMILTON, FILL], ids=lambda o: o.fair_share)
@pytest.mark.parametrize(
    ("leaves", "expected"),
    [
        pytest.param([a_leaf("a", 0), a_leaf("b", 0)], [0, 0], id="all min 0"),
        pytest.param([a_leaf("a", {}), a_leaf("b", {G: 0})], [0, 0], id="no min at all"),
    ],
)
def test_who_is_guaranteed_nothing_shares_nothing(options, leaves, expected):
    book = hungry(a_book(*leaves, options=options), "a", "b")
    assert g(book, *leaves) == expected
    assert book.share(leaves[0]) == {G: 0}


def test_one_quota_alone_has_all_of_what_it_leaves_unused():
    book = a_book(A, members=pods("a", 10))
    assert (g(book, A), book.share(A)) == ([30], {G: 1})


def test_a_resource_that_nobody_guarantees_is_not_shared_out():
    book = a_book(A, a_leaf("b", 10, max={G: 20, "cpu": 5}))
    assert book.guaranteed(A).keys() == {G}
    assert book.guaranteed(A, a_claim("a/new", {G: 1, "cpu": 1})).keys() == {G}
    assert book.guaranteed(A, a_claim("a/new", {"cpu": 1})) == {}


# Waterfill.

LEAST = {"q1": 10, "q2": 15, "q3": 20, "q4": 15}
WEIGHTS = {"q1": 40, "q2": 60, "q3": 50, "q4": 80}
WANTED = {"q1": 5, "q2": 20, "q3": 40, "q4": 70}


@pytest.mark.parametrize(
    ("weight4", "least4", "expected"),
    [
        pytest.param(80, 15, [5, 20, 35, 40], id="by weight, what one leaves goes to the others"),
        pytest.param(0, 15, [5, 20, 40, 15], id="weight 0 has its guarantee and no more"),
        pytest.param(0, 45, [5, 20, 30, 45], id="and all of a larger guarantee"),
    ],
)
def test_waterfill_of_100_among_four(weight4, least4, expected):
    """The numbers of Koordinator's own tests."""
    least, weights = LEAST | {"q4": least4}, WEIGHTS | {"q4": weight4}
    leaves = [a_leaf(name, least[name], weight=weights[name]) for name in least]
    book = a_book(*leaves, capacity=100, options=Options(pool="capacity", fair_share="waterfill"))
    for name, wanted in WANTED.items():
        book.ask(a_claim(f"{name}/waiting", wanted))
    reached = zip(leaves, g(book, *leaves), strict=True)
    wanted = WANTED.values()
    assert [
        min(leaf.min[G] + more, want) for (leaf, more), want in zip(reached, wanted, strict=True)
    ] == expected


def test_81_devices_one_idle_donor_and_ten_equal_borrowers():
    """All are handed out, and always to the same."""
    leaves = [a_leaf("donor", 3), *(a_leaf(f"t{i}", 7, weight=1) for i in range(10))]
    options = Options(pool="capacity", fair_share="waterfill")
    for order in (1, -1):
        book = a_book(*leaves[::order], capacity=81, options=options)
        hungry(book, *(f"t{i}" for i in range(10)))
        reached = [
            leaf.min[G] + more for leaf, more in zip(leaves[1:], g(book, *leaves[1:]), strict=True)
        ]
        assert sum(reached) == 81
        assert reached == [9, *[8] * 9]


def test_waterfill_gives_nobody_more_than_it_wants():
    book = the_example(options=FILL)
    book.ask(a_claim("a/waiting", 10))
    assert g(book, A, B, C) == [10, 20, 0]
    book.ask(a_claim("c/waiting", 20))
    assert g(book, A, B, C) == [8, 2, 0]
    book.withdraw("c/waiting")
    assert g(book, A, B, C) == [10, 20, 0]


def test_a_pod_that_is_charged_waits_no_more():
    book = the_example(options=FILL)
    book.ask(a_claim("a/new", 10))
    book.put(a_member("a/new", 10))
    book.ask(a_claim("a/new", 10))
    assert g(book, A, B, C) == [10, 20, 0]
    book.drop("a/new")
    assert g(book, A, B, C) == [0, 30, 0]


def test_a_claim_counts_once_whether_it_was_announced_or_not():
    book = the_example(options=FILL)
    claim = a_claim("a/new", 10)
    assert book.guaranteed(A, claim) == {G: 10}
    book.ask(claim)
    assert book.guaranteed(A, claim) == {G: 10}


# Groups and limits.


def test_what_a_group_does_not_lend_is_shared_within_it():
    leaves = [a_leaf("a", 20, parent="one"), a_leaf("b", 20, parent="one"), a_leaf("c", 40)]
    book = a_book(*leaves, nodes=[a_group("one", lend=10)], members=pods("c", 40))
    assert book.available == {G: 10}
    assert g(book, *leaves) == [17, 17, 5]


def test_a_group_that_borrows_nothing_shares_what_is_its_own():
    leaves = [a_leaf("a", 20, parent="one"), a_leaf("b", 20, parent="one"), a_leaf("c", 40)]
    book = a_book(*leaves, nodes=[a_group("one", borrow=0)], members=pods("a", 20))
    assert book.available == {G: 60}
    assert g(book, *leaves) == [10, 10, 30]


def test_a_borrow_limit_bounds_a_share_and_hamilton_gives_the_rest_to_others():
    leaves = [a_leaf("a", 40, borrow=5), a_leaf("b", 40)]
    assert g(a_book(*leaves), *leaves) == [5, 40]
    assert g(a_book(*leaves, options=HAMILTON), *leaves) == [5, 75]


def test_a_groups_own_quota_and_a_larger_cluster_are_shared_out_too():
    leaves = [a_leaf("a", 10, parent="one"), a_leaf("b", 10)]
    book = a_book(*leaves, nodes=[a_group("one", own=20)], members=[*pods("a", 10), *pods("b", 10)])
    assert (book.available, g(book, *leaves)) == ({G: 20}, [15, 5])
    book = a_book(*leaves, nodes=[a_group("one")], capacity=60, options=Options(pool="capacity"))
    assert (book.available, g(book, *leaves)) == ({G: 60}, [30, 30])


def test_waterfill_reaches_through_groups():
    leaves = [a_leaf("a", 10, parent="one"), a_leaf("b", 10, parent="one"), a_leaf("c", 40)]
    book = a_book(*leaves, nodes=[a_group("one")], options=FILL)
    hungry(book, "a", asked=25)
    assert g(book, *leaves) == [15, 0, 0]
    hungry(book, "a")
    assert g(book, *leaves) == [50, 0, 0]
    hungry(book, "c", asked=50)
    assert g(book, *leaves) == [3, 0, 7]


def test_waterfill_counts_what_a_group_keeps_for_itself_before_it_takes_from_others():
    leaves = [
        a_leaf("a", 10, parent="one"),
        a_leaf("b", 30, parent="one"),
        a_leaf("c", 40),
        a_leaf("d", 10),
    ]
    book = a_book(*leaves, nodes=[a_group("one", lend=0)], options=FILL)
    hungry(book, "a", asked=50)
    hungry(book, "d", asked=60)
    assert book.available == {G: 50}
    assert g(book, *leaves) == [40, 0, 0, 30]


def test_a_weight_replaces_min_as_the_measure():
    leaves = [a_leaf("a", 40, weight=1), a_leaf("b", 10, weight=3), a_leaf("c", 30, weight=0)]
    book = a_book(*leaves)
    assert g(book, *leaves) == [20, 60, 0]
    assert [book.share(leaf)[G] for leaf in leaves] == [Fraction(1, 4), Fraction(3, 4), 0]


def test_shares_of_members_are_a_part_of_their_groups():
    nodes = [a_group("one", weight=1), a_group("two", weight=3)]
    leaves = [
        a_leaf("a", 10, parent="one"),
        a_leaf("b", 30, parent="one"),
        a_leaf("c", 5, parent="two"),
    ]
    book = a_book(*leaves, nodes=nodes)
    assert [book.share(leaf)[G] for leaf in leaves] == [
        Fraction(1, 16),
        Fraction(3, 16),
        Fraction(3, 4),
    ]
    assert g(book, *leaves) == [2, 8, 33]


# Lenders.


def test_what_is_borrowed_is_what_is_lent():
    book = the_example(4, 3, 0)
    assert [book.borrowed(leaf) for leaf in (A, B, C)] == [{}, {G: 20}, {}]
    assert [book.lent(leaf) for leaf in (A, B, C)] == [{}, {}, {G: 20}]


def test_lenders_lend_in_proportion_to_what_they_leave():
    book = a_book(A, B, C, members=pods("b", 45))
    assert book.borrowed(B) == {G: 35}
    assert [book.lent(leaf) for leaf in (A, B, C)] == [{G: 20}, {}, {G: 15}]


def test_a_group_borrows_from_its_own_before_others():
    leaves = [a_leaf("a", 10, parent="one"), a_leaf("b", 10, parent="one"), a_leaf("c", 40)]
    book = a_book(*leaves, nodes=[a_group("one", own=4)], members=pods("a", 20))
    assert [book.lent(leaf).get(G, 0) for leaf in leaves] == [0, 7, 0]
    book.put(a_member("a/more", 10))
    assert [book.lent(leaf).get(G, 0) for leaf in leaves] == [0, 10, 6]


def test_what_a_group_lends_comes_from_its_members():
    leaves = [a_leaf("a", 10, parent="one"), a_leaf("b", 20, parent="one"), a_leaf("c", 5)]
    book = a_book(*leaves, nodes=[a_group("one")], members=[*pods("a", 13), *pods("c", 11)])
    assert [book.lent(leaf).get(G, 0) for leaf in leaves] == [0, 9, 0]


# The arithmetic by itself.


@pytest.mark.parametrize(
    ("total", "weights", "caps", "floored", "filled"),
    [
        pytest.param(10, [1, 1, 1], [None] * 3, [3, 3, 3], [4, 3, 3], id="the first gets the rest"),
        pytest.param(10, [1, 2], [None] * 2, [3, 6], [3, 7], id="the larger remainder gets it"),
        pytest.param(10, [1, 1], [2, None], [2, 5], [2, 8], id="a cap leaves more to others"),
        pytest.param(10, [1, 1], [2, 3], [2, 3], [2, 3], id="all have enough"),
        pytest.param(10, [0, 1], [None] * 2, [0, 10], [0, 10], id="weight 0"),
        pytest.param(10, [0, 0], [None] * 2, [0, 0], [0, 0], id="nobody has weight"),
        pytest.param(0, [1, 1], [None, 0], [0, 0], [0, 0], id="nothing to share"),
        pytest.param(10, [1, 1, 8], [0, 3, 4], [0, 1, 4], [0, 3, 4], id="caps one after the other"),
        pytest.param(5, [], [], [], [], id="nobody"),
    ],
)  # fmt: skip
def test_shares(total, weights, caps, floored, filled):
    assert floor_shares(total, weights, caps) == floored
    assert filled_shares(total, weights, caps) == filled
