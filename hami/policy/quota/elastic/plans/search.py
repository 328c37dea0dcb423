"""Who would have to go for a claimant to get in at one node: greedy, then everybody put back
who need not go.

All of it happens in a trial of the book, so every rule is the book's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from hami.domain.units import PodUid
from hami.policy.quota.elastic.book.book import ElasticBook
from hami.policy.quota.elastic.book.trial import Trial
from hami.policy.quota.elastic.model import Amounts, Claim, Member
from hami.policy.quota.elastic.plans.disruption import Tally, violations
from hami.policy.quota.elastic.plans.ground import DisruptionBudgets, Ground
from hami.policy.quota.elastic.plans.rights import Right
from hami.policy.quota.elastic.plans.victims import Exempt, Source, in_order

Lack = Mapping[tuple[str, str, str], int]
"""By rule, quota and resource: how much too much the claimant's charge would be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What would do: ``victims`` in the order in which they were chosen."""

    node: str
    vector: Amounts
    victims: tuple[Member, ...]
    violating: frozenset[PodUid]

    @property
    def cost(self) -> tuple[int, int, int]:
        """Less is better: budgets that are not kept, the highest priority, the number of pods."""
        highest = max((victim.priority for victim in self.victims), default=0)
        return len(self.violating), highest, len(self.victims)


@dataclass(slots=True)
class Effort:
    """How many pods were looked at so far, on all nodes together; each of them again."""

    pods: int = 0


