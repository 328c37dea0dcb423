"""The quotas as a tree of sums, kept up to date pod by pod.

For every resource that some quota guarantees, a node knows what it has left: a quota its ``min``
less what its pods use, a group its own quota and what its children lend it, each at most its lend
limit. Admission is a look at the way to the root; so is charging.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

from hami.policy.quota.elastic.model import Amounts, Leaf, LeafKey, Options, TreeNode
from hami.policy.quota.elastic.objects.arrangement import Arrangement

CORE = ("cpu", "memory")
"""Always limited by nos."""

ROOT = "all elastic quotas"
_NONE: Amounts = MappingProxyType({})
T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Sums:
    """One resource of the pool at one node.

    ``left`` may be negative: then the node borrows. ``spare`` is what of it could be shared out:
    borrowing does not lessen it. ``full`` is ``left`` while nothing is used.
    """

    used: int = 0
    left: int = 0
    spare: int = 0
    full: int = 0


@dataclass(slots=True, eq=False, kw_only=True)
class QuotaNode:
    """A quota, a group or the root; whole numbers by resource.

    ``own``: a quota's ``min``, a group's own quota. ``sums`` has every resource of the pool,
    ``other_used`` what is used of all else. ``way_up`` is this node and every node above it.

    Of the way up, by resource: ``sums_up``; ``ceilings``, the nodes with a ``max``; ``bounds``,
    those that may have only so much less than nothing left. Of the resources ``part_lent`` some
    node on it lends only a part.
    """

    title: str
    parent: QuotaNode | None
    own: Amounts
    max: Amounts
    borrow: Amounts
    lend: Amounts
    leaf: bool = False
    children: list[QuotaNode] = field(default_factory=list)
    weight: dict[str, int] = field(default_factory=dict)
    sums: dict[str, Sums] = field(default_factory=dict)
    other_used: dict[str, int] = field(default_factory=dict)
    way_up: tuple[QuotaNode, ...] = ()
    sums_up: dict[str, tuple[Sums, ...]] = field(default_factory=dict)
    ceilings: dict[str, tuple[tuple[QuotaNode, int], ...]] = field(default_factory=dict)
    bounds: dict[str, tuple[tuple[QuotaNode, Sums, int], ...]] = field(default_factory=dict)
    part_lent: frozenset[str] = frozenset()

    def offer(self, resource: str) -> int:
        """What of its spare quota it adds to its parent's."""
        return lent(self, resource, self.sums[resource].spare)

    def used(self, resource: str) -> int:
        sums = self.sums.get(resource)
        return self.other_used.get(resource, 0) if sums is None else sums.used

    def left(self, resource: str) -> int:
        """0 of what is not in the pool: nobody borrows it."""
        sums = self.sums.get(resource)
        return 0 if sums is None else sums.left

    @property
    def all_used(self) -> dict[str, int]:
        """Without resources of which nothing is used."""
        pooled = {resource: sums.used for resource, sums in self.sums.items() if sums.used}
        return pooled | {resource: used for resource, used in self.other_used.items() if used}


def lent(node: QuotaNode, resource: str, left: int) -> int:
    limit = node.lend.get(resource)
    return left if limit is None else min(limit, left)


@dataclass(frozen=True, slots=True)
class Tree:
    """All nodes of one set of quotas; ``pool`` are the resources that some quota guarantees.

    ``promised``: what all of them guarantee together.
    """

    root: QuotaNode
    leaves: Mapping[LeafKey, QuotaNode]
    inner: Mapping[str, QuotaNode]
    pool: frozenset[str]
    promised: Amounts

    def take(self, leaf: QuotaNode, vector: Amounts, sign: int) -> None:
        """Charge (1) or release (-1) what a pod holds, up to the root."""
        sums_up, part_lent = leaf.sums_up, leaf.part_lent
        for resource, amount in vector.items():
            change = sign * amount
            way = sums_up.get(resource)
            if way is None:
                for node in leaf.way_up:
                    used = node.other_used
                    used[resource] = used.get(resource, 0) + change
                continue
            if resource in part_lent:
                _take_part(leaf, resource, change)
                continue
            left = way[0].left
            after = left - change
            within = left >= 0 and after >= 0  # Of most pods; for them two calls are saved.
            spare = -change if within else max(0, after) - max(0, left)
            for sums in way:
                sums.used += change
                sums.left -= change
            if spare:
                for sums in way:
                    sums.spare += spare


def _take_part(leaf: QuotaNode, resource: str, change: int) -> None:
    """What a quota's parents have left follows as far as it is lent."""
    before = leaf.sums[resource].left
    left, spare = -change, max(0, before - change) - max(0, before)
    for node in leaf.way_up:
        sums = node.sums[resource]
        before, spared = sums.left, sums.spare
        sums.used += change
        sums.left = before + left
        sums.spare = spared + spare
        if resource in node.lend:
            left = lent(node, resource, before + left) - lent(node, resource, before)
            spare = lent(node, resource, spared + spare) - lent(node, resource, spared)


