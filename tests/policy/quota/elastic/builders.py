"""Builders of quotas and the pods that hold them; numbers are GB of GPU memory."""

# ruff: noqa: A002 - a quota's own word is max

from __future__ import annotations

from collections.abc import Iterable, Mapping

from hami.domain.units import PodUid
from hami.policy.quota.elastic import (
    GPU_MEMORY,
    Amounts,
    Capacity,
    Claim,
    ElasticBook,
    Leaf,
    Member,
    Options,
    TreeNode,
    Units,
)

G = GPU_MEMORY
UNITS = Units(
    memory={"nvidia.com/gpumem": 1, "bolt.io/mem": 256},
    counts=frozenset({"nvidia.com/gpu", "bolt.io/npu"}),
    managed=frozenset(
        {"nvidia.com/gpu", "nvidia.com/gpumem", "nvidia.com/gpumem-percentage",
         "nvidia.com/gpucores", "bolt.io/npu", "bolt.io/mem"}
    ),
)  # fmt: skip

Some = int | Mapping[str, int] | None
"""GB of GPU memory, or amounts by resource."""


def amounts(some: int | Mapping[str, int]) -> Amounts:
    return {G: some} if isinstance(some, int) else some


def maybe(some: Some) -> Amounts | None:
    return None if some is None else amounts(some)


def a_leaf(namespace: str, least: int | Mapping[str, int], *more: str, max: Some = None,
           weight: int | None = None, parent: str = "", borrow: Some = None,
           lend: Some = None, name: str = "q") -> Leaf:  # fmt: skip
    """A single quota; a composite when it names more namespaces."""
    return Leaf(
        kind="CompositeElasticQuota" if more else "ElasticQuota",
        namespace=namespace, name=name, namespaces=(namespace, *more), min=amounts(least),
        max=maybe(max), weight=weight, parent=parent, borrow=maybe(borrow), lend=maybe(lend),
    )  # fmt: skip


def a_group(name: str, *, parent: str = "", own: int | Mapping[str, int] = 0, max: Some = None,
            weight: int | None = None, borrow: Some = None, lend: Some = None,
            tree: str = "t") -> TreeNode:  # fmt: skip
    return TreeNode(name=name, parent=parent, own=amounts(own) if own else {}, max=maybe(max),
                    weight=weight, borrow=maybe(borrow), lend=maybe(lend), tree=tree)  # fmt: skip


def a_member(name: str, held: int | Mapping[str, int], *, at: int = 0, priority: int = 0,
             namespace: str = "", preemptible: bool = True, running: bool = True) -> Member:  # fmt: skip
    """``a/p1`` is ``p1`` in namespace ``a``; ``at``: seconds after midnight when it was created."""
    where, _, short = name.rpartition("/")
    return Member(
        uid=name, namespace=where or namespace or "a", name=short,
        created=f"2024-01-01T{at // 3600:02}:{at // 60 % 60:02}:{at % 60:02}Z",
        priority=priority, vector=amounts(held), preemptible=preemptible, running=running,
    )  # fmt: skip


def a_claim(name: str, asked: int | Mapping[str, int], *, priority: int = 0,
            preemptible: bool = True) -> Claim:  # fmt: skip
    where, _, short = name.rpartition("/")
    return Claim(uid=name, namespace=where or "a", name=short, priority=priority,
                 vector=amounts(asked), preemptible=preemptible)  # fmt: skip


def a_book(*leaves: Leaf, nodes: Iterable[TreeNode] = (), capacity: Some = None,
           options: Options | None = None, members: Iterable[Member] = ()) -> ElasticBook:  # fmt: skip
    book = ElasticBook(options or Options(), UNITS)
    assert book.set_quotas(leaves, nodes, maybe(capacity)) == ()
    for member in members:
        book.put(member)
    return book


A, B, C = a_leaf("a", 40), a_leaf("b", 10), a_leaf("c", 30)
"""The quotas of nos' worked example."""


def pods(namespace: str, *held: int, after: int = 0) -> list[Member]:
    """Pods of these GB, the oldest first."""
    return [a_member(f"{namespace}/p{i}", gb, at=after + i) for i, gb in enumerate(held, start=1)]


def the_example(a: int = 4, b: int = 4, c: int = 0, options: Options | None = None) -> ElasticBook:
    """nos' example with this many 10 GB pods in each quota: t1 unchanged, t2 is 5, 3, 0."""
    held = [*pods("a", *[10] * a), *pods("b", *[10] * b), *pods("c", *[10] * c)]
    return a_book(A, B, C, options=options, members=held)


def g(book: ElasticBook, *leaves: Leaf, resource: str = G) -> list[int]:
    """What each quota is guaranteed beyond its min."""
    return [book.guaranteed(leaf)[resource] for leaf in leaves]


def may(book: ElasticBook, name: str, asked: int | Mapping[str, int], **how: bool) -> bool:
    return not book.refusals(a_claim(name, asked, **how))


def labels(book: ElasticBook, leaf: Leaf) -> list[str]:
    """``in`` or ``over`` for each pod, the oldest first."""
    return [str(label).removesuffix("-quota") for label in capacities(book, leaf).values()]


def capacities(book: ElasticBook, leaf: Leaf) -> dict[PodUid, Capacity | None]:
    """The capacity label of each pod of the quota, the oldest first."""
    return {member.uid: book.capacity(member.uid) for member in book.members(leaf)}
