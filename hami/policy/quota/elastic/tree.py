"""The quotas as a tree of sums, kept up to date pod by pod.

For every resource that some quota guarantees, a node knows what it has left: a quota its ``min``
less what its pods use, a group its own quota and what its children lend it, each at most its lend
limit. Admission is a look at the way to the root; so is charging.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from hami.policy.quota.elastic.arrangement import Arrangement
from hami.policy.quota.elastic.model import Amounts, Leaf, LeafKey, Options, TreeNode

CORE = ("cpu", "memory")
"""Always limited by nos."""

ROOT = "all elastic quotas"
_NONE: Amounts = MappingProxyType({})


@dataclass(slots=True, eq=False, kw_only=True)
class Node:
    """A quota, a group or the root; whole numbers by resource.

    ``own``: a quota's ``min``, a group's own quota. ``left`` may be negative: then it borrows.
    ``spare`` is what of ``left`` could be shared out: borrowing does not lessen it. ``full`` is
    ``left`` while nothing is used. These three have every resource of the pool as key.
    """

    title: str
    parent: Node | None
    own: Amounts
    max: Amounts
    borrow: Amounts
    lend: Amounts
    leaf: bool = False
    children: list[Node] = field(default_factory=list)
    weight: dict[str, int] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)
    spare: dict[str, int] = field(default_factory=dict)
    full: dict[str, int] = field(default_factory=dict)

    def offer(self, resource: str) -> int:
        """What of its spare quota it adds to its parent's."""
        return lent(self, resource, self.spare[resource])

    @property
    def way_up(self) -> Iterator[Node]:
        """This node and every node above it."""
        node: Node | None = self
        while node is not None:
            yield node
            node = node.parent


def lent(node: Node, resource: str, left: int) -> int:
    limit = node.lend.get(resource)
    return left if limit is None else min(limit, left)


@dataclass(frozen=True, slots=True)
class Tree:
    """All nodes of one set of quotas; ``pool`` are the resources that some quota guarantees."""

    root: Node
    leaves: Mapping[LeafKey, Node]
    inner: Mapping[str, Node]
    pool: frozenset[str]

    def take(self, leaf: Node, vector: Amounts, sign: int) -> None:
        """Charge (1) or release (-1) what a pod holds, up to the root."""
        for resource, amount in vector.items():
            if resource in self.pool:
                _charge(leaf, resource, sign * amount)
                continue
            node: Node | None = leaf
            while node is not None:
                node.used[resource] = node.used.get(resource, 0) + sign * amount
                node = node.parent


def _charge(leaf: Node, resource: str, change: int) -> None:
    """A quota uses so much more; what its parents have left follows as far as it is lent.

    Once for every pod that comes or goes: a node without lend limit passes on what it gets.
    """
    before = leaf.left[resource]
    after = before - change
    left, spare = -change, (max(0, after)) - (max(0, before))
    node: Node | None = leaf
    while node is not None:
        node.used[resource] = node.used.get(resource, 0) + change
        before, spared = node.left[resource], node.spare[resource]
        node.left[resource] = before + left
        node.spare[resource] = spared + spare
        if resource in node.lend:
            left = lent(node, resource, before + left) - lent(node, resource, before)
            spare = lent(node, resource, spared + spare) - lent(node, resource, spared)
        node = node.parent


def grown(arrangement: Arrangement, capacity: Amounts | None, options: Options) -> Tree:
    """The tree of these quotas, with nothing used yet.

    ``capacity``: what the cluster has, for ``pool: capacity``. What it has beyond all guarantees
    is the root's own quota; if it has less, that is negative.
    """
    core = dict.fromkeys(CORE, 0) if options.strict_core else {}
    root = Node(title=ROOT, parent=None, own=_NONE, max=_NONE, borrow=_NONE, lend=_NONE)
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
    if options.pool == "capacity" and capacity is not None:
        promised = {r: sum(node.own.get(r, 0) for node in every) for r in pool}
        root.own = {r: capacity[r] - promised[r] for r in pool if r in capacity}
    tree = Tree(root, leaves, inner, pool)
    weights = {leaf.key: leaf.weight for leaf in arrangement.leaves}
    weights |= {inner[group.name].title: group.weight for group in arrangement.nodes}
    for node in _below_first(root):
        weigh(node, weights.get(node.title), pool)
        refill(node, pool)
        node.full = dict(node.left)
    return tree


def refill(node: Node, pool: frozenset[str]) -> None:
    """Work out what a node has left from its children's; those come first."""
    for r in pool:
        if node.leaf:
            node.left[r] = node.own.get(r, 0) - node.used.get(r, 0)
            node.spare[r] = max(0, node.left[r])
        else:
            own = node.own.get(r, 0)
            node.left[r] = own + sum(lent(child, r, child.left[r]) for child in node.children)
            node.spare[r] = own + sum(child.offer(r) for child in node.children)


def weigh(node: Node, weight: Amounts | int | None, pool: frozenset[str]) -> None:
    """A node's weight among its siblings: by default all that is guaranteed in it."""
    for r in pool:
        if isinstance(weight, int):
            node.weight[r] = weight
        elif weight is not None and r in weight:
            node.weight[r] = weight[r]
        else:
            own = max(0, node.own.get(r, 0))
            node.weight[r] = own + sum(child.weight[r] for child in node.children)


def _below_first(root: Node) -> Sequence[Node]:
    found, open_ = [], [root]
    while open_:
        node = open_.pop()
        found.append(node)
        open_ += node.children
    return found[::-1]


def _inner_node(node: TreeNode, root: Node, core: Amounts) -> Node:
    return Node(
        title=f"QuotaTree node {node.name}",
        parent=root,
        own=node.own,
        max=_NONE if node.max is None else {**core, **node.max},
        borrow=node.borrow or _NONE,
        lend=node.lend or _NONE,
    )


def _leaf_node(leaf: Leaf, parent: Node, core: Amounts) -> Node:
    return Node(
        title=leaf.key,
        parent=parent,
        own=leaf.min,
        max=_NONE if leaf.max is None else {**core, **leaf.max},
        borrow=leaf.borrow or _NONE,
        lend=leaf.lend or _NONE,
        leaf=True,
    )
