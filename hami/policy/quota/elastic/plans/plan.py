"""Who is evicted so that a pending pod gets what it is entitled to: a plan, or why there is none.

The kinds of plan are tried in order and never mixed: ``reclaim``, ``fair``, ``own``; and
``priority`` for a pod that no elastic quota counts. Pods with and without elastic quota never
evict each other. Nothing is changed: whoever executes the plan does that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sized
from dataclasses import dataclass
from itertools import islice

from msgspec.structs import replace

from hami.domain.units import PodUid
from hami.policy.quota.elastic.book.book import ElasticBook
from hami.policy.quota.elastic.model import Amounts, Claim, Leaf, Member, Options
from hami.policy.quota.elastic.plans.ground import DisruptionBudgets, Ground
from hami.policy.quota.elastic.plans.rights import Asking, Kind, Own, Priority, Right
from hami.policy.quota.elastic.plans.search import Found, InVain, SearchContext, search
from hami.policy.quota.elastic.plans.shares import Fair, Reclaim
from hami.policy.quota.elastic.plans.victims import Exempt, in_order

LOOKED_AT = 100
"""Feasible nodes of which the best is chosen, as kube-scheduler does."""

ENOUGH = 16
"""So many that cost one pod and break no budget are enough to choose from."""

MUCH = 3000
"""Pods looked at, node after node. Where one plan takes hundreds of victims it is not compared with
a hundred others, and where hundreds are not enough, not tried on every node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Evict ``victims``, in this order; then the claimant is charged ``vector`` on ``node``.

    ``violating``: victims whose budget does not allow it. ``reasons``: a sentence for each
    victim's event.
    """

    kind: Kind
    claim: Claim
    node: str
    vector: Amounts
    victims: tuple[Member, ...]
    violating: frozenset[PodUid]
    reasons: Mapping[PodUid, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoPlan:
    """Nobody is evicted for this pod.

    ``why``: by the kind of plan, or by what goes for all. ``again``: when the first pod that is
    protected by its short run time is so no more, in seconds since 1970.
    """

    claim: Claim
    why: Mapping[str, str]
    again: float | None = None

    def __str__(self) -> str:
        reasons = "; ".join(f"{kind}: {why}" for kind, why in self.why.items())
        return f"nobody is evicted for pod {self.claim.full_name}: {reasons}"


def plan(
    book: ElasticBook,
    claim: Claim,
    ground: Ground,
    budgets: DisruptionBudgets,
    options: Options,
    now: float,
    spoken_for: Collection[PodUid] = (),
) -> Plan | NoPlan:
    """The best plan of the first kind that has one.

    ``now`` is in seconds since 1970. ``spoken_for``: pods that are victims already, whose place
    somebody else waits for.
    """
    exempt = Exempt(now=now, min_runtime=options.min_runtime, spoken_for=spoken_for)
    around = SearchContext(
        book=book,
        ground=ground,
        budgets=budgets,
        exempt=exempt,
        on_node_only=options.scope == "node",
    )
    return _Planner(around, claim, options).plan()


class _Planner:
    def __init__(self, around: SearchContext, claim: Claim, options: Options) -> None:
        self._around, self._claim, self._options = around, claim, options
        self._book, self._ground = around.book, around.ground
        self._leaf = self._book.leaf_of(claim.namespace)
        self._open = tuple(islice(around.ground.open_nodes(), LOOKED_AT))
        self._charges: dict[str, tuple[Amounts, bool] | None] = {}

    def plan(self) -> Plan | NoPlan:
        if self._claim.never_preempts:
            return self._none({"preemptionPolicy": "is Never"})
        if never := self._book.could_ever(self._claim):
            return self._none({"quota": "; ".join(map(str, never))})
        for node in self._open:
            charge = self._charge(node)
            if charge is not None and not self._book.refusals(self._charged(charge[0])):
                return self._none({"room": f"node {node} has room, and no quota refuses it"})
        why: dict[str, str] = {}
        for kind in self._kinds():
            found = self._best(kind)
            if not isinstance(found, str):
                right, best = found
                return self._as_plan(right, best)
            why[kind] = found
        return self._none(why or {"priority": "preemption by priority is off"})

    def _kinds(self) -> tuple[Kind, ...]:
        if self._leaf is not None:
            return ("reclaim", "fair", "own")
        return ("priority",) if self._options.priority else ()

    def _best(self, kind: Kind) -> tuple[Right, Found] | str:
        """The cheapest of the nodes that were looked at; of equals the first."""
        if kind in {"reclaim", "fair"} and self._ground.short_of_quota():
            return "a ResourceQuota of its namespace refuses it, whatever other quotas give back"
        guess = self._right(kind, self._guess())
        if isinstance(guess, str):
            return guess
        found: list[tuple[Right, Found]] = []
        cheap, why = 0, ""
        in_vain: list[object] = []
        for node in self._worth_it(guess, found, in_vain):
            tried = self._at(kind, node)
            if isinstance(tried, str):
                why = why or tried
                if isinstance(tried, InVain):
                    in_vain.append(self._charge(node))
                continue
            found.append(tried)
            cheap += tried[1].cost[0] == 0 and len(tried[1].victims) == 1
            if len(found) >= LOOKED_AT or cheap >= ENOUGH or self._is_open(node):
                break
        if not found:
            return why or "no pod may be evicted for it"
        return min(found, key=lambda one: one[1].cost)

    def _at(self, kind: Kind, node: str) -> tuple[Right, Found] | str:
        charge = self._charge(node)
        if charge is None:
            return f"node {node}: no room, even if it were empty"
        vector, room = charge
        right = self._right(kind, vector)
        if isinstance(right, str):
            return right
        found = search(self._around, right, self._charged(vector), node, room=room)
        return found if isinstance(found, str) else (right, found)

    # Where to look.

    def _worth_it(self, guess: Right, found: Sized, in_vain: Collection[object]) -> Iterator[str]:
        """The nodes. When much was looked at: only until one was found, and none where the
        claimant would be charged what was ``in_vain`` on another.
        """
        late = 0
        for node in self._nodes(guess):
            if self._around.effort.pods >= MUCH:
                late += bool(in_vain)
                if found or late > LOOKED_AT:
                    return
                if in_vain and self._charge(node) in in_vain:
                    continue
            yield node

    def _nodes(self, guess: Right) -> Iterator[str]:
        """Nodes with room first, as nobody need go there for devices; then where victims are.

        A ResourceQuota may be in the way on every node.
        """
        seen: set[str] = set()
        for node in self._every_node(guess):
            if node not in seen:
                seen.add(node)
                yield node

    def _every_node(self, guess: Right) -> Iterator[str]:
        if not self._around.on_node_only:
            yield from self._open
        yield from self._hosts(guess)
        if self._ground.short_of_quota():
            yield from islice(self._ground.nodes(), LOOKED_AT)

    def _hosts(self, guess: Right) -> Iterator[str]:
        """Nodes of pods that may be evicted, the node of whoever is missed least first."""

        def harm(member: Member) -> int | None:
            takes = member not in self._around.exempt and guess.wants(member, resources)
            return 0 if takes else None

        resources = guess.resources
        if guess.kind == "priority":
            for node in self._ground.nodes():
                here = self._around.members_on(node)
                if any(True for _ in in_order(guess.sources(resources, here), harm)):
                    yield node
            return
        possible = frozenset(self._ground.nodes())
        for member in in_order(guess.sources(resources, None), harm):
            if member.node in possible:
                yield member.node

    def _is_open(self, node: str) -> bool:
        """It was looked at because it has room: no other node can cost less."""
        return not self._around.on_node_only and node in self._open

    # What is asked.

    def _right(self, kind: Kind, vector: Amounts) -> Right | str:
        asking = Asking.of(self._book, self._charged(vector))
        if kind == "priority":
            return Priority(asking)
        leaf = self._own_quota()
        if kind == "own":
            return Own(asking, leaf, may_grow=not self._options.rule_p1)
        out_of_reach = [
            refusal for refusal in self._book.refusals(asking.claim) if refusal.quota == leaf.key
        ]
        if out_of_reach:
            return f"no other quota can help: {out_of_reach[0]}"
        if kind == "reclaim":
            return Reclaim.of(asking, leaf)
        options = self._options
        return Fair.of(asking, leaf, keeps_min=options.rule_f1, named_alone=options.rule_f2)

    def _guess(self) -> Amounts:
        """What it would be charged at the first node that comes into question."""
        for node in (*self._open, *islice(self._ground.nodes(), 1)):
            charge = self._charge(node)
            if charge is not None:
                return charge[0]
        return self._claim.vector

    def _charge(self, node: str) -> tuple[Amounts, bool] | None:
        if node not in self._charges:
            self._charges[node] = self._around.charge(self._claim, node)
        return self._charges[node]

    def _charged(self, vector: Amounts) -> Claim:
        return replace(self._claim, vector=vector)

    def _own_quota(self) -> Leaf:
        assert self._leaf is not None, "a pod that no elastic quota counts has no share of any"
        return self._leaf

    # What is answered.

    def _as_plan(self, right: Right, found: Found) -> Plan:
        return Plan(
            kind=right.kind,
            claim=self._claim,
            node=found.node,
            vector=found.vector,
            victims=found.victims,
            violating=found.violating,
            reasons={victim.uid: right.why(victim) for victim in found.victims},
        )

    def _none(self, why: Mapping[str, str]) -> NoPlan:
        return NoPlan(claim=self._claim, why=why, again=self._around.exempt.again)
