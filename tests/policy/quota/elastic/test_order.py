"""Which pods of a quota are over it, and how the labels follow."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hami.policy.quota.elastic import Member, Options

from .builders import A, B, G, a_book, a_leaf, a_member, capacities, labels, pods, the_example

FIRST_FIT = Options(labels="firstFit")
GPU = "nvidia.com/gpu"


def uids(members):
    return [member.name for member in members]


def order_of(*members):
    book = a_book(A, members=reversed(members))
    return uids(book.members(A))


def test_five_pods_of_10_in_a_quota_of_40():
    book = the_example(5, 0, 0)
    assert labels(book, A) == ["in", "in", "in", "in", "over"]
    assert uids(book.over_quota(A)) == ["p5"]


def test_over_quota_pods_come_newest_first():
    assert uids(the_example().over_quota(B)) == ["p4", "p3", "p2"]


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        pytest.param([a_member("a/pd-1", 0, at=1995, priority=100), a_member("a/pd-2", 0, at=2000, priority=10),
                      a_member("a/pd-3", 0, at=1996, priority=50)], ["pd-1", "pd-3", "pd-2"], id="by creation"),
        pytest.param([a_member("a/pd-1", 0, priority=100), a_member("a/pd-2", 0, priority=10),
                      a_member("a/pd-3", 0, priority=50)], ["pd-2", "pd-3", "pd-1"], id="then the lower priority"),
        pytest.param([a_member("a/pd-1", {GPU: 10}), a_member("a/pd-2", {GPU: 1}),
                      a_member("a/pd-3", {GPU: 5})], ["pd-2", "pd-3", "pd-1"], id="then what they hold"),
        pytest.param([a_member("a/pd-1", 0), a_member("a/pd-3", 0), a_member("a/pd-2", 0)],
                     ["pd-1", "pd-2", "pd-3"], id="then their names"),
        pytest.param([a_member("a/y", {"x": 1, "y": 2}), a_member("a/x", {"x": 2, "y": 1})],
                     ["y", "x"], id="fix: amounts that cannot be compared have an order too"),
    ],
)  # fmt: skip
def test_the_order_of_nos(members, expected):
    assert order_of(*members) == expected
    assert order_of(*reversed(members)) == expected


def test_pods_that_differ_in_nothing_but_their_namespace_have_an_order():
    leaf = a_leaf("a", 10, "b")
    for order in (1, -1):
        book = a_book(leaf, members=[a_member("b/p", 10), a_member("a/p", 10)][::order])
        assert [m.uid for m in book.over_quota(leaf)] == ["b/p"]


def test_pods_that_are_no_victims_fill_the_guarantee_first():
    """However young: over-quota pods are then always some that may be evicted."""
    fixed = a_member("a/fixed", 30, at=99, preemptible=False)
    book = a_book(A, members=[*pods("a", 10, 10), fixed])
    assert uids(book.members(A)) == ["fixed", "p1", "p2"]
    assert labels(book, A) == ["in", "in", "over"]


def test_a_pod_without_priority_start_or_creation_is_no_surprise():
    bare = Member(uid="u", namespace="a", name="p", vector={G: 50})
    book = a_book(A, members=[bare, *pods("a", 10)])
    assert labels(book, A) == ["over", "over"]
    assert book.is_over("u")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(Options(), ["over", "over"], id="cumulative, as nos: all after the first"),
        pytest.param(FIRST_FIT, ["over", "in"], id="firstFit: what fits is protected"),
    ],
)
def test_a_large_old_pod_and_a_small_new_one(options, expected):
    leaf = a_leaf("a", 10)
    book = a_book(leaf, options=options, members=pods("a", 20, 5))
    assert labels(book, leaf) == expected
    assert uids(book.over_quota(leaf)) == [f"p{i}" for i in (2, 1) if expected[i - 1] == "over"]


def test_every_resource_of_min_can_be_crossed_and_no_other():
    leaf = a_leaf("a", {G: 40, "cpu": 4000}, max={"memory": 1 << 40})
    held = [a_member(f"a/p{i}", {G: 10, "cpu": 1500, "memory": 1 << 39}, at=i) for i in range(3)]
    assert labels(a_book(leaf, members=held), leaf) == ["in", "in", "over"]


@pytest.mark.parametrize("options", [Options(), FIRST_FIT], ids=lambda o: o.labels)
def test_a_resource_that_min_names_later_counts_for_the_pods_that_are_there(options):
    held = [a_member(f"a/p{i}", {G: 10, "cpu": 1000}, at=i) for i in range(3)]
    book = a_book(a_leaf("a", 40), options=options, members=held)
    assert labels(book, A) == ["in", "in", "in"]
    for cpu, expected in ((2000, ["in", "in", "over"]), (500, ["over"] * 3), (3000, ["in"] * 3)):
        leaf = a_leaf("a", {G: 40, "cpu": cpu})
        book.set_quotas([leaf])
        assert labels(book, leaf) == expected


@pytest.mark.parametrize("options", [Options(), FIRST_FIT], ids=lambda o: o.labels)
def test_labels_follow_when_a_pod_ends_and_when_min_changes(options):
    leaf = a_leaf("a", 64)
    book = a_book(leaf, options=options, members=pods("a", 32, 48))
    assert labels(book, leaf) == ["in", "over"]
    book.drop("a/p1")
    assert labels(book, leaf) == ["in"]
    book.put(a_member("a/p2", 32))
    book.put(a_member("a/p3", 32))
    assert labels(book, leaf) == ["in", "in"]
    for least, expected in ((32, ["in", "over"]), (64, ["in", "in"])):
        changed = a_leaf("a", least)
        book.set_quotas([changed])
        assert labels(book, changed) == expected


def test_pods_without_labels_yet_are_over_quota_all_the_same():
    """nos learns of it when its operator has seen the pod run and labelled it."""
    book = a_book(a_leaf("b", 10), a_leaf("c", 30))
    for number in range(4):
        book.put(a_member(f"b/p{number}", 10, at=number, running=False))
    assert uids(book.over_quota(B)) == ["p3", "p2", "p1"]


def test_the_book_may_change_while_its_over_quota_pods_are_read():
    book = the_example()
    for member in book.over_quota(B):
        book.drop(member.uid)
    assert uids(book.members(B)) == ["p1"]


def test_only_whose_side_has_changed_is_told():
    book = the_example()
    assert book.moved(B) == {"b/p1": "in-quota", "b/p2": "over-quota",
                             "b/p3": "over-quota", "b/p4": "over-quota"}  # fmt: skip
    assert book.moved(B) == {}
    book.drop("b/p1")
    assert book.moved(B) == {"b/p2": "in-quota"}
    book.put(a_member("b/p5", 10, at=99))
    assert book.moved(B) == {"b/p5": "over-quota"}
    book.put(a_member("b/p0", 10, at=0))
    assert book.moved(B) == {"b/p0": "in-quota", "b/p2": "over-quota"}
    with book.trial() as trial:
        trial.drop("b/p0")
    assert book.moved(B) == {}
    book.put(a_member("b/p6", 10, at=99))
    book.set_quotas([a_leaf("b", 30), a_leaf("a", 1)])
    assert book.moved(B) == {"b/p2": "in-quota", "b/p3": "in-quota", "b/p6": "over-quota"}


# Against nos' own way of working it out.

RESOURCES = ("cpu", G, "x")
vectors = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 12), max_size=3)
members = st.builds(
    lambda name, at, priority, held: a_member(f"a/{name}", held, at=at, priority=priority),
    st.sampled_from("abcdefgh"), st.integers(0, 3), st.integers(-1, 1), vectors,
)  # fmt: skip
least = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 30), max_size=3)


def as_nos_does(found, guarantee, *, cumulative):
    """Add up pod by pod, oldest first; over-quota is who makes the sum larger than min."""
    ordered = sorted(found, key=lambda m: (m.created, m.priority, sorted(m.vector.items()), m.name))
    used, over = dict.fromkeys(guarantee, 0), []
    for member in ordered:
        after = {r: used[r] + member.vector.get(r, 0) for r in used}
        exceeds = any(after[r] > guarantee[r] for r in used)
        if exceeds:
            over.append(member.uid)
        if cumulative or not exceeds:
            used = after
    return over


@settings(max_examples=200, deadline=None)
@given(
    changes=st.lists(st.one_of(members, st.sampled_from("abcdefgh"), least), max_size=30),
    options=st.sampled_from([Options(), FIRST_FIT]),
)
def test_running_totals_say_what_adding_up_anew_says(changes, options):
    """And a copy of the labels that is told of every change is never wrong."""
    leaf = a_leaf("a", 20)
    book = a_book(leaf, options=options)
    held, told = {}, {}
    for change in changes:
        match change:
            case Member():
                held[change.uid] = change
                book.put(change)
            case str():
                held.pop(f"a/{change}", None)
                told.pop(f"a/{change}", None)
                book.drop(f"a/{change}")
            case _:
                leaf = a_leaf("a", change)
                book.set_quotas([leaf])
        over = as_nos_does(held.values(), leaf.min, cumulative=options.labels == "cumulative")
        assert [m.uid for m in book.over_quota(leaf)] == over[::-1]
        assert {uid for uid in held if book.is_over(uid)} == set(over)
        told |= book.moved(leaf)
        assert told == {uid: "over-quota" if uid in over else "in-quota" for uid in held}
        assert told == capacities(book, leaf)
