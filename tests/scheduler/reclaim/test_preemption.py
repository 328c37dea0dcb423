"""Who is evicted for a waiting pod, and who is not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from hami.domain.allocations import PodAllocation
from hami.domain.kubernetes.objects import Pod, Resources
from hami.domain.scheduling import SchedulingPolicy
from hami.domain.units import PodUid
from hami.kube.errors import ApiError
from hami.policy.filter.decision import Refused
from hami.policy.quota.elastic import Member
from hami.policy.quota.elastic.plans.ground import NoBudgets
from hami.policy.quota.elastic.plans.plan import NoPlan
from hami.scheduler.metrics import Metrics
from hami.scheduler.reclaim.evictions import AT_ONCE
from hami.scheduler.reclaim.preemption import Preemption

from ..builders import Cluster, a_node, a_pod, a_quota, acme, an_elastic_quota, ended, granted
from ..waking import Leads, deleting, refuse


class Evictions:
    """The API server as far as a preemption sees it; it fails with ``errors`` first."""

    def __init__(self) -> None:
        self.evicted: list[str] = []
        self.woken: list[str] = []
        self.unplanned: Mapping[PodUid, NoPlan] = {}
        self.errors: list[ApiError] = []
        self.events: list[tuple[str, str, str]] = []
        self.meanwhile: Callable[[str], object] = lambda _name: None
        """What happens while a victim's eviction is under way."""

    async def evict(self, _namespace: str, name: str, *, uid: str) -> None:
        assert uid
        await asyncio.sleep(0)
        self.meanwhile(name)
        if self.errors:
            raise self.errors.pop(0)
        self.evicted.append(name)

    async def patch(self, _resource: Any, name: str, patch: Any, *, namespace: str) -> None:
        assert patch["metadata"]["annotations"]["hami.io/wake-up"]
        if self.errors:
            raise self.errors.pop(0)
        self.woken.append(name)

    def record(self, about: Any, reason: str, message: str, *, warning: bool) -> None:
        del warning
        self.events.append((about.name, reason, message))


@asynccontextmanager
async def preempting(
    cluster: Cluster, leads: Any = Leads, budgets: Any = None
) -> AsyncIterator[Evictions]:
    """It is still at work at the end."""
    api = Evictions()
    preemption = Preemption(
        cluster.state, api, leads(), Metrics(), api, budgets or NoBudgets(),
        policy=SchedulingPolicy, clock=cluster.clock,
    )  # type: ignore[arg-type]  # fmt: skip
    api.unplanned = preemption.unplanned
    task = asyncio.create_task(preemption.run())
    cluster.state.pending.claims.set()
    try:
        yield api
        assert not task.done(), task
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
        cluster.state.pending.claims.set()
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
        cluster.state.pending.claims.set()
        await evicted(api, "b3", "b2", "b1")


# What goes wrong while victims go.


