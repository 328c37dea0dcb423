"""What all quotas lend and are guaranteed, asked at once: each as if it had been asked alone."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from hami.policy.quota.elastic import Claim, ElasticBook, Leaf, Member, Options, TreeNode

from .builders import A, B, C, G, a_claim, a_member, the_example

RESOURCES = (G, "x")
amounts = st.dictionaries(st.sampled_from(RESOURCES), st.integers(0, 40), max_size=2)
limits = st.none() | amounts
weights = st.none() | st.integers(0, 3) | amounts
groups = st.tuples(
    *(
        st.builds(
            TreeNode, name=st.just(name), parent=st.sampled_from(parents), own=amounts,
            weight=weights, borrow=limits, lend=limits,
        )
        for name, parents in (("g0", [""]), ("g1", ["", "g0"]), ("g2", ["", "g0", "g1"]))
    )
)  # fmt: skip


@st.composite
def books(draw: st.DrawFn) -> ElasticBook:
    """Up to a dozen quotas at any depth, with pods that hold and pods that wait."""
    options = st.builds(
        Options,
        fair_share=st.sampled_from(["floor", "hamilton", "waterfill"]),
        pool=st.sampled_from(["sumMin", "capacity", "off"]),
    )
    book = ElasticBook(draw(options))
    spaces = [f"n{number}" for number in range(draw(st.integers(1, 12)))]
    leaves = [
        Leaf(
            namespace=space, name="q", namespaces=(space,), min=draw(amounts),
            parent=draw(st.sampled_from(["", "g0", "g1", "g2"])), weight=draw(weights),
            borrow=draw(limits), lend=draw(limits),
        )
        for space in spaces
    ]  # fmt: skip
    book.set_quotas(leaves, draw(groups), draw(amounts))
    for space in spaces:
        book.put(Member(uid=f"{space}/p", namespace=space, name="p", vector=draw(amounts)))
        book.ask(Claim(uid=f"{space}/c", namespace=space, name="c", vector=draw(amounts)))
    return book


@settings(deadline=None, max_examples=300)
@given(book=books(), resource=st.sampled_from(RESOURCES))
def test_law_all_at_once_says_what_each_says(book, resource):
    shares = book.shares(resource)
    each = {leaf.key: book.guaranteed(leaf) for leaf in book.leaves}
    assert shares.guaranteed == {k: n[resource] for k, n in each.items() if resource in n}
    pooled = shares.guaranteed.keys()
    lent = {leaf.key: book.lent(leaf).get(resource, 0) for leaf in book.leaves}
    assert shares.lent == {key: amount for key, amount in lent.items() if key in pooled}


def test_of_nothing_that_is_guaranteed_nothing_is_shared():
    assert (the_example().shares("cpu").lent, the_example().shares("cpu").guaranteed) == ({}, {})


def test_a_pod_that_waits_counts_where_shares_follow_demand():
    book = the_example(4, 1, 0, Options(fair_share="waterfill"))
    assert book.shares(G).guaranteed == {A.key: 0, B.key: 0, C.key: 0}
    book.ask(a_claim("b/new", 5))
    assert book.shares(G).guaranteed == {A.key: 0, B.key: 5, C.key: 0}
    assert book.shares(G).lent == {A.key: 0, B.key: 0, C.key: 0}
    book.put(a_member("b/new", 5))
    assert book.shares(G).lent == {A.key: 0, B.key: 0, C.key: 5}
