"""Who is entitled to how much of what others leave unused, and who lends it now.

Shared out from the root down: at every group what its children offer goes back to them by weight;
what a child does not lend stays below it. Without groups and limits that is nos' formula:
``floor(sum of unused minimums * min / sum of minimums)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Literal

from hami.policy.quota.elastic.book.fair import filled_shares, floor_shares
from hami.policy.quota.elastic.book.tree import QuotaNode, Tree, lent
from hami.policy.quota.elastic.model import Amounts, LeafKey

FairShare = Literal["floor", "hamilton", "waterfill"]

HandDown = Callable[[QuotaNode, int], Sequence[int]]
"""What each child of a node gets of what the node itself got."""


def share(leaf: QuotaNode, resource: str) -> Fraction:
    """A quota's part of everything that is shared out; 0 where nobody guarantees it."""
    found = Fraction(1)
    for node in leaf.way_up:
        if node.parent is not None:
            whole = sum(sibling.weight[resource] for sibling in node.parent.children)
            found *= Fraction(node.weight[resource], whole) if whole else 0
    return found


def all_guaranteed_over(
    root: QuotaNode, resource: str, mode: FairShare, demand: Demand | None
) -> dict[LeafKey, int]:
    """What each quota may take beyond its ``min`` before others may take it back.

    Of one alone it would cost nearly as much. ``demand`` is for ``waterfill`` alone, the other
    ways do not look at it.
    """
    sharing = _Sharing(resource, mode, demand)
    return _down_to_all(root, sharing.first(root), sharing.of_children)


def _down_to(leaf: QuotaNode, amount: int, hand_down: HandDown) -> int:
    """What of the root's amount gets to a quota."""
    *_, root = way = leaf.way_up
    node = root
    for child in reversed(way[:-1]):
        amount = hand_down(node, amount)[node.children.index(child)]
        node = child
    return amount


def _down_to_all(root: QuotaNode, amount: int, hand_down: HandDown) -> dict[LeafKey, int]:
    found: dict[LeafKey, int] = {}
    open_ = [(root, amount)]
    while open_:
        node, amount = open_.pop()
        for child, part in zip(node.children, hand_down(node, amount), strict=True):
            if child.leaf:
                found[child.title] = part
            else:
                open_.append((child, part))
    return found


class _Sharing:
    """How one resource is shared out, group by group."""

    def __init__(self, resource: str, mode: FairShare, demand: Demand | None) -> None:
        self._resource = resource
        self._split = floor_shares if mode == "floor" else filled_shares
        self._demand = demand

    def first(self, root: QuotaNode) -> int:
        return max(0, self._spare(root))

    def of_children(self, node: QuotaNode, amount: int) -> Sequence[int]:
        """What each child may take of it; a group also has what it does not lend."""
        resource, children = self._resource, node.children
        weights = [child.weight[resource] for child in children]
        shares = self._split(amount, weights, [self._cap(child) for child in children])
        for at, child in enumerate(children):
            if not child.leaf:
                spare = self._spare(child)
                shares[at] += spare - lent(child, resource, spare)
        return shares

    def _spare(self, node: QuotaNode) -> int:
        return self._demand.spare(node) if self._demand else node.sums[self._resource].spare

    def _cap(self, node: QuotaNode) -> int | None:
        """The most that its borrow limit, and what it wants, let it take of the common part."""
        resource, demand = self._resource, self._demand
        borrow = node.borrow.get(resource)
        if demand is None and (borrow is None or node.leaf):
            return borrow
        spare = self._spare(node)
        offer = lent(node, resource, spare)
        cap = None if borrow is None else borrow + (0 if node.leaf else max(0, offer))
        if demand is None:
            return cap
        want = demand.want(node) if node.leaf else max(0, demand.want(node) - (spare - offer))
        return want if cap is None else min(cap, want)


class Demand:
    """What every quota wants of one resource: what it uses and what its pods wait for.

    A guarantee that is wanted is not there to be shared out, even before it is used.
    """

    def __init__(self, tree: Tree, resource: str, waiting: Mapping[str, int]) -> None:
        """``waiting``: by the quota's key, on top of what is used."""
        self._resource = resource
        self._spare: dict[QuotaNode, int] = {}
        self._want: dict[QuotaNode, int] = {}
        for key, leaf in tree.leaves.items():
            demand = leaf.used(resource) + waiting.get(key, 0)
            least = leaf.own.get(resource, 0)
            self._spare[leaf] = max(0, least - demand)
            self._want[leaf] = max(0, demand - least)

    def spare(self, node: QuotaNode) -> int:
        if node not in self._spare:
            own = node.own.get(self._resource, 0)
            offers = (lent(c, self._resource, self.spare(c)) for c in node.children)
            self._spare[node] = own + sum(offers)
        return self._spare[node]

    def want(self, node: QuotaNode) -> int:
        if node not in self._want:
            self._want[node] = sum(self.want(child) for child in node.children)
        return self._want[node]


def borrowed(node: QuotaNode) -> Amounts:
    """What a node uses beyond what it has."""
    return {resource: -sums.left for resource, sums in node.sums.items() if sums.left < 0}


def lends(leaf: QuotaNode) -> Amounts:
    """What of a quota's unused guarantee others use now."""
    return {r: amount for r in leaf.sums if (amount := _down_to(leaf, 0, _Lending(r).of_children))}


def all_lend(root: QuotaNode, resource: str) -> dict[LeafKey, int]:
    """As :func:`lends`, of every quota at once."""
    return _down_to_all(root, 0, _Lending(resource).of_children)


class _Lending:
    """Who lends what of one resource, group by group.

    What children borrow comes from what their group and its children offer, from each in
    proportion; what is missing comes from above.
    """

    def __init__(self, resource: str) -> None:
        self._resource = resource

    def of_children(self, node: QuotaNode, taken: int) -> Sequence[int]:
        """How much of each child others use, where so much is taken of the node itself."""
        resource = self._resource
        needs, offers = taken, [max(0, node.own.get(resource, 0))]
        for child in node.children:
            left = child.sums[resource].left
            needs += max(0, -left)
            offers.append(max(0, lent(child, resource, left)))
        return filled_shares(min(sum(offers), needs), offers, offers)[1:]
