"""Elastic quotas through the real service: borrowed, taken back, shown, held."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from ..world.process import until

CRDS = Path(__file__).parents[3] / "charts/hami/crds"
GROUP = "nos.nebuly.com"
MEMORY = "nos.nebuly.com/gpu-memory"
GB = 1024
CARD = 10 * GB


async def define(world):
    for path in sorted(CRDS.glob("*.yaml")):
        await world.server.create(yaml.safe_load(path.read_text()))


async def elastic(world, namespace, least, most=None, *, kind="ElasticQuota", namespaces=None):
    """A quota of gpu-memory, in GB."""
    spec = {"min": {MEMORY: least}}
    if most is not None:
        spec["max"] = {MEMORY: most}
    if namespaces is not None:
        spec["namespaces"] = namespaces
    await world.server.create(
        {
            "apiVersion": "nos.nebuly.com/v1alpha1",
            "kind": kind,
            "metadata": {"name": "quota", "namespace": namespace},
            "spec": spec,
        }
    )


@pytest.fixture
async def cluster(world):
    """Twenty cards of 10 GB on four nodes; teams a, b and c; quotas come with the test."""
    await define(world)
    for team in "abc":
        await world.add_namespace(team)
    for node in range(4):
        await world.add_nodes(f"n{node}", devices=5, memory=CARD, slots=1)
    kubelet = asyncio.create_task(ends_pods(world))
    yield await world.service(preemption_hold="10s")
    kubelet.cancel()


async def ends_pods(world):
    """As a kubelet does it: a pod that is being deleted is gone a moment later."""
    while True:
        await asyncio.sleep(0.05)
        for pod in world.pods():
            if "deletionTimestamp" in pod["metadata"]:
                await world.remove(pod)


async def nos_example(world):
    """``min`` 40, 10 and 30 of the example in nos' documentation."""
    for team, least in (("a", 40), ("b", 10), ("c", 30)):
        await elastic(world, team, least)


async def place(world, service, team, number):
    pod = await world.place(service, f"{team}-{number}", namespace=team, gpu=1, mem=CARD)
    await world.set_status(pod, phase="Running")
    return pod


async def wants(world, service, team, name, **asks):
    """A pod that the filter refuses."""
    pod = await world.add_pod(name, namespace=team, **{"gpu": 1, "mem": CARD, **asks})
    answer = await world.filter(service, pod)
    assert answer.reasons, answer
    return pod


def used(world, team):
    quota = world.server.get("elasticquotas", "quota", group=GROUP, namespace=team)
    return quota.get("status", {}).get("used", {}).get(MEMORY)


def label(world, pod):
    now = world.now(pod)
    return now and now["metadata"].get("labels", {}).get("nos.nebuly.com/capacity")


async def shows(world, service, **amounts):
    def as_said():
        return {team: used(world, team) for team in amounts} == {
            team: str(gb) for team, gb in amounts.items()
        }

    def story():
        return f"{ {team: used(world, team) for team in amounts} }\n{service.last_lines()}"

    await until(f"the quotas show {amounts}", as_said, story=story)


async def labelled(world, service, pods, value):
    await until(
        f"{len(pods)} pods are {value}",
        lambda: {label(world, pod) for pod in pods} == {value},
        story=lambda: f"{[label(world, pod) for pod in pods]}\n{service.last_lines()}",
    )


async def comes_in(world, service, pod):
    """It is woken once its victims are gone, and then has a place."""
    await until(
        "the claimant is woken",
        lambda: world.annotation(pod, "wake-up"),
        story=service.last_lines,
    )
    answer = await world.filter_until(service, pod)
    assert await world.bind(service, pod, answer.node) == ""
    await world.set_status(pod, phase="Running")


