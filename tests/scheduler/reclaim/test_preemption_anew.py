"""When waiting pods are looked at again: after a restart, other quotas, cordons and rounds."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import msgspec

from hami.domain.kubernetes.objects import Node, NodeSpec, Pod, Taint, Toleration
from hami.kube.errors import ApiError
from hami.policy.quota.elastic import Options
from hami.scheduler.reclaim.preemption import WOKEN_AT_ONCE

from ..builders import Cluster, a_node, a_pod, a_quota, an_elastic_quota, granted
from ..waking import refuse
from .test_preemption import Evictions, Keeps, evicted, preempting, running, urgent


def with_spec(node: Node, *taints: Taint, unschedulable: bool = False) -> Node:
    spec = NodeSpec(taints=list(taints), unschedulable=unschedulable)
    return msgspec.structs.replace(node, spec=spec)


def cordoned(node: Node) -> Node:
    return with_spec(node, unschedulable=True)


async def soon(holds: Any) -> None:
    end = time.monotonic() + 10
    while not holds() and time.monotonic() < end:
        await asyncio.sleep(0.01)
    assert holds()


def waited_before(cluster: Cluster, *pods: Pod) -> None:
    """They waited before this process began, or while another one led."""
    cluster.state.pending.following = True
    cluster.sees(*pods)
    cluster.state.pending.following = False


# After a restart.


async def test_after_a_restart_who_is_entitled_is_woken_once_and_then_judged() -> None:
    cluster = Cluster(a_node())
    cluster.sees(running())
    waited_before(cluster, urgent(), a_pod("equal", mem=8000))
    async with preempting(cluster) as api:
        await soon(lambda: api.woken)
        cluster.clock.now += 60
        cluster.state.pending.claims.set()
        await evicted(api)
        assert api.woken == ["urgent"], "nobody goes for the other, wherever it may go"
        refuse(cluster, urgent())
        cluster.state.pending.claims.set()
        await evicted(api, "low")


async def test_a_new_leader_does_not_believe_what_it_was_told_when_it_led_before() -> None:
    cluster = Cluster(a_node())
    cluster.sees(running())
    refuse(cluster, urgent())
    cluster.state.pending.forget_offers()
    async with preempting(cluster) as api:
        await soon(lambda: api.woken)
        cluster.state.pending.forget_offers()
        cluster.clock.now += 2
        cluster.state.pending.claims.set()
        await soon(lambda: len(api.woken) == 2)
        await evicted(api)


async def test_few_are_on_their_way_at_once() -> None:
    cluster = Cluster(a_node(devices=40))
    cluster.sees(*(running(f"low{n}", card=n) for n in range(40)))
    waited_before(cluster, *(urgent(f"p{n}") for n in range(40)))
    async with preempting(cluster) as api:
        await soon(lambda: len(api.woken) >= WOKEN_AT_ONCE)
        await evicted(api)
        assert len(api.woken) == WOKEN_AT_ONCE
        cluster.clock.now += 1
        cluster.state.pending.claims.set()
        await soon(lambda: len(api.woken) == 2 * WOKEN_AT_ONCE)


async def test_who_could_not_be_woken_is_woken_later() -> None:
    cluster = Cluster(a_node())
    cluster.sees(running())
    waited_before(cluster, urgent())
    async with preempting(cluster) as api:
        api.errors.append(ApiError("not now", status=503))
        await evicted(api)
        assert api.woken == []
        cluster.clock.now += 6
        cluster.state.pending.claims.set()
        await soon(lambda: api.woken == ["urgent"])


# Other quotas.


async def test_a_raised_min_is_reclaimed_at_once() -> None:
    """The clock stands still: nobody waits for a rest to end."""
    cluster = Cluster(a_node(devices=2))
    cluster.limits(an_elastic_quota("a", 0), an_elastic_quota("b", 16000))
    cluster.sees(running("b0", namespace="b", created="0"))
    cluster.sees(running("b1", namespace="b", created="1", card=1))
    refuse(cluster, claimant := a_pod("a0", mem=8000, namespace="a"))
    async with preempting(cluster) as api:
        await soon(lambda: claimant.uid in api.unplanned)
        cluster.limits(an_elastic_quota("a", 8000), an_elastic_quota("b", 8000))
        await evicted(api, "b1")


async def test_a_resource_quota_that_allows_more_cuts_the_rest_short_too() -> None:
    cluster = Cluster(a_node())
    cluster.state.quota_changed(a_quota(mem="4000"))
    cluster.sees(running("low", namespace="other"))
    refuse(cluster, claimant := urgent())
    async with preempting(cluster) as api:
        await soon(lambda: claimant.uid in api.unplanned)
        cluster.state.quota_changed(a_quota(mem="8000"))
        await evicted(api, "low")


# Nodes that take nobody any more.


async def test_nobody_goes_from_a_node_that_was_cordoned_after_it_was_offered() -> None:
    node = a_node()
    cluster = Cluster(node)
    cluster.sees(running())
    refuse(cluster, claimant := urgent())
    cluster.state.node_changed(cordoned(node))
    async with preempting(cluster) as api:
        await evicted(api)
        assert api.unplanned[claimant.uid].why == {"nodes": "node n1 is cordoned"}


async def test_another_node_is_chosen_then() -> None:
    first, second = a_node("n1"), a_node("n2")
    cluster = Cluster(first, second)
    there = granted(a_pod("there", mem=8000, phase="Running"), "n2", "n2-d0:8000")
    cluster.sees(running(), there)
    refuse(cluster, urgent())
    cluster.state.node_changed(with_spec(first, Taint(key="down", effect="NoExecute")))
    async with preempting(cluster) as api:
        await evicted(api, "there")


async def test_whoever_tolerates_the_taint_goes_on() -> None:
    node = a_node()
    cluster = Cluster(node)
    cluster.sees(running())
    pod = urgent()
    spec = msgspec.structs.replace(
        pod.spec, tolerations=[Toleration(key="down", operator="Exists")]
    )
    refuse(cluster, msgspec.structs.replace(pod, spec=spec))
    cluster.state.node_changed(with_spec(node, Taint(key="down", value="x", effect="NoSchedule")))
    async with preempting(cluster) as api:
        await evicted(api, "low")


async def test_a_cordon_in_the_middle_spares_who_has_not_gone_yet() -> None:
    node = a_node()
    cluster = Cluster(node)
    cluster.sees(*(running(f"low{n}", mem=4000) for n in range(2)))
    refuse(cluster, claimant := urgent())
    async with preempting(cluster, budgets=Keeps("low0", "low1")) as api:
        api.meanwhile = lambda _name: cluster.state.node_changed(cordoned(node))
        await soon(lambda: api.evicted)
        await asyncio.sleep(0.1)
        assert len(api.evicted) == 1
        assert "node n1 is cordoned" in str(api.unplanned[claimant.uid].why)


# What is said of budgets.


async def test_the_budget_that_keeps_a_victim_is_named() -> None:
    cluster = Cluster(a_node())
    cluster.sees(running())
    refuse(cluster, claimant := urgent())
    async with preempting(cluster, budgets=Keeps("low")) as api:
        api.errors.append(ApiError("Cannot evict pod", status=429))
        await soon(lambda: claimant.uid in api.unplanned)
        (said,) = [text for _, reason, text in api.events if reason == "PreemptionHeldUp"]
        assert said == (
            "pod default/low is not evicted for it: PodDisruptionBudget low does not "
            "allow it now: Cannot evict pod"
        )
        why = api.unplanned[claimant.uid].why["priority"]
        assert why.startswith(said)
        assert "; tried again at 20" in why


# Rounds.


async def test_quotas_that_evict_each_others_pods_in_turns_have_to_wait() -> None:
    """Without the rules that prevent it; the clock stands still until they wait."""
    rules = Options(rule_f1=False, rule_f2=False, rule_p1=False)
    cluster = Cluster(a_node(devices=5), options=rules)
    cluster.limits(
        an_elastic_quota("a", 2, resource="acme.com/gpu"), an_elastic_quota("b", 16000),
        an_elastic_quota("lender", 80000),
        an_elastic_quota("idle", 8, resource="acme.com/gpu"),
    )  # fmt: skip
    turns = Turns(cluster)
    async with preempting(cluster) as api:
        for _ in range(200):
            turns.step(api)
            cluster.state.pending.claims.set()
            await asyncio.sleep(0.03)
            cluster.clock.now += 1.1 * (not waits(api))
        first = len(api.evicted)
        assert waits(api)
        assert first < 30
        cluster.clock.now += 6
        for _ in range(20):
            turns.step(api)
            cluster.state.pending.claims.set()
            await asyncio.sleep(0.03)
        assert first < len(api.evicted) < first + 5


def waits(api: Evictions) -> bool:
    return any(reason == "PreemptionBackedOff" for _, reason, _ in api.events)


class Turns:
    """Two teams' controllers, and a kube-scheduler that tries everybody at every step."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.runs: dict[str, Pod] = {}
        self.waits = [a_pod(f"{team}{n}", mem=8000, namespace=team) for n in range(4) for team in "ab"]  # fmt: skip
        self.made = len(self.waits)
        self.gone = 0

    def step(self, api: Evictions) -> None:
        while self.gone < len(api.evicted):
            pod = self.runs.pop(api.evicted[self.gone])
            self.gone += 1
            self.made += 1
            self.cluster.state.pod_gone(pod)
            name = f"{pod.namespace}{self.made}"
            self.waits.append(a_pod(name, mem=8000, namespace=pod.namespace))
        for pod in list(self.waits):
            self.cluster.sees(pod)
            allocation = self.cluster.reserve(pod)
            if not hasattr(allocation, "node"):
                refuse(self.cluster, pod)
                continue
            self.waits.remove(pod)
            (grant,) = allocation.containers[0].grants
            bound = granted(
                a_pod(pod.name, mem=8000, namespace=pod.namespace, phase="Running"),
                "n1", f"{grant.device_id}:8000",
            )  # fmt: skip
            self.runs[pod.name] = bound
            self.cluster.sees(bound)
