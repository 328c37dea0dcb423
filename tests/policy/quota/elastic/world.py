"""A cluster for plans: nodes with limited resources, and pods that come, wait and are evicted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from hami.domain.units import PodUid
from hami.policy.quota.elastic import Amounts, Claim, ElasticBook, Leaf, Member, Options, TreeNode
from hami.policy.quota.elastic.plans.plan import NoPlan, Plan, plan

from .builders import UNITS, Some, amounts, maybe

ROOMY = "n1"


@dataclass
class Pdb:
    """A budget of these pods, of which ``allowed`` may be evicted now."""

    pods: Collection[str]
    allowed: int = 0


@dataclass
class World:
    """Everything that a plan needs. A node without a number has room for all pods."""

    leaves: Sequence[Leaf] = ()
    groups: Sequence[TreeNode] = ()
    nodes: Mapping[str, Some] = field(default_factory=lambda: {ROOMY: None})
    options: Options = field(default_factory=Options)
    hard: Mapping[str, Some] = field(default_factory=dict)
    capacity: Some = None
    pdbs: Sequence[Pdb] = ()
    now: float = 0.0
    created: dict[PodUid, str] = field(default_factory=dict)
    """The creation time of pods that are not created when they are placed."""

    def __post_init__(self) -> None:
        self.book = ElasticBook(self.options, UNITS)
        assert self.book.set_quotas(self.leaves, self.groups, maybe(self.capacity)) == ()
        self.sizes = {name: maybe(size) for name, size in self.nodes.items()}
        self.on: dict[str, dict[PodUid, Member]] = {name: {} for name in self.nodes}
        self.born = 0
        self.fitted = 0

    # Pods.

    def runs(self, name: str, held: int | Mapping[str, int], node: str = ROOMY, *, priority: int = 0,
             preemptible: bool = True, since: float | None = None, running: bool = True) -> Member:  # fmt: skip
        """A pod that holds quota and devices; each is newer than the one before."""
        claim = the_claim(name, held, priority=priority, preemptible=preemptible)
        return self.place(claim, node, since=since, running=running)

    def place(
        self, claim: Claim, node: str, *, since: float | None = None, running: bool = True
    ) -> Member:
        self.born += 1
        member = Member(
            uid=claim.uid, namespace=claim.namespace, name=claim.name,
            created=self.created.get(claim.uid, f"{self.born:09}"), priority=claim.priority,
            vector=claim.vector, preemptible=claim.preemptible, node=node, since=since, running=running,
        )  # fmt: skip
        self.book.put(member)
        self.on[node][member.uid] = member
        return member

    def goes(self, uid: str) -> Member:
        member = self.book.member(PodUid(uid))
        assert member is not None
        self.book.drop(member.uid)
        del self.on[member.node][member.uid]
        return member

    def used(self, *namespaces: str) -> list[int]:
        """GB that the quotas of these namespaces use."""
        found = []
        for namespace in namespaces:
            leaf = self.book.leaf_of(namespace)
            assert leaf is not None
            found.append(sum(self.book.used(leaf).values()))
        return found

    # Plans.

    def plan(self, claim: Claim, spoken_for: Collection[PodUid] = ()) -> Plan | NoPlan:
        ground = WorldGround(self, claim)
        return plan(self.book, claim, ground, self, self.options, self.now, spoken_for)

    def asks(self, name: str, asked: int | Mapping[str, int], *, priority: int = 0,
             preemptible: bool = True, never: bool = False) -> Plan | NoPlan:  # fmt: skip
        return self.plan(
            the_claim(name, asked, priority=priority, preemptible=preemptible, never=never)
        )

    def evicts(self, found: Plan | NoPlan) -> list[str]:
        """Carry out a plan: victims go, the claimant comes. Returns the victims; none without a
        plan.
        """
        if isinstance(found, NoPlan):
            return []
        for victim in found.victims:
            self.goes(victim.uid)
        claim = replace(found.claim, vector=found.vector)
        assert self.book.refusals(claim) == ()
        assert WorldGround(self, claim).fits(found.node, ()) is not None
        self.place(claim, found.node)
        return [victim.uid for victim in found.victims]

    def gets(self, name: str, asked: int | Mapping[str, int], **how: int) -> list[str]:
        """The pod asks, and victims go if necessary."""
        return self.evicts(self.asks(name, asked, **how))

    def enters(self, claim: Claim) -> bool:
        """The pod gets in where there is room, without evictions."""
        ground = WorldGround(self, claim)
        node = next(iter(ground.open_nodes()), None)
        if node is None or self.book.refusals(claim):
            return False
        self.place(claim, node)
        return True

    # Budgets.

    def counting(self, member: Member) -> Mapping[str, int]:
        return {str(n): pdb.allowed for n, pdb in enumerate(self.pdbs) if member.uid in pdb.pods}


def the_claim(name: str, asked: int | Mapping[str, int], *, priority: int = 0,
              preemptible: bool = True, never: bool = False) -> Claim:  # fmt: skip
    where, _, short = name.rpartition("/")
    return Claim(
        uid=PodUid(name), namespace=where, name=short, priority=priority,
        vector=amounts(asked), preemptible=preemptible, never_preempts=never,
    )  # fmt: skip


@dataclass
class WorldGround:
    """A claimant's view: it fits where the sums fit and its namespace's hard limits hold."""

    world: World
    claim: Claim

    def nodes(self) -> Sequence[str]:
        return list(self.world.on)

    def open_nodes(self) -> Sequence[str]:
        return [name for name in self.world.on if self.fits(name, ()) is not None]

    def members_on(self, node: str) -> Collection[PodUid]:
        return list(self.world.on[node])

    def short_of_quota(self) -> bool:
        return not self._admitted(())

    def fits(self, node: str, without: Collection[PodUid]) -> Amounts | None:
        self.world.fitted += 1
        size = self.world.sizes[node]
        if not self._admitted(without):
            return None
        if size is not None:
            used = total(m for uid, m in self.world.on[node].items() if uid not in without)
            asked = self.claim.vector
            if any(used[r] + asked.get(r, 0) > most for r, most in size.items() if asked.get(r)):
                return None
        return self.claim.vector

    def _admitted(self, without: Collection[PodUid]) -> bool:
        hard = maybe(self.world.hard.get(self.claim.namespace))
        if hard is None:
            return True
        members = self.world.book.in_namespace(self.claim.namespace)
        there = {m.uid: m for on in self.world.on.values() for m in on.values()}
        used = total(
            m for m in there.values()
            if m.namespace == self.claim.namespace and m.uid not in without
        )  # fmt: skip
        assert {m.uid for m in members} <= there.keys()
        return all(used[r] + self.claim.vector.get(r, 0) <= most for r, most in hard.items())


def total(members: Iterable[Member]) -> Counter[str]:
    found: Counter[str] = Counter()
    for member in members:
        found.update(member.vector)
    return found


def doc(a: int = 4, b: int = 4, c: int = 0, **how: object) -> World:
    """nos' example with this many 10 GB pods in each quota: t1 unchanged, t2 is 5, 3, 0."""
    from .builders import A, B, C

    world = World(**{"leaves": (A, B, C), **how})  # type: ignore[arg-type]
    for namespace, number in (("a", a), ("b", b), ("c", c)):
        for i in range(1, number + 1):
            world.runs(f"{namespace}/p{i}", 10)
    return world
