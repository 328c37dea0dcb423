"""The service is killed, at any point between filter and bind, and started again: it knows what runs
from the pods alone, gives nothing twice, and goes on where kube-scheduler goes on.
"""

from __future__ import annotations

import pytest

from .world.process import until
from .world.recount import Amount

BOUND = ("create", "pods", "binding", 201)


def bindings(world):
    return [write for write in world.writes() if write[:3] == BOUND[:3]]


async def restarted(world, service):
    """SIGKILL, and another process that knows nothing of the first."""
    await service.kill()
    await service.start()


async def test_what_is_bound_stays_charged_without_a_second_binding(world):
    await world.add_nodes("n1", "n2", devices=2)
    service = await world.service()
    for n in range(6):
        await world.place(service, f"p{n}", gpu=1, mem=4000, cores=10)
    before = await service.used()
    await restarted(world, service)
    assert await service.used() == before
    await world.agree(service)
    assert bindings(world) == [(*BOUND, 6)]


async def test_a_bind_without_a_reservation_finds_room_anew(world):
    await world.add_nodes("n1")
    service = await world.service()
    pod = await world.add_pod("p", gpu=1, mem=9000)
    assert (await world.filter(service, pod)).node == "n1"
    assert await service.used() == {("n1", "GPU-n1-0"): Amount(1, 9000, 0)}, "it is reserved"
    await restarted(world, service)
    assert await service.used() == {("n1", "GPU-n1-0"): Amount()}, "the reservation died with it"
    assert await world.bind(service, pod, "n1") == ""
    await world.agree(service)


async def test_a_bind_without_a_reservation_is_refused_where_another_pod_took_the_place(world):
    await world.add_nodes("n1")
    service = await world.service()
    late = await world.add_pod("late", gpu=1, mem=9000)
    assert (await world.filter(service, late)).node == "n1"
    await restarted(world, service)
    other = await world.place(service, "other", gpu=1, mem=9000)
    assert "CardInsufficientMemory" in await world.bind(service, late, "n1")
    assert "CardInsufficientMemory" in (await world.filter(service, late)).reasons["n1"]
    await world.agree(service)
    await world.remove(other)
    await until("the place is free", lambda: _placed(world, service, late))
    assert await world.bind(service, late, "n1") == ""
    await world.agree(service)


async def _placed(world, service, pod):
    return (await world.filter(service, pod)).node


@pytest.mark.parametrize(
    ("late", "when"),
    [
        pytest.param(True, "before", id="it was carried out, and the answer was lost"),
        pytest.param(False, "before", id="it is carried out before the next one starts"),
        pytest.param(False, "while", id="it is carried out while the next one starts"),
        pytest.param(False, "after", id="it is carried out once the next one serves"),
    ],
)
async def test_killed_while_a_binding_is_on_its_way(world, late, when):
    await world.add_nodes("n1")
    service = await world.service()
    await world.place(service, "first", gpu=1, mem=5000)
    pod = await world.add_pod("p", gpu=1, mem=9000)
    assert (await world.filter(service, pod)).node == "n1"
    gate = world.server.gate(late=late)
    binding = world.ask(world.bind(service, pod, "n1"))
    await gate.come()
    await service.kill()
    assert isinstance(await binding, Exception), "kube-scheduler lost its answer"
    if when == "before":
        gate.release()
        await until("the binding is done", lambda: world.node_of(pod) == "n1")
        await service.start()
    elif when == "while":
        await service.launch()
        gate.release()
        await service.ready()
    else:
        await service.start()
        gate.release()
        await until("the binding is done", lambda: world.node_of(pod) == "n1")
    # kube-scheduler comes again, with either call.
    assert (await world.filter(service, pod)).node == "n1"
    assert await world.bind(service, pod, "n1") == ""
    await world.agree(service)
    assert world.books.bound[pod["metadata"]["uid"]] == 1
    assert await service.used() == {("n1", "GPU-n1-0"): Amount(2, 14000, 0)}


async def test_killed_between_two_bindings_of_one_device(world):
    """What was reserved for the second is free again, what the first one has is not."""
    await world.add_nodes("n1")
    service = await world.service()
    pods = [await world.add_pod(f"p{n}", gpu=1, mem=8000) for n in range(3)]
    for pod in pods[:2]:
        assert (await world.filter(service, pod)).node == "n1"
    assert "CardInsufficientMemory" in (await world.filter(service, pods[2])).reasons["n1"]
    assert await world.bind(service, pods[0], "n1") == ""
    await restarted(world, service)
    assert (await world.filter(service, pods[2])).node == "n1"
    assert await world.bind(service, pods[2], "n1") == ""
    assert "CardInsufficientMemory" in await world.bind(service, pods[1], "n1")
    await world.agree(service)


async def test_a_stopped_one_finishes_the_bind_that_is_under_way(world):
    await world.add_nodes("n1")
    service = await world.service()
    pod = await world.add_pod("p", gpu=1, mem=9000)
    assert (await world.filter(service, pod)).node == "n1"
    gate = world.server.gate()
    binding = world.ask(world.bind(service, pod, "n1"))
    await gate.come()
    stopping = world.ask(service.stop())
    await until("it takes no new calls", lambda: _refuses(world, service))
    gate.release()
    assert await binding == ""
    assert await stopping == 0
    assert world.node_of(pod) == "n1"


async def _refuses(world, service):
    try:
        await service.text("/healthz")
    except OSError:
        return True
    return False


async def test_ended_and_deleted_pods_are_nobodys_after_a_restart(world):
    await world.add_nodes("n1")
    service = await world.service()
    ended = await world.place(service, "ended", gpu=1, mem=4000)
    deleted = await world.place(service, "deleted", gpu=1, mem=4000)
    going = await world.place(service, "going", gpu=1, mem=4000)
    await service.kill()
    await world.set_status(ended, phase="Succeeded")
    await world.remove(deleted)
    await world.remove(going, grace=30)  # kubelet has not ended it yet
    await service.start()
    assert await service.used() == {("n1", "GPU-n1-0"): Amount(1, 4000, 0)}
    await world.agree(service)