async def test_the_example_of_nos_from_t1_to_t2(world, cluster):
    service = cluster
    await nos_example(world)
    a = [await place(world, service, "a", n) for n in range(4)]
    b = [await place(world, service, "b", n) for n in range(4)]
    await shows(world, service, a=40, b=40, c=0)
    await labelled(world, service, [*a, b[0]], "in-quota")
    await labelled(world, service, b[1:], "over-quota")

    claimant = await wants(world, service, "a", "a-4")
    await until("b's youngest is gone", lambda: not world.there(b[3]), story=service.last_lines)
    await comes_in(world, service, claimant)
    await shows(world, service, a=50, b=30, c=0)
    assert all(world.there(pod) for pod in (*a, *b[:3]))
    assert any("a/a-4" in text and "fair" in text for text in world.events("Preempted"))

    # Both have what is fairly theirs: the next one of either waits, and nobody is evicted.
    await wants(world, service, "a", "a-5")
    await wants(world, service, "b", "b-5")
    await asyncio.sleep(1.5)
    assert all(world.there(pod) for pod in (*a, claimant, *b[:3]))

    # c claims what it is guaranteed, and gets all of it.
    for number in range(3):
        pod = await wants(world, service, "c", f"c-{number}")
        await comes_in(world, service, pod)
    await shows(world, service, a=40, b=10, c=30)
    await world.agree(service)


async def test_what_is_freed_for_a_claimant_goes_to_nobody_else(world, cluster):
    service = cluster
    await nos_example(world)
    b = [await place(world, service, "b", n) for n in range(8)]
    claimant = await wants(world, service, "c", "claimant")
    await until("a pod of b is gone", lambda: not all(map(world.there, b)))
    # Its owner makes it anew at once.
    again = await world.add_pod("again", namespace="b", gpu=1, mem=CARD)
    answer = await world.filter(service, again)
    assert answer.reasons, answer
    await comes_in(world, service, claimant)
    await world.agree(service)


async def test_a_pod_that_no_quota_could_ever_admit_evicts_nobody(world, cluster):
    service = cluster
    await elastic(world, "a", 10, most=10)
    await elastic(world, "b", 40)
    b = [await place(world, service, "b", n) for n in range(5)]
    pod = await wants(world, service, "a", "big", gpu=2)
    await asyncio.sleep(1.0)
    assert all(map(world.there, b))
    (text,) = set((await world.filter(service, pod)).reasons.values())
    assert "ElasticQuota a/quota: max" in text


async def test_a_budget_is_respected(world, cluster):
    service = cluster
    await nos_example(world)
    b = [await place(world, service, "b", n) for n in range(8)]
    for pod in b:
        ready = [{"type": "Ready", "status": "True"}]
        await world.set_status(pod, phase="Running", conditions=ready)
    await world.server.create(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "all", "namespace": "b"},
            "spec": {"minAvailable": 8, "selector": {}},
        }
    )
    await wants(world, service, "c", "claimant")
    await until("it is held up", lambda: world.events("PreemptionHeldUp"), story=service.last_lines)
    assert all(map(world.there, b))


async def test_a_quota_that_comes_later_counts_what_runs_already(world, cluster):
    service = cluster
    pods = [await place(world, service, "a", n) for n in range(3)]
    await elastic(world, "a", 20)
    await shows(world, service, a=30)
    await labelled(world, service, pods[:2], "in-quota")
    await labelled(world, service, pods[2:], "over-quota")


async def test_labels_follow_pods_that_end_and_a_min_that_changes(world, cluster):
    service = cluster
    await elastic(world, "a", 20)
    pods = [await place(world, service, "a", n) for n in range(2)]
    await labelled(world, service, pods, "in-quota")
    patch = {"spec": {"min": {MEMORY: 10}}}
    await world.server.patch("elasticquotas", "quota", patch, group=GROUP, namespace="a")
    await labelled(world, service, pods[1:], "over-quota")
    await world.set_status(pods[0], phase="Succeeded")
    await labelled(world, service, pods[1:], "in-quota")
    await shows(world, service, a=10)


async def test_a_label_that_somebody_edits_changes_nothing_and_is_put_right(world, cluster):
    service = cluster
    await elastic(world, "a", 10)
    pods = [await place(world, service, "a", 0)]
    await labelled(world, service, pods, "in-quota")
    patch = {"metadata": {"labels": {"nos.nebuly.com/capacity": "over-quota"}}}
    await world.server.patch("pods", "a-0", patch, namespace="a")
    await labelled(world, service, pods, "in-quota")


async def test_labels_go_with_the_quota(world, cluster):
    service = cluster
    await elastic(world, "a", 10)
    pods = [await place(world, service, "a", 0)]
    await labelled(world, service, pods, "in-quota")
    await world.server.delete("elasticquotas", "quota", group=GROUP, namespace="a")
    await labelled(world, service, pods, None)