def grown(arrangement: Arrangement, capacity: Amounts | None, options: Options) -> Tree:
    """The tree of these quotas, with nothing used yet.

    ``capacity``: what the cluster has, for ``pool: capacity``. What it has beyond all guarantees
    is the root's own quota; if it has less, that is negative.
    """
    core = dict.fromkeys(CORE, 0) if options.strict_core else {}
    root = QuotaNode(title=ROOT, parent=None, own=_NONE, max=_NONE, borrow=_NONE, lend=_NONE)
    inner = {group.name: _inner_node(group, root, core) for group in arrangement.nodes}
    for group in arrangement.nodes:
        inner[group.name].parent = inner.get(group.parent, root)
    leaves = {
        leaf.key: _leaf_node(leaf, inner.get(leaf.parent, root), core)
        for leaf in sorted(arrangement.leaves, key=lambda leaf: leaf.key)
    }
    every = [*inner.values(), *leaves.values()]
    for child in every:
        assert child.parent is not None
        child.parent.children.append(child)
    pool = frozenset(core).union(*(node.own for node in every))
    promised = {r: sum(node.own.get(r, 0) for node in every) for r in pool}
    if options.pool == "capacity" and capacity is not None:
        root.own = {r: capacity[r] - promised[r] for r in pool if r in capacity}
    tree = Tree(root, leaves, inner, pool, promised)
    weights = {leaf.key: leaf.weight for leaf in arrangement.leaves}
    weights |= {inner[group.name].title: group.weight for group in arrangement.nodes}
    below_first = _below_first(root)
    for node in below_first:
        _weigh(node, weights.get(node.title), pool)
        _fill(node, pool)
    for node in reversed(below_first):
        _look_up(node, pool, pooled=options.pool != "off")
    return tree


def _look_up(node: QuotaNode, pool: frozenset[str], *, pooled: bool) -> None:
    """What is on a node's way up, once for all that will ask; its parent's comes first.

    ``pooled``: the root may not have less than nothing left.
    """
    parent = node.parent
    if parent is None:
        node.way_up = (node,)
        node.sums_up = {r: (sums,) for r, sums in node.sums.items()}
        if pooled:
            node.bounds = {r: ((node, sums, 0),) for r, sums in node.sums.items()}
        return
    node.way_up = (node, *parent.way_up)
    node.sums_up = {r: (sums, *parent.sums_up[r]) for r, sums in node.sums.items()}
    ceilings = {r: (node, most) for r, most in node.max.items()}
    node.ceilings = _stacked(ceilings, parent.ceilings)
    bounds = {r: (node, node.sums[r], most) for r, most in node.borrow.items() if r in pool}
    node.bounds = _stacked(bounds, parent.bounds)
    node.part_lent = parent.part_lent.union(node.lend)


def _stacked(own: Mapping[str, T], above: dict[str, tuple[T, ...]]) -> dict[str, tuple[T, ...]]:
    if not own:
        return above
    return {**above, **{r: (each, *above.get(r, ())) for r, each in own.items()}}


def _fill(node: QuotaNode, pool: frozenset[str]) -> None:
    """What a node has while nothing is used, from its children's; those come first."""
    for r in pool:
        own = node.own.get(r, 0)
        if node.leaf:
            node.sums[r] = Sums(left=own, spare=max(0, own), full=own)
            continue
        left = own + sum(lent(child, r, child.sums[r].left) for child in node.children)
        spare = own + sum(child.offer(r) for child in node.children)
        node.sums[r] = Sums(left=left, spare=spare, full=left)


def _weigh(node: QuotaNode, weight: Amounts | int | None, pool: frozenset[str]) -> None:
    """A node's weight among its siblings: by default all that is guaranteed in it."""
    for r in pool:
        if isinstance(weight, int):
            node.weight[r] = weight
        elif weight is not None and r in weight:
            node.weight[r] = weight[r]
        else:
            own = max(0, node.own.get(r, 0))
            node.weight[r] = own + sum(child.weight[r] for child in node.children)


def _below_first(root: QuotaNode) -> Sequence[QuotaNode]:
    found, open_ = [], [root]
    while open_:
        node = open_.pop()
        found.append(node)
        open_ += node.children
    return found[::-1]


def _inner_node(node: TreeNode, root: QuotaNode, core: Amounts) -> QuotaNode:
    return QuotaNode(
        title=f"QuotaTree node {node.name}",
        parent=root,
        own=node.own,
        max=_NONE if node.max is None else {**core, **node.max},
        borrow=node.borrow or _NONE,
        lend=node.lend or _NONE,
    )


def _leaf_node(leaf: Leaf, parent: QuotaNode, core: Amounts) -> QuotaNode:
    return QuotaNode(
        title=leaf.key,
        parent=parent,
        own=leaf.min,
        max=_NONE if leaf.max is None else {**core, **leaf.max},
        borrow=leaf.borrow or _NONE,
        lend=leaf.lend or _NONE,
        leaf=True,
    )
