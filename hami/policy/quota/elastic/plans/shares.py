"""The rights to what other quotas have beyond their own: reclaim and fair share.

Only pods that their quota's ``min`` does not cover are taken: over-quota pods, and for a resource
of which their quota is guaranteed nothing every pod that holds some. Of a claimant's resources
its quota may guarantee only some. Then it has no fair share (rule F2), and what it reclaims is
nobody's guarantee; the others have to be within quota without anybody being evicted. Else one
quota guaranteed GPUs and another guaranteed memory would evict each other's pods, which hold
both, for ever: each would be over in what the other is guaranteed.

Why it comes to rest, where a plan frees what its claimant takes and no more. Let G be what all
quotas use within their ``min``, of all resources together, and E what they use beyond ``min`` and
share. The shares depend on G and on what is wanted, and an eviction changes nothing about the
latter. A fair plan lowers nobody's use within ``min`` (F1), so G stays or rises. If it stays, so
do the shares, and E falls: the victims' quotas were beyond theirs, and the claimant's is within
in everything that it takes (F2). To reclaim a part of a guarantee raises G. So there is an end to
both; and whoever reclaims a guarantee as a whole is itself over in nothing that it took. What a
larger victim leaves over others may borrow, and a guarantee reclaimed from a larger pod may leave
its quota below ``min``: of that the storms of the tests say that it comes to rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial

from hami.policy.quota.elastic.book.tree import QuotaNode, lent
from hami.policy.quota.elastic.model import Amounts, Leaf, LeafKey, Member
from hami.policy.quota.elastic.plans.rights import Asking, Kind, amount, below_min
from hami.policy.quota.elastic.plans.victims import (
    Debt,
    Source,
    least_important_first,
    newest_first,
)


class _Foreign(ABC):
    """What both rights share: other quotas' pods, quota by quota."""

    def __init__(self, asking: Asking, leaf: Leaf, level: QuotaNode) -> None:
        """``level``: what is entitled, the quota itself or a group above it."""
        self._asking, self._book, self._claim = asking, asking.book, asking.claim
        self._leaf, self._home = leaf, asking.book.node(leaf)
        self._above = frozenset(id(node) for node in level.way_up)
        self.resources = frozenset(r for r in asking.asked if r in leaf.min)
        self._taken_for: dict[LeafKey, frozenset[str]] = {}
        """Of the quota whose turn it is: the resources of which it has too much now."""

    def lacks(self, vector: Amounts) -> Amounts:
        del vector
        return {}

    def sources(
        self, resources: Collection[str], among: Sequence[Member] | None
    ) -> Iterator[Source]:
        by_leaf: dict[LeafKey, list[Member]] | None = None
        leaves: Sequence[Leaf] = self._book.leaves
        if among is not None:
            by_leaf = {}
            known: dict[LeafKey, Leaf] = {}
            for member in newest_first(among):
                if (leaf := self._book.leaf_of(member.namespace)) is not None:
                    known[leaf.key] = leaf
                    by_leaf.setdefault(leaf.key, []).append(member)
            leaves = list(known.values())
        for leaf in leaves:
            node = self._book.node(leaf)
            if node is self._home or not any(node.left(r) < 0 for r in resources):
                continue
            yield Source(
                key=leaf.key,
                debt=partial(self._debt, leaf, node, resources),
                members=partial(self._members, leaf, by_leaf),
            )

    def wants(self, member: Member, resources: Collection[str]) -> bool:
        leaf = self._book.leaf_of(member.namespace)
        assert leaf is not None, "a member of a source that is a quota"
        too_much = [r for r in self._taken_for[leaf.key] if member.vector.get(r, 0) > 0]
        if not any(r in resources for r in too_much):
            return False
        return self._book.is_over(member.uid) or any(r not in leaf.min for r in too_much)

    def hurts(self, member: Member) -> bool:
        leaf = self._book.leaf_of(member.namespace)
        return leaf is not None and below_min(self._book, leaf, member)

    @abstractmethod
    def _too_much(self, leaf: Leaf, node: QuotaNode, resources: Collection[str]) -> frozenset[str]:
        """Of which of these resources a quota has more than it may keep from the claimant."""

    def _takes_guarantee(self, member: Member) -> bool:
        """Without this pod its quota, or a group beside the claimant, uses less than it has."""
        leaf = self._book.leaf_of(member.namespace)
        assert leaf is not None, "a member of a source that is a quota"
        return any(
            _unused(self._book.node(leaf), self._above, r, held)
            for r, held in member.vector.items()
            if held > 0 and r in self._home.sums
        )

    def _debt(self, leaf: Leaf, node: QuotaNode, resources: Collection[str]) -> Debt | None:
        self._taken_for[leaf.key] = over = self._too_much(leaf, node, resources)
        if not over:
            return None
        return max(_ratio(-node.left(r), leaf.min.get(r, 0)) for r in over)

    def _members(self, leaf: Leaf, by_leaf: dict[LeafKey, list[Member]] | None) -> Iterable[Member]:
        if by_leaf is not None:
            return least_important_first(by_leaf[leaf.key])
        covered = self._taken_for[leaf.key] <= leaf.min.keys()
        return self._book.least_important(leaf, over=covered)

    def _beyond(self, vector: Amounts, extra: Amounts, said: str) -> str | None:
        """Why what it would be charged is more than ``min`` and this."""
        leaf, used = self._leaf, self._home.used
        if not self.resources:
            return f"{leaf.key} is guaranteed nothing of what the pod asks for"
        for r in sorted(self.resources):
            limit = leaf.min[r] + extra.get(r, 0)
            if used(r) + vector.get(r, 0) > limit:
                share = f" + {amount(self._book, r, extra[r])} {said}" if r in extra else ""
                return (
                    f"{leaf.key}: {r}: used {amount(self._book, r, used(r))} + asked "
                    f"{amount(self._book, r, vector.get(r, 0))} > min "
                    f"{amount(self._book, r, leaf.min[r])}{share}"
                )
        for r in sorted(self._asking.refused - leaf.min.keys()):
            return f"{leaf.key} is guaranteed no {r}, and nobody has to make room for it"
        return None


