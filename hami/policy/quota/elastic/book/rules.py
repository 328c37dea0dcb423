"""What a pod may have on top of what is used: ceilings, its own guarantee, borrow limits, pool.

Looks at the way from a quota to the root and at what is asked, and at nothing else. Asking for
nothing is never refused, but by nos' own rule (``strict_core``), which compares in any case.
"""

from __future__ import annotations

from dataclasses import dataclass

from hami.policy.quota.elastic.book.accounts import QuotaAccount
from hami.policy.quota.elastic.book.tree import QuotaNode, Tree, lent
from hami.policy.quota.elastic.model import Amounts, Claim, ElasticRefusal, Member, Options, Rule
from hami.policy.quota.elastic.units import Units

Found = list[ElasticRefusal]


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one tree of quotas."""

    tree: Tree
    options: Options
    units: Units

    def broken(
        self,
        claim: Claim | Member,
        account: QuotaAccount,
        own: Member | None,
        *,
        ever: bool = False,
    ) -> list[ElasticRefusal]:
        """Every rule that the pod would break; ``own`` is its present charge and not counted.

        ``ever``: those that it would break if nothing at all were used.
        """
        found: Found = []
        strict, pool, leaf = self.options.strict_core, self.tree.pool, account.node
        ceilings, bounds, part_lent = leaf.ceilings, leaf.bounds, leaf.part_lent
        asked = self._compared(claim, leaf) if strict else claim.vector
        for resource, amount in asked.items():
            if amount <= 0 and not strict:
                continue
            held = 0 if own is None or ever else own.vector.get(resource, 0)
            for node, limit in ceilings.get(resource, ()):
                used = 0 if ever else node.used(resource) - held
                if used + amount > limit:
                    found.append(self._refusal("max", node, resource, used, amount, limit))
            if resource not in pool:
                continue
            if not claim.preemptible:
                fixed = 0 if ever else account.fixed.get(resource, 0)
                if own is not None and not own.preemptible:
                    fixed -= held
                self._above_min(found, leaf, resource, amount, fixed)
            if resource in part_lent:
                self._borrowing_part(found, leaf, resource, amount, held, ever=ever)
                continue
            # Every node lends whatever it has: what is asked is missing all the way up.
            for node, sums, bound in bounds.get(resource, ()):
                left = (sums.full if ever else sums.left) + held - amount + bound
                if left < 0:
                    self._too_much(found, node, resource, amount, held, left, ever=ever)
        return found

    def _above_min(
        self, found: Found, leaf: QuotaNode, resource: str, asked: int, used: int
    ) -> None:
        least = leaf.own.get(resource, 0)
        if used + asked > least:
            rule: Rule = "min of non-preemptible pods"
            found.append(self._refusal(rule, leaf, resource, used, asked, least))

    def _borrowing_part(
        self, found: Found, leaf: QuotaNode, resource: str, asked: int, held: int, *, ever: bool
    ) -> None:
        """What every node would have left: it may be below 0 by its borrow limit, the root's not.

        A node lends its parent at most its lend limit, so less may be missing there than asked.
        Where nothing is missing, nothing is refused: what was never lent is there for its owner,
        however much others are over.
        """
        node = leaf
        now = node.sums[resource].full if ever else node.sums[resource].left
        before = now + held
        after = before - asked
        while after < before or self.options.strict_core:
            parent = node.parent
            if parent is None:
                bound = 0 if self.options.pool != "off" else None
            else:
                bound = node.borrow.get(resource)
            if bound is not None and after + bound < 0:
                self._too_much(found, node, resource, asked, held, after + bound, ever=ever)
            if parent is None:
                return
            sums = parent.sums[resource]
            above = sums.full if ever else sums.left
            others = above - lent(node, resource, now)
            before = others + lent(node, resource, before)
            after = others + lent(node, resource, after)
            node, now = parent, above

    def _too_much(
        self,
        found: Found,
        node: QuotaNode,
        resource: str,
        asked: int,
        held: int,
        left: int,
        *,
        ever: bool,
    ) -> None:
        """``left`` is what would be left to the bound, which is less than nothing."""
        used = 0 if ever else node.used(resource) - held
        rule: Rule = "pool" if node.parent is None else "borrow limit"
        found.append(self._refusal(rule, node, resource, used, asked, used + asked + left))

    def _compared(self, claim: Claim | Member, leaf: QuotaNode) -> Amounts:
        """Everything that is limited anywhere on the way, asked or not."""
        limited = set(self.tree.pool).union(*(node.max for node in leaf.way_up))
        return dict.fromkeys(sorted(limited), 0) | dict(claim.vector)

    def _refusal(
        self, rule: Rule, node: QuotaNode, resource: str, used: int, asked: int, limit: int
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
