"""What a pod may have on top of what is used: ceilings, its own guarantee, borrow limits, pool.

Looks at the way from a quota to the root and at what is asked, and at nothing else. Asking for
nothing is never refused, but by nos' own rule (``strict_core``), which compares in any case.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hami.policy.quota.elastic.accounts import Account
from hami.policy.quota.elastic.model import Amounts, Claim, ElasticRefusal, Member, Options, Rule
from hami.policy.quota.elastic.tree import Node, Tree, lent
from hami.policy.quota.elastic.units import Units


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one tree of quotas."""

    tree: Tree
    options: Options
    units: Units

    def broken(
        self, claim: Claim, account: Account, own: Member | None, *, ever: bool = False
    ) -> Iterator[ElasticRefusal]:
        """Every rule that the pod would break; ``own`` is its present charge and not counted.

        ``ever``: those that it would break if nothing at all were used.
        """
        strict, pool = self.options.strict_core, self.tree.pool
        asked = self._compared(claim, account.node) if strict else claim.vector
        for resource, amount in asked.items():
            if amount <= 0 and not strict:
                continue
            held = 0 if own is None else own.vector.get(resource, 0)
            yield from self._above_max(account.node, resource, amount, held, ever=ever)
            if resource not in pool:
                continue
            if not claim.preemptible:
                fixed = account.fixed.get(resource, 0)
                if own is not None and not own.preemptible:
                    fixed -= held
                yield from self._above_min(account.node, resource, amount, 0 if ever else fixed)
            yield from self._borrowing(account.node, resource, amount, held, ever=ever)

    def _above_max(
        self, leaf: Node, resource: str, asked: int, held: int, *, ever: bool
    ) -> Iterator[ElasticRefusal]:
        node: Node | None = leaf
        while node is not None:
            limit = node.max.get(resource)
            if limit is not None:
                used = 0 if ever else node.used.get(resource, 0) - held
                if used + asked > limit:
                    yield self._refusal("max", node, resource, used, asked, limit)
            node = node.parent

    def _above_min(
        self, leaf: Node, resource: str, asked: int, used: int
    ) -> Iterator[ElasticRefusal]:
        least = leaf.own.get(resource, 0)
        if used + asked > least:
            rule: Rule = "min of non-preemptible pods"
            yield self._refusal(rule, leaf, resource, used, asked, least)

    def _borrowing(
        self, leaf: Node, resource: str, asked: int, held: int, *, ever: bool
    ) -> Iterator[ElasticRefusal]:
        """What every node would have left: it may be below 0 by its borrow limit, the root's not.

        A node lends its parent at most its lend limit, so less may be missing there than asked.
        """
        change = held - asked if not ever else -asked
        node = leaf
        while True:
            before = node.full[resource] if ever else node.left[resource]
            after = before + change
            bound = 0 if node.parent is None else node.borrow.get(resource)
            bounded = self.options.pool != "off" if node.parent is None else bound is not None
            if bounded and after + (bound or 0) < 0:
                used = 0 if ever else node.used.get(resource, 0) - held
                rule: Rule = "pool" if node.parent is None else "borrow limit"
                limit = used + asked + after + (bound or 0)
                yield self._refusal(rule, node, resource, used, asked, limit)
            if node.parent is None:
                return
            if resource in node.lend:
                change = lent(node, resource, after) - lent(node, resource, before)
            node = node.parent

    def _compared(self, claim: Claim, leaf: Node) -> Amounts:
        """Everything that is limited anywhere on the way, asked or not."""
        limited = set(self.tree.pool).union(*(node.max for node in leaf.way_up))
        return dict.fromkeys(sorted(limited), 0) | dict(claim.vector)

    def _refusal(
        self, rule: Rule, node: Node, resource: str, used: int, asked: int, limit: int
    ) -> ElasticRefusal:
        return ElasticRefusal(
            rule=rule,
            quota=node.title,
            resource=resource,
            used=used,
            asked=asked,
            limit=limit,
            unit=self.units.unit(resource),
        )