class Reclaim(_Foreign):
    """A guarantee is claimed back from those that borrow it.

    ``level``: what stays within its guarantee, the quota itself or a group above it. Groups beside
    it are asked, not what is inside it; and only where a whole branch borrows.
    """

    kind: Kind = "reclaim"

    def __init__(self, asking: Asking, leaf: Leaf, level: QuotaNode) -> None:
        super().__init__(asking, leaf, level)
        self._level = level
        pooled = frozenset(r for r in asking.asked if r in self._home.sums)
        self._whole = level is not self._home or pooled <= leaf.min.keys()
        """Every resource that counts is within the guarantee."""
        if level is not self._home:
            self.resources = pooled

    @classmethod
    def of(cls, asking: Asking, leaf: Leaf) -> Reclaim | str:
        """At the lowest level that is entitled; else why its quota is not."""
        home = asking.book.node(leaf)
        why = ""
        for level in home.way_up:
            if level.parent is None:
                break
            right = cls(asking, leaf, level)
            denied = right.denied(asking.claim.vector)
            if denied is None:
                return right
            why = why or denied
        return why

    def denied(self, vector: Amounts) -> str | None:
        if self._level is self._home:
            return self._beyond(vector, {}, "")
        if not self.resources:
            return f"{self._level.title} is guaranteed nothing of what the pod asks for"
        for r in sorted(self.resources):
            missing = -_left_after(self._home, self._level, r, vector.get(r, 0))
            if missing > 0:
                return (
                    f"{self._level.title} would use {amount(self._book, r, missing)} of {r} "
                    f"more than it is guaranteed"
                )
        return None

    def wants(self, member: Member, resources: Collection[str]) -> bool:
        if not self._whole and self._takes_guarantee(member):
            return False
        return super().wants(member, resources)

    def why(self, victim: Member) -> str:
        leaf = self._book.leaf_of(victim.namespace)
        assert leaf is not None, "a victim is of a quota"
        r = _named_for(victim, self.resources, self._book.borrowed(leaf))
        used, theirs = self._home.used(r), self._book.used(leaf).get(r, 0)
        by = "" if self._level is self._home else f", within {self._level.title}"
        return (
            f"reclaimed by {self._leaf.key} for pod {self._claim.full_name}{by}: of {r} it uses "
            f"{amount(self._book, r, used)} of its min "
            f"{amount(self._book, r, self._leaf.min.get(r, 0))}, and {leaf.key} "
            f"{amount(self._book, r, theirs)} of {amount(self._book, r, leaf.min.get(r, 0))}"
        )

    def _too_much(self, leaf: Leaf, node: QuotaNode, resources: Collection[str]) -> frozenset[str]:
        del leaf
        branch = self._branch(node)
        if branch is None:
            return frozenset()
        return frozenset(r for r in resources if node.left(r) < 0 and branch.left(r) < 0)

    def _branch(self, node: QuotaNode) -> QuotaNode | None:
        """What of a quota's way up is beside the claimant's; None: it is below the level."""
        for each in node.way_up:
            if each is self._level:
                return None
            if each.parent is not None and id(each.parent) in self._above:
                return None if each.parent is self._level else each
        return None


