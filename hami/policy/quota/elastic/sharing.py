"""Who is entitled to how much of what others leave unused, and who lends it now.

Shared out from the root down: at every group what its children offer goes back to them by weight;
what a child does not lend stays below it. Without groups and limits that is nos' formula:
``floor(sum of unused minimums * min / sum of minimums)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Literal

from hami.policy.quota.elastic.fair import filled_shares, floor_shares
from hami.policy.quota.elastic.model import Amounts
from hami.policy.quota.elastic.tree import Node, Tree, lent

FairShare = Literal["floor", "hamilton", "waterfill"]


def share(leaf: Node, resource: str) -> Fraction:
    """A quota's part of everything that is shared out; 0 where nobody guarantees it."""
    found = Fraction(1)
    for node in leaf.way_up:
        if node.parent is not None:
            whole = sum(sibling.weight[resource] for sibling in node.parent.children)
            found *= Fraction(node.weight[resource], whole) if whole else 0
    return found


def guaranteed_over(leaf: Node, resource: str, mode: FairShare, demand: Demand | None) -> int:
    """What a quota may take beyond its ``min`` before others may take it back.

    ``demand`` is for ``waterfill`` alone, the other ways do not look at it.
    """
    amount = 0
    for node in reversed(list(leaf.way_up)):
        if node.parent is None:
            amount = max(0, demand.spare(node) if demand else node.spare[resource])
            continue
        siblings = node.parent.children
        mine = siblings.index(node)
        weights = [sibling.weight[resource] for sibling in siblings]
        caps = [_cap(sibling, resource, demand) for sibling in siblings]
        split = floor_shares if mode == "floor" else filled_shares
        amount = split(amount, weights, caps)[mine]
        if not node.leaf:
            spare = demand.spare(node) if demand else node.spare[resource]
            amount += spare - lent(node, resource, spare)
    return amount


def _cap(node: Node, resource: str, demand: Demand | None) -> int | None:
    """The most that a node's borrow limit, and what it wants, let it take of the common part."""
    spare = demand.spare(node) if demand else node.spare[resource]
    offer = lent(node, resource, spare)
    borrow = node.borrow.get(resource)
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
        self._spare: dict[Node, int] = {}
        self._want: dict[Node, int] = {}
        for key, leaf in tree.leaves.items():
            demand = leaf.used.get(resource, 0) + waiting.get(key, 0)
            least = leaf.own.get(resource, 0)
            self._spare[leaf] = max(0, least - demand)
            self._want[leaf] = max(0, demand - least)

    def spare(self, node: Node) -> int:
        if node not in self._spare:
            own = node.own.get(self._resource, 0)
            offers = (lent(c, self._resource, self.spare(c)) for c in node.children)
            self._spare[node] = own + sum(offers)
        return self._spare[node]

    def want(self, node: Node) -> int:
        if node not in self._want:
            self._want[node] = sum(self.want(child) for child in node.children)
        return self._want[node]


def borrowed(node: Node) -> Amounts:
    """What a node uses beyond what it has."""
    return {resource: -left for resource, left in node.left.items() if left < 0}


def lends(leaf: Node) -> Amounts:
    """What of a quota's unused guarantee others use now.

    What children borrow comes from what their group and its children offer, from each in
    proportion; what is missing comes from above.
    """
    return {r: amount for r in leaf.left if (amount := _lends(leaf, r)) > 0}


def _lends(leaf: Node, resource: str) -> int:
    taken = 0
    for node in reversed(list(leaf.way_up)):
        if node.parent is None:
            continue
        siblings = node.parent.children
        needs = sum(max(0, -sibling.left[resource]) for sibling in siblings)
        own = max(0, node.parent.own.get(resource, 0))
        offers = [max(0, lent(sibling, resource, sibling.left[resource])) for sibling in siblings]
        taken = min(own + sum(offers), needs + taken)
        sources = [own, *offers]
        taken = filled_shares(taken, sources, sources)[1 + siblings.index(node)]
    return taken
