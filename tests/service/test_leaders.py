"""Two processes with a Lease of their own: at no moment do both decide, and what one has promised or
sent is nobody else's trouble.
"""

from __future__ import annotations

import asyncio
import signal
from datetime import UTC, datetime

import aiohttp
import pytest

from .world.process import until
from .world.recount import Amount

FAST = {
    "leader_mode": "own",
    "leader_elect_lease_duration": "3s",
    "leader_elect_renew_deadline": "2s",
    "leader_elect_retry_period": "300ms",
    "bind_timeout": "500ms",
}


async def leads(service):
    return (await service.summary())["leading"]


async def takes_over(service):
    await until(f"{service.name} leads", lambda: leads(service), story=service.last_lines)


@pytest.fixture
async def pair(world):
    """The first leads, the second follows."""
    await world.add_nodes("n1")
    first = await world.service("first", identity="first", **FAST)
    await takes_over(first)
    second = await world.service("second", identity="second", **FAST)
    return first, second


async def filtered(world, service, name, mem=9000):
    pod = await world.add_pod(name, gpu=1, mem=mem)
    assert (await world.filter_until(service, pod)).node == "n1"
    return pod


async def is_refused(world, service, pod, holder):
    """Neither call does anything; both say who leads, as soon as that is known."""
    assert "does not lead" in (await world.filter(service, pod)).error
    assert "does not lead" in await world.bind(service, pod, "n1")

    async def names_it():
        return f"{holder} does" in await world.bind(service, pod, "n1")

    await until(f"{service.name} names {holder}", names_it)


async def test_a_follower_reserves_and_binds_nothing_but_is_ready(world, pair):
    """It knows the cluster, serves the webhook and the API, and names who leads."""
    first, second = pair
    await world.place(first, "runs", gpu=1, mem=3000)
    pod = await world.add_pod("p", gpu=1, mem=9000)
    await is_refused(world, second, pod, "first")
    assert (await second.text("/readyz"))[0] == 200
    await until("it knows what runs", lambda: _used(second, 3000))
    review = {
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "r", "operation": "CREATE", "namespace": "default",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "object": {**pod, "spec": {**pod["spec"], "schedulerName": "default-scheduler"}},
        },
    }  # fmt: skip
    async with world.session.post(f"{second.public}/webhook", json=review) as answer:
        said = (await answer.json())["response"]
    assert said["allowed"]
    assert said["patch"], "it is to be scheduled by us"
    await world.agree(first)


async def _used(service, memory):
    return any(amount.memory == memory for amount in (await service.used()).values())


async def test_killed_between_filter_and_bind(world, pair):
    """The reservation dies with it; the next one, after the Lease ran out, finds room anew."""
    first, second = pair
    runs = await world.place(first, "runs", gpu=1, mem=3000)
    pod = await filtered(world, first, "p")
    await first.kill()
    await is_refused(world, second, pod, "first")
    await takes_over(second)
    assert await world.bind(second, pod, "n1") == ""
    assert world.node_of(runs) == "n1"
    await world.agree(second)
    assert await second.used() == {("n1", "GPU-n1-0"): Amount(2, 12000, 0)}
    terms = [world.annotation(p, "scheduler-term") for p in (runs, pod)]
    assert int(terms[0]) < int(terms[1])


async def test_asleep_past_its_lease_it_refuses_what_comes_late(world, pair):
    """SIGSTOP: a machine that was paused. It held a reservation, and wakes up believing in it."""
    first, second = pair
    pod = await filtered(world, first, "p")
    first.signal(signal.SIGSTOP)
    binding = world.ask(world.bind(first, pod, "n1"))  # Is read once it wakes up.
    await takes_over(second)
    await world.place(second, "other", gpu=1, mem=9000)
    first.signal(signal.SIGCONT)
    assert "lead" in await binding
    assert world.node_of(pod) == ""
    await is_refused(world, first, pod, "second")
    await world.agree(second)


async def test_asleep_past_its_lease_it_shows_no_dead_promise(world, pair):
    """What it had reserved was never bound, and is not to be had from it any more."""
    first, second = pair
    pod = await filtered(world, first, "p")
    assert (await first.summary())["pods"]["reserved"] == 1
    first.signal(signal.SIGSTOP)
    await takes_over(second)
    first.signal(signal.SIGCONT)

    async def waits_everywhere():
        return [(await each.summary())["pods"]["reserved"] for each in pair] == [0, 0]

    await until("nobody shows a promise", waits_everywhere, story=first.last_lines)
    assert (await first.get("pods/default/p/why"))["phase"] == "waiting"
    assert await first.used() == await second.used() == {("n1", "GPU-n1-0"): Amount(0, 0, 0)}
    assert (await world.filter(second, pod)).node == "n1"


async def test_asleep_with_a_binding_on_its_way(world, pair):
    """It arrives before the next one decides: that one counts it, although nobody told it."""
    first, second = pair
    pod = await filtered(world, first, "p")
    gate = world.server.gate()
    binding = world.ask(world.bind(first, pod, "n1"))
    await gate.come()
    first.signal(signal.SIGSTOP)
    gate.release()
    other = await world.add_pod("other", gpu=1, mem=9000)
    await takes_over(second)
    assert "CardInsufficientMemory" in (await world.filter(second, other)).reasons["n1"]
    assert (await world.filter(second, pod)).node == "n1"
    first.signal(signal.SIGCONT)
    await binding
    await world.agree(second)
    assert world.books.bound[pod["metadata"]["uid"]] == 1


