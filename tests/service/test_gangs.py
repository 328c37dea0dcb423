"""Gangs through the whole service: together or not at all, and nobody starves behind one."""

from __future__ import annotations

import asyncio

import pytest

from .faults.test_faults_locks import LOCK, lock_of, refused
from .test_watch_waking import add_priority, asleep, bound, waiting, woken
from .world.process import until

GROUP = "scheduling.x-k8s.io/pod-group"


async def a_gang(world, service, size, *, group="g", mem=6000, **more):
    """Its pods, all of which the service has seen."""
    before = (await service.summary())["pods"]["waiting"]
    pods = []
    for number in range(size):
        asks = {"gpu": 1, "mem": mem, "labels": {GROUP: group}, **more}
        pods.append(await world.add_pod(f"{group}{number}", **asks))

    async def seen():
        return (await service.summary())["pods"]["waiting"] == before + size

    await until("the gang is seen", seen, story=service.last_lines)
    return pods


async def reserved(service):
    return (await service.summary())["pods"]["reserved"]


async def filtered(world, service, *pods):
    return [(await world.filter(service, pod)).node for pod in pods]


async def test_two_of_three_hold_nothing_and_a_pod_that_fits_is_bound(world):
    await world.add_nodes("n1")
    service = await world.service()
    gang = await a_gang(world, service, 3)
    assert await filtered(world, service, *gang, *gang) == [""] * 6
    assert await reserved(service) == 0
    await world.place(service, "single", gpu=1, mem=6000)
    await world.agree(service)


async def test_the_pod_says_which_group_lacks_what(world):
    await world.add_nodes("n1")
    service = await world.service()
    gang = await a_gang(world, service, 3)
    answer = await world.filter(service, gang[0])
    (reason,) = answer.reasons.values()
    assert reason.startswith("PodGroupNotFit: 3 waiting pods of group default/g must have devices")


async def test_all_are_woken_when_there_is_room_for_all(world):
    await world.add_nodes("n1")
    service = await world.service()
    runs = await world.place(service, "runs", gpu=1, mem=4000)
    gang = await a_gang(world, service, 3, mem=5000)
    assert await filtered(world, service, *gang) == [""] * 3
    await asleep(world, *gang)
    await world.remove(runs)
    await woken(world, service, *gang)
    for pod in gang:
        await bound(world, service, pod)
    await world.agree(service)


async def test_none_is_woken_when_there_is_room_for_some(world):
    await world.add_nodes("n1")
    service = await world.service()
    runs = [await world.place(service, f"runs{n}", gpu=1, mem=5000) for n in range(3)]
    gang = await a_gang(world, service, 3, mem=5000)
    assert await filtered(world, service, *gang) == [""] * 3
    await world.remove(runs[0])
    await world.remove(runs[1])
    await asleep(world, *gang)


async def test_those_who_were_refused_before_are_woken_for_what_a_sibling_got_them(world):
    """Otherwise kube-scheduler asks for them after five minutes, and devices lie idle."""
    await world.add_nodes("n1")
    service = await world.service()
    first = await a_gang(world, service, 2, mem=9000)
    assert await filtered(world, service, *first) == ["", ""]
    await world.add_nodes("n2")
    assert (await world.filter(service, first[0])).node
    await woken(world, service, first[1])
    for pod in first:
        await bound(world, service, pod)
    await world.agree(service)


async def test_what_a_gang_held_is_for_others_when_one_of_it_goes(world):
    await world.add_nodes("n1")
    service = await world.service()
    gang = await a_gang(world, service, 2)
    assert (await world.filter(service, gang[0])).node == "n1"
    waits = await waiting(world, service, "waits", gpu=1, mem=9000)
    await world.remove(gang[1])
    await woken(world, service, waits)
    await bound(world, service, waits)


