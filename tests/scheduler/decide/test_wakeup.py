"""Who is woken when capacity comes free, and who is not."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import msgspec
import pytest

from hami.domain.scheduling import SchedulingPolicy
from hami.domain.units import PodUid
from hami.policy.quota.elastic import Options
from hami.scheduler.decide.wakeup import AT_ONCE, TURN, WakeUp
from hami.scheduler.metrics import Metrics
from hami.scheduler.pending.pending_pods import Refusal

from ..builders import (
    Cluster,
    a_node,
    a_pod,
    a_quota,
    acme,
    an_elastic_quota,
    ended,
    granted,
    privileged,
)
from ..waking import Leads, Patches, full, refuse, waking, woken


async def test_a_pod_is_woken_when_the_pod_in_its_way_ends() -> None:
    cluster = Cluster(a_node())
    holder = full(cluster)
    refuse(cluster, a_pod("waits", mem=3000))
    async with waking(cluster) as patches:
        cluster.sees(ended(holder))
        await woken(patches, "waits")


async def test_a_pod_that_may_have_no_slice_does_not_stand_before_one_that_asks_the_same() -> None:
    cluster = Cluster(a_node())
    holder = full(cluster)
    cluster.sees(never := privileged(a_pod("never", mem=3000, created="2026-01-01T00:00:00Z")))
    cluster.state.pending.refused(never, ["n1"], Refusal(at=0, text="is privileged"))
    refuse(cluster, a_pod("b", mem=3000, created="2026-01-02T00:00:00Z"))
    async with waking(cluster) as patches:
        cluster.sees(ended(holder))
        await woken(patches, "b")


async def test_one_is_woken_for_each_lock_that_is_released() -> None:
    """A node whose agent serves one pod at a time has room for many, and takes the next one."""
    cluster = Cluster(a_node(), a_node("n2"))
    cluster.locked = True
    held = {"hami.io/mutex.lock": "2999-01-01T00:00:00Z,ns,holder"}
    for name in ("n1", "n2"):
        cluster.state.node_changed(a_node(name, **held))
    refuse(cluster, *(a_pod(f"p{n}", created=f"2026-01-0{n}") for n in range(1, 6)))
    async with waking(cluster) as patches:
        cluster.state.node_changed(a_node("n2"))
        await woken(patches, "p1")
        outcome = cluster.reserve(cluster.state.pods[PodUid("uid-default-p1")])
        assert outcome.node == "n2"
        cluster.state.node_changed(a_node())
        await woken(patches, "p1", "p2")


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
        await woken(patches, "urgent", "early")


async def test_whoever_a_pod_was_evicted_for_is_woken_and_nobody_before_it() -> None:
    cluster = Cluster(a_node())
    victim = full(cluster)
    claimant = a_pod("claimant", mem=8000, created="2026-01-02")
    refuse(cluster, a_pod("earlier", mem=3000, created="2026-01-01"), claimant)
    cluster.state.holds.begin(claimant, [victim])
    async with waking(cluster) as patches:
        cluster.state.pod_gone(victim)
        await woken(patches, "claimant")


async def test_what_is_free_afterwards_is_what_was_free_before() -> None:
    cluster = Cluster(a_node())
    cluster.state.quota_changed(a_quota(mem="20000"))
    holder = full(cluster)
    refuse(cluster, a_pod("waits", mem=3000))
    async with waking(cluster) as patches:
        cluster.state.pod_gone(holder)
        await woken(patches, "waits")
        assert cluster.used() == (0, 0)
        assert cluster.state.ledger.used("default", "q") == {"acme.com/mem": 0}


async def test_the_next_one_is_tried_when_the_woken_one_is_refused_again() -> None:
    cluster = Cluster(a_node())
    holder = full(cluster)
    first, second = a_pod("first", mem=8000, created="1"), a_pod("second", mem=8000, created="2")
    refuse(cluster, first, second)
    async with waking(cluster) as patches:
        cluster.state.pod_gone(holder)
        await woken(patches, "first")
        # A plugin of kube-scheduler keeps the first away from the node by now.
        names = ["n2"]
        outcome = cluster.reserve(first, *names)
        cluster.state.pending.refused(first, names, Refusal(at=0, outcome=outcome))
        cluster.state.pending.freed.set()
        await woken(patches, "first", "second")


async def test_a_woken_pod_that_never_comes_stops_to_be_in_the_way() -> None:
    cluster = Cluster(a_node())
    holder = full(cluster)
    refuse(cluster, a_pod("first", mem=8000, created="1"), a_pod("second", mem=8000, created="2"))
    async with waking(cluster) as patches:
        cluster.state.pod_gone(holder)
        await woken(patches, "first")
        cluster.clock.now += 60
        cluster.state.pending.freed.set()
        await woken(patches, "first", "second")


async def test_one_wake_up_for_each_change() -> None:
    cluster = Cluster(a_node())
    holder = full(cluster)
    pod = a_pod("waits", mem=3000)
    refuse(cluster, pod)
    async with waking(cluster) as patches:
        cluster.state.pod_gone(holder)
        await woken(patches, "waits")
        for _ in range(5):
            cluster.state.pending.freed.set()
            await woken(patches, "waits")


async def test_capacity_on_a_node_that_was_not_offered_is_not_for_the_pod() -> None:
    cluster = Cluster(a_node("n1"), a_node("n2"))
    first, second = full(cluster, "n1", "full-1"), full(cluster, "n2", "full-2")
    refuse(cluster, a_pod("waits", mem=3000), nodes=["n1"])
    async with waking(cluster) as patches:
        cluster.state.pod_gone(second)
        await woken(patches)
        cluster.state.pod_gone(first)
        await woken(patches, "waits")


async def test_after_a_restart_every_node_counts_as_offered() -> None:
    cluster = Cluster()
    cluster.state.pending.following = True
    holder = granted(a_pod("holder", mem=8000), "n1", "n1-d0:8000")
    cluster.sees(holder, a_pod("waits", mem=3000))
    cluster.state.node_changed(a_node())
    async with waking(cluster) as patches:
        await woken(patches)
        cluster.state.pod_gone(holder)
        await woken(patches, "waits")


async def test_a_new_pod_is_left_to_kube_scheduler() -> None:
    cluster = Cluster(a_node())
    holder = full(cluster)
    cluster.sees(a_pod("new", mem=3000))
    async with waking(cluster) as patches:
        cluster.state.pod_gone(holder)
        await woken(patches)


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
        await woken(patches)
        cluster.state.pod_gone(holder)
        await woken(patches, "waits")


async def test_a_raised_quota_and_a_new_node_wake() -> None:
    cluster = Cluster(a_node())
    cluster.state.quota_changed(a_quota(mem="1000"))
    refuse(cluster, a_pod("poor", mem=2000))
    refuse(cluster, a_pod("rich", mem=9000, namespace="rich"), nodes=["n1", "n2"])
    async with waking(cluster) as patches:
        cluster.state.quota_changed(a_quota(mem="2000"))
        await woken(patches, "poor")
        cluster.state.node_changed(a_node("n2", memory=10000))
        await woken(patches, "poor", "rich")


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
            await asyncio.sleep(0.02)
            names = patches.woken[len(done) :]
            assert len(names) <= AT_ONCE
            for name in names:
                cluster.reserve(next(p for p in pods if p.name == name))
            done += names
        assert sorted(done) == [p.name for p in pods]


# Nodes that change.


def node_with(usage: str, **annotations: str) -> Any:
    """A node whose annotations and labels say something beside its devices."""
    node = a_node(**annotations)
    return msgspec.structs.replace(
        node, metadata=msgspec.structs.replace(node.metadata, labels={"usage": usage})
    )


def sick() -> Any:
    node = a_node()
    about = node.metadata
    text = node.annotations["acme.com/register"].replace('"health":true', '"health":false')
    assert "false" in text
    about = msgspec.structs.replace(about, annotations={"acme.com/register": text})
    return msgspec.structs.replace(node, metadata=about)


@pytest.mark.parametrize(
    ("before", "after", "wakes"),
    [
        (a_node(), sick(), False),
        (sick(), a_node(), True),
        (a_node(), a_node(**{"hami.io/node-handshake": "Requesting"}), False),
        (a_node(), a_node(**{"hami.io/mutex.lock": "2026-01-01T00:00:00Z,default,p"}), False),
        (a_node(), a_node(**{"hami.io/device-cordon": "n1-d0"}), False),
        (a_node(devices=2), a_node(devices=1), False),
        (a_node(memory=8000), a_node(memory=7000), False),
        (a_node(devices=1), a_node(devices=2), True),
        (a_node(**{"hami.io/device-cordon": "n1-d0"}), a_node(), True),
        (a_node(memory=7000), a_node(memory=8000), True),
        (node_with("test"), node_with("production"), True),
    ],
    ids=[
        "sick",
        "healthy",
        "handshake",
        "lock",
        "cordoned",
        "fewer",
        "smaller",
        "more",
        "uncordoned",
        "larger",
        "label",
    ],
)
async def test_only_a_node_that_has_more_to_give_wakes(
    before: Any, after: Any, wakes: bool
) -> None:
    """The pod is refused for something that is not of the node, so it always fits."""
    cluster = Cluster(before)
    waits = a_pod("waits", mem=100)
    cluster.sees(waits)
    cluster.state.pending.refused(waits, ["n1"], Refusal(at=0))
    async with waking(cluster) as patches:
        cluster.state.node_changed(after)
        await woken(patches, *["waits"] * wakes)


async def test_other_vendors_in_the_middle_of_a_round_begin_a_new_one() -> None:
    """The nodes that a round knows are numbered anew then."""
    cluster = Cluster(a_node("n1"), a_node("n2"))
    full = granted(a_pod("full", mem=8000), "n1", "n1-d0:8000")
    cluster.sees(full)
    asks = [a_pod(f"p{mem}", mem=mem) for mem in (1001, 1002)]
    refuse(cluster, *asks, nodes=["n1"])
    loop = asyncio.get_running_loop()

    class Changes(Patches):
        async def patch(self, *args: Any, **kwargs: Any) -> None:
            await super().patch(*args, **kwargs)
            if len(self.woken) == 1:
                cluster.state.use(acme())

    patches = Changes()
    wakeup = WakeUp(
        cluster.state, patches, Leads(), Metrics(), policy=SchedulingPolicy,
        clock=(0.4 * TURN * number for number in itertools.count()).__next__,  # One step a turn.
    )  # type: ignore[arg-type]  # fmt: skip
    task = loop.create_task(wakeup.run())
    cluster.state.pod_gone(full)
    await asyncio.sleep(0.3)
    assert not task.done(), task
    assert {"p1001", "p1002"} <= set(patches.woken)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_whoever_is_woken_still_waits_for_its_share() -> None:
    """For the moment of choosing it has what it is woken for; until it is placed it wants it."""
    cluster = Cluster(a_node(devices=2))
    cluster.state.ledger.elastic.options = Options(fair_share="waterfill")
    cluster.limits(*(an_elastic_quota(team, 8000) for team in "ab"))
    full = granted(a_pod("full", mem=8000, namespace="b"), "n1", "n1-d0:8000")
    other = granted(a_pod("other", mem=8000, namespace="b"), "n1", "n1-d1:8000")
    cluster.sees(full, other)
    more = a_pod("more", mem=8000, namespace="b", created="2")
    refuse(cluster, a_pod("p", mem=8000, namespace="a", created="1"), more)
    book = cluster.state.ledger.elastic
    leaf = book.leaf_of("b")
    assert leaf is not None
    async with waking(cluster) as patches:
        assert book.guaranteed(leaf)["acme.com/mem"] == 0
        cluster.state.pod_gone(full)
        await asyncio.sleep(0.2)
        assert patches.woken[:1] == ["p"]
        assert book.guaranteed(leaf)["acme.com/mem"] == 0, "nothing is unused that p wants"


async def test_what_is_held_for_a_pod_wakes_it_though_a_more_urgent_one_of_its_kind_waits() -> None:
    """That one came later, and what was freed is not for it."""
    cluster = Cluster(a_node())
    low = granted(a_pod("low", mem=8000, phase="Running"), "n1", "n1-d0:8000")
    cluster.sees(low)
    refuse(cluster, claimant := a_pod("claimant", mem=8000, priority=10))
    cluster.state.holds.begin(claimant, [low])
    refuse(cluster, a_pod("urgent", mem=8000, priority=20))
    async with waking(cluster) as patches:
        cluster.state.pod_gone(low)
        await woken(patches, "claimant")
