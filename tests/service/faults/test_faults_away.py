"""The API server is away: at the start, or for a while in the middle."""

from __future__ import annotations

import json

import pytest

from ..world.process import until
from ..world.recount import Amount

ALL = (
    "nodes, pods, quotas, elastic quotas, composite quotas, quota trees, disruption budgets, agents"
)
SOON = {"bind_timeout": "500ms"}


async def ready(service):
    return (await service.text("/readyz"))[0] == 200


async def test_it_waits_for_an_api_server_that_is_not_there_yet(world):
    """It listens at once, says what it waits for, and refuses to decide."""
    port = int(world.server.url.rpartition(":")[2])
    await world.server.stop()
    service = world.replica()
    await service.launch()
    status, text = await service.text("/readyz")
    assert (status, text) == (503, f"waiting for {ALL}\n")
    assert (await service.text("/healthz"))[0] == 200, "a restart would not help"
    pod = {"metadata": {"name": "p", "namespace": "default", "uid": "u"}}
    assert "not ready: waiting for nodes" in (await world.filter(service, pod, "n1")).error
    assert "not ready: waiting for nodes" in await world.bind(service, pod, "n1")
    await world.server.start(port=port)
    await world.add_nodes("n1")
    await service.ready()
    await world.filter_until(service, await world.add_pod("p", gpu=1, mem=9000))


async def test_it_waits_for_its_signing_keys_in_a_secret(world):
    """Nothing is bound unsigned meanwhile."""
    await world.add_nodes("n1")
    missing = world.fault(resource="secrets", status=503)
    service = world.replica(signing_key_secret="kube-system/keys")
    await service.launch()

    async def names_it():
        return await service.text("/readyz") == (503, "waiting for signing keys\n")

    await until("only the keys are missing", names_it, story=service.last_lines)
    pod = await world.add_pod("p", gpu=1, mem=9000)
    assert "waiting for signing keys" in (await world.filter(service, pod)).error
    world.faults.remove(missing)
    await service.ready()
    await world.place(service, "q", gpu=1, mem=1000)
    assert world.annotation(world.pod("q"), "allocation-signature")


@pytest.mark.parametrize("resource", ["nodes", "pods", "resourcequotas"])
async def test_it_is_not_ready_without_one_of_its_lists(world, resource):
    """A role that forbids one of them must not look like an empty cluster."""
    await world.add_nodes("n1")
    world.fault(verb="list", resource=resource, status=403)
    service = world.replica()
    await service.launch()
    missing = f"waiting for {resource.removeprefix('resource')}\n"

    async def names_it():
        return await service.text("/readyz") == (503, missing)

    await until("only that one is missing", names_it)
    pod = await world.add_pod("p", gpu=1, mem=9000)
    assert "not ready" in (await world.filter(service, pod)).error
    problems = [line["problem"] for line in service.logged() if "problem" in line]
    assert any(f"allow our account to list and watch {resource}" in text for text in problems)
    world.faults.clear()
    await service.ready()


async def test_a_filter_goes_on_from_memory_while_the_api_server_is_away(world):
    await world.add_nodes("n1")
    service = await world.service(**SOON)
    runs = await world.place(service, "runs", gpu=1, mem=9000)
    pods = [await world.add_pod(f"p{n}", gpu=1, mem=6000) for n in range(2)]
    assert (await world.filter(service, pods[0])).node == "n1"
    port = int(world.server.url.rpartition(":")[2])
    await world.server.stop()
    assert await ready(service), "a probe that fails would have it killed"
    assert (await world.filter(service, pods[0], "n1")).node == "n1", "the same promise again"
    refused = await world.filter(service, pods[1], "n1")
    assert "CardInsufficientMemory" in refused.reasons["n1"]
    assert "cannot reach" in await world.bind(service, pods[0], "n1")
    assert await service.used() == {("n1", "GPU-n1-0"): Amount(1, 9000, 0)}, "nothing was sent"
    # Meanwhile the pod that runs is gone, and nobody can say so.
    await world.remove(runs)
    assert (await world.filter(service, pods[0], "n1")).node == "n1"
    await world.server.start(port=port)
    for pod in pods:
        await world.filter_until(service, pod)
        assert await world.bind(service, pod, "n1") == ""
    await world.agree(service)


async def test_binds_fail_while_nobody_answers_and_nothing_leaks(world):
    """Connections are taken, and nothing comes: the worst of ways to be away."""
    await world.add_nodes("n1", devices=4)
    service = await world.service(**SOON)
    pods = [await world.add_pod(f"p{n}", gpu=1, mem=9000) for n in range(4)]
    for pod in pods:
        assert (await world.filter(service, pod)).node == "n1"
    silence = world.fault(latency=0.8, drop="before", verb="create", resource="pods")
    mute = world.fault(status=503, verb="get", resource="pods")
    binds = [world.ask(world.bind(service, pod, "n1")) for pod in pods]
    for binding in binds:
        assert "no answer within 0.5 s" in await binding
    assert (await service.summary())["pods"]["binding"] == 4, "nobody knows"
    for fault in (silence, mute):
        world.faults.remove(fault)

    async def settled():
        return (await service.summary())["pods"]["reserved"] == 4

    await until("it is known that none arrived", settled)
    for pod in pods[:2]:
        await world.remove(pod)
    for pod in pods[2:]:
        await world.filter_until(service, pod)
        assert await world.bind(service, pod, "n1") == ""
    await world.agree(service)


async def test_a_server_with_another_history(world):
    """Restored from a backup: pods are gone, and versions begin anew, so no watch can go on."""
    await world.add_nodes("n1")
    service = await world.service()
    gone = await world.place(service, "gone", gpu=1, mem=9000)
    kept = json.loads(world.kubeconfig.read_text())
    port = int(world.server.url.rpartition(":")[2])
    await world.server.stop()
    await world.remove(gone)
    world.server.forget_history()
    await world.server.start(port=port)
    assert json.loads(world.kubeconfig.read_text()) == kept

    async def empty():
        return set((await service.used()).values()) == {Amount()}

    await until("it knows that the pod is gone", empty)
    await world.place(service, "next", gpu=1, mem=9000)
    await world.agree(service)