@pytest.mark.parametrize(
    "mark",
    [
        pytest.param({"spec": {"schedulingGroup": {"podGroupName": "g"}}}, id="Kubernetes' own"),
        pytest.param({"labels": {GROUP: "g"}}, id="scheduler-plugins'"),
        pytest.param({"annotations": {"scheduling.k8s.io/group-name": "g"}}, id="Volcano's"),
    ],
)
async def test_on_a_node_that_takes_one_at_a_time_a_gang_is_bound_one_by_one(world, mark):
    """It does not wait for itself, nobody comes in between, and the lock is one pod's at a time."""
    await world.add_nodes("n1", locked=True)
    service = await world.service()
    gang = await a_gang(world, service, 3, mem=1000, **{"labels": {}, **mark})
    assert await filtered(world, service, *gang) == ["n1"] * 3
    stranger = await world.add_pod("stranger", gpu=1, mem=1000)
    await refused(world, service, stranger)
    binds = [world.ask(world.bind(service, pod, "n1")) for pod in gang]
    served = []
    for _ in gang:
        await until("the lock is taken", lambda: lock_of(world), story=service.last_lines)
        served.append(lock_of(world).rpartition(",")[2])
        await until("its pod is bound", lambda: world.node_of(world.pod(served[-1])))
        await asyncio.sleep(0.3)  # For what should not come: who waits looks every 100 ms.
        assert sorted(pod["metadata"]["name"] for pod in gang if world.node_of(pod)) == sorted(
            served
        )
        assert lock_of(world).endswith(f",{served[-1]}")
        await refused(world, service, stranger)
        await world.server.patch("nodes", "n1", {"metadata": {"annotations": {LOCK: None}}})
    assert await asyncio.gather(*binds) == [""] * 3
    await bound(world, service, stranger)
    await world.agree(service)


async def asked_until(world, service, pods, condition):
    """As kube-scheduler does for pods that something else keeps from being bound."""

    async def asked():
        await filtered(world, service, *pods)
        return await condition()

    await until("it makes way", asked, story=service.last_lines)


async def test_a_gang_that_cannot_be_complete_makes_way_after_its_time(world):
    """Each of its pods is asked for again and again; there is no third one."""
    await world.add_nodes("n1")
    service = await world.service(reservation_ttl="3s")
    gang = await a_gang(world, service, 2)
    assert await filtered(world, service, *gang) == ["n1", "n1"]
    waits = await waiting(world, service, "waits", gpu=1, mem=9000)

    async def is_woken():
        await asyncio.sleep(0.2)
        return bool(world.annotation(waits, "wake-up"))

    await asked_until(world, service, gang, is_woken)
    await bound(world, service, waits)
    answer = await world.filter(service, gang[0])
    assert not answer.node


async def test_a_single_pod_that_is_never_bound_makes_way_too(world):
    await world.add_nodes("n1")
    service = await world.service(reservation_ttl="3s")
    holder = await world.add_pod("holder", gpu=1, mem=9000)
    assert (await world.filter(service, holder)).node == "n1"
    waits = await waiting(world, service, "waits", gpu=1, mem=9000)

    async def is_woken():
        await asyncio.sleep(0.2)
        return bool(world.annotation(waits, "wake-up"))

    await asked_until(world, service, [holder], is_woken)
    answer = await world.filter(service, holder)
    assert "GivesWay" in str(answer.reasons)
    await bound(world, service, waits)
    await world.remove(waits)
    await woken(world, service, holder)
    await bound(world, service, holder)
    await world.agree(service)


def is_going(world, pod):
    return (world.now(pod) or {"metadata": {"deletionTimestamp": "x"}})["metadata"].get(
        "deletionTimestamp"
    )


async def test_room_is_made_for_the_whole_gang_by_evicting_what_matters_less(world):
    """Each of its pods alone would fit."""
    await add_priority(world)
    await world.add_nodes("n1")
    service = await world.service()
    low = await world.place(service, "low", gpu=1, mem=8000)
    gang = await a_gang(world, service, 2, mem=8000, priority="high")
    assert await filtered(world, service, *gang) == ["", ""]
    await until("it is evicted", lambda: is_going(world, low), story=service.last_lines)
    await world.remove(low)
    for pod in gang:
        await world.filter_until(service, pod)
    for pod in gang:
        await bound(world, service, pod)
    await world.agree(service)