async def test_a_composite_goes_before_a_single_quota_and_comes_after_it_again(world, cluster):
    service = cluster
    await elastic(world, "a", 20)
    await place(world, service, "a", 0)
    await shows(world, service, a=10)
    await elastic(world, "c", 30, kind="CompositeElasticQuota", namespaces=["a", "b"])

    def composite():
        found = world.server.get("compositeelasticquotas", "quota", group=GROUP, namespace="c")
        return found.get("status", {}).get("used") == {MEMORY: "10"}

    await until("the composite counts it", composite, story=service.last_lines)
    await world.server.delete("compositeelasticquotas", "quota", group=GROUP, namespace="c")
    await world.set_status(await place(world, service, "a", 1), phase="Running")
    await shows(world, service, a=20)


async def test_annotations_say_what_is_borrowed_and_lent(world, cluster):
    service = cluster
    await nos_example(world)
    for number in range(3):
        await place(world, service, "b", number)

    def says(team, key):
        quota = world.server.get("elasticquotas", "quota", group=GROUP, namespace=team)
        text = quota["metadata"].get("annotations", {}).get(f"quota.hami.io/{key}", "{}")
        return json.loads(text).get(MEMORY)

    await until("b borrows 20", lambda: says("b", "borrowed") == "20", story=service.last_lines)
    assert says("b", "reserved") == "30"


async def test_a_restart_counts_everything_again(world, cluster):
    service = cluster
    await nos_example(world)
    for number in range(8):
        await place(world, service, "b", number)
    await service.kill()
    await service.start()
    await wants(world, service, "b", "one-more")
    pod = await wants(world, service, "c", "claimant")
    await comes_in(world, service, pod)
    await shows(world, service, b=70, c=10)


async def test_plain_priority_evicts_where_devices_then_fit(world, cluster):
    service = cluster
    await world.server.create(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 1000,
        }
    )
    low = [await place(world, service, "a", n) for n in range(20)]
    pod = await wants(world, service, "a", "urgent", priority="high")
    await comes_in(world, service, pod)
    assert sum(map(world.there, low)) == 19
    await wants(world, service, "a", "equal")
    await asyncio.sleep(1.0)
    assert sum(map(world.there, low)) == 19


async def test_an_old_role_that_may_not_read_quotas_keeps_nobody_from_starting(world):
    """Without the definitions there are no elastic quotas, and that is no problem."""
    await world.add_nodes("n1")
    service = await world.service()
    await world.place(service, "p", gpu=1, mem=100)
    assert not [
        line
        for line in service.last_lines().splitlines()
        if "elastic" in line and "problem" in line
    ]


async def test_guarantees_that_the_cluster_does_not_have_are_said_to_be_so(world, cluster):
    service = cluster
    await elastic(world, "a", 150)
    await elastic(world, "b", 70)
    await elastic(world, "c", 0)

    def conditions(team):
        quota = world.server.get("elasticquotas", "quota", group=GROUP, namespace=team)
        found = quota.get("status", {}).get("conditions", [])
        return {each["type"]: (each["status"], each["message"]) for each in found}

    await until(
        "a and b are told", lambda: conditions("a") and conditions("b"), story=service.last_lines
    )
    status, message = conditions("b")["GuaranteeBacked"]
    assert status == "False"
    assert message.startswith(
        f"all elastic quotas together guarantee 220 GB of {MEMORY}, and the cluster has 200 GB"
    )
    assert conditions("c") == {}, "it is guaranteed nothing"
    assert set(world.events("GuaranteeNotBacked")) == {message}
    _, text = await service.text("/metrics")
    assert f'hami_quota_unbacked{{resource="{MEMORY}"}} 20\n' in text
    patch = {"spec": {"min": {MEMORY: 50}}}
    await world.server.patch("elasticquotas", "quota", patch, group=GROUP, namespace="b")
    for team in "ab":
        await until(
            f"{team} is told that all is well",
            lambda team=team: conditions(team).get("GuaranteeBacked") == ("True", ""),
            story=service.last_lines,
        )
    written = len(world.writes())
    await asyncio.sleep(2)
    assert len(world.writes()) == written, "it is written once"
