"""A waiting pod is touched when there is room for it, and only then."""

from __future__ import annotations

import asyncio

import pytest

from .world.objects import a_container, a_quota
from .world.process import until

SOON = 0.5
"""Seconds to wait for what should not come."""


async def waiting(world, service, name, *nodes, **asks):
    """A pod that was refused on these nodes."""
    pod = await world.add_pod(name, **asks)
    answer = await world.filter(service, pod, *nodes)
    assert answer.reasons, answer
    return pod


def wakes(world, pod):
    return world.annotation(pod, "wake-up")


async def woken(world, service, *pods):
    for pod in pods:
        await until(
            f"{pod['metadata']['name']} is woken",
            lambda pod=pod: wakes(world, pod),
            story=service.last_lines,
        )


async def asleep(world, *pods):
    await asyncio.sleep(SOON)
    assert [wakes(world, pod) for pod in pods] == [""] * len(pods)


async def bound(world, service, pod):
    answer = await world.filter(service, pod)
    assert answer.node, answer
    assert await world.bind(service, pod, answer.node) == ""


class TestWhatFrees:
    @pytest.fixture
    async def full(self, world):
        """A device with 16000 MiB, a pod that has 12000 of them after its start, and one that waits."""
        await world.add_nodes("n1")
        service = await world.service()
        runs = await world.place(
            service, "runs", gpu=1, mem=4000, inits=[a_container("once", gpu=1, mem=12000)]
        )
        waits = await waiting(world, service, "waits", gpu=1, mem=9000)
        await asleep(world, waits)
        return service, runs, waits

    async def test_a_deleted_pod(self, world, full):
        service, runs, waits = full
        await world.remove(runs)
        await woken(world, service, waits)
        await bound(world, service, waits)
        await world.agree(service)

    async def test_a_pod_that_ended(self, world, full):
        service, runs, waits = full
        await world.set_status(runs, phase="Failed")
        await woken(world, service, waits)
        await bound(world, service, waits)

    async def test_init_containers_that_ended(self, world, full):
        service, runs, waits = full
        ended = [{"name": "once", "state": {"terminated": {"exitCode": 0}}}]
        await world.set_status(runs, phase="Running", initContainerStatuses=ended)
        await woken(world, service, waits)
        await bound(world, service, waits)
        await world.agree(service)

    async def test_a_reservation_that_was_given_up(self, world):
        await world.add_nodes("n1")
        service = await world.service()
        first = await world.add_pod("first", gpu=1, mem=9000)
        assert (await world.filter(service, first)).node == "n1"
        waits = await waiting(world, service, "waits", gpu=1, mem=9000)
        await world.remove(first)
        await woken(world, service, waits)

    async def test_a_new_node_for_whoever_was_offered_it(self, world):
        await world.add_nodes("n1", memory=1000)
        service = await world.service()
        waits = await waiting(world, service, "waits", gpu=1, mem=9000)
        await world.annotate("nodes", "n1", device_cordon="")
        await asleep(world, waits)
        await world.server.delete("nodes", "n1")
        await world.add_nodes("n1", memory=16000)
        await woken(world, service, waits)
        await bound(world, service, waits)

    async def test_a_device_that_is_cordoned_no_more(self, world):
        await world.add_nodes("n1", device_cordon="GPU-n1-0")
        service = await world.service()
        waits = await waiting(world, service, "waits", gpu=1, mem=9000)
        await world.annotate("nodes", "n1", device_cordon=None)
        await woken(world, service, waits)
        await bound(world, service, waits)


