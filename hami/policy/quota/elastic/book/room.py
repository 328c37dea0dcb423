"""The most that a pod may still have of one resource: the rules, solved for what is asked.

For passes over thousands of devices, which compare numbers; ``rules`` says why something is
refused.
"""

from __future__ import annotations

from collections.abc import Iterator

from hami.policy.quota.elastic.book.accounts import QuotaAccount
from hami.policy.quota.elastic.book.tree import Tree, lent
from hami.policy.quota.elastic.model import Claim, Member, Options


def room(
    tree: Tree,
    options: Options,
    account: QuotaAccount,
    claim: Claim,
    own: Member | None,
    resource: str,
) -> int | None:
    """The least that any rule leaves of it; None when no rule limits it. May be negative."""
    bounds = list(_bounds(tree, options, account, claim, own, resource))
    return min(bounds) if bounds else None


def _bounds(
    tree: Tree,
    options: Options,
    account: QuotaAccount,
    claim: Claim,
    own: Member | None,
    resource: str,
) -> Iterator[int]:
    held = 0 if own is None else own.vector.get(resource, 0)
    for node, most in account.node.ceilings.get(resource, ()):
        yield most - node.used(resource) + held
    if resource not in tree.pool:
        return
    if not claim.preemptible:
        fixed = account.fixed.get(resource, 0)
        if own is not None and not own.preemptible:
            fixed -= held
        yield account.node.own.get(resource, 0) - fixed
    node, unlent = account.node, 0
    """What of the way's unused quota is not lent on, and so is missing nowhere above."""
    left = node.sums[resource].left + held
    while True:
        bound = 0 if node.parent is None else node.borrow.get(resource)
        if options.pool != "off" if node.parent is None else bound is not None:
            yield unlent + max(0, left + (bound or 0))
        if node.parent is None:
            return
        if resource in node.lend:
            unlent += max(0, left - node.lend[resource])
        unused = lent(node, resource, left) - lent(node, resource, node.sums[resource].left)
        left = node.parent.sums[resource].left + unused
        node = node.parent