class Fair(_Foreign):
    """A share of what is unused, from those that have more than theirs.

    Rule F1: a quota keeps its ``min``, and a group what it is guaranteed, or they would claim it
    back at once. Rule F2: a share is of what the quota's ``min`` names, so all of what the pod
    asks that any quota guarantees must be in it; or the pod's quota would be over in the rest, and
    those that are guaranteed the rest would evict it. ``guaranteed`` is nos' G, worked out anew
    after every pod.
    """

    kind: Kind = "fair"

    def __init__(self, asking: Asking, leaf: Leaf, *, keeps_min: bool, named_alone: bool) -> None:
        """``keeps_min``: rule F1; ``named_alone``: rule F2."""
        super().__init__(asking, leaf, asking.book.node(leaf))
        self._keeps_min, self._named_alone = keeps_min, named_alone

    @classmethod
    def of(cls, asking: Asking, leaf: Leaf, *, keeps_min: bool, named_alone: bool) -> Fair | str:
        right = cls(asking, leaf, keeps_min=keeps_min, named_alone=named_alone)
        denied = right.denied(asking.claim.vector)
        return right if denied is None else denied

    def denied(self, vector: Amounts) -> str | None:
        shared = {r for r, asked in vector.items() if asked > 0 and r in self._home.sums}
        for r in sorted(shared - self._leaf.min.keys()) if self._named_alone else ():
            return f"{self._leaf.key} is guaranteed no {r}, so it has no fair share of it"
        guaranteed = self._book.guaranteed(self._leaf, self._claim)
        return self._beyond(vector, guaranteed, "fair share of what is unused")

    def wants(self, member: Member, resources: Collection[str]) -> bool:
        if self._keeps_min and self._takes_guarantee(member):
            return False
        return super().wants(member, resources)

    def why(self, victim: Member) -> str:
        leaf = self._book.leaf_of(victim.namespace)
        assert leaf is not None, "a victim is of a quota"
        r = _named_for(victim, self.resources, self._book.borrowed(leaf))
        ours, theirs = (
            f"{amount(self._book, r, one.min.get(r, 0))} + "
            f"{amount(self._book, r, self._book.guaranteed(one, self._claim).get(r, 0))}"
            for one in (self._leaf, leaf)
        )
        used = amount(self._book, r, self._book.used(leaf).get(r, 0))
        return (
            f"fair share: of {r} {self._leaf.key} may use {ours}, which pod "
            f"{self._claim.full_name} asks for, and {leaf.key} uses {used} of {theirs}"
        )

    def _too_much(self, leaf: Leaf, node: QuotaNode, resources: Collection[str]) -> frozenset[str]:
        if not any(node.left(r) < 0 for r in resources):
            return frozenset()
        share = self._book.guaranteed(leaf, self._claim)
        return frozenset(r for r in resources if -node.left(r) > share.get(r, 0))


def _ratio(over: int, least: int) -> Debt:
    return (over / least if least > 0 else float("inf"), over)


def _left_after(leaf: QuotaNode, level: QuotaNode, resource: str, asked: int) -> int:
    """What a node has left once a quota below it uses more."""
    change = -asked
    for node in leaf.way_up:
        before = node.sums[resource].left
        if node is level:
            return before + change
        change = lent(node, resource, before + change) - lent(node, resource, before)
    raise ValueError(f"{level.title} is not above {leaf.title}")


def _unused(leaf: QuotaNode, above: Collection[int], resource: str, freed: int) -> bool:
    """Something from a quota up to ``above`` does not use all it has once this is freed in it."""
    change = freed
    for node in leaf.way_up:
        if id(node) in above or not change:
            return False
        before = node.sums[resource].left
        if node.sums[resource].full > 0 and before + change > 0:
            return True
        change = lent(node, resource, before + change) - lent(node, resource, before)
    return False


def _named_for(victim: Member, resources: Collection[str], borrowed: Amounts) -> str:
    """The resource to speak of: one that the victim's quota borrows."""
    return min(resources, key=lambda r: (r not in borrowed, victim.vector.get(r, 0) <= 0, r))
