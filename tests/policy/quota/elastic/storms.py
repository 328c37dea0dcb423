"""Random clusters in which evicted pods try again at once, until nothing moves any more."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from hami.domain.units import PodUid
from hami.policy.quota.elastic import Amounts, Claim, Leaf, Member, Options, TreeNode
from hami.policy.quota.elastic.plans.plan import Plan

from .builders import a_leaf, capacities
from .world import World, WorldGround, the_claim, total

RESOURCES = ("gpu", "memory", "cpu", "cores")


@dataclass(frozen=True, kw_only=True)
class Weather:
    """The parameters of a storm."""

    resources: tuple[int, int] = (1, 3)
    quotas: tuple[int, int] = (2, 5)
    pods: tuple[int, int] = (3, 25)
    nodes: tuple[int, int] = (1, 4)
    priorities: int = 3
    roomy: bool = False
    """Devices are never short."""
    named: float = 0.9
    """The probability that a quota names a resource."""
    fixed: float = 0.1
    """The probability that a pod is non-preemptible."""
    groups: bool = False
    lenders: tuple[int, int] = (0, 0)
    """The number of quotas without pods, which name everything."""
    shapes: int | None = None
    """The number of different pods, as of as many controllers; None: all pods differ."""
    scarce: bool = False
    """Nodes have less of some resources than of others, so that several are short at once."""
    replicas: bool = False
    """An evicted pod is created anew at once, as another pod; else the same pod waits again."""
    options: Options = field(default_factory=Options)


@dataclass
class Storm:
    """One seed's cluster: ``rounds`` in which every pod asks in turn; ``evicted`` in all."""

    seed: int
    weather: Weather = field(default_factory=Weather)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        w, between = self.weather, self.between
        self.resources = RESOURCES[: between(w.resources)]
        self.borrowers = self.some_quotas(between(w.quotas))
        self.quotas = [*self.borrowers, *self.some_lenders()]
        nodes = self.some_nodes(total_min(self.quotas))
        self.world = World(
            leaves=self.quotas, groups=self.groups, nodes=nodes, options=w.options,
            capacity=together(nodes) if w.options.pool == "capacity" else None,
        )  # fmt: skip
        self.shapes = [self.some_shape() for _ in range(w.shapes or 0)]
        self.waiting: list[Claim] = [self.some_claim(i) for i in range(between(w.pods))]
        self.made = 0
        self.evicted = 0
        self.kinds: Counter[str] = Counter()

    def between(self, bounds: tuple[int, int]) -> int:
        return self.random.randint(*bounds)

    def some_quotas(self, number: int) -> list[Leaf]:
        self.groups: list[TreeNode] = []
        if self.weather.groups:
            self.groups = [self.some_group(f"g{i}") for i in range(self.random.randint(1, 2))]
        return [self.some_quota(f"q{i}") for i in range(number)]

    def some_group(self, name: str) -> TreeNode:
        own = {r: self.random.randint(0, 6) for r in self.resources if self.random.random() < 0.5}
        return TreeNode(name=name, own=own, borrow=self.some_limit(0.3), lend=self.some_limit(0.3))

    def some_limit(self, often: float) -> dict[str, int] | None:
        if self.random.random() >= often:
            return None
        return {r: self.random.randint(0, 8) for r in self.resources}

    def some_quota(self, name: str) -> Leaf:
        rng = self.random
        least = {r: rng.randint(0, 12) for r in self.resources if rng.random() < self.weather.named}
        most = None
        if rng.random() < 0.3:
            most = {r: n + rng.randint(0, 12) for r, n in least.items()}
        spaces = (name, f"{name}-b") if rng.random() < 0.2 else (name,)
        parent = rng.choice(["", *(g.name for g in self.groups)])
        return Leaf(
            kind="CompositeElasticQuota" if len(spaces) > 1 else "ElasticQuota",
            namespace=name, name="q", namespaces=spaces, min=least, max=most, parent=parent,
            borrow=self.some_limit(0.2 * bool(self.groups)),
            lend=self.some_limit(0.2 * bool(self.groups)),
        )  # fmt: skip

    def some_nodes(self, pool: Counter[str]) -> dict[str, dict[str, int] | None]:
        if self.weather.roomy:
            return {"n1": None}
        number = self.between(self.weather.nodes)
        slack = dict.fromkeys(self.resources, self.random.choice((0.7, 1.0, 1.5)))
        if self.weather.scarce:
            slack = {r: self.random.choice((0.4, 0.6, 0.8, 1.0, 1.5)) for r in self.resources}
        return {
            f"n{i}": {r: max(1, int(slack[r] * pool[r] / number)) for r in self.resources}
            for i in range(number)
        }

    def some_lenders(self) -> list[Leaf]:
        number = self.between(self.weather.lenders) if self.weather.lenders[1] else 0
        return [
            a_leaf(f"lender{i}", {r: self.random.randint(4, 24) for r in self.resources})
            for i in range(number)
        ]

    def some_shape(self) -> dict[str, int]:
        most = 2 if self.weather.shapes else 8
        asked = {r: self.random.randint(0, most) for r in self.resources}
        return asked if any(asked.values()) else {self.resources[0]: 1}

    def some_claim(self, number: int) -> Claim:
        rng = self.random
        quota = rng.choice(self.borrowers)
        asked = rng.choice(self.shapes) if self.shapes else self.some_shape()
        return replace(
            the_claim(f"{rng.choice(quota.namespaces)}/p{number}", asked),
            priority=rng.randrange(self.weather.priorities),
            preemptible=rng.random() >= self.weather.fixed,
        )

    # Until nothing moves.

    def settles(self, most: int = 400) -> bool:
        """Whether the storm settles within this many evictions and as many rounds."""
        for _ in range(most):
            moved = False
            self.random.shuffle(self.waiting)
            for claim in list(self.waiting):
                moved |= self.tries(claim)
                self.holds()
                if self.evicted > most:
                    return False
            if not moved:
                return True
        return False

    def tries(self, claim: Claim) -> bool:
        if self.world.enters(claim):
            self.waiting.remove(claim)
            return True
        before = self.books()
        found = self.world.plan(claim)
        assert self.books() == before, f"seed {self.seed}: a plan has changed the book"
        if not isinstance(found, Plan):
            return False
        self.nobody_for_nothing(found)
        self.kinds[found.kind] += 1
        self.world.evicts(found)
        self.waiting.remove(claim)
        self.evicted += len(found.victims)
        again = [self.made_anew(victim) for victim in found.victims]
        self.waiting = [*again, *self.waiting] if self.weather.replicas else [*self.waiting, *again]
        return True

    def made_anew(self, victim: Member) -> Claim:
        """A new pod, as the evicted pod's owner makes it."""
        name = victim.full_name
        if self.weather.replicas:
            self.made += 1
            name = f"{victim.namespace}/r{self.made}"
            self.world.created[PodUid(name)] = f"{self.world.born:09}"
        claim = the_claim(name, victim.vector)
        return replace(claim, priority=victim.priority, preemptible=victim.preemptible)

    # What must always hold.

    def books(self) -> list[object]:
        book = self.world.book
        return [
            (book.used(leaf), capacities(book, leaf), book.guaranteed(leaf)) for leaf in self.quotas
        ]

    def holds(self) -> None:
        """Assert that no limit is exceeded (maximums, the pool, the nodes), added up anew."""
        used = {leaf.key: total(self.members(leaf)) for leaf in self.quotas}
        for leaf in self.quotas:
            for resource, most in (leaf.max or {}).items():
                assert used[leaf.key][resource] <= most, (self.seed, leaf, used)
        if not self.groups and self.weather.options.pool == "sumMin":
            together, pool = sum(used.values(), Counter()), total_min(self.quotas)
            named = {r for leaf in self.quotas for r in leaf.min}
            assert all(together[r] <= pool[r] for r in named), (self.seed, together, pool)
        for name, size in self.world.sizes.items():
            there = total(self.world.on[name].values())
            assert size is None or all(there[r] <= most for r, most in size.items()), self.seed

    def members(self, leaf: Leaf) -> Iterator[Member]:
        for on in self.world.on.values():
            yield from (m for m in on.values() if m.namespace in leaf.namespaces)

    def nobody_for_nothing(self, found: Plan) -> None:
        """Assert that every victim was needed: if one is spared, the claimant may not get in."""
        leaf = self.world.book.leaf_of(found.claim.namespace)
        assert leaf is not None
        before = self.world.book.used(leaf)
        ground = WorldGround(self.world, found.claim)
        uids = {victim.uid for victim in found.victims}
        for spared in found.victims:
            with self.world.book.trial() as trial:
                for uid in uids - {spared.uid}:
                    trial.drop(uid)
                gets_in = not self.world.book.refusals(found.claim)
                gets_in &= found.kind != "own" or not self.grows(leaf, found.claim, before)
            assert not (gets_in and ground.fits(found.node, uids - {spared.uid})), self.seed

    def grows(self, leaf: Leaf, claim: Claim, before: Amounts) -> bool:
        """Whether the claim's quota would borrow more than before (rule P1)."""
        used = self.world.book.used(leaf)
        return self.weather.options.rule_p1 and any(
            used.get(r, 0) + n > max(leaf.min.get(r, 0), before.get(r, 0))
            for r, n in claim.vector.items() if n and r in self.pooled
        )  # fmt: skip

    @property
    def pooled(self) -> set[str]:
        named = (one.min for one in self.quotas)
        return set().union(*named, *(group.own for group in self.groups))

    def left_out(self) -> list[Claim]:
        """Pods that wait although their quota guarantees everything that they ask for."""
        return [claim for claim in self.waiting if self.guaranteed(claim)]

    def guaranteed(self, claim: Claim) -> bool:
        leaf = self.world.book.leaf_of(claim.namespace)
        assert leaf is not None
        used = self.world.book.used(leaf)
        within = all(
            used.get(r, 0) + n <= leaf.min.get(r, 0)
            for r, n in claim.vector.items() if n and r in self.pooled
        )  # fmt: skip
        return within and any(n and r in self.pooled for r, n in claim.vector.items())


def total_min(leaves: Sequence[Leaf]) -> Counter[str]:
    found: Counter[str] = Counter()
    for leaf in leaves:
        found.update(leaf.min)
    return found


def together(nodes: Mapping[str, Mapping[str, int] | None]) -> Counter[str]:
    found: Counter[str] = Counter()
    for size in nodes.values():
        found.update(size or {})
    return found
