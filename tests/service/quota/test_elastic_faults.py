"""Elastic quotas while things go wrong: restarts, other leaders, binds that fail, quotas that move."""

from __future__ import annotations

import signal

from ..test_leaders import FAST, takes_over
from ..world.process import until
from .test_elastic import (
    CARD,
    GROUP,
    MEMORY,
    cluster,  # noqa: F401 -- a fixture
    comes_in,
    define,
    elastic,
    nos_example,
    place,
    shows,
    wants,
)


async def refused(world, service, pod, rule):
    answer = await world.filter(service, pod)
    assert answer.reasons, answer
    (said,) = set(answer.reasons.values())
    assert f"ElasticQuota a/quota: {rule}: {MEMORY}" in said


async def one_full_quota(world):
    """``a`` may hold 10 GB, and there is room for much more."""
    await define(world)
    await world.add_namespace("a")
    await world.add_nodes("n1", devices=4, memory=CARD, slots=1)
    await elastic(world, "a", 10, most=10)


async def test_who_has_ended_is_not_counted_after_a_restart(world):
    await one_full_quota(world)
    service = await world.service()
    ended = await place(world, service, "a", 0)
    await world.set_status(ended, phase="Succeeded")
    await service.kill()
    await service.start()
    await shows(world, service, a=0)
    await place(world, service, "a", 1)
    await shows(world, service, a=10)
    await refused(world, service, await world.add_pod("p", namespace="a", gpu=1, mem=CARD), "max")


async def test_a_binding_that_is_refused_gives_its_quota_back(world):
    await one_full_quota(world)
    service = await world.service()
    pod, other = [await world.add_pod(n, namespace="a", gpu=1, mem=CARD) for n in ("p", "other")]
    assert (await world.filter(service, pod)).node
    await refused(world, service, other, "max")
    world.fault(verb="create", resource="pods", subresource="binding", status=403, times=1)
    assert "403" in await world.bind(service, pod, "n1")
    assert (await world.filter_until(service, other)).node
    assert await world.bind(service, other, "n1") == ""
    await refused(world, service, pod, "max")
    await world.agree(service)


async def test_a_pod_on_its_way_out_holds_its_quota_until_it_is_gone(world):
    await one_full_quota(world)
    service = await world.service()
    leaves = await place(world, service, "a", 0)
    await world.remove(leaves, grace=600)
    waits = await world.add_pod("waits", namespace="a", gpu=1, mem=CARD)
    await refused(world, service, waits, "max")
    await world.remove(leaves)
    await comes_in(world, service, waits)


async def test_a_namespace_moves_between_quotas_and_is_charged_once_each_time(world, cluster):  # noqa: F811
    service = cluster
    await elastic(world, "c", 40, kind="CompositeElasticQuota", namespaces=["a", "b"])
    await place(world, service, "a", 0)
    await place(world, service, "b", 0)

    def composite():
        found = world.server.get("compositeelasticquotas", "quota", group=GROUP, namespace="c")
        return found.get("status", {}).get("used", {}).get(MEMORY)

    async def composite_shows(gb):
        await until(f"the composite shows {gb}", lambda: composite() == str(gb), story=service.last_lines)  # fmt: skip

    async def covers(*namespaces):
        patch = {"spec": {"namespaces": list(namespaces)}}
        await world.server.patch("compositeelasticquotas", "quota", patch, group=GROUP, namespace="c")  # fmt: skip

    await composite_shows(20)
    await covers("b")
    await composite_shows(10)
    await elastic(world, "a", 10, most=10)
    await shows(world, service, a=10)
    await wants(world, service, "a", "beyond")
    await covers("a", "b")
    await composite_shows(20)
    await world.remove(await place(world, service, "a", 1))
    await composite_shows(20)
    await world.agree(service)


async def test_what_was_held_is_free_after_a_restart_and_claimed_again(
    world,
    cluster,  # noqa: F811
):
    """Nobody gets more for it; the victim's replacement may come first, and goes again."""
    service = cluster
    await nos_example(world)
    b = [await place(world, service, "b", n) for n in range(8)]
    claimant = await wants(world, service, "c", "claimant")
    await until("a pod of b is gone", lambda: not all(map(world.there, b)), story=service.last_lines)  # fmt: skip
    await service.kill()
    await service.start()
    again = await world.add_pod("again", namespace="b", gpu=1, mem=CARD)
    answer = await world.filter_until(service, again)
    assert await world.bind(service, again, answer.node) == ""
    await world.set_status(again, phase="Running")
    await wants(world, service, "b", "one-more")
    assert (await world.filter(service, claimant)).reasons
    await comes_in(world, service, claimant)
    await shows(world, service, b=70, c=10)
    await world.agree(service)


