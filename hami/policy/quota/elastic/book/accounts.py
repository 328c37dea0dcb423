"""Who holds what: every pod once, and the sums of each quota; no rules.

``place`` and ``remove`` are exact opposites, which is what a trial relies on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from hami.domain.units import PodUid
from hami.policy.quota.elastic.book.order import Order
from hami.policy.quota.elastic.book.tree import QuotaNode, Tree, grown
from hami.policy.quota.elastic.model import Amounts, Leaf, LeafKey, Member, Options, TreeNode
from hami.policy.quota.elastic.objects.arrangement import ElasticProblem, arranged


@dataclass(slots=True, eq=False)
class QuotaAccount:
    """One quota: its pods in order, and what the running and the non-preemptible ones hold."""

    leaf: Leaf
    node: QuotaNode
    order: Order
    running: dict[str, int] = field(default_factory=dict)
    fixed: dict[str, int] = field(default_factory=dict)

    def count(self, member: Member, sign: int) -> None:
        if member.running:
            _add(self.running, member.vector, sign)
        if not member.preemptible:
            _add(self.fixed, member.vector, sign)


class Accounts:
    """Every pod and every quota."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._arrangement = arranged((), ())
        self._by_leaf: dict[LeafKey, QuotaAccount] = {}
        self._by_namespace: dict[str, QuotaAccount] = {}
        self._in_namespace: dict[str, dict[PodUid, None]] = {}
        self.members: dict[PodUid, Member] = {}
        self.change = 0
        """Counts what has changed, so that what follows from all of it can be kept until then."""
        self.tree: Tree = grown(self._arrangement, None, options)

    def of(self, namespace: str) -> QuotaAccount | None:
        """The quota that counts a namespace's pods."""
        return self._by_namespace.get(namespace)

    def __getitem__(self, key: LeafKey) -> QuotaAccount:
        return self._by_leaf[key]

    def __iter__(self) -> Iterator[QuotaAccount]:
        return iter(self._by_leaf.values())

    def in_namespace(self, namespace: str) -> list[Member]:
        return [self.members[uid] for uid in self._in_namespace.get(namespace, ())]

    # Quotas.

    def arrange(
        self, leaves: Iterable[Leaf], nodes: Iterable[TreeNode], capacity: Amounts | None
    ) -> tuple[ElasticProblem, ...]:
        """Another set of quotas for the same pods; a quota keeps its sums with its namespaces."""
        arrangement = arranged(leaves, nodes)
        self._arrangement = arrangement
        self._grow(capacity)
        return arrangement.problems

    def resize(self, capacity: Amounts | None) -> None:
        """The cluster has another size; nothing else changes."""
        if self._options.pool == "capacity":
            self._grow(capacity)

    def _grow(self, capacity: Amounts | None) -> None:
        self.change += 1
        arrangement, before = self._arrangement, self._by_leaf
        tree = grown(arrangement, capacity, self._options)
        by_leaf: dict[LeafKey, QuotaAccount] = {}
        for leaf in arrangement.leaves:
            node, known = tree.leaves[leaf.key], before.get(leaf.key)
            if known is not None and set(known.leaf.namespaces) == set(leaf.namespaces):
                known.order.guarantee(leaf.min)
                tree.take(node, known.node.all_used, 1)
                known.leaf, known.node = leaf, node
                by_leaf[leaf.key] = known
            else:
                by_leaf[leaf.key] = self._opened(leaf, node, tree)
        self._by_leaf, self.tree = by_leaf, tree
        self._by_namespace = {ns: by_leaf[key] for ns, key in arrangement.by_namespace.items()}

    def _opened(self, leaf: Leaf, node: QuotaNode, tree: Tree) -> QuotaAccount:
        """A quota that counts at once what already runs in its namespaces."""
        account = QuotaAccount(leaf, node, Order(leaf.min, self._options.labels))
        for namespace in leaf.namespaces:
            for uid in self._in_namespace.get(namespace, ()):
                member = self.members[uid]
                account.order.add(member)
                account.count(member, 1)
                tree.take(node, member.vector, 1)
        return account

    # Pods.

    def place(self, member: Member) -> QuotaAccount | None:
        """Charge a pod, and the quota that counts it; what it held before is replaced."""
        self.remove(member.uid)
        self.members[member.uid] = member
        self._in_namespace.setdefault(member.namespace, {})[member.uid] = None
        self.change += 1
        account = self._by_namespace.get(member.namespace)
        if account is not None:
            account.order.add(member)
            account.count(member, 1)
            self.tree.take(account.node, member.vector, 1)
        return account

    def remove(self, uid: PodUid) -> Member | None:
        """Release a pod; what it held, or None when it is not known."""
        member = self.members.pop(uid, None)
        if member is None:
            return None
        here = self._in_namespace[member.namespace]
        del here[uid]
        if not here:
            del self._in_namespace[member.namespace]
        self.change += 1
        account = self._by_namespace.get(member.namespace)
        if account is not None:
            account.order.remove(member)
            account.count(member, -1)
            self.tree.take(account.node, member.vector, -1)
        return member


def _add(sums: dict[str, int], vector: Amounts, sign: int) -> None:
    for resource, amount in vector.items():
        sums[resource] = sums.get(resource, 0) + sign * amount
