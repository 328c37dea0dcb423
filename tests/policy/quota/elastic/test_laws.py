"""What holds for the book whatever happens to it, beside the formulas written out plainly."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from hami.policy.quota.elastic import Claim, ElasticBook, Leaf, Member, Options, TreeNode
from hami.policy.quota.elastic.book.fair import filled_shares, floor_shares

from .builders import G, a_book, a_claim, a_leaf, a_member, capacities, may

RESOURCES = ("cpu", G, "x")
NAMESPACES = ("n1", "n2", "n3")
vectors = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 9), max_size=3)
limits = st.none() | st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 20), max_size=2)
least = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 20), max_size=3)
parents = st.sampled_from(["", "top", "low"])
leaves = st.builds(
    lambda namespaces, **more: Leaf(
        kind="CompositeElasticQuota" if len(namespaces) > 1 else "ElasticQuota",
        namespace=namespaces[0], namespaces=tuple(namespaces), **more,
    ),
    namespaces=st.lists(st.sampled_from(NAMESPACES), min_size=1, max_size=2, unique=True),
    name=st.just("q"), min=least, max=limits, parent=parents, borrow=limits, lend=limits,
    weight=st.none() | st.integers(0, 3),
)  # fmt: skip
sets_of_leaves = st.lists(leaves, max_size=4, unique_by=lambda leaf: leaf.key)
top = st.builds(TreeNode, name=st.just("top"), own=least, max=limits, borrow=limits, lend=limits)
low = st.builds(TreeNode, name=st.just("low"), parent=st.just("top"), own=least, max=limits,
                borrow=limits, lend=limits)  # fmt: skip
members = st.builds(
    lambda name, where, at, held, preemptible, running: a_member(
        f"{where}/{name}", held, at=at, preemptible=preemptible, running=running),
    st.sampled_from("abc"), st.sampled_from(NAMESPACES), st.integers(0, 3), vectors, st.booleans(), st.booleans(),
)  # fmt: skip
uids = st.builds(
    lambda where, name: f"{where}/{name}", st.sampled_from(NAMESPACES), st.sampled_from("abc")
)


class Plain:
    """The quotas and pods, and everything worked out anew at every question."""

    def __init__(self, leaves, nodes, capacity, held, options: Options) -> None:
        self.leaves: list[Leaf] = []
        self.owner: dict[str, Leaf] = {}
        for leaf in sorted(
            leaves, key=lambda leaf: (leaf.kind != "CompositeElasticQuota", leaf.namespace)
        ):
            free = [ns for ns in leaf.namespaces if ns not in self.owner]
            self.owner |= dict.fromkeys(free, leaf)
            if free:
                self.leaves.append(leaf)
        self.nodes, self.capacity, self.held, self.options = nodes, capacity, held, options
        self.pool = {r for leaf in self.leaves for r in leaf.min} | {
            r for node in nodes for r in node.own
        }

    def pods_of(self, leaf: Leaf) -> list[Member]:
        return [m for m in self.held.values() if self.owner.get(m.namespace) is leaf]

    def used(self, place: Leaf | TreeNode | None, r: str) -> int:
        if isinstance(place, Leaf):
            return sum(m.vector.get(r, 0) for m in self.pods_of(place))
        return sum(self.used(child, r) for child in self.children(place))

    def children(self, node: TreeNode | None):
        name = node.name if node else ""
        return [x for x in [*self.nodes, *self.leaves] if x.parent == name]

    def left(self, place: Leaf | TreeNode | None, r: str) -> int:
        """T of the model: min - used of a quota; own + what children lend of a group."""
        if isinstance(place, Leaf):
            return place.min.get(r, 0) - self.used(place, r)
        if place is not None:
            own = place.own.get(r, 0)
        elif self.options.pool == "capacity" and self.capacity and r in self.capacity:
            own = (
                self.capacity[r]
                - sum(leaf.min.get(r, 0) for leaf in self.leaves)
                - sum(n.own.get(r, 0) for n in self.nodes)
            )
        else:
            own = 0
        return own + sum(self.lent(c, self.left(c, r), r) for c in self.children(place))

    def left_of(self, title: str, r: str) -> int:
        places = {node.name: node for node in self.nodes} | {leaf.key: leaf for leaf in self.leaves}
        return self.left(places.get(title), r)

    def spare(self, place: Leaf | TreeNode | None, r: str) -> int:
        """What could be shared out: as ``left``, but who is over takes nothing from it."""
        if isinstance(place, Leaf):
            return max(0, self.left(place, r))
        children = self.children(place)
        own = self.left(place, r) - sum(self.lent(c, self.left(c, r), r) for c in children)
        return own + sum(self.lent(c, self.spare(c, r), r) for c in children)

    @staticmethod
    def lent(child: Leaf | TreeNode, amount: int, r: str) -> int:
        return min((child.lend or {}).get(r, 10**9), amount)

    def excesses(self) -> set[tuple[str, str, str]]:
        """Every rule that the state as it is breaks."""
        found = set()
        for place in [*self.leaves, *self.nodes]:
            title = place.key if isinstance(place, Leaf) else place.name
            found |= {
                (title, "max", r)
                for r, most in (place.max or {}).items()
                if self.used(place, r) > most
            }
            found |= {
                (title, "borrow limit", r)
                for r, most in (place.borrow or {}).items()
                if r in self.pool and self.left(place, r) < -most
            }
        for leaf in self.leaves:
            fixed = Counter[str]()
            for member in self.pods_of(leaf):
                fixed.update({} if member.preemptible else member.vector)
            found |= {(leaf.key, "min", r) for r in self.pool if fixed[r] > leaf.min.get(r, 0)}
        if self.options.pool != "off":
            found |= {("", "pool", r) for r in self.pool if self.left(None, r) < 0}
        return found


def snapshot(book: ElasticBook):
    """All that can be asked of a book without changing it."""
    return [
        (leaf, book.members(leaf), dict(book.used(leaf)), book.running_used(leaf), book.borrowed(leaf), book.lent(leaf),
         book.guaranteed(leaf), capacities(book, leaf), list(book.over_quota(leaf)))
        for leaf in book.leaves
    ], book.pool, book.available  # fmt: skip


class Book(RuleBasedStateMachine):
    """Pods come, go and are placed again while quotas, groups and the cluster change."""

    options = Options()

    def __init__(self) -> None:
        super().__init__()
        self.book = ElasticBook(self.options)
        self.leaves, self.nodes, self.capacity = [], [], None
        self.held: dict[str, Member] = {}
        self.over: set[tuple[str, str, str]] = set()

    def plain(self, held=None) -> Plain:
        return Plain(
            self.leaves,
            self.nodes,
            self.capacity,
            self.held if held is None else held,
            self.options,
        )

    @rule(member=members)
    def reserve(self, member: Member) -> None:
        """Refused exactly when a rule would be broken in what is asked; then nothing changes."""
        claim = Claim(
            uid=member.uid,
            namespace=member.namespace,
            name=member.name,
            vector=member.vector,
            preemptible=member.preemptible,
        )
        after = self.plain({**self.held, member.uid: member})
        asked = {r for r, n in member.vector.items() if n}
        path = self.way(after, member)
        without = self.plain({uid: m for uid, m in self.held.items() if uid != member.uid})
        broken = {(rule, r) for where, rule, r in after.excesses()
                  if r in asked and where in path and (rule != "min" or not member.preemptible)
                  and (rule in ("max", "min") or after.left_of(where, r) < without.left_of(where, r))}  # fmt: skip
        words = {"min of non-preemptible pods": "min"}
        refusals = self.book.refusals(claim)
        assert {(words.get(x.rule, x.rule), x.resource) for x in refusals} == broken
        assert all(x.used + x.asked > x.limit for x in refusals)
        if not refusals:
            self.book.put(member)
            self.held[member.uid] = member

    def way(self, plain: Plain, member: Member) -> set[str]:
        leaf = plain.owner.get(member.namespace)
        if leaf is None:
            return set()
        found, parent = {leaf.key, ""}, leaf.parent
        parents = {node.name: node.parent for node in self.nodes}
        while parent:
            found.add(parent)
            parent = parents[parent]
        return found

    @rule(member=members, resource=st.sampled_from(RESOURCES))
    def ask_for_all_there_is(self, member: Member, resource: str) -> None:
        """The room that is told is what may just be had."""

        def asking(amount: int) -> Claim:
            vector = {resource: amount}
            return Claim(
                uid=member.uid,
                namespace=member.namespace,
                name=member.name,
                vector=vector,
                preemptible=member.preemptible,
            )

        room = self.book.room(asking(0), resource)
        if room is None:
            assert not self.book.refusals(asking(10**6))
            return
        assert self.book.refusals(asking(max(room, 0) + 1))
        if room > 0:
            assert not self.book.refusals(asking(room))

    @rule(member=members)
    def run_already(self, member: Member) -> None:
        self.book.put(member)
        self.held[member.uid] = member
        self.over |= self.plain().excesses()

    @rule(uid=uids)
    def end(self, uid: str) -> None:
        self.book.drop(uid)
        if self.held.pop(uid, None):
            # A pod that lends again is no new excess; one that only borrowed less is none either.
            assert self.plain().excesses() <= self.over

    @rule(leaves=sets_of_leaves, top=top, low=low, capacity=least)
    def quotas(self, leaves, top, low, capacity) -> None:
        self.leaves, self.nodes, self.capacity = leaves, [top, low], capacity
        self.book.set_quotas(leaves, [low, top], capacity)
        self.over |= self.plain().excesses()

    @rule(capacity=least)
    def resize(self, capacity) -> None:
        self.capacity = capacity
        self.book.set_capacity(capacity)
        self.over |= self.plain().excesses()

    @rule(gone=st.lists(uids, max_size=4), new=st.lists(members, max_size=3), fails=st.booleans())
    def what_if(self, gone, new, fails) -> None:
        before = snapshot(self.book)
        held = {uid: m for uid, m in self.held.items() if uid not in gone} | {m.uid: m for m in new}
        try:
            with self.book.trial() as outer:
                for uid in gone:
                    outer.drop(uid)
                with self.book.trial() as inner:
                    for member in new:
                        inner.put(member)
                    self.agrees(self.plain(held))
                if fails:
                    raise LookupError
        except LookupError:
            assert fails
        assert snapshot(self.book) == before

    @invariant()
    def sums_are_those_of_the_pods(self) -> None:
        self.agrees(self.plain())

    def agrees(self, plain: Plain) -> None:
        assert {leaf.key for leaf in self.book.leaves} == {leaf.key for leaf in plain.leaves}
        for leaf in plain.leaves:
            pods = plain.pods_of(leaf)
            assert {m.uid for m in self.book.members(leaf)} == {m.uid for m in pods}
            used = {r: plain.used(leaf, r) for r in RESOURCES}
            assert self.book.used(leaf) == {r: n for r, n in used.items() if n}
            running = {r: sum(m.vector.get(r, 0) for m in pods if m.running) for r in leaf.min}
            assert self.book.running_used(leaf) == running
            borrowed = {r: -plain.left(leaf, r) for r in plain.pool}
            assert self.book.borrowed(leaf) == {r: n for r, n in borrowed.items() if n > 0}
        assert self.book.available == {r: max(0, plain.spare(None, r)) for r in plain.pool}
        assert {r: pool.free for r, pool in self.book.pool.items()} == {
            r: plain.left(None, r) for r in plain.pool
        }
        assert {r: pool.used for r, pool in self.book.pool.items()} == {
            r: plain.used(None, r) for r in plain.pool
        }

    @invariant()
    def no_rule_is_broken_but_by_what_ran_already(self) -> None:
        now = self.plain().excesses()
        assert now <= self.over
        self.over = now

    @invariant()
    def who_lends_lends_what_is_unused_and_no_more(self) -> None:
        plain = self.plain()
        for leaf in plain.leaves:
            for r, amount in self.book.lent(leaf).items():
                assert 0 < amount <= min(plain.left(leaf, r), (leaf.lend or {}).get(r, 10**9))

    def teardown(self) -> None:
        for uid in list(self.held):
            self.book.drop(uid)
        assert all(not self.book.used(leaf) for leaf in self.book.leaves)
        assert all(pool.used == 0 for pool in self.book.pool.values())


class BookOfACluster(Book):
    options = Options(pool="capacity", fair_share="hamilton", labels="firstFit")


class BookWithoutPool(Book):
    options = Options(pool="off", fair_share="waterfill")


SOME = settings(max_examples=60, stateful_step_count=20, deadline=None)
TestBook, TestBookOfACluster, TestBookWithoutPool = (
    Book.TestCase,
    BookOfACluster.TestCase,
    BookWithoutPool.TestCase,
)
TestBook.settings = TestBookOfACluster.settings = TestBookWithoutPool.settings = SOME


# Shares.

weights = st.lists(
    st.tuples(st.integers(0, 50), st.none() | st.integers(0, 60)), min_size=1, max_size=6
)


@settings(deadline=None)
@given(total=st.integers(0, 200), some=weights)
def test_law_all_is_handed_out_as_far_as_anyone_with_weight_can_take_it(total, some):
    shares, caps = zip(*some, strict=True)
    filled = filled_shares(total, shares, caps)
    assert all(
        0 <= n <= (total if cap is None else cap) for n, cap in zip(filled, caps, strict=True)
    )
    takers = [total if cap is None else cap for w, cap in some if w]
    assert sum(filled) == min(total, sum(takers))
    assert all(n == 0 for n, (w, _) in zip(filled, some, strict=True) if not w)


@settings(deadline=None)
@given(total=st.integers(0, 200), some=weights)
def test_law_nobody_gets_less_than_rounded_down_or_its_cap(total, some):
    shares, caps = zip(*some, strict=True)
    floored, filled = floor_shares(total, shares, caps), filled_shares(total, shares, caps)
    assert sum(floored) <= total
    assert all(less <= more for less, more in zip(floored, filled, strict=True))


@settings(deadline=None)
@given(some=st.lists(st.tuples(st.integers(0, 60), st.integers(0, 90)), min_size=1, max_size=5))
def test_law_shares_are_never_more_than_what_is_unused(some):
    """floor as nos computes it; hamilton hands out all of it."""
    leaves = [a_leaf(f"n{i}", least) for i, (least, _) in enumerate(some)]
    held = [a_member(f"n{i}/p", used) for i, (_, used) in enumerate(some)]
    unused, whole = (
        sum(max(0, least - used) for least, used in some),
        sum(least for least, _ in some),
    )
    for mode in ("floor", "hamilton"):
        book = a_book(*leaves, members=held, options=Options(fair_share=mode))
        found = [book.guaranteed(leaf)[G] for leaf in leaves]
        if mode == "floor":
            assert found == [unused * least // whole if whole else 0 for least, _ in some]
        else:
            assert sum(found) == (unused if whole else 0)
        lent = sum(book.lent(leaf).get(G, 0) for leaf in leaves)
        borrowed = sum(book.borrowed(leaf).get(G, 0) for leaf in leaves)
        assert lent == min(borrowed, unused)


# Bursts and storms.


@pytest.mark.parametrize("most", [None, 2000])
def test_of_a_burst_exactly_as_many_are_reserved_as_fit(most):
    book = a_book(a_leaf("a", 2000, max=most))
    admitted = 0
    for number in range(5):
        if may(book, f"a/p{number}", 1000):
            book.put(a_member(f"a/p{number}", 1000))
            admitted += 1
        assert book.pool[G].used <= 2000
    assert admitted == 2


def test_reserving_and_releasing_at_random_is_never_above_a_limit_nor_below_nothing():
    book, dice, held = a_book(a_leaf("a", 60, max=80), a_leaf("b", 40)), random.Random(7), {}
    for _ in range(4000):
        uid = f"{dice.choice('ab')}/p{dice.randrange(100)}"
        if uid in held and dice.random() < 0.5:
            book.drop(uid)
            del held[uid]
        elif may(book, uid, asked := dice.randrange(1, 12)):
            book.put(a_member(uid, asked))
            held[uid] = asked
        used = {ns: sum(n for uid, n in held.items() if uid[0] == ns) for ns in "ab"}
        assert {leaf.namespace: book.used(leaf).get(G, 0) for leaf in book.leaves} == used
        assert used["a"] <= 80
        assert sum(used.values()) <= 100


def test_updates_that_change_nothing_never_open_a_gap():
    leaf = a_leaf("a", 100, max=100)
    book = a_book(leaf, members=[a_member("a/full", 100)])
    asking = a_claim("a/new", 1)
    for number in range(500):
        book.set_quotas([leaf] if number % 3 else [leaf, a_leaf("other", 0)])
        assert all(book.refusals(asking) for _ in range(100))


def test_a_pod_that_is_placed_twice_leaves_no_gap_in_which_another_fits():
    book = a_book(a_leaf("a", 100), members=[a_member("a/p", {G: 100, "nvidia.com/gpu": 2})])
    assert may(book, "a/p", {G: 100, "nvidia.com/gpu": 4})
    assert not may(book, "a/other", 1)
    book.put(a_member("a/p", {G: 100, "nvidia.com/gpu": 4}))
    assert not may(book, "a/other", 1)
    assert book.used(book.leaves[0]) == {G: 100, "nvidia.com/gpu": 4}
