"""Watches that end, are refused, forget, repeat themselves and speak in the wrong order: what the
service knows comes to be what there is.
"""

from __future__ import annotations

import pytest

from .world.process import until
from .world.recount import Amount

WATCH = {"verb": "watch"}


async def free(world, service, name, mem=9000):
    """A new pod of this size is placed, sooner or later."""
    pod = await world.add_pod(name, gpu=1, mem=mem)

    async def placed():
        answer = await world.filter(service, pod)
        return answer.node and await world.bind(service, pod, answer.node) == ""

    await until(f"{name} has a place", placed, story=service.last_lines)
    return pod


@pytest.mark.parametrize("resource", ["pods", "nodes", "resourcequotas", ""])
async def test_what_happened_while_a_watch_was_cut_is_caught_up_on(world, resource):
    await world.add_nodes("n1")
    service = await world.service()
    gone = await world.place(service, "gone", gpu=1, mem=9000)
    world.faults.cut_watches(resource)
    await world.remove(gone)
    await free(world, service, "next")
    await world.agree(service)


async def test_what_happened_before_a_version_that_is_forgotten_is_listed_anew(world):
    await world.add_nodes("n1", "n2")
    service = await world.service()
    gone = await world.place(service, "gone", gpu=1, mem=9000)
    anew = await world.place(service, "anew", gpu=1, mem=3000)
    ended = await world.place(service, "ended", gpu=1, mem=9000)
    silence = world.fault(**WATCH, status=503)
    world.faults.cut_watches()
    await until("no watch is open", lambda: silence.hits >= 3)
    await world.remove(gone)
    await world.remove(anew)
    await world.add_pod("anew", gpu=1, mem=3000)
    await world.set_status(ended, phase="Succeeded")
    await world.server.delete("nodes", "n2")
    world.server.forget_history()
    world.faults.remove(silence)
    await free(world, service, "next")
    await world.agree(service)
    assert set(await service.used()) == {("n1", "GPU-n1-0")}


async def test_the_very_list_is_refused_in_its_middle(world):
    """410 on a later page: a list that takes longer than what the server remembers."""
    await world.add_nodes("n1", slots=1000, memory=1_000_000)
    for n in range(600):  # More than a page.
        await world.add_pod(f"p{n}", gpu=1, mem=1)
    fault = world.fault(
        verb="list", resource="pods", status=410, matches=lambda r: "continue" in r.query, times=1
    )
    service = await world.service()
    assert fault.hits == 1
    assert (await service.summary())["pods"]["waiting"] == 600


@pytest.mark.parametrize(
    "how", [{"duplicate": True}, {"reorder": True}, {"duplicate": True, "reorder": True}]
)
async def test_events_twice_and_backwards(world, how):
    await world.add_nodes("n1", "n2", devices=2)
    world.fault(**WATCH, **how)
    service = await world.service()
    for n in range(6):
        pod = await free(world, service, f"p{n % 3}", mem=9000)
        await world.annotate("pods", f"p{n % 3}", namespace="default", note="x")
        await world.set_status(pod, phase="Running")
        await world.agree(service)
        if n % 2 == 0:
            await world.set_status(pod, phase="Succeeded")
        # Made anew under its name at once: one batch says that it is gone and that it is there.
        await world.remove(pod)
    await world.agree(service)
    assert set((await service.used()).values()) == {Amount()}


async def test_a_pod_whose_binding_the_watch_never_showed(world):
    """kube-scheduler knows it from the answer, and others must not get its place meanwhile."""
    await world.add_nodes("n1")
    service = await world.service()
    silence = world.fault(**WATCH, resource="pods", status=503)
    pod = await world.add_pod("p", gpu=1, mem=9000)
    assert (await world.filter(service, pod)).node == "n1"
    other = await world.add_pod("other", gpu=1, mem=9000)
    answer = await world.filter(service, other)
    assert "CardInsufficientMemory" in answer.reasons["n1"]
    world.faults.cut_watches("pods")
    await until("no watch is open", lambda: silence.hits)
    assert await world.bind(service, pod, "n1") == ""
    assert "CardInsufficientMemory" in (await world.filter(service, other)).reasons["n1"]
    assert (await world.filter(service, pod)).node == "n1"
    assert await world.bind(service, pod, "n1") == "", "said again, and not done again"
    world.faults.remove(silence)
    await world.agree(service)
    assert world.books.bound == {pod["metadata"]["uid"]: 1}


async def test_a_pod_that_kube_scheduler_knows_first(world):
    """The filter waits a second for the informer, and then says that it is not there."""
    await world.add_nodes("n1")
    service = await world.service()
    silence = world.fault(**WATCH, resource="pods", status=503)
    world.faults.cut_watches("pods")
    await until("no watch is open", lambda: silence.hits)
    pod = await world.add_pod("p", gpu=1, mem=9000)
    assert "not seen yet" in (await world.filter(service, pod)).error
    world.faults.remove(silence)
    assert (await world.filter_until(service, pod)).node == "n1"


async def test_a_forged_body_changes_nothing(world):
    """Only the uid and the names are read of it."""
    await world.add_nodes("n1")
    service = await world.service()
    pod = await world.add_pod("p", gpu=1, mem=9000)
    forged = {**pod, "spec": {**pod["spec"], "containers": []}}
    assert (await world.filter(service, forged)).node == "n1"
    assert await service.used() == {("n1", "GPU-n1-0"): Amount(1, 9000, 0)}