async def test_another_leader_and_back_again_and_each_pod_is_charged_once(world):
    """What the first had promised is void; what comes late from then is refused."""
    await one_full_quota(world)
    first = await world.service("first", identity="first", **FAST)
    await takes_over(first)
    second = await world.service("second", identity="second", **FAST)
    pod = await world.add_pod("p", namespace="a", gpu=1, mem=CARD)
    assert (await world.filter_until(first, pod)).node
    first.signal(signal.SIGSTOP)
    binding = world.ask(world.bind(first, pod, "n1"))  # Is read once it wakes up.
    await takes_over(second)
    other = await world.add_pod("other", namespace="a", gpu=1, mem=CARD)
    answer = await world.filter_until(second, other)
    assert await world.bind(second, other, answer.node) == ""
    await world.set_status(other, phase="Running")
    first.signal(signal.SIGCONT)
    assert "lead" in await binding
    assert world.node_of(pod) == ""
    await shows(world, second, a=10)
    await second.kill()
    await takes_over(first)
    await refused(world, first, pod, "max")
    await world.remove(other)
    await comes_in(world, first, pod)
    await shows(world, first, a=10)
    await world.agree(first)


async def test_a_followers_webhook_lets_in_what_the_leader_then_refuses(world):
    """It knows nothing of what the leader has promised: worse than that it never is."""
    await one_full_quota(world)
    leader = await world.service("leader", identity="leader", **FAST)
    await takes_over(leader)
    follower = await world.service("follower", identity="follower", **FAST)
    promised = await world.add_pod("promised", namespace="a", gpu=1, mem=CARD)
    assert (await world.filter_until(leader, promised)).node
    late = await world.add_pod("late", namespace="a", gpu=1, mem=CARD)
    review = {
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "r", "operation": "CREATE", "namespace": "a",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "object": {**late, "spec": {**late["spec"], "schedulerName": "default-scheduler"}},
        },
    }  # fmt: skip
    async with world.session.post(f"{follower.public}/webhook", json=review) as answer:
        assert (await answer.json())["response"]["allowed"]
    await refused(world, leader, late, "max")
    assert await world.bind(leader, promised, "n1") == ""
    await refused(world, leader, late, "max")


async def test_a_quota_of_one_model_is_charged_for_the_device_that_was_chosen(world):
    await define(world)
    await world.add_namespace("a")
    await world.add_nodes("big", model="NVIDIA-A100-40GB", memory=CARD, slots=1)
    await world.add_nodes("small", model="NVIDIA-V100", memory=CARD, slots=1)
    a100, v100 = "nvidia.com/gpumem@A100", "nvidia.com/gpumem@V100"
    await world.server.create(
        {
            "apiVersion": "nos.nebuly.com/v1alpha1", "kind": "ElasticQuota",
            "metadata": {"name": "quota", "namespace": "a"},
            "spec": {"min": {a100: 20000, v100: 50000}, "max": {a100: 5000}},
        }
    )  # fmt: skip
    service = await world.service()
    pod = await place(world, service, "a", 0)
    assert world.node_of(pod) == "small", "of the other model it may have less"

    def said():
        quota = world.server.get("elasticquotas", "quota", group=GROUP, namespace="a")
        return quota.get("status", {}).get("used")

    await until("it is charged there", lambda: said() == {a100: "0", v100: str(CARD)}, story=lambda: f"{said()}\n{service.last_lines()}")  # fmt: skip
    waits = await world.add_pod("waits", namespace="a", gpu=1, mem=CARD)
    answer = await world.filter(service, waits)
    assert f"max: {a100}: used 0 MiB + asked {CARD} MiB > limit 5000 MiB" in answer.reasons["big"]


async def test_who_waited_before_a_restart_is_made_room_for_after_it(world, cluster):  # noqa: F811
    """kube-scheduler comes back to it only when it is woken, or after minutes."""
    service = cluster
    await nos_example(world)
    for number in range(8):
        await place(world, service, "b", number)
    keeps = world.fault(verb="create", resource="pods", subresource="eviction", status=429)
    claimant = await wants(world, service, "c", "claimant")
    beyond = await wants(world, service, "b", "beyond")
    await until(
        "its victim is kept", lambda: world.events("PreemptionHeldUp"), story=service.last_lines
    )
    await service.kill()
    world.faults.remove(keeps)
    await service.start()
    await until(
        "the claimant is woken",
        lambda: world.annotation(claimant, "wake-up") == "1",
        story=service.last_lines,
    )
    assert (await world.filter(service, claimant)).reasons, "now it is known where it may go"
    await until(
        "it is woken once its victim is gone",
        lambda: world.annotation(claimant, "wake-up") == "2",
        story=service.last_lines,
    )
    answer = await world.filter_until(service, claimant)
    assert await world.bind(service, claimant, answer.node) == ""
    assert world.annotation(beyond, "wake-up") == "", "nobody would go for it"
    await world.agree(service)