class TestQuota:
    @pytest.fixture
    async def limited(self, world):
        await world.add_nodes("n1", devices=4)
        await world.server.create(a_quota("q", mem=10000))
        service = await world.service()
        runs = await world.place(service, "runs", gpu=1, mem=8000)
        waits = await waiting(world, service, "waits", gpu=1, mem=5000)
        await asleep(world, waits)
        return service, runs, waits

    async def test_raised(self, world, limited):
        service, _, waits = limited
        await world.set_quota("q", mem=12000)
        await asleep(world, waits)
        await world.set_quota("q", mem=13000)
        await woken(world, service, waits)
        await bound(world, service, waits)
        await world.agree(service)

    async def test_removed(self, world, limited):
        """No limit is left: nothing says that any was there."""
        service, _, waits = limited
        await world.server.delete("resourcequotas", "q", namespace="default")
        await woken(world, service, waits)
        await bound(world, service, waits)

    async def test_that_limits_something_else_from_now_on(self, world, limited):
        service, _, waits = limited
        spec = {"hard": {"limits.nvidia.com/gpumem": None, "pods": "10"}}
        await world.server.patch("resourcequotas", "q", {"spec": spec}, namespace="default")
        await woken(world, service, waits)
        await bound(world, service, waits)

    async def test_used_no_more(self, world, limited):
        service, runs, waits = limited
        await world.remove(runs)
        await woken(world, service, waits)
        await bound(world, service, waits)
        await world.agree(service)

    async def test_of_another_namespace(self, world, limited):
        _, _, waits = limited
        await world.add_namespace("team")
        await world.server.create(a_quota("q", "team", mem=10000))
        await world.server.delete("resourcequotas", "q", namespace="team")
        await asleep(world, waits)


async def add_priority(world):
    body = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "high"},
        "value": 10,
    }
    await world.server.create(body)


async def test_as_many_as_fit_together_by_priority_and_age(world):
    await add_priority(world)
    await world.add_nodes("n1")
    service = await world.service(priority_preemption="false")
    runs = await world.place(service, "runs", gpu=1, mem=15000)
    low = [await waiting(world, service, f"low{n}", gpu=1, mem=8000) for n in range(2)]
    high = await waiting(world, service, "high", gpu=1, mem=8000, priority="high")
    await world.remove(runs)
    await woken(world, service, high)
    await bound(world, service, high)
    first, second = low
    await woken(world, service, first)
    await bound(world, service, first)
    await asleep(world, second)


async def test_one_that_was_woken_for_nothing_makes_way_for_the_next(world):
    """Another plugin of kube-scheduler may say no; what fits is then for somebody else."""
    await add_priority(world)
    await world.add_nodes("n1", "n2")
    service = await world.service(priority_preemption="false")
    runs = await world.place(service, "runs", gpu=1, mem=15000)
    other = await world.place(service, "other", gpu=1, mem=15000)
    assert {world.node_of(runs), world.node_of(other)} == {"n1", "n2"}
    first = await waiting(world, service, "first", gpu=1, mem=15000, priority="high")
    second = await waiting(world, service, "second", gpu=1, mem=15000)
    await world.remove(runs)
    await woken(world, service, first)
    assert wakes(world, second) == ""
    left = world.node_of(other)
    answer = await world.filter(service, first, left)
    assert not answer.node, "its affinity allows only the other node by now"
    await woken(world, service, second)
    await bound(world, service, second)


async def test_not_for_a_node_that_it_was_never_offered(world):
    """Taints and affinity are kube-scheduler's business."""
    await world.add_nodes("n1", "n2")
    service = await world.service()
    runs = [await world.place(service, f"runs{n}", gpu=1, mem=15000) for n in range(2)]
    on = {world.node_of(pod): pod for pod in runs}
    waits = await waiting(world, service, "waits", "n1", gpu=1, mem=9000)
    await world.remove(on["n2"])
    await asleep(world, waits)
    await world.remove(on["n1"])
    await woken(world, service, waits)


async def test_not_by_a_follower(world):
    await world.add_nodes("n1")
    service = await world.service()
    runs = await world.place(service, "runs", gpu=1, mem=15000)
    waits = await waiting(world, service, "waits", gpu=1, mem=9000)
    await service.kill()
    follower = await world.service("follower", leader_mode="colocated", hostname="another")
    await world.remove(runs)
    await until("it knows", lambda: _idle(follower))
    await asleep(world, waits)


async def _idle(service):
    return (await service.summary())["pods"]["bound"] == 0


async def test_after_a_restart_whoever_fits_is_woken_once(world):
    """Nobody knows which of them the former process refused, nor what has come free since."""
    await world.add_nodes("n1")
    service = await world.service()
    runs = await world.place(service, "runs", gpu=1, mem=15000)
    waits = await waiting(world, service, "a-waits", gpu=1, mem=9000)
    later = await waiting(world, service, "b-waits", gpu=1, mem=9000)
    await service.kill()
    await world.remove(runs)
    await service.start()
    await woken(world, service, waits)
    await bound(world, service, waits)
    await asleep(world, later)
    assert wakes(world, waits) == "1"
