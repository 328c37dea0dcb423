"""Nodes whose agent finds its pod by HAMi's lock: one pod at a time between bind and start."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from ..world.objects import REGISTER
from ..world.process import until
from ..world.recount import Amount

LOCK = "hami.io/mutex.lock"


def lock_of(world, node="n1"):
    return world.server.get("nodes", node)["metadata"]["annotations"].get(LOCK, "")


def a_lock(name, *, minutes=0, namespace="default"):
    at = datetime.now(UTC) - timedelta(minutes=minutes)
    return f"{at.strftime('%Y-%m-%dT%H:%M:%SZ')},{namespace},{name}"


async def filtered(world, service, name, mem=1000, **more):
    pod = await world.add_pod(name, gpu=1, mem=mem, **more)
    assert (await world.filter_until(service, pod)).node == "n1"
    return pod


async def refused(world, service, pod):
    answer = await world.filter(service, pod)
    assert (answer.node, answer.reasons) == ("", {"n1": "NodeLocked"})


async def test_the_lock_is_taken_before_the_bind_and_stays_for_the_agent(world):
    await world.add_nodes("n1", locked=True)
    service = await world.service()
    pod = await filtered(world, service, "p")
    gate = world.server.gate()
    binding = world.ask(world.bind(service, pod, "n1"))
    await gate.come()
    assert lock_of(world).endswith(",default,p")
    gate.release()
    assert await binding == ""
    assert lock_of(world).endswith(",default,p")
    await world.agree(service)


async def test_a_second_pod_waits_until_the_agent_has_served_the_first(world):
    await world.add_nodes("n1", locked=True)
    service = await world.service()
    await world.place(service, "first", gpu=1, mem=1000)
    second = await world.add_pod("second", gpu=1, mem=1000)
    await refused(world, service, second)
    await world.agree(service)
    patch = {"metadata": {"annotations": {LOCK: None}}}
    await world.server.patch("nodes", "n1", patch)
    await world.filter_until(service, second)
    assert await world.bind(service, second, "n1") == ""
    assert lock_of(world).endswith(",default,second")
    await world.agree(service)


@pytest.mark.parametrize(
    ("holder", "free"),
    [
        pytest.param({"name": "runs", "minutes": 6}, True, id="an expired one"),
        pytest.param({"name": "runs", "minutes": 4}, False, id="one that has not expired"),
        pytest.param({"name": "nobody"}, True, id="one whose pod is gone"),
        pytest.param({"name": "p"}, True, id="its own"),
    ],
)
async def test_somebody_elses_lock(world, holder, free):
    await world.add_nodes("n1", locked=True)
    service = await world.service()
    await world.add_pod("runs")
    pod = await filtered(world, service, "p")
    before = a_lock(**holder)
    await world.server.patch("nodes", "n1", {"metadata": {"annotations": {LOCK: before}}})
    error = await world.bind(service, pod, "n1")
    assert (error == "") is free, error
    assert lock_of(world) == before if not free else lock_of(world).endswith(",default,p")
    await world.agree(service)


@pytest.mark.parametrize("status", [403, 429])
async def test_a_bind_that_is_refused_gives_the_lock_back(world, status):
    await world.add_nodes("n1", locked=True)
    service = await world.service()
    pod = await filtered(world, service, "p")
    world.fault(verb="create", resource="pods", subresource="binding", status=status, times=1)
    assert str(status) in await world.bind(service, pod, "n1")
    assert lock_of(world) == ""
    await world.place(service, "other", gpu=1, mem=1000)


async def test_nothing_is_bound_without_the_lock(world):
    await world.add_nodes("n1", locked=True)
    service = await world.service()
    pod = await filtered(world, service, "p", mem=9000)
    world.fault(verb="patch", resource="nodes", status=403)
    assert "cannot lock node n1" in await world.bind(service, pod, "n1")
    assert world.node_of(pod) == ""
    assert await service.used() == {("n1", "GPU-n1-0"): Amount()}


async def test_of_many_at_once_one_is_sent_there(world):
    """A promise is worth a lock: nobody else is sent to a bind that would find it taken."""
    await world.add_nodes("n1", locked=True)
    service = await world.service()
    pods = [await world.add_pod(f"p{n}", gpu=1, mem=1000) for n in range(6)]
    answers = await asyncio.gather(*(world.filter(service, pod) for pod in pods))
    (won,) = [pod for pod, answer in zip(pods, answers, strict=True) if answer.node]
    assert lock_of(world) == ""
    assert await world.bind(service, won, "n1") == ""
    assert lock_of(world).endswith(f",{won['metadata']['name']}")
    await world.agree(service)


async def test_a_pod_is_sent_to_a_node_that_is_free_rather_than_to_the_fullest(world):
    await world.add_nodes("n1", locked=True)
    service = await world.service()
    await world.place(service, "first", gpu=1, mem=9000)
    await world.add_nodes("n2", locked=True)
    second = await world.add_pod("second", gpu=1, mem=1000)
    assert (await world.filter_until(service, second)).node == "n2"


@pytest.mark.parametrize("what", ["failed", "gone", "served"])
async def test_a_lock_whose_pod_needs_it_no_more_is_freed_within_seconds(world, what):
    await world.add_nodes("n1", locked=True)
    service = await world.service()
    first = await world.place(service, "first", gpu=1, mem=1000)
    second = await world.add_pod("second", gpu=1, mem=1000)
    await refused(world, service, second)
    held = lock_of(world)
    match what:
        case "failed":
            await world.set_status(first, phase="Failed")
        case "gone":
            await world.remove(first)
        case "served":
            served = {"metadata": {"annotations": {"hami.io/bind-phase": "success"}}}
            await world.server.patch("pods", "first", served, namespace="default")
    await until("the lock is freed", lambda: lock_of(world) != held)
    assert (await world.filter_until(service, second)).node == "n1"


async def test_the_lock_of_a_pod_that_starts_still_stays(world):
    """Longer than it takes to look after those whose pods are over."""
    await world.add_nodes("n1", "n2", locked=True)
    service = await world.service()
    await world.place(service, "first", gpu=1, mem=1000)
    await world.server.patch("nodes", "n2", {"metadata": {"annotations": {LOCK: a_lock("nobody")}}})
    await until("another one's is freed", lambda: not lock_of(world, "n2"))
    assert lock_of(world).endswith(",default,first")


async def test_a_killed_ones_lock_serves_the_same_pod_again(world):
    await world.add_nodes("n1", locked=True)
    service = await world.service()
    pod = await filtered(world, service, "p")
    gate = world.server.gate()
    binding = world.ask(world.bind(service, pod, "n1"))
    await gate.come()
    before = lock_of(world)
    await service.kill()
    await binding
    world.server.front.gates.clear()
    await service.start()
    await world.filter_until(service, pod)
    assert await world.bind(service, pod, "n1") == ""
    assert lock_of(world) == before
    gate.release()
    await world.agree(service)


LEASE = "hami-nvidia-n1"


def a_lease(*, seconds_ago):
    renewed = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    spec = {"holderIdentity": "n1", "renewTime": renewed.strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
    metadata = {
        "name": LEASE,
        "namespace": "kube-node-lease",
        "labels": {"hami.io/agent": "NVIDIA"},
    }
    return {
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec,
    }  # fmt: skip


async def test_what_a_dead_agent_said_of_its_node_spares_no_lock(world):
    """It says "kubelet" still; HAMi's plugin may be there by now, and needs the lock."""
    await world.add_nodes("n1", agent="kubelet")
    await world.server.create(a_lease(seconds_ago=600))
    service = await world.service()
    await world.place(service, "first", gpu=1, mem=1000)
    assert lock_of(world).endswith(",default,first")
    second = await world.add_pod("second", gpu=1, mem=1000)
    await refused(world, service, second)
    # An agent of ours is there again: it needs no lock, whoever has it.
    renewed = {"spec": {"renewTime": a_lease(seconds_ago=500)["spec"]["renewTime"]}}
    await world.server.patch(
        "leases", LEASE, renewed, namespace="kube-node-lease", group="coordination.k8s.io"
    )
    await world.filter_until(service, second)
    assert await world.bind(service, second, "n1") == ""
    assert lock_of(world).endswith(",default,first")


