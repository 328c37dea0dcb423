"""Quota: check and charge a pod in one step, beside many other pods."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from benchmarks.rows import Row, ms, p50, p99, ratio
from hami.domain.allocations import ContainerAllocation, ContainerKind, PodAllocation
from hami.domain.devices import Grant
from hami.domain.kubernetes.objects import (
    Container,
    Metadata,
    Pod,
    PodSpec,
    ResourceQuota,
    ResourceQuotaSpec,
    Resources,
)
from hami.domain.units import CorePercent, DeviceId, MemoryMiB, PodUid, VendorKey
from hami.kube.pace import Turns
from hami.policy.quota import QuotaLedger
from hami.policy.quota.elastic import (
    GPU_MEMORY,
    Claim,
    ElasticBook,
    Leaf,
    Member,
    Options,
    TreeNode,
)
from hami.scheduler.bookings.quotas.elastic_levels import all_levels, levels_of
from hami.vendors.registry import Vendors, load_vendors

PODS, QUOTAS, GROUPS = 10_000, 500, 20
RUNS, PORTION = 40_000, 2000
FIRST_CREATED = 1_700_000_000
"""Seconds since 1970."""
MOST_US, MOST_GROWTH, MOST_LEVELS = 50.0, 4.0, 20.0
MEMORY = MemoryMiB(8000)
ONE = PodAllocation(
    node="node-1",
    containers=(
        ContainerAllocation(
            name="main",
            kind=ContainerKind.APP,
            grants=(
                Grant(
                    device_id=DeviceId("GPU-1"),
                    vendor=VendorKey("NVIDIA"),
                    memory_mib=MEMORY,
                    cores=CorePercent(10),
                ),
            ),
        ),
    ),
)


def a_pod(number: int, namespace: str) -> Pod:
    """A pod as the API server stores it: with a creation time and filled-in requests."""
    limits = {
        "nvidia.com/gpu": "1",
        "nvidia.com/gpumem": str(MEMORY),
        "cpu": "1500m",
        "memory": "4Gi",
    }
    created = datetime.fromtimestamp(FIRST_CREATED + number, UTC)
    about = Metadata(
        name=f"pod-{number}",
        namespace=namespace,
        uid=PodUid(f"pod-{number}"),
        creation_timestamp=created.strftime("%Y-%m-%dT%H:%M:%SZ"),
    )
    resources = Resources(limits=limits, requests=dict(limits))
    spec = PodSpec(containers=[Container(name="main", resources=resources)])
    return Pod(metadata=about, spec=spec)


class World:
    """Pods in namespaces that each have a ResourceQuota, an elastic quota and a group above it.

    There is room for every further pod, because a refusal would be quicker than a charge.
    """

    def __init__(self, vendors: Vendors, pods: int, quotas: int) -> None:
        self.ledger = QuotaLedger(vendors)
        self.namespaces = [f"team-{number}" for number in range(quotas)]
        self._each = -(-pods // quotas) + 10
        self.set_quotas()
        for name in self.namespaces:
            memory = self._each * MEMORY
            hard = {"limits.nvidia.com/gpumem": str(memory), "limits.nvidia.com/gpu": "999"}
            quota = ResourceQuota(
                metadata=Metadata(name="quota", namespace=name), spec=ResourceQuotaSpec(hard=hard)
            )
            assert self.ledger.set_quota(quota) == ()
        for number in range(pods):
            assert self.ledger.reserve(a_pod(number, self.namespaces[number % quotas]), ONE) == ()

    def set_quotas(self, *, grouped: bool = True) -> None:
        groups = GROUPS if grouped else 0
        leaves = [self._leaf(name, i, groups) for i, name in enumerate(self.namespaces)]
        nodes = [TreeNode(name=f"group-{i}", own={}, max={"cpu": 10**9}) for i in range(groups)]
        assert self.ledger.set_elastic(leaves, nodes, None, lambda _: ()) == ()

    def _leaf(self, name: str, number: int, groups: int) -> Leaf:
        each = self._each
        return Leaf(
            namespace=name,
            name="quota",
            namespaces=(name,),
            parent=f"group-{number % groups}" if groups else "",
            min={
                GPU_MEMORY: 8 * each,
                "nvidia.com/gpumem": each * MEMORY,
                "cpu": 1500 * each,
                "memory": each << 32,
            },
            max={GPU_MEMORY: 16 * each},
            borrow={"cpu": 10**6},
        )


class Times(NamedTuple):
    """Seconds: a whole reservation, and the part of it that elastic quota takes."""

    reserve: float
    elastic: float


def time_reserves(world: World, runs: int) -> Iterator[Times]:
    """Time pods that come and go in random namespaces; the number of pods stays the same."""
    dice = random.Random(0)
    book = world.ledger.elastic
    for number in range(runs):
        pod = a_pod(10**7 + number, dice.choice(world.namespaces))
        begin = time.perf_counter()
        refusals = world.ledger.reserve(pod, ONE)
        reserved = time.perf_counter() - begin
        assert refusals == ()
        member = book.member(pod.uid)
        assert member is not None
        book.drop(pod.uid)
        claim = Claim(uid=pod.uid, namespace=pod.namespace, name=pod.name, vector=member.vector)
        begin = time.perf_counter()
        refused = book.refusals(claim)
        book.put(member)
        elastic = time.perf_counter() - begin
        assert refused == ()
        world.ledger.release(pod.uid)
        yield Times(reserved, elastic)


def time_over_quota(pods: int, runs: int) -> list[float]:
    """Time one step with half of a quota over: a pod ends, another comes, who is over?"""
    leaf = Leaf(namespace="a", name="q", namespaces=("a",), min={GPU_MEMORY: pods // 2})
    book = ElasticBook(Options(pool="off"))
    book.set_quotas([leaf])
    members = [
        Member(
            uid=PodUid(f"u{i}"),
            namespace="a",
            name=f"p{i}",
            created=f"{i:08}",
            vector={GPU_MEMORY: 1},
        )
        for i in range(pods)
    ]
    for member in members:
        book.put(member)
    dice = random.Random(0)
    taken = []
    for _ in range(runs):
        member = dice.choice(members)
        begin = time.perf_counter()
        book.drop(member.uid)
        newest = next(book.over_quota(leaf))
        book.put(member)
        moved = book.moved(leaf)
        taken.append(time.perf_counter() - begin)
        assert book.is_over(newest.uid)
        assert member.uid in moved
    return taken


async def time_levels(book: ElasticBook) -> tuple[float, float]:
    """Time what a scrape shows of every quota, all at once; and of one quota alone."""
    every, one = [], []
    for leaf in book.leaves[:20]:
        begin = time.perf_counter()
        levels = await all_levels(book, Turns(rest=0))
        every.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        alone = list(levels_of(book, leaf))
        one.append(time.perf_counter() - begin)
        assert levels[leaf.key] == alone
    return min(every), min(one)


def quietest(seconds: Sequence[float]) -> float:
    """The lowest p99 of any portion of the runs.

    Other work of the machine makes some portions slower; a fault in the code makes all of them
    slower.
    """
    return min(p99(seconds[at : at + PORTION]) for at in range(0, len(seconds), PORTION))


def measure() -> list[Row]:
    """Measure 10 000 pods and 500 quotas, and compare with a hundredth of both."""
    vendors = load_vendors()
    few = World(vendors, PODS // 100, QUOTAS // 100)
    less = [taken.elastic for taken in time_reserves(few, RUNS // 4)]
    world = World(vendors, PODS, QUOTAS)
    gc.collect()
    gc.freeze()
    taken = list(time_reserves(world, RUNS))
    begin = time.perf_counter()
    world.set_quotas()
    swapped = time.perf_counter() - begin
    world.set_quotas(grouped=False)
    every, one = asyncio.run(time_levels(world.ledger.elastic))
    over, over_of_few = time_over_quota(5000, 4000), time_over_quota(50, 4000)
    gc.unfreeze()
    whole, elastic = [each.reserve for each in taken], [each.elastic for each in taken]
    return [
        Row(
            what="Quota: check and charge a pod, 10 000 pods, 500 quotas of each kind, p99",
            value=us(p99(whole)),
            unit="us",
            most=MOST_US,
            seen=f"{spread(whole)}; all quotas replaced in {swapped * 1000:.1f} ms",
        ),
        Row(
            what="Elastic quota: its part of that, p99",
            value=us(p99(elastic)),
            unit="us",
            most=MOST_US,
            seen=spread(elastic),
        ),
        Row(
            what="Elastic quota: its part, 10 000 pods and 500 quotas against 100 and 5, p50",
            value=ratio(p50(elastic), p50(less)),
            unit="x",
            most=MOST_GROWTH,
            seen=f"{us(p50(elastic)):g} us, {us(p50(less)):g} us",
        ),
        Row(
            what="Elastic quota: what a scrape shows of 500 quotas without groups, against one's",
            value=ratio(every, one),
            unit="x",
            most=MOST_LEVELS,
            seen=f"{ms(every)}, {ms(one)}",
        ),
        Row(
            what="Elastic quota: a pod for another, who is over, quota of 5000 against 50, p50",
            value=ratio(p50(over), p50(over_of_few)),
            unit="x",
            most=MOST_GROWTH,
            seen=f"{us(p50(over)):g} us, {us(p50(over_of_few)):g} us",
        ),
    ]


def spread(seconds: Sequence[float]) -> str:
    return (
        f"p50 {us(p50(seconds)):g} us, p99 of the quietest {PORTION} {us(quietest(seconds)):g} us"
    )


def us(seconds: float) -> float:
    return round(seconds * 1e6, 1)
