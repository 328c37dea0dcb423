"""Who is evicted for a waiting pod, and who is not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from hami.domain.allocations import PodAllocation
from hami.domain.scheduling import SchedulingPolicy
from hami.kube.errors import ApiError
from hami.policy.quota.elastic.ground import NoBudgets
from hami.scheduler.metrics import Metrics
from hami.scheduler.preemption import Preemption

from .builders import Cluster, a_node, a_pod, a_quota, an_elastic_quota, ended, granted
from .test_wakeup import Leads, deleting, refuse


class Evictions:
    """The API server as far as a preemption sees it; it fails with ``errors`` first."""

    def __init__(self) -> None:
        self.evicted: list[str] = []
        self.errors: list[ApiError] = []
        self.events: list[tuple[str, str, str]] = []

    async def evict(self, _namespace: str, name: str, *, uid: str) -> None:
        assert uid
        if self.errors:
            raise self.errors.pop(0)
        self.evicted.append(name)

    def record(self, about: Any, reason: str, message: str, *, warning: bool) -> None:
        del warning
        self.events.append((about.name, reason, message))


@asynccontextmanager
async def preempting(cluster: Cluster, leads: Any = Leads) -> AsyncIterator[Evictions]:
    api = Evictions()
    preemption = Preemption(
        cluster.state, api, leads(), Metrics(), api, NoBudgets(),
        policy=SchedulingPolicy, clock=cluster.clock,
    )  # type: ignore[arg-type]  # fmt: skip
    task = asyncio.create_task(preemption.run())
    cluster.state.claims.set()
    try:
        yield api
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def evicted(api: Evictions, *names: str) -> None:
    """These and no others."""
    end = time.monotonic() + 10
    while api.evicted != list(names) and time.monotonic() < end:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    assert api.evicted == list(names)


def running(name: str = "low", *, mem: int = 8000, card: int = 0, **asks: Any) -> Any:
    return granted(a_pod(name, mem=mem, phase="Running", **asks), "n1", f"n1-d{card}:{mem}")


def urgent(name: str = "urgent", *, mem: int = 8000, **asks: Any) -> Any:
    return a_pod(name, mem=mem, priority=10, **asks)


async def test_the_lower_priority_goes_and_the_claimant_comes() -> None:
    cluster = Cluster(a_node())
    low = running()
    cluster.sees(low)
    refuse(cluster, claimant := urgent())
    async with preempting(cluster) as api:
        await evicted(api, "low")
        assert ("low", "Preempted") in [event[:2] for event in api.events]
        assert ("urgent", "Preempting") in [event[:2] for event in api.events]
        cluster.sees(ended(low, "Failed"))
        assert isinstance(cluster.reserve(claimant), PodAllocation)


async def test_equals_stay() -> None:
    cluster = Cluster(a_node())
    cluster.sees(running(priority=10))
    refuse(cluster, urgent())
    async with preempting(cluster) as api:
        await evicted(api)


async def test_nobody_goes_where_the_devices_would_not_fit_even_then() -> None:
    cluster = Cluster(a_node())
    cluster.sees(running(mem=2000), running("peer", mem=6000, priority=10))
    refuse(cluster, urgent(mem=4000))
    async with preempting(cluster) as api:
        await evicted(api)


async def test_nobody_goes_for_a_pod_that_never_preempts() -> None:
    cluster = Cluster(a_node())
    cluster.sees(running())
    pod = urgent()
    spec = msgspec.structs.replace(pod.spec, preemption_policy="Never")
    refuse(cluster, msgspec.structs.replace(pod, spec=spec))
    async with preempting(cluster) as api:
        await evicted(api)


async def test_nobody_goes_for_room_that_is_about_to_be_free() -> None:
    cluster = Cluster(a_node(devices=2))
    cluster.sees(deleting(running("leaves")), running("stays", card=1))
    refuse(cluster, urgent())
    async with preempting(cluster) as api:
        await evicted(api)


async def test_two_claimants_do_not_wait_for_the_same_victim() -> None:
    cluster = Cluster(a_node(devices=2))
    cluster.sees(running("one"), running("two", card=1))
    refuse(cluster, urgent("first", created="1"), urgent("second", created="2"))
    async with preempting(cluster) as api:
        await evicted(api, "two", "one")


async def test_a_resource_quota_is_made_room_in_too() -> None:
    cluster = Cluster(a_node(devices=2))
    cluster.state.quota_changed(a_quota(mem="8000"))
    cluster.sees(running(), running("elsewhere", card=1, namespace="other"))
    refuse(cluster, urgent())
    async with preempting(cluster) as api:
        await evicted(api, "low")


async def test_a_replica_that_does_not_lead_evicts_nobody() -> None:
    cluster = Cluster(a_node())
    cluster.sees(running())
    refuse(cluster, urgent())

    class Follows(Leads):
        leading = False

    async with preempting(cluster, Follows) as api:
        await evicted(api)


async def test_what_a_budget_keeps_is_held_for_nobody_and_tried_again_later() -> None:
    cluster = Cluster(a_node())
    low = running()
    cluster.sees(low)
    refuse(cluster, urgent())
    async with preempting(cluster) as api:
        api.errors.append(ApiError("not now", status=429))
        await evicted(api)
        assert [event for event in api.events if event[1] == "PreemptionHeldUp"]
        assert not cluster.state.holds.spoken_for
        cluster.clock.now += 6
        cluster.state.claims.set()
        await evicted(api, "low")


async def test_a_victim_that_is_gone_already_is_as_good_as_evicted() -> None:
    cluster = Cluster(a_node())
    cluster.sees(running())
    refuse(cluster, urgent())
    async with preempting(cluster) as api:
        api.errors.append(ApiError("no such pod", status=404))
        await evicted(api)
        assert cluster.state.holds.spoken_for


async def test_two_claims_at_once_do_not_take_more_than_is_guaranteed() -> None:
    """The second sees what the first is about to have, though its victim still runs."""
    cluster = Cluster(a_node(devices=4))
    cluster.limits(*(an_elastic_quota(team, 8000) for team in "abc"))
    cluster.sees(*(running(f"b{n}", card=n, namespace="b", created=str(n)) for n in range(3)))
    asks = [a_pod(f"a{n}", mem=8000, namespace="a", created=str(n)) for n in range(2)]
    refuse(cluster, *asks)
    async with preempting(cluster) as api:
        await evicted(api, "b2")


async def test_victims_come_from_whoever_borrows_most_once_the_others_are_gone() -> None:
    """Of two that borrow alike each gives one, though the first one's victim still runs."""
    cluster = Cluster(a_node(devices=6))
    cluster.limits(*(an_elastic_quota(team, 8000) for team in "bc"), an_elastic_quota("a", 32000))
    for card, team in enumerate("bbbccc"):
        cluster.sees(running(f"{team}{card}", card=card, namespace=team, created=str(card)))
    asks = [a_pod(f"a{n}", mem=8000, namespace="a", created=str(n)) for n in range(2)]
    refuse(cluster, *asks)
    async with preempting(cluster) as api:
        await evicted(api, "b2", "c5")


async def test_nobody_shares_what_is_promised_to_its_owner() -> None:
    """What of a guarantee is claimed back already is unused no more, though nobody holds it yet."""
    cluster = Cluster(a_node(devices=4))
    cluster.limits(
        *(an_elastic_quota(team, least) for team, least in (("a", 16000), ("b", 8000), ("c", 8000)))
    )
    cluster.sees(*(running(f"b{n}", card=n, namespace="b", created=str(n)) for n in range(4)))
    refuse(cluster, *(a_pod(f"a{n}", mem=8000, namespace="a", created=str(n)) for n in range(2)))
    async with preempting(cluster) as api:
        await evicted(api, "b3", "b2")
        refuse(cluster, a_pod("c0", mem=4000, namespace="c"), a_pod("c1", mem=8000, namespace="c"))
        cluster.state.claims.set()
        await evicted(api, "b3", "b2", "b1")
