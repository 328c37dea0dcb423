"""Who is in whose way when a woken pod does not come, or its patch fails."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from hami.domain.units import PodUid
from hami.kube.errors import ApiError
from hami.policy.filter.decision import Refused
from hami.scheduler.pending.pending_pods import Refusal

from ..builders import (
    Cluster,
    a_node,
    a_pod,
    ended,
)
from ..waking import Patches, deleting, full, gated, refuse, waking, woken


def filtered(cluster: Cluster, pod: Any, *nodes: str) -> None:
    """kube-scheduler tries it with these nodes, and it is refused."""
    outcome = cluster.reserve(pod, *nodes)
    assert isinstance(outcome, Refused), pod.name
    if cluster.state.pending.refused(pod, nodes, Refusal(at=0, outcome=outcome)):
        cluster.state.pending.freed.set()


def passes(cluster: Cluster, seconds: float) -> None:
    cluster.clock.now += seconds
    cluster.state.pending.freed.set()


async def given_up(cluster: Cluster, name: str) -> None:
    """Nobody counts on it to come any more."""
    async with asyncio.timeout(10):
        while cluster.state.pending.pods[PodUid(f"uid-default-{name}")].woken_at is not None:
            await asyncio.sleep(0.01)


def rivals(cluster: Cluster) -> tuple[Any, Any, Any]:
    """Who holds the node, and two pods of different kinds that wait for it."""
    holder = full(cluster)
    pods = a_pod("first", mem=8000, created="1"), a_pod("second", mem=7999, created="2")
    refuse(cluster, *pods)
    return holder, *pods


@pytest.mark.parametrize("leaves", ["deleted", "ended", "gated", "deleting"])
async def test_a_woken_pod_that_will_not_come_makes_way_at_once(leaves: str) -> None:
    cluster = Cluster(a_node())
    holder, first, _ = rivals(cluster)
    async with waking(cluster) as patches:
        cluster.state.pod_gone(holder)
        await woken(patches, "first")
        match leaves:
            case "deleted":
                cluster.state.pod_gone(first)
            case "ended":
                cluster.sees(ended(first, "Failed"))
            case "gated":
                cluster.sees(gated(first))
            case "deleting":
                cluster.sees(deleting(first))
        await woken(patches, "first", "second")


@pytest.mark.parametrize("change", [gated, deleting])
async def test_a_pod_that_kube_scheduler_does_not_try_is_not_woken(change: Any) -> None:
    cluster = Cluster(a_node())
    holder, first, _ = rivals(cluster)
    cluster.sees(change(first))
    async with waking(cluster) as patches:
        cluster.state.pod_gone(holder)
        await woken(patches, "second")


async def test_the_next_one_need_not_wait_a_second_for_one_that_never_comes() -> None:
    cluster = Cluster(a_node())
    holder, *_ = rivals(cluster)
    async with waking(cluster) as patches:
        cluster.state.pod_gone(holder)
        await woken(patches, "first")
        passes(cluster, 0.6)
        await woken(patches, "first", "second")


async def test_one_that_did_not_come_is_in_nobodys_way_the_next_time() -> None:
    cluster = Cluster(a_node())
    holder, _, second = rivals(cluster)
    async with waking(cluster) as patches:
        cluster.state.pod_gone(holder)
        await woken(patches, "first")
        passes(cluster, 0.6)
        await woken(patches, "first", "second")
        allocation = cluster.reserve(second)
        assert allocation.node == "n1"
        passes(cluster, 2)
        refuse(cluster, a_pod("third", mem=7999, created="3"))
        cluster.state.pod_gone(second)
        await woken(patches, "first", "second", "first", "third")


async def test_of_pods_whose_kind_does_not_come_one_is_woken_at_a_time() -> None:
    cluster = Cluster(a_node())
    holder = full(cluster)
    refuse(cluster, *(a_pod(f"alike-{n}", mem=100, created=str(n)) for n in range(4)))
    async with waking(cluster) as patches:
        cluster.state.pod_gone(holder)
        await woken(patches, *(f"alike-{n}" for n in range(4)))
        passes(cluster, 0.6)
        await given_up(cluster, "alike-3")
        passes(cluster, 10)
        cluster.sees(holder)
        cluster.state.pod_gone(holder)
        await woken(patches, *(f"alike-{n}" for n in range(4)), "alike-0")


async def test_one_that_never_comes_is_woken_ever_more_rarely_for_the_same_node() -> None:
    cluster = Cluster(a_node("n1"), a_node("n2"))
    holders = [full(cluster, "n1", "full-1"), full(cluster, "n2", "full-2")]
    refuse(cluster, a_pod("waits", mem=3000))
    async with waking(cluster) as patches:
        for seconds, wakes in ((0, 1), (1.1, 2), (2.1, 3), (1.1, 3), (3.1, 4), (4.1, 4)):
            passes(cluster, seconds)
            cluster.sees(holders[0])
            cluster.state.pod_gone(holders[0])
            await woken(patches, *["waits"] * wakes)
            passes(cluster, 0.6)
            await given_up(cluster, "waits")
        cluster.state.pod_gone(holders[1])
        await woken(patches, *["waits"] * 5)


async def test_one_that_came_after_all_is_woken_at_once_again() -> None:
    cluster = Cluster(a_node())
    holder = full(cluster)
    waits = a_pod("waits", mem=3000)
    refuse(cluster, waits)
    async with waking(cluster) as patches:
        for wakes in (1, 2, 3):
            cluster.state.pod_gone(holder)
            await woken(patches, *["waits"] * wakes)
            passes(cluster, 0.6)
            await given_up(cluster, "waits")
            cluster.sees(holder)
            filtered(cluster, waits, "n1")


# A patch that fails.


@pytest.mark.parametrize("status", [0, 403, 429, 500])
async def test_a_patch_that_fails_is_tried_again_a_while_later(status: int) -> None:
    cluster = Cluster(a_node())
    holder = full(cluster)
    refuse(cluster, a_pod("waits", mem=3000))
    async with waking(cluster) as patches:
        patches.errors = [ApiError("not now", status=status) for _ in range(2)]
        cluster.state.pod_gone(holder)
        await tried(patches, left=1)
        cluster.state.pending.freed.set()
        await asyncio.sleep(0.05)
        assert len(patches.errors) == 1, "not before a second has passed"
        passes(cluster, 1.1)
        await tried(patches, left=0)
        passes(cluster, 2.1)
        await woken(patches, "waits")


async def tried(patches: Patches, *, left: int) -> None:
    async with asyncio.timeout(10):
        while len(patches.errors) > left:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)


async def test_a_patch_is_tried_again_when_the_server_says_not_before() -> None:
    cluster = Cluster(a_node())
    holder = full(cluster)
    refuse(cluster, a_pod("waits", mem=3000))
    async with waking(cluster) as patches:
        patches.errors = [ApiError("slower", status=429, retry_after=30)]
        cluster.state.pod_gone(holder)
        await tried(patches, left=0)
        passes(cluster, 20)
        await woken(patches)
        passes(cluster, 11)
        await woken(patches, "waits")


async def test_a_pod_whose_patch_fails_is_in_nobodys_way() -> None:
    cluster = Cluster(a_node())
    holder, *_ = rivals(cluster)
    async with waking(cluster) as patches:
        patches.errors = [ApiError("denied by a webhook", status=403)]
        cluster.state.pod_gone(holder)
        await tried(patches, left=0)
        passes(cluster, 0.1)
        await woken(patches, "second")


@pytest.mark.parametrize("status", [404, 409])
async def test_a_patch_of_a_pod_that_is_gone_is_not_tried_again(status: int) -> None:
    cluster = Cluster(a_node())
    holder, first, _ = rivals(cluster)
    async with waking(cluster) as patches:
        patches.errors = [ApiError("gone", status=status)]
        cluster.state.pod_gone(holder)
        await tried(patches, left=0)
        cluster.state.pod_gone(first)
        await woken(patches, "second")
