"""Whom to evict: one plan on a whole cluster, and a storm of claimants that settles; in process."""

from __future__ import annotations

import gc
import time
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.rows import Row, ms, p50, p99, ratio
from hami.domain.units import PodUid
from hami.policy.quota.elastic import GPU_MEMORY, Amounts, Claim, ElasticBook, Leaf, Member, Options
from hami.policy.quota.elastic.plans.ground import NoBudgets
from hami.policy.quota.elastic.plans.plan import NoPlan, Plan, plan

QUOTAS, PODS, NODES, CLAIMANTS = 500, 10_000, 5_000, 5_000
MORE = 10
RUNS = 200
MOST_MS, MOST_GROWTH = 20.0, 5.0
GB = 10


@dataclass
class Cluster:
    """A cluster where the first half of the quotas has borrowed everything of the other half.

    Each pod holds 10 GB. ``spare``: GB that every node has beyond what its pods hold.
    """

    pods: int = PODS
    quotas: int = QUOTAS
    nodes: int = NODES
    spare: int = 0
    options: Options = field(default_factory=Options)

    def __post_init__(self) -> None:
        self.book = ElasticBook(self.options)
        guarantee = {GPU_MEMORY: GB * self.pods // self.quotas}
        self.book.set_quotas(
            [
                Leaf(namespace=f"ns{i}", name="q", namespaces=(f"ns{i}",), min=guarantee)
                for i in range(self.quotas)
            ]
        )
        self.names = [f"n{i}" for i in range(self.nodes)]
        self.on: dict[str, dict[PodUid, Member]] = {name: {} for name in self.names}
        self.used: Counter[str] = Counter()
        self.held: dict[PodUid, Member] = {}
        self.born = 0
        for i in range(self.pods):
            claim = a_claim(i % (self.quotas // 2), f"p{i}", priority=i % 3)
            self.place(claim, self.names[i % self.nodes])
        self.size = max(self.used.values()) + self.spare

    def place(self, claim: Claim, node: str) -> None:
        self.born += 1
        member = Member(
            uid=claim.uid,
            namespace=claim.namespace,
            name=claim.name,
            created=f"{self.born:09}",
            priority=claim.priority,
            vector=claim.vector,
            node=node,
        )
        self.book.put(member)
        self.held[member.uid] = self.on[node][member.uid] = member
        self.used[node] += claim.vector[GPU_MEMORY]

    def goes(self, victim: Member) -> None:
        self.book.drop(victim.uid)
        del self.held[victim.uid], self.on[victim.node][victim.uid]
        self.used[victim.node] -= victim.vector[GPU_MEMORY]

    def plan(self, claim: Claim) -> Plan | NoPlan:
        ground = Devices(self, claim)
        return plan(self.book, claim, ground, NoBudgets(), self.options, 0.0)


@dataclass(slots=True)
class Devices:
    """The devices as a plan sees them: a claimant fits where the sums fit."""

    cluster: Cluster
    claim: Claim

    def nodes(self) -> Sequence[str]:
        return self.cluster.names

    def open_nodes(self) -> Sequence[str]:
        """One node with room; a claimant would be charged the same on all of them."""
        if not self.cluster.spare:
            return ()
        return [next(name for name in self.cluster.names if self.fits(name, ()) is not None)]

    def members_on(self, node: str) -> Collection[PodUid]:
        return self.cluster.on[node]

    def short_of_quota(self) -> bool:
        return False

    def fits(self, node: str, without: Collection[PodUid]) -> Amounts | None:
        here = self.cluster.on[node]
        gone = sum(here[uid].vector[GPU_MEMORY] for uid in without if uid in here)
        asked = self.claim.vector
        room = self.cluster.size - self.cluster.used[node] + gone
        return asked if asked[GPU_MEMORY] <= room else None


def a_claim(quota: int, name: str, *, priority: int = 0, asked: int = GB) -> Claim:
    return Claim(
        uid=PodUid(f"ns{quota}/{name}"),
        namespace=f"ns{quota}",
        name=name,
        priority=priority,
        vector={GPU_MEMORY: asked},
    )


@dataclass(frozen=True, kw_only=True)
class Case:
    """What every node has to spare in GB, who asks, and the kind of plan; empty for no plan."""

    spare: int = GB
    quota: int
    priority: int = 0
    kind: str

    def claim(self, number: int) -> Claim:
        return a_claim(self.quota + number % 50, f"c{number}", priority=self.priority)


CASES: Mapping[str, Case] = {
    "quota to be given back": Case(quota=QUOTAS // 2, kind="reclaim"),
    "devices to be given back": Case(quota=QUOTAS // 2, spare=0, kind="reclaim"),
    "lower priority in its quota": Case(quota=0, priority=9, kind="own"),
    "nobody may be evicted": Case(quota=0, kind=""),
}


def measure() -> list[Row]:
    few = {name: _times(case, PODS) for name, case in CASES.items()}
    many = {name: _times(case, MORE * PODS) for name, case in CASES.items()}
    rows = [
        Row(
            what=f"Plan: {name}, p99, {PODS} pods, {QUOTAS} quotas, {NODES} nodes",
            value=round(p99(few[name]) * 1000, 2),
            unit="ms",
            most=MOST_MS,
            seen=f"p50 {ms(p50(few[name]))}",
        )
        for name in CASES
    ]
    rows += [
        Row(
            what=f"Plan: {name}, p50, {MORE} x as many pods",
            value=ratio(p50(many[name]), p50(few[name])),
            unit="x",
            most=MOST_GROWTH,
            seen=f"p50 {ms(p50(many[name]))}",
        )
        for name in CASES
    ]
    return [*rows, _storm()]


def _times(case: Case, pods: int) -> list[float]:
    """Processor time of each plan, since nothing here waits; the first plans only warm up."""
    cluster = Cluster(pods=pods, spare=case.spare)
    taken = []
    gc.collect()
    gc.disable()
    try:
        for i in range(RUNS + 10):
            claim = case.claim(i)
            begin = time.process_time()
            found = cluster.plan(claim)
            taken.append(time.process_time() - begin)
            assert (found.kind if isinstance(found, Plan) else "") == case.kind, found
    finally:
        gc.enable()
    return taken[10:]


def _storm() -> Row:
    """Many pods claim their guarantee at once; evicted pods try again until nothing moves.

    The evicted pods' priorities differ, so some of them evict other pods of their quota in turn.
    """
    cluster = Cluster()
    waiting = deque(a_claim(QUOTAS // 2 + i % (QUOTAS // 2), f"c{i}") for i in range(CLAIMANTS))
    plans, evicted, idle = 0, 0, 0
    begin = time.process_time()
    while waiting and idle < len(waiting):
        claim = waiting.popleft()
        found = cluster.plan(claim)
        plans += 1
        if isinstance(found, NoPlan):
            waiting.append(claim)
            idle += 1
            continue
        idle = 0
        for victim in found.victims:
            cluster.goes(victim)
            evicted += 1
            quota = int(victim.namespace.removeprefix("ns"))
            waiting.append(a_claim(quota, f"{victim.name}r", priority=victim.priority))
        cluster.place(claim, found.node)
    seconds = time.process_time() - begin
    served = sum(1 for uid in cluster.held if uid.rpartition("/")[2].startswith("c"))
    assert served == CLAIMANTS, f"{served} of {CLAIMANTS} got what they are guaranteed"
    return Row(
        what=f"Plan: {CLAIMANTS} pods claim their minimum at once, until nothing moves",
        value=round(seconds / plans * 1000, 2),
        unit="ms a plan",
        seen=f"{plans} plans in {seconds:.1f} s, {evicted} evicted, {len(waiting)} wait",
    )