async def test_a_leader_that_cannot_renew_stops_before_the_next_one_begins(world, pair):
    """Its Lease is out of reach, its bindings are not: only time tells it."""
    first, second = pair
    pod = await filtered(world, first, "p")
    world.server.gate(
        method="PATCH",
        suffix="/hami-scheduler-extender",
        contains=b'"first"',
        status=503,
        times=None,
    )
    both: list[bool] = []
    while not await leads(second):
        # The second is asked last: what the first says is older.
        both.append(all([await leads(first), await leads(second)]))
        await asyncio.sleep(0.02)
    assert not any(both)
    assert "lead" in (await world.filter(first, pod)).error
    assert "lead" in await world.bind(first, pod, "n1")
    await world.place(second, "other", gpu=1, mem=9000)
    await world.agree(second)


async def test_stopped_it_hands_over_at_once(world, pair):
    """It finishes its bind, and gives the Lease back: nobody waits for it to run out."""
    first, second = pair
    pod = await filtered(world, first, "p")
    gate = world.server.gate()
    binding = world.ask(world.bind(first, pod, "n1"))
    await gate.come()
    stopping = world.ask(first.stop())
    await asyncio.sleep(0.1)
    assert not await leads(second)
    gate.release()
    assert await binding == ""
    assert await stopping == 0
    await takes_over(second)
    assert (await world.filter(second, pod)).node == "n1"
    await world.agree(second)


async def test_a_burst_across_a_change_of_leader(world, pair):
    """Every pod is bound once, whoever did it."""
    first, second = pair
    await world.add_nodes("n2", "n3", devices=2)
    pods = [await world.add_pod(f"p{n}", gpu=1, mem=3000) for n in range(20)]
    killed = asyncio.Event()

    async def schedule(pod):
        while not world.node_of(pod):
            service = second if killed.is_set() else first
            try:
                answer = await world.filter(service, pod)
                if answer.node:
                    await world.bind(service, pod, answer.node)
            except (aiohttp.ClientError, OSError):
                killed.set()
            await asyncio.sleep(0.05)

    async with asyncio.TaskGroup() as group:
        for pod in pods:
            group.create_task(schedule(pod))
        await until("some are bound", lambda: len(world.books.bound) >= 5)
        await first.kill()
        killed.set()
    await world.agree(second)
    assert set(world.books.bound.values()) == {1}
    assert len(world.books.bound) == 20


class TestBesideKubeScheduler:
    """The chart's way: whoever shares a host with the kube-scheduler that leads."""

    @pytest.fixture
    async def lease(self, world):
        """Made by and renewed for whoever holds it, as kube-scheduler does, three times a second."""
        where = {"namespace": "kube-system", "group": "coordination.k8s.io"}
        held = {}

        async def hold(holder):
            held["holderIdentity"] = holder
            held["leaseTransitions"] = held.get("leaseTransitions", -1) + 1
            held["acquireTime"] = now()
            spec = {**held, "leaseDurationSeconds": 2, "renewTime": now()}
            if not held["leaseTransitions"]:
                await world.server.create(
                    {
                        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": spec,
                        "metadata": {"name": "kube-scheduler", "namespace": "kube-system"},
                    }
                )  # fmt: skip
            else:
                await world.server.patch("leases", "kube-scheduler", {"spec": spec}, **where)

        async def renew():
            while True:
                await asyncio.sleep(0.3)
                if held:
                    spec = {"spec": {"renewTime": now()}}
                    await world.server.patch("leases", "kube-scheduler", spec, **where)

        renewing = asyncio.create_task(renew())
        yield hold
        renewing.cancel()

    async def test_the_one_on_the_holders_host_leads(self, world, lease):
        await world.add_nodes("n1")
        await lease("a_1234")
        flags = {"leader_mode": "colocated", "bind_timeout": "500ms"}
        on_a = await world.service("a", hostname="a", **flags)
        on_b = await world.service("b", hostname="b", **flags)
        await takes_over(on_a)
        pod = await filtered(world, on_a, "p")
        await is_refused(world, on_b, pod, "a_1234")
        await lease("b_5678")
        await takes_over(on_b)
        assert not await leads(on_a)
        await is_refused(world, on_a, pod, "b_5678")
        assert await world.bind(on_b, pod, "n1") == ""
        await world.agree(on_b)
        leases = world.calls.count(resource="leases", user_agent="hami/", writes=True)
        assert leases == 0, "it is kube-scheduler's"

    async def test_nobody_leads_without_a_lease(self, world, lease):
        await world.add_nodes("n1")
        service = await world.service(leader_mode="colocated", hostname="a", bind_timeout="500ms")
        pod = await world.add_pod("p", gpu=1, mem=9000)
        await is_refused(world, service, pod, "none")
        await lease("a_1234")
        await takes_over(service)
        await filtered(world, service, "q")
        assert await service.stop() == 0


def now():
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