class InVain(str):
    """Why there are no victims: what quota lacks is not to be had in the whole cluster."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchContext:
    """What stays the same whatever node is looked at."""

    book: ElasticBook
    ground: Ground
    budgets: DisruptionBudgets
    exempt: Exempt
    on_node_only: bool
    effort: Effort = field(default_factory=Effort)

    def charge(self, claim: Claim, node: str) -> tuple[Amounts, bool] | None:
        """What the claimant would be charged there, and whether there is room as it is."""
        vector = self.ground.fits(node, ())
        if vector is not None:
            return vector, True
        gone = set(self.ground.members_on(node))
        if self.ground.short_of_quota():
            gone.update(m.uid for m in self.book.in_namespace(claim.namespace))
        vector = self.ground.fits(node, gone)
        return None if vector is None else (vector, False)

    def members_on(self, node: str) -> list[Member]:
        found = (self.book.member(uid) for uid in self.ground.members_on(node))
        return [member for member in found if member is not None]


def search(
    around: SearchContext, right: Right, claim: Claim, node: str, *, room: bool
) -> Found | str:
    """The victims at one node; else why not.

    ``claim`` with what it would be charged there; ``room``: the node has a place for it as it is.
    """
    with around.book.trial() as trial:
        attempt = _Attempt(around, right, claim, node, trial)
        if not room and not attempt.make_room() and not around.ground.short_of_quota():
            return f"node {node} has no room, whoever is evicted there"
        if not attempt.make_quota():
            return attempt.missing()
        denied = right.denied(attempt.vector)
        if denied is not None:
            return denied
        attempt.put_back()
        return attempt.found()


class _Attempt:
    def __init__(
        self, around: SearchContext, right: Right, claim: Claim, node: str, trial: Trial
    ) -> None:
        self._around, self._right, self._claim = around, right, claim
        self._node, self._trial = node, trial
        self._taken: list[Member] = []
        self._tally = Tally(around.budgets)
        self._useless: dict[str, set[str]] = {}
        """By quota: of which resources its pods did not help."""
        self._has_room = False
        self._everywhere = around.ground.short_of_quota()
        self.vector: Amounts = claim.vector
        self._look()

    def found(self) -> Found:
        return Found(
            node=self._node,
            vector=self.vector,
            victims=tuple(self._taken),
            violating=violations(self._around.budgets, self._taken),
        )

    def missing(self) -> str:
        """What is still too much with everybody gone who may be evicted."""
        if not self._has_room:
            return f"node {self._node} has no room, whoever is evicted"
        lack = "; ".join(
            f"{quota}: {rule}: {resource}: {excess} too much"
            for (rule, quota, resource), excess in sorted(self._lack().items())
        )
        if not self._taken:
            return f"no pod may be evicted for it: {lack}"
        if self._around.on_node_only:
            return f"not even with {len(self._taken)} evicted on node {self._node}: {lack}"
        return InVain(f"not even with {len(self._taken)} evicted in the cluster: {lack}")

    def make_room(self) -> bool:
        """Take pods of this node until the claimant has a place there."""
        resources = self._right.resources
        for member in self._candidates(resources, self._around.members_on(self._node)):
            self._take(member)
            if self._has_room:
                return True
        return False

    def make_quota(self) -> bool:
        """Take pods, anywhere if that is allowed, until no rule of any quota is broken."""
        lack = self._lack()
        resources = self._resources(lack)
        if self._has_room and not lack:
            return True
        if not resources:
            return False
        on_node_only = self._around.on_node_only
        among = self._around.members_on(self._node) if on_node_only else None
        for member in self._candidates(resources, among):
            self._take(member)
            before, lack = lack, self._lack()
            if self._has_room and not lack:
                return True
            if lack == before and not self._everywhere:
                self._untake(member)
                self._useless.setdefault(self._quota(member), set()).update(
                    r for r in resources if member.vector.get(r, 0) > 0
                )
        return False

    def put_back(self) -> None:
        """Spare whoever need not go: budgets that are not kept first, then the most important."""
        if len(self._taken) < 2:
            return
        violating = violations(self._around.budgets, self._taken)
        by_importance = [m for m in reversed(self._taken) if m.uid in violating]
        by_importance += [m for m in reversed(self._taken) if m.uid not in violating]
        for member in by_importance:
            at = self._taken.index(member)
            had = self.vector
            self._untake(member)
            if self._has_room and not self._lack() and self._right.denied(self.vector) is None:
                continue
            self._trial.drop(member.uid)
            self._taken.insert(at, member)
            self._tally.take(member)
            self.vector, self._has_room = had, True

    # Candidates.

    def _candidates(
        self, resources: Collection[str], among: Sequence[Member] | None
    ) -> Iterator[Member]:
        def harm(member: Member) -> int | None:
            self._around.effort.pods += 1
            if member in self._around.exempt or not self._right.wants(member, resources):
                return None
            useless = self._useless.get(self._quota(member), ())
            if not any(member.vector.get(r, 0) > 0 for r in resources if r not in useless):
                return None
            return 2 * self._tally.violates(member) + self._right.hurts(member)

        sources: Iterator[Source] = self._right.sources(resources, among)
        return in_order(sources, harm)

    def _resources(self, lack: Lack) -> frozenset[str]:
        """For the sake of which pods are to be taken now."""
        if not self._has_room:
            return self._right.resources
        return self._right.resources & {resource for _, _, resource in lack}

    def _quota(self, pod: Member | Claim) -> str:
        leaf = self._around.book.leaf_of(pod.namespace)
        return leaf.key if leaf else ""

    # The trial.

    def _take(self, member: Member) -> None:
        self._trial.drop(member.uid)
        self._taken.append(member)
        self._tally.take(member)
        self._changed(member)

    def _untake(self, member: Member) -> None:
        self._trial.put(member)
        self._taken.remove(member)
        self._tally.spare(member)
        self._changed(member)

    def _changed(self, member: Member) -> None:
        if member.node == self._node or self._everywhere:
            self._look()

    def _look(self) -> None:
        vector = self._around.ground.fits(self._node, {m.uid for m in self._taken})
        self._has_room = vector is not None
        if vector is not None:
            self.vector = vector

    def _lack(self) -> Lack:
        claim = replace(self._claim, vector=self.vector)
        lacking: dict[tuple[str, str, str], int] = {
            (refusal.rule, refusal.quota, refusal.resource): (
                refusal.used + refusal.asked - refusal.limit
            )
            for refusal in self._around.book.refusals(claim)
        }
        for resource, excess in self._right.lacks(self.vector).items():
            lacking["borrowing by priority", self._quota(self._claim), resource] = excess
        return lacking