async def test_a_live_agent_that_needs_no_lock_is_believed(world):
    await world.add_nodes("n1", agent="kubelet")
    await world.server.create(a_lease(seconds_ago=5))
    service = await world.service()
    await world.place(service, "p", gpu=1, mem=1000)
    assert lock_of(world) == ""


async def test_an_agent_without_any_lease_is_not_believed(world):
    """One from before, or one whose Lease went with a node of the same name."""
    await world.add_nodes("n1", agent="kubelet")
    service = await world.service()
    await world.place(service, "p", gpu=1, mem=1000)
    assert lock_of(world).endswith(",default,p")


async def test_who_publishes_the_same_devices_is_seen_at_once_and_not_when_the_lease_ends(world):
    await world.add_nodes("n1", agent="kubelet")
    await world.server.create(a_lease(seconds_ago=5))
    service = await world.service()
    node = world.server.get("nodes", "n1")
    theirs = node["metadata"]["annotations"][REGISTER].strip()
    await world.server.patch("nodes", "n1", {"metadata": {"annotations": {REGISTER: theirs}}})
    await world.place(service, "p", gpu=1, mem=1000)
    assert lock_of(world).endswith(",default,p")


async def test_an_agent_that_needs_no_lock_costs_none(world):
    await world.add_nodes("n1")
    service = await world.service()
    await world.place(service, "p", gpu=1, mem=1000)
    assert lock_of(world) == ""
    assert world.writes() == [("create", "pods", "binding", 201, 1)]
