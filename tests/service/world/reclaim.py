"""A storm of claims: half the teams have borrowed what the others are guaranteed, who then ask for
all of it at once. Every evicted pod's owner makes it anew.

The test is kube-scheduler (one filter at a time, bindings beside it) and every kubelet.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
from hami_lab.cluster.definitions import definitions

from hami.domain.allocations import ContainerAllocation, ContainerKind, PodAllocation
from hami.domain.devices import Grant
from hami.domain.kubernetes.objects import Node, Pod
from hami.domain.units import CorePercent, DeviceId, MemoryMiB, VendorKey
from hami.kube.events import EventLimits
from hami.policy.tables.cluster_table import ClusterTable
from hami.scheduler.bookings.decision import annotations_of
from hami.scheduler.publish.publication import LABELS, STATUSES
from hami.vendors.registry import load_vendors

from .objects import Json, a_node, a_pod
from .process import Service, until
from .world import OURS, World

MEMORY, LABEL, WAKE_UP = "nos.nebuly.com/gpu-memory", "nos.nebuly.com/capacity", "hami.io/wake-up"
GB = 10
DEVICES, SLOTS = 8, 8
IN_VAIN = 0.1
"""How many wake-ups and calls per new pod may lead to nothing, on a busy machine."""
SILENCE = 60
"""Seconds without a wake-up after which the storm counts as stuck."""
ASKS = {"gpu": 1, "mem": GB * 1024}


@dataclass(frozen=True, kw_only=True)
class Size:
    """The size: this many teams borrow, and as many claim ``each`` pods."""

    teams: int
    each: int

    @property
    def claims(self) -> int:
        return self.teams * self.each

    @property
    def nodes(self) -> int:
        """As many nodes as the guarantees need, and no more."""
        return -(-2 * self.claims // (DEVICES * SLOTS))


@dataclass(frozen=True, kw_only=True)
class Written:
    """What the service wrote to the API server between the first claim and the rest after the last.

    ``seconds`` is how long that took, ``settled`` until every claim was bound; ``went`` pods were
    evicted, and ``came`` were bound. ``again``: calls that were refused or got no answer, so that
    they had to be made again. ``others``: whatever has no budget.
    """

    seconds: float
    settled: float
    went: int
    came: int
    evictions: int
    bindings: int
    wakes: int
    labels: int
    statuses: int
    events: int
    again: int
    others: dict[str, int]

    @property
    def all(self) -> int:
        return (
            self.evictions + self.bindings + self.wakes + self.labels + self.statuses + self.events
            + self.again + sum(self.others.values())
        )  # fmt: skip


def budget(written: Written, size: Size) -> dict[str, tuple[int, float]]:
    """The writes of each sort, and how many docs/quota.md allows."""
    limits, seconds = EventLimits(), written.seconds
    every_second = 2 * 2 * size.teams * (1 + seconds)
    return {
        "evictions, one for each pod that goes": (written.evictions, written.went),
        "bindings, one for each pod that comes": (written.bindings, written.came),
        "wake-ups, one for each pod that comes, and a few in vain": (
            written.wakes,
            (1 + IN_VAIN) * written.came,
        ),
        "labels, one for each pod that comes or changes sides": (written.labels, written.came),
        "labels, so many a second": (written.labels, LABELS * (2 + seconds)),
        "statuses, two a second for each quota": (written.statuses, every_second),
        "statuses, so many a second": (written.statuses, STATUSES * (2 + seconds)),
        "events, so many a second": (written.events, limits.burst + limits.rate * seconds),
        "calls that failed": (written.again, IN_VAIN * written.came),
        "anything else": (sum(written.others.values()), 0),
    }


class ReclaimStorm:
    """``prepare`` and then ``run``."""

    def __init__(self, world: World, size: Size) -> None:
        self.world, self.size = world, size
        self.errors: Counter[str] = Counter()
        """Binds that failed, as the service said it."""
        self._queue: deque[Json] = deque()
        self._woken: asyncio.Queue[Json] = asyncio.Queue()
        self._touched: Counter[str] = Counter()
        self._left: set[str] = set()
        self._assumed: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._names = [f"n{number}" for number in range(size.nodes)]
        world.server.on_change(self._seen)

    # What there is at first.

    async def prepare(self) -> None:
        size, server = self.size, self.world.server
        for definition in definitions():
            await server.create(definition)
        for node in range(size.nodes):
            await server.create(_node(node))
        for team in range(size.teams):
            for kind in ("lends", "borrows"):
                await self.world.add_namespace(f"{kind}-{team}")
                await server.create(
                    {
                        "apiVersion": "nos.nebuly.com/v1alpha1",
                        "kind": "ElasticQuota",
                        "metadata": {"name": "quota", "namespace": f"{kind}-{team}"},
                        "spec": {"min": {MEMORY: GB * size.each}},
                    }
                )
        for pod in self._borrowers():
            await server.create(pod)

    def _borrowers(self) -> Iterator[Json]:
        """Pods that were bound by the scheduler and labelled as nos does it."""
        vendors = load_vendors()
        table = ClusterTable(vendors)
        for node in range(self.size.nodes):
            table.set_node(msgspec.convert(_node(node), Node))
        for number in range(2 * self.size.claims):
            team, place = number % self.size.teams, number // self.size.teams
            slot, index = divmod(number // self.size.nodes, DEVICES)
            assert slot < SLOTS
            pod = a_pod(f"p{place:05}", namespace=f"borrows-{team}", **ASKS)
            node = f"n{number % self.size.nodes}"
            allocation = PodAllocation(node=node, containers=(_slice(f"GPU-{node}-{index}"),))
            read = msgspec.convert(pod, Pod)
            pod["metadata"]["annotations"] |= annotations_of(
                read, allocation, table, datetime.now(UTC)
            )
            pod["metadata"]["labels"] = {
                LABEL: "in-quota" if place < self.size.each else "over-quota"
            }
            pod["spec"]["nodeName"] = node
            pod["status"] = {"phase": "Running"}
            yield pod

    # The storm.

    async def run(self, service: Service) -> Written:
        await self.rest(service)
        self.world.calls.clear()
        self._touched.clear()
        begin = time.perf_counter()
        for number in range(self.size.claims):
            team = number % self.size.teams
            pod = await self.world.add_pod(f"c{number:05}", namespace=f"lends-{team}", **ASKS)
            self._left.add(pod["metadata"]["uid"])
            self._queue.append(pod)
        quiet = 0
        while self._left:
            try:
                pod = self._queue.popleft() if self._queue else await self._next_woken()
            except TimeoutError:
                quiet += 1
                assert quiet < SILENCE, f"{len(self._left)} wait\n{service.last_lines()}"
                continue
            quiet = 0
            await self._schedule(service, pod)
        settled = time.perf_counter() - begin
        while self._tasks:
            await asyncio.gather(*self._tasks)
        await self.rest(service)
        return self._written(time.perf_counter() - begin, settled)

    async def _next_woken(self) -> Json:
        async with asyncio.timeout(1.0):
            return await self._woken.get()

    async def _schedule(self, service: Service, pod: Json) -> None:
        now, uid = self.world.now(pod), pod["metadata"]["uid"]
        if now is None or now["spec"].get("nodeName") or uid in self._assumed:
            return
        answer = await self.world.filter(service, pod, *self._names)
        assert not answer.error, answer
        if answer.node:
            self._assumed.add(uid)
            self._begin(self._bind(service, pod, answer.node))

    async def _bind(self, service: Service, pod: Json, node: str) -> None:
        error = await self.world.bind(service, pod, node)
        self._assumed.discard(pod["metadata"]["uid"])
        if error:
            self.errors[error] += 1
            await asyncio.sleep(1.0)  # As long as kube-scheduler backs off.
            self._woken.put_nowait(pod)
            return
        self._left.discard(pod["metadata"]["uid"])
        if self.world.there(pod):
            await self.world.set_status(pod, phase="Running")

    async def _ends(self, pod: Json) -> None:
        """The victim's kubelet ends it, and its owner makes another."""
        await self.world.remove(pod)
        again = await self.world.add_pod(
            f"{pod['metadata']['name']}r", namespace=pod["metadata"]["namespace"], **ASKS
        )
        self._woken.put_nowait(again)

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _seen(self, plural: str, kind: str, now: Json, before: Json | None) -> None:
        if plural != "pods" or kind != "MODIFIED" or before is None:
            return
        about, was = now["metadata"], before["metadata"]
        if now["spec"].get("nodeName") and not before["spec"].get("nodeName"):
            self._touched["came"] += 1
        if "deletionTimestamp" in about and "deletionTimestamp" not in was:
            self._touched["went"] += 1
            self._begin(self._ends(now))
        woken = about.get("annotations", {}).get(WAKE_UP)
        if woken != was.get("annotations", {}).get(WAKE_UP):
            self._touched["wakes"] += 1
            self._woken.put_nowait(now)
        if about.get("labels", {}).get(LABEL) != was.get("labels", {}).get(LABEL):
            self._touched["labels"] += 1

    # What comes of it.

    @property
    def labelled(self) -> int:
        """How many labels were changed so far."""
        return self._touched["labels"]

    async def rest(self, service: Service) -> None:
        """Wait until nothing more is written, and check what quotas and pods then say."""
        await until("every quota says what is used", self._said, story=service.last_lines)
        await until("every pod is labelled", self._labelled, story=service.last_lines)
        before = -1
        while before != (before := self._count()):
            await asyncio.sleep(2.0)

    def _said(self) -> bool:
        quotas = self.world.server.objects("elasticquotas", group="nos.nebuly.com")
        held = Counter(
            pod["metadata"]["namespace"]
            for pod in self.world.books.pods.values()
            if pod["spec"].get("nodeName") and pod.get("status", {}).get("phase") == "Running"
        )
        return all(
            str(quota.get("status", {}).get("used", {}).get(MEMORY))
            == str(GB * held[quota["metadata"]["namespace"]])
            for quota in quotas
        )

    def _labelled(self) -> bool:
        return all(
            LABEL in pod["metadata"].get("labels", {})
            for pod in self.world.books.pods.values()
            if pod["spec"].get("nodeName")
        )

    def _count(self) -> int:
        return self.world.calls.count(user_agent=OURS, writes=True)

    def _written(self, seconds: float, settled: float) -> Written:
        kinds: Counter[str] = Counter()
        again = 0
        for call, times in self.world.calls:
            if call.user_agent.startswith(OURS) and call.verb in ("create", "patch", "update"):
                what = f"{call.resource}/{call.subresource}".removesuffix("/")
                if call.status not in (200, 201):
                    again += times
                    continue
                kinds[_KINDS.get((call.verb, what), f"{call.verb} {what}")] += times
        kinds.pop("leases", None)
        touches = kinds.pop("touches", 0)
        wakes, labels = self._touched["wakes"], self._touched["labels"]
        named = {name: kinds.pop(name, 0) for name in ("evictions", "bindings", "statuses", "events")}  # fmt: skip
        if touches > wakes + labels:  # They changed nothing.
            kinds["patch pods in vain"] = touches - wakes - labels
        return Written(
            seconds=seconds,
            settled=settled,
            went=self._touched["went"],
            came=self._touched["came"],
            wakes=wakes,
            labels=labels,
            again=again,
            others=dict(kinds),
            **named,
        )


_KINDS = {
    ("create", "pods/eviction"): "evictions",
    ("create", "pods/binding"): "bindings",
    ("patch", "pods"): "touches",
    ("patch", "elasticquotas"): "statuses",
    ("patch", "elasticquotas/status"): "statuses",
    ("create", "events"): "events",
    ("patch", "events"): "events",
    ("create", "leases"): "leases",
    ("update", "leases"): "leases",
    ("patch", "leases"): "leases",
}


def _node(number: int) -> Json:
    return a_node(f"n{number}", devices=DEVICES, memory=SLOTS * GB * 1024, slots=SLOTS)


def _slice(device: str) -> ContainerAllocation:
    grant = Grant(
        device_id=DeviceId(device),
        vendor=VendorKey("NVIDIA"),
        memory_mib=MemoryMiB(GB * 1024),
        cores=CorePercent(0),
    )
    return ContainerAllocation(name="main", kind=ContainerKind.APP, grants=(grant,))
