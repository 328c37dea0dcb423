"""What entitles a claimant to the place of others: four rights, never mixed in one plan.

``reclaim``: it stays within what its quota (or a group above it) is guaranteed, and others borrow
it. ``fair``: it stays within its quota's share of what is unused, and others have more than
theirs. ``own``: pods of its own quota have a lower priority. ``priority``: the same between pods
that no elastic quota counts.

A right answers as of the book now, so inside a trial with the trial's changes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, Protocol

from hami.domain.units import with_unit
from hami.policy.quota.elastic.book.book import ElasticBook
from hami.policy.quota.elastic.model import Amounts, Claim, Leaf, Member
from hami.policy.quota.elastic.plans.victims import Source, least_important_first, newest_first

Kind = Literal["reclaim", "fair", "own", "priority"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """A claimant with what it would be charged, before anything is changed.

    ``refused``: the resources of which its quota's rules would give it too little.
    """

    book: ElasticBook
    claim: Claim
    refused: frozenset[str]

    @classmethod
    def of(cls, book: ElasticBook, claim: Claim) -> Asking:
        refused = frozenset(refusal.resource for refusal in book.refusals(claim))
        return cls(book=book, claim=claim, refused=refused)

    @property
    def asked(self) -> Amounts:
        return {r: amount for r, amount in self.claim.vector.items() if amount > 0}


class Right(Protocol):
    """One of the four, for one claimant."""

    @property
    def kind(self) -> Kind: ...

    @property
    def resources(self) -> frozenset[str]:
        """For the sake of which pods may be evicted."""
        ...

    def denied(self, vector: Amounts) -> str | None:
        """Why a claimant that is charged this is not entitled; None: it is."""
        ...

    def lacks(self, vector: Amounts) -> Amounts:
        """What must still be freed beyond what the book's own rules say."""
        ...

    def sources(
        self, resources: Collection[str], among: Sequence[Member] | None
    ) -> Iterator[Source]:
        """Who may be taken for these resources: anywhere, or of these pods."""
        ...

    def wants(self, member: Member, resources: Collection[str]) -> bool:
        """A pod of the source whose turn it is may be taken now."""
        ...

    def hurts(self, member: Member) -> bool:
        """Its quota would have less than its ``min`` without it, and that matters."""
        ...

    def why(self, victim: Member) -> str:
        """What an event tells a victim's owner; asked before anything has changed."""
        ...


def below_min(book: ElasticBook, leaf: Leaf, member: Member) -> bool:
    """Without this pod its quota has less than its ``min`` of something that the pod holds."""
    used = book.node(leaf).used
    return any(
        member.vector.get(r, 0) > 0 and used(r) - member.vector[r] < least
        for r, least in leaf.min.items()
    )


def amount(book: ElasticBook, resource: str, number: int) -> str:
    return with_unit(number, book.unit(resource))


class Own:
    """Lower priority makes room in the same quota.

    Rule P1: it swaps, and does not grow what the quota borrows. Nor does it leave idle what the
    quota is guaranteed and the claimant does not ask for: its victim would claim that back, and
    from others what was borrowed in its place.
    """

    kind: Kind = "own"

    def __init__(self, asking: Asking, leaf: Leaf, *, may_grow: bool) -> None:
        self._book, self._claim, self._leaf = asking.book, asking.claim, leaf
        self._node = asking.book.node(leaf)
        self._before = self._node.all_used
        self._may_grow = may_grow
        self.resources = frozenset(asking.asked)

    def denied(self, vector: Amounts) -> str | None:
        """Of what it does not ask itself, its quota's guarantee stays in use."""
        if self._may_grow:
            return None
        for r, least in self._leaf.min.items():
            idle = min(self._before.get(r, 0), least) - self._node.used(r)
            if idle > 0 and not vector.get(r, 0):
                return (
                    f"{self._leaf.key} would leave {amount(self._book, r, idle)} of its min of {r} "
                    f"idle, which the pod does not ask for"
                )
        return None

    def lacks(self, vector: Amounts) -> Amounts:
        if self._may_grow:
            return {}
        lacking = {}
        for resource, asked in vector.items():
            if asked <= 0 or resource not in self._node.sums:
                continue
            most = max(self._leaf.min.get(resource, 0), self._before.get(resource, 0))
            excess = self._node.used(resource) + asked - most
            if excess > 0:
                lacking[resource] = excess
        return lacking

    def sources(
        self, resources: Collection[str], among: Sequence[Member] | None
    ) -> Iterator[Source]:
        del resources
        yield Source(key="", debt=_nothing, members=partial(self._lower, among))

    def wants(self, member: Member, resources: Collection[str]) -> bool:
        return any(member.vector.get(r, 0) > 0 for r in resources)

    def hurts(self, member: Member) -> bool:
        del member
        return False

    def why(self, victim: Member) -> str:
        return (
            f"priority: pod {self._claim.full_name} ({self._claim.priority}) goes before "
            f"this pod ({victim.priority}) in {self._leaf.key}"
        )

    def _lower(self, among: Sequence[Member] | None) -> Iterable[Member]:
        priority, leaf = self._claim.priority, self._leaf
        if among is None:
            return self._book.least_important(leaf, below=priority)
        own = (m for m in among if m.namespace in leaf.namespaces and m.priority < priority)
        return least_important_first(newest_first(own))


class Priority:
    """Lower priority makes room among pods that no elastic quota counts."""

    kind: Kind = "priority"

    def __init__(self, asking: Asking) -> None:
        self._book, self._claim = asking.book, asking.claim
        self.resources = frozenset(asking.asked)

    def denied(self, vector: Amounts) -> str | None:
        del vector
        return None

    def lacks(self, vector: Amounts) -> Amounts:
        del vector
        return {}

    def sources(
        self, resources: Collection[str], among: Sequence[Member] | None
    ) -> Iterator[Source]:
        """Anywhere means the claimant's namespace: what its ResourceQuota counts."""
        del resources
        yield Source(key="", debt=_nothing, members=partial(self._lower, among))

    def wants(self, member: Member, resources: Collection[str]) -> bool:
        return any(member.vector.get(r, 0) > 0 for r in resources)

    def hurts(self, member: Member) -> bool:
        del member
        return False

    def why(self, victim: Member) -> str:
        return (
            f"priority: pod {self._claim.full_name} ({self._claim.priority}) goes before "
            f"this pod ({victim.priority})"
        )

    def _lower(self, among: Sequence[Member] | None) -> Iterable[Member]:
        candidates = self._book.in_namespace(self._claim.namespace) if among is None else among
        return least_important_first(
            newest_first(
                m
                for m in candidates
                if m.priority < self._claim.priority and self._book.leaf_of(m.namespace) is None
            )
        )


def _nothing() -> tuple[float, int]:
    return 0.0, 0
