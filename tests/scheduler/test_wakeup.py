"""Who is woken when capacity comes free, and who is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from hami.domain.scheduling import SchedulingPolicy
from hami.policy.filter import Refused
from hami.scheduler.metrics import Metrics
from hami.scheduler.waiting import Refusal
from hami.scheduler.wakeup import AT_ONCE, WakeUp

from .builders import Cluster, a_node, a_pod, a_quota, ended, granted


class Patches:
    """The API server as far as a wake-up sees it; ``filtered`` plays kube-scheduler."""

    def __init__(self) -> None:
        self.woken: list[str] = []

    async def patch(self, _resource: Any, name: str, patch: Any, *, namespace: str) -> None:
        assert patch["metadata"]["annotations"]["hami.io/wake-up"]
        self.woken.append(name)


class Leads:
    leading = True
    term = 1
    holder = ""


@asynccontextmanager
async def waking(cluster: Cluster) -> AsyncIterator[Patches]:
    patches = Patches()
    wakeup = WakeUp(
        cluster.state, patches, Leads(), Metrics(), policy=SchedulingPolicy, clock=cluster.clock
    )  # type: ignore[arg-type]
    task = asyncio.create_task(wakeup.run())
    try:
        yield patches
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def refuse(cluster: Cluster, *pods: Any, nodes: list[str] | None = None) -> None:
    """As a filter does it."""
    names = nodes or list(cluster.state.nodes)
    for pod in pods:
        cluster.sees(pod)
        outcome = cluster.reserve(pod, *names)
        assert isinstance(outcome, Refused), pod.name
        if cluster.state.waiting.refused(pod, names, Refusal(at=0, outcome=outcome)):
            cluster.state.freed.set()


async def settled(patches: Patches) -> list[str]:
    before = -1
    while before != len(patches.woken):
        before = len(patches.woken)
        await asyncio.sleep(0.03)
    return patches.woken


def full(cluster: Cluster, node: str = "n1", name: str = "full") -> Any:
    pod = granted(a_pod(name, mem=8000), node, f"{node}-d0:8000")
    cluster.sees(pod)
    return pod


async def test_a_pod_is_woken_when_the_pod_in_its_way_ends() -> None:
    cluster = Cluster(a_node())
    holder = full(cluster)
    refuse(cluster, a_pod("waits", mem=3000))
    async with waking(cluster) as patches:
        cluster.sees(ended(holder))
        assert await settled(patches) == ["waits"]


async def test_as_many_are_woken_as_fit_together_the_most_urgent_first() -> None:
    cluster = Cluster(a_node())
    holder = full(cluster)
    refuse(
        cluster,
        a_pod("late", mem=3000, created="2026-01-03"),
        a_pod("early", mem=3000, created="2026-01-01"),
        a_pod("urgent", mem=3000, created="2026-01-02", priority=10),
    )
    async with waking(cluster) as patches:
        cluster.state.pod_gone(holder)
        assert await settled(patches) == ["urgent", "early"]


async def test_what_is_free_afterwards_is_what_was_free_before() -> None:
    cluster = Cluster(a_node())
    cluster.state.quota_changed(a_quota(mem="20000"))
    holder = full(cluster)
    refuse(cluster, a_pod("waits", mem=3000))
    async with waking(cluster) as patches:
        cluster.state.pod_gone(holder)
        await settled(patches)
        assert cluster.used() == (0, 0)
        assert cluster.state.ledger.used("default", "q") == {"acme.com/mem": 0}


async def test_the_next_one_is_tried_when_the_woken_one_is_refused_again() -> None:
    cluster = Cluster(a_node())
    holder = full(cluster)
    first, second = a_pod("first", mem=8000, created="1"), a_pod("second", mem=8000, created="2")
    refuse(cluster, first, second)
    async with waking(cluster) as patches:
        cluster.state.pod_gone(holder)
        assert await settled(patches) == ["first"]
        # A plugin of kube-scheduler keeps the first away from the node by now.
        names = ["n2"]
        outcome = cluster.reserve(first, *names)
        cluster.state.waiting.refused(first, names, Refusal(at=0, outcome=outcome))
        cluster.state.freed.set()
        assert await settled(patches) == ["first", "second"]


async def test_a_woken_pod_that_never_comes_stops_to_be_in_the_way() -> None:
    cluster = Cluster(a_node())
    holder = full(cluster)
    refuse(cluster, a_pod("first", mem=8000, created="1"), a_pod("second", mem=8000, created="2"))
    async with waking(cluster) as patches:
        cluster.state.pod_gone(holder)
        assert await settled(patches) == ["first"]
        cluster.clock.now += 60
        cluster.state.freed.set()
        assert await settled(patches) == ["first", "second"]


async def test_one_wake_up_for_each_change() -> None:
    cluster = Cluster(a_node())
    holder = full(cluster)
    pod = a_pod("waits", mem=3000)
    refuse(cluster, pod)
    async with waking(cluster) as patches:
        cluster.state.pod_gone(holder)
        await settled(patches)
        for _ in range(5):
            cluster.state.freed.set()
            await settled(patches)
        assert patches.woken == ["waits"]


async def test_capacity_on_a_node_that_was_not_offered_is_not_for_the_pod() -> None:
    cluster = Cluster(a_node("n1"), a_node("n2"))
    first, second = full(cluster, "n1", "full-1"), full(cluster, "n2", "full-2")
    refuse(cluster, a_pod("waits", mem=3000), nodes=["n1"])
    async with waking(cluster) as patches:
        cluster.state.pod_gone(second)
        assert await settled(patches) == []
        cluster.state.pod_gone(first)
        assert await settled(patches) == ["waits"]


async def test_after_a_restart_every_node_counts_as_offered() -> None:
    cluster = Cluster()
    cluster.state.following = True
    holder = granted(a_pod("holder", mem=8000), "n1", "n1-d0:8000")
    cluster.sees(holder, a_pod("waits", mem=3000))
    cluster.state.node_changed(a_node())
    async with waking(cluster) as patches:
        assert await settled(patches) == []
        cluster.state.pod_gone(holder)
        assert await settled(patches) == ["waits"]


async def test_a_new_pod_is_left_to_kube_scheduler() -> None:
    cluster = Cluster(a_node())
    holder = full(cluster)
    cluster.sees(a_pod("new", mem=3000))
    async with waking(cluster) as patches:
        cluster.state.pod_gone(holder)
        assert await settled(patches) == []


async def test_quota_that_frees_wakes_and_quota_that_is_still_spent_does_not() -> None:
    cluster = Cluster(a_node(devices=4))
    cluster.state.quota_changed(a_quota(mem="4000"))
    holder = granted(a_pod("holder", mem=4000), "n1", "n1-d0:4000")
    cluster.sees(holder)
    refuse(cluster, a_pod("waits", mem=3000), a_pod("too-big", mem=5000))
    other = granted(a_pod("other", mem=1000, namespace="other"), "n1", "n1-d1:1000")
    cluster.sees(other)
    async with waking(cluster) as patches:
        cluster.state.pod_gone(other)
        assert await settled(patches) == []
        cluster.state.pod_gone(holder)
        assert await settled(patches) == ["waits"]


async def test_a_raised_quota_and_a_new_node_wake() -> None:
    cluster = Cluster(a_node())
    cluster.state.quota_changed(a_quota(mem="1000"))
    refuse(cluster, a_pod("poor", mem=2000), a_pod("rich", mem=9000, namespace="rich"))
    async with waking(cluster) as patches:
        cluster.state.quota_changed(a_quota(mem="2000"))
        assert await settled(patches) == ["poor"]
        cluster.state.waiting.pods["uid-rich-rich"].offered = None
        cluster.state.node_changed(a_node("n2", memory=10000))
        assert await settled(patches) == ["poor", "rich"]


async def test_a_storm_is_woken_in_portions() -> None:
    cluster = Cluster(a_node(devices=16))
    holders = [granted(a_pod(f"h{i}", mem=8000), "n1", f"n1-d{i}:8000") for i in range(16)]
    cluster.sees(*holders)
    pods = [a_pod(f"w{i:03}", mem=1000, created=f"{i:03}") for i in range(100)]
    refuse(cluster, *pods)
    async with waking(cluster) as patches:
        for holder in holders:
            cluster.state.pod_gone(holder)
        done: list[str] = []
        while len(done) < 100:
            woken = (await settled(patches))[len(done) :]
            assert 0 < len(woken) <= AT_ONCE
            for name in woken:
                cluster.reserve(next(p for p in pods if p.name == name))
            done += woken
        assert sorted(done) == [p.name for p in pods]
