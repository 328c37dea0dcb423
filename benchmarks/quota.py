"""Quota: whether a pod may have what it asks and its charge, in one step, beside many others."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.rows import Row, p50, p99, ratio
from hami.domain.allocations import ContainerAllocation, ContainerKind, PodAllocation
from hami.domain.devices import Grant
from hami.domain.objects import (
    Container,
    Metadata,
    Pod,
    PodSpec,
    ResourceQuota,
    ResourceQuotaSpec,
    Resources,
)
from hami.domain.units import CorePercent, DeviceId, MemoryMiB, PodUid, VendorKey
from hami.plugins import Vendors, load_vendors
from hami.policy.quota.elastic import (
    GPU_MEMORY,
    Claim,
    ElasticBook,
    Leaf,
    Member,
    Options,
    TreeNode,
)
from hami.policy.quota.elastic_ledger import ElasticLedger

PODS, QUOTAS, GROUPS = 10_000, 500, 20
RUNS = 20_000
MOST_US, MOST_GROWTH = 50.0, 4.0
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
    limits = {
        "nvidia.com/gpu": "1",
        "nvidia.com/gpumem": str(MEMORY),
        "cpu": "1500m",
        "memory": "4Gi",
    }
    return Pod(
        metadata=Metadata(name=f"pod-{number}", namespace=namespace, uid=PodUid(f"pod-{number}")),
        spec=PodSpec(containers=[Container(name="main", resources=Resources(limits=limits))]),
    )


class World:
    """Pods in the namespaces of quotas, each with a ResourceQuota, a quota, a group above it.

    There is room for every further pod: a refusal would be quicker than a charge.
    """

    def __init__(self, vendors: Vendors, pods: int, quotas: int) -> None:
        self.ledger = ElasticLedger(vendors)
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

    def set_quotas(self) -> None:
        leaves = [self._leaf(name, number) for number, name in enumerate(self.namespaces)]
        nodes = [TreeNode(name=f"group-{i}", own={}, max={"cpu": 10**9}) for i in range(GROUPS)]
        assert self.ledger.set_elastic(leaves, nodes, None, lambda _: ()) == ()

    def _leaf(self, name: str, number: int) -> Leaf:
        each = self._each
        return Leaf(
            namespace=name,
            name="quota",
            namespaces=(name,),
            parent=f"group-{number % GROUPS}",
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
    """Seconds: all of a reservation, and what elastic quota alone takes of it."""

    reserve: float
    elastic: float


def time_reserves(world: World, runs: int) -> Iterator[Times]:
    """Pods that come and go in one namespace or another; as many stay as before."""
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
    """One quota, half of it over: a pod ends, another comes, and who is over is asked."""
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


def measure() -> list[Row]:
    """With 10 000 pods and 500 quotas, and against a hundredth of both."""
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
    over, over_of_few = time_over_quota(5000, 4000), time_over_quota(50, 4000)
    gc.unfreeze()
    whole, elastic = [each.reserve for each in taken], [each.elastic for each in taken]
    return [
        Row(
            what="Quota: check and charge a pod, 10 000 pods, 500 quotas of each kind, p99",
            value=us(p99(whole)),
            unit="us",
            most=MOST_US,
            seen=f"p50 {us(p50(whole)):g} us; all quotas replaced in {swapped * 1000:.1f} ms",
        ),
        Row(
            what="Elastic quota: its part of that, p99",
            value=us(p99(elastic)),
            unit="us",
            most=MOST_US,
            seen=f"p50 {us(p50(elastic)):g} us",
        ),
        Row(
            what="Elastic quota: its part, 10 000 pods and 500 quotas against 100 and 5, p50",
            value=ratio(p50(elastic), p50(less)),
            unit="x",
            most=MOST_GROWTH,
            seen=f"{us(p50(elastic)):g} us, {us(p50(less)):g} us",
        ),
        Row(
            what="Elastic quota: a pod for another, who is over, quota of 5000 against 50, p50",
            value=ratio(p50(over), p50(over_of_few)),
            unit="x",
            most=MOST_GROWTH,
            seen=f"{us(p50(over)):g} us, {us(p50(over_of_few)):g} us",
        ),
    ]


def us(seconds: float) -> float:
    return round(seconds * 1e6, 1)