class Keeps:
    """A budget that lets nobody of these names go."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def counting(self, member: Member) -> Mapping[str, int]:
        return {member.name: 0} if member.name in self.names else {}


def half(name: str, **asks: Any) -> Pod:
    return running(name, mem=4000, **asks)


async def test_nobody_goes_for_nothing_where_a_budget_keeps_another() -> None:
    cluster = Cluster(a_node())
    cluster.sees(half("free"), half("kept"))
    refuse(cluster, urgent())
    async with preempting(cluster, budgets=Keeps("kept")) as api:
        api.errors.append(ApiError("not now", status=429))
        await evicted(api)
        assert not cluster.state.holds.spoken_for
        cluster.clock.now += 6
        cluster.state.pending.claims.set()
        await evicted(api, "kept", "free")


async def test_nobody_goes_any_more_for_a_claimant_that_is_gone() -> None:
    cluster = Cluster(a_node())
    pods = [running(f"low{number}", mem=400) for number in range(20)]
    cluster.sees(*pods)
    refuse(cluster, claimant := urgent())
    async with preempting(cluster) as api:
        api.meanwhile = lambda _name: cluster.state.pod_gone(claimant)
        await asyncio.sleep(0.2)
        assert len(api.evicted) == AT_ONCE
        assert not cluster.state.holds.holds


async def test_a_refusal_that_comes_after_the_victim_has_gone_is_none() -> None:
    """Of a pod that was replaced under its name the API server says that the uid is another."""
    cluster = Cluster(a_node())
    low = running()
    cluster.sees(low)
    refuse(cluster, claimant := urgent())
    async with preempting(cluster) as api:
        api.errors.append(ApiError("the UID in the precondition is another", status=409))
        api.meanwhile = lambda _name: cluster.state.pod_gone(low)
        await evicted(api)
        assert set(cluster.state.holds.spoken_for) == {low.uid}
        refuse(cluster, urgent("second", mem=7000))
        cluster.state.pending.claims.set()
        await evicted(api)
        assert isinstance(cluster.reserve(claimant), PodAllocation)


async def test_other_vendors_in_the_middle_of_a_round_change_only_what_comes_after() -> None:
    """The nodes that a pod was offered are numbered anew then."""
    cluster = Cluster(a_node("n1"), a_node("n2"))
    cluster.sees(running(priority=100))
    refuse(cluster, *(urgent(f"p{mem}", mem=mem) for mem in range(7000, 7010)), nodes=["n1"])
    seen: list[bool] = []

    class Changes(SchedulingPolicy):
        def __init__(self) -> None:
            super().__init__()
            if not seen:
                asyncio.get_running_loop().call_soon(cluster.state.use, acme())
            seen.append(True)

    api = Evictions()
    preemption = Preemption(
        cluster.state, api, Leads(), Metrics(), api, NoBudgets(), policy=Changes
    )  # type: ignore[arg-type]
    cluster.state.pending.claims.set()
    task = asyncio.create_task(preemption.run())
    await asyncio.sleep(0.2)
    assert seen
    assert not task.done(), task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def of_cpu(name: str, namespace: str, **asks: Any) -> Pod:
    """It runs, with a CPU and no device."""
    pod = a_pod(name, mem=None, namespace=namespace, phase="Running", node="n1", **asks)
    return with_cpu(pod)


def with_cpu(pod: Pod) -> Pod:
    (only,) = pod.spec.containers
    assert only.resources is not None
    asks = Resources(requests={"cpu": "1"}, limits=only.resources.limits)
    containers = [msgspec.structs.replace(only, resources=asks)]
    return msgspec.structs.replace(
        pod, spec=msgspec.structs.replace(pod.spec, containers=containers)
    )


async def test_a_victim_without_devices_leaves_its_quota_when_it_goes() -> None:
    cluster = Cluster(a_node())
    cluster.limits(*(an_elastic_quota(team, 1, resource="cpu") for team in "ab"))
    first, second = (of_cpu(f"b{number}", "b", created=str(number)) for number in range(2))
    cluster.sees(first, second)
    refuse(cluster, claimant := with_cpu(a_pod("a", namespace="a")))
    async with preempting(cluster) as api:
        await evicted(api, "b1")
        assert isinstance(cluster.reserve(claimant), Refused)
        cluster.state.pod_gone(second)
        assert not cluster.state.holds.awaits(claimant.uid)
        assert cluster.state.ledger.elastic.member(second.uid) is None
        assert isinstance(cluster.reserve(claimant), PodAllocation)


async def test_a_victim_that_was_not_bound_yet_is_waited_for_no_longer_than_it_is_there() -> None:
    cluster = Cluster(a_node())
    cluster.sees(promised := a_pod("low", mem=8000))
    assert isinstance(cluster.reserve(promised), PodAllocation)
    refuse(cluster, claimant := urgent())
    async with preempting(cluster) as api:
        await evicted(api, "low")
        cluster.state.pod_gone(promised)
        assert not cluster.state.holds.awaits(claimant.uid)
        assert not cluster.state.holds.spoken_for
        assert isinstance(cluster.reserve(claimant), PodAllocation)


async def test_a_resource_quota_is_made_room_in_where_the_claimant_cannot_go_itself() -> None:
    cluster = Cluster(a_node(), a_node("n2"))
    cluster.state.quota_changed(a_quota(mem="8000"))
    cluster.sees(running())
    refuse(cluster, urgent(), nodes=["n2"])
    async with preempting(cluster) as api:
        await evicted(api, "low")
