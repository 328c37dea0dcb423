"""The book of elastic quotas: who may have what, who is over, and what others may claim back.

One writer. Every pod that holds something is in it once, whatever quota counts it or none; so a
quota that appears later counts at once what already runs. Nothing here looks at all pods to
answer for one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from hami.domain.units import PodUid
from hami.policy.quota.elastic.book import sharing
from hami.policy.quota.elastic.book.accounts import Accounts, QuotaAccount
from hami.policy.quota.elastic.book.room import room
from hami.policy.quota.elastic.book.rules import Rules
from hami.policy.quota.elastic.book.tree import QuotaNode
from hami.policy.quota.elastic.book.trial import Trial
from hami.policy.quota.elastic.model import (
    Amounts,
    Claim,
    ElasticRefusal,
    Leaf,
    LeafKey,
    Member,
    Options,
    TreeNode,
)
from hami.policy.quota.elastic.objects.arrangement import ElasticProblem
from hami.policy.quota.elastic.units import Units

CAPACITY_LABEL = "nos.nebuly.com/capacity"
Capacity = Literal["in-quota", "over-quota"]
"""The values of nos' pod label."""

_NO_UNITS = Units()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """One resource of all quotas at one moment: ``lent`` and ``guaranteed`` of the book."""

    lent: Mapping[LeafKey, int]
    guaranteed: Mapping[LeafKey, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """One resource of all quotas together. ``free`` is what may still be used, ``total`` both."""

    used: int
    free: int

    @property
    def total(self) -> int:
        return self.used + self.free


class ElasticBook:
    """Quotas, the pods that hold quota, and the pods that wait for it."""

    def __init__(self, options: Options, units: Units = _NO_UNITS) -> None:
        """``units`` only words refusals."""
        self.options = options
        self._units = units
        self._accounts = Accounts(options)
        self._rules = self._rules_now()
        self._leaves: Sequence[Leaf] = []
        self._waiting: dict[PodUid, Claim] = {}
        self.waiting: Mapping[PodUid, Claim] = self._waiting
        """The pods that want in, and what each asks."""
        self.all_members: Mapping[PodUid, Member] = self._accounts.members
        """Every pod that is charged, whatever quota counts it or none."""
        self._fresh: dict[LeafKey, set[PodUid]] = {}
        self._asked = 0
        self._over: dict[str, tuple[object, Mapping[LeafKey, int]]] = {}
        """By resource, what every quota is guaranteed over its ``min``, and of which moment."""

    # Quotas.

    def set_quotas(
        self,
        leaves: Iterable[Leaf],
        nodes: Iterable[TreeNode] = (),
        capacity: Amounts | None = None,
    ) -> tuple[ElasticProblem, ...]:
        """All quotas anew, in one step; what runs already counts at once.

        ``capacity``: what the cluster has, for ``pool: capacity``.
        """
        known = set(self._accounts)
        problems = self._accounts.arrange(leaves, nodes, capacity)
        self._rules = self._rules_now()
        by_key = sorted((account.leaf for account in self._accounts), key=lambda leaf: leaf.key)
        self._leaves = by_key
        self._fresh = {
            account.leaf.key: self._fresh.get(account.leaf.key, set())
            if account in known
            else {member.uid for member in account.order.members}
            for account in self._accounts
        }
        return problems

    def set_capacity(self, capacity: Amounts | None) -> None:
        """The cluster has another size."""
        self._accounts.resize(capacity)
        self._rules = self._rules_now()

    @property
    def leaves(self) -> Sequence[Leaf]:
        """The quotas that count, by key."""
        return self._leaves

    def leaf(self, key: LeafKey) -> Leaf:
        return self._accounts[key].leaf

    def leaf_of(self, namespace: str) -> Leaf | None:
        """The quota that counts a namespace's pods; a composite goes before a single one."""
        account = self._accounts.of(namespace)
        return account.leaf if account else None

    # Pods that hold quota.

    def put(self, member: Member) -> None:
        """Charge a pod without asking; what it held before is replaced, and it waits no more."""
        account = self._accounts.place(member)
        self._waiting.pop(member.uid, None)
        if account is not None:
            self._fresh[account.node.title].add(member.uid)

    def drop(self, uid: PodUid) -> None:
        """Take back exactly what was charged. Idempotent."""
        member = self._accounts.remove(uid)
        account = self._accounts.of(member.namespace) if member else None
        if account is not None:
            self._fresh[account.node.title].discard(uid)

    def member(self, uid: PodUid) -> Member | None:
        return self._accounts.members.get(uid)

    def members(self, leaf: Leaf) -> Sequence[Member]:
        """A quota's pods, the first to be in quota first."""
        return list(self._of(leaf).order.members)

    def in_namespace(self, namespace: str) -> Sequence[Member]:
        """A namespace's pods, whatever counts them or not."""
        return self._accounts.in_namespace(namespace)

    def node(self, leaf: Leaf) -> QuotaNode:
        """A quota's place in the tree of sums, to be read; a trial's changes are in it."""
        return self._of(leaf).node

    def unit(self, resource: str) -> str:
        """The word behind a number in a message; empty for counts."""
        return self._units.unit(resource)

    def trial(self) -> Trial:
        """``with book.trial() as trial``: see what would be, and have it taken back."""
        return Trial(self._accounts)

    # Pods that want in.

    def ask(self, claim: Claim) -> None:
        """A pod waits: ``waterfill`` shares out among those who want."""
        if claim.uid not in self._accounts.members:
            self._waiting[claim.uid] = claim
            self._asked += 1

    def asked(self, uid: PodUid) -> Claim | None:
        """What a pod waits for."""
        return self._waiting.get(uid)

    def withdraw(self, uid: PodUid) -> None:
        if self._waiting.pop(uid, None) is not None:
            self._asked += 1

    def refusals(self, claim: Claim | Member) -> tuple[ElasticRefusal, ...]:
        """Every rule that the pod would break now, its own charge not counted; none: it may.

        A ``Member`` is a pod as it would be charged.
        """
        return self._refusals(claim, ever=False)

    def room(self, claim: Claim, resource: str) -> int | None:
        """The most of one resource that the pod may have now; None when no rule limits it."""
        account = self._accounts.of(claim.namespace)
        if account is None:
            return None
        own = self._own(claim)
        return room(self._accounts.tree, self.options, account, claim, own, resource)

    def could_ever(self, claim: Claim) -> tuple[ElasticRefusal, ...]:
        """Every rule that it would break even if nothing were used; none: it is worth waiting."""
        return self._refusals(claim, ever=True)

    def _refusals(self, claim: Claim | Member, *, ever: bool) -> tuple[ElasticRefusal, ...]:
        account = self._accounts.of(claim.namespace)
        if account is None:
            return ()
        own = self._own(claim)
        found = self._rules.broken(claim, account, own, ever=ever)
        if len(found) > 1:
            found.sort(key=lambda refusal: _ORDER.index(refusal.rule))
        return tuple(found)

    def _rules_now(self) -> Rules:
        return Rules(self._accounts.tree, self.options, self._units)

    def _own(self, claim: Claim | Member) -> Member | None:
        """What the pod itself holds of the quota that it asks."""
        own = self._accounts.members.get(claim.uid)
        return own if own is not None and own.namespace == claim.namespace else None

    # What a quota holds and is entitled to.

    def used(self, leaf: Leaf) -> Amounts:
        """What all its pods hold."""
        return self._of(leaf).node.all_used

    def running_used(self, leaf: Leaf) -> Amounts:
        """What its running pods hold, of the resources in ``min``: nos' ``status.used``."""
        account = self._of(leaf)
        return {r: account.running.get(r, 0) for r in account.leaf.min}

    def running_of(self, leaf: Leaf, resource: str) -> int | None:
        """One resource of :meth:`running_used`; None of any that ``min`` does not name."""
        account = self._of(leaf)
        return account.running.get(resource, 0) if resource in account.leaf.min else None

    def guarantee(self, leaf: Leaf) -> Amounts:
        """Its ``min`` for every resource that any quota guarantees; 0 where it says nothing."""
        own = self._of(leaf).node.own
        return {resource: own.get(resource, 0) for resource in self._accounts.tree.pool}

    def borrowed(self, leaf: Leaf) -> Amounts:
        """What it uses beyond its ``min``."""
        return sharing.borrowed(self._of(leaf).node)

    def lent(self, leaf: Leaf) -> Amounts:
        """What of its unused ``min`` others use."""
        return sharing.lends(self._of(leaf).node)

    def share(self, leaf: Leaf) -> Mapping[str, Fraction]:
        """Its part of what is shared out beyond the guarantees, by resource."""
        node = self._of(leaf).node
        return {resource: sharing.share(node, resource) for resource in self._accounts.tree.pool}

    def guaranteed(self, leaf: Leaf, claim: Claim | None = None) -> Amounts:
        """What it may use beyond its ``min`` before others may take it back (nos' G).

        ``claim``: a pod that wants in but may not have been announced with ``ask``; its
        resources alone are then answered for.
        """
        pool = self._accounts.tree.pool
        resources = pool if claim is None else pool & claim.vector.keys()
        return {resource: self._all_over(resource, claim)[leaf.key] for resource in resources}

    def shares(self, resource: str) -> Shares:
        """What :meth:`lent` and :meth:`guaranteed` say of every quota, at the price of a few.

        Empty of a resource that no quota guarantees.
        """
        tree = self._accounts.tree
        if resource not in tree.pool:
            return Shares(lent={}, guaranteed={})
        return Shares(
            lent=sharing.all_lend(tree.root, resource),
            guaranteed=self._all_over(resource, None),
        )

    def _all_over(self, resource: str, claim: Claim | None) -> Mapping[LeafKey, int]:
        """Kept until something changes: a planner asks it of one quota after the other."""
        wants = None
        if claim is not None and self.options.fair_share == "waterfill":
            wants = claim.uid, claim.namespace, claim.vector.get(resource, 0)
        moment = self._accounts.change, self._asked, wants
        if (kept := self._over.get(resource)) is not None and kept[0] == moment:
            return kept[1]
        root, mode = self._accounts.tree.root, self.options.fair_share
        demand = self._demand(resource, claim)
        over = sharing.all_guaranteed_over(root, resource, mode, demand)
        self._over[resource] = moment, over
        return over

    def _demand(self, resource: str, claim: Claim | None) -> sharing.Demand | None:
        if self.options.fair_share != "waterfill":
            return None
        waiting = self._waiting_for(resource, claim)
        return sharing.Demand(self._accounts.tree, resource, waiting)

    @property
    def guaranteed_in_all(self) -> Amounts:
        """What all quotas and groups guarantee together."""
        return self._accounts.tree.promised

    @property
    def available(self) -> Amounts:
        """What of all guarantees is unused and lent, and shared out (nos' O)."""
        return {r: max(0, sums.spare) for r, sums in self._accounts.tree.root.sums.items()}

    @property
    def pool(self) -> Mapping[str, Pool]:
        """All quotas together, for every resource that any of them guarantees."""
        root = self._accounts.tree.root
        return {r: Pool(used=sums.used, free=sums.left) for r, sums in root.sums.items()}

    # Over-quota.

    def over_quota(self, leaf: Leaf) -> Iterator[Member]:
        """Its over-quota pods, newest first; the book may be changed while this is read."""
        return self._of(leaf).order.over()

    def least_important(
        self, leaf: Leaf, *, over: bool = False, below: int | None = None
    ) -> Iterator[Member]:
        """Its pods by priority, inside one the newest first; the book may change meanwhile.

        ``over``: its over-quota pods alone; ``below``: lower priorities than this alone.
        """
        return self._of(leaf).order.least_important(over=over, below=below)

    def is_over(self, uid: PodUid) -> bool:
        """False for a pod that no quota counts."""
        member = self._accounts.members.get(uid)
        account = self._accounts.of(member.namespace) if member else None
        return member is not None and account is not None and account.order.is_over(member)

    def capacity(self, uid: PodUid) -> Capacity | None:
        """A pod's label; None for one that no quota counts."""
        member = self._accounts.members.get(uid)
        account = self._accounts.of(member.namespace) if member else None
        if member is None or account is None:
            return None
        return _capacity(over=account.order.is_over(member))

    def moved(self, leaf: Leaf) -> Mapping[PodUid, Capacity]:
        """The pods that are new or have changed sides since this was last asked, and where."""
        order = self._of(leaf).order
        moved = {m.uid: m for m in order.moved()}
        fresh, self._fresh[leaf.key] = self._fresh[leaf.key], set()
        for uid in fresh:
            moved[uid] = self._accounts.members[uid]
        return {uid: _capacity(over=order.is_over(member)) for uid, member in moved.items()}

    def _of(self, leaf: Leaf) -> QuotaAccount:
        return self._accounts[leaf.key]

    def _waiting_for(self, resource: str, claim: Claim | None) -> dict[LeafKey, int]:
        claims = list(self._waiting.values())
        if claim is not None and claim.uid not in self._waiting:
            claims.append(claim)
        found: dict[LeafKey, int] = {}
        for each in claims:
            account = self._accounts.of(each.namespace)
            amount = each.vector.get(resource, 0)
            if account is not None and amount and each.uid not in self._accounts.members:
                found[account.leaf.key] = found.get(account.leaf.key, 0) + amount
        return found


_ORDER = ("max", "min of non-preemptible pods", "borrow limit", "pool")


def _capacity(*, over: bool) -> Capacity:
    return "over-quota" if over else "in-quota"
