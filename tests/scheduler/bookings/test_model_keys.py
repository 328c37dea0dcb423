"""Elastic quota of single models of device: a pod is charged to the model of what it is given."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from hami.domain.allocations import PodAllocation
from hami.domain.kubernetes.objects import ElasticQuota, ElasticQuotaSpec, Metadata, Pod, PodStatus
from hami.domain.reasons import Rejected
from hami.domain.requests import PodRequest
from hami.policy.filter.decision import Refused
from hami.policy.fit.exact import NodeDevices, fit_pod

from ..builders import Cluster, a_node, a_pod, an_elastic_quota, ended, granted
from ..reclaim.test_preemption import evicted, preempting
from ..waking import refuse

A100, V100 = "acme.com/mem@A100", "acme.com/mem@V100"


def a_quota(namespace: str = "default", *, least: Mapping[str, int], most: Mapping[str, int] | None = None) -> ElasticQuota:  # fmt: skip
    low, high = ({k: str(v) for k, v in each.items()} if each else None for each in (least, most))
    about = Metadata(name="quota", namespace=namespace)
    return ElasticQuota(metadata=about, spec=ElasticQuotaSpec(min=low, max=high))


def of_models(cluster: Cluster, namespace: str = "default") -> dict[str, int]:
    book = cluster.state.ledger.elastic
    leaf = book.leaf_of(namespace)
    assert leaf is not None
    return {key: amount for key, amount in book.used(leaf).items() if "@" in key}


def given(outcome: PodAllocation | Refused) -> list[str]:
    assert isinstance(outcome, PodAllocation), outcome.reasons
    return [grant.device_id for grant in outcome.grants]


def mixed(*quotas: ElasticQuota) -> Cluster:
    """A node with an A100 and a V100."""
    cluster = Cluster(a_node(devices=2, models=["NVIDIA-A100-40GB", "NVIDIA-V100"]))
    cluster.limits(*quotas)
    return cluster


def test_a_pod_that_names_no_model_is_charged_to_the_one_it_got() -> None:
    """Row 71: guarantees of 20 of one model and 50 of another, 10 of each in use."""
    cluster = mixed(a_quota(least={A100: 20000, V100: 50000}))
    cluster.sees(
        granted(a_pod("a", mem=1000), "n1", "n1-d0:1000"),
        granted(a_pod("v", mem=1000), "n1", "n1-d1:1000"),
    )
    assert of_models(cluster) == {A100: 1000, V100: 1000}
    for number in range(4):
        (device,) = given(cluster.reserve(a_pod(f"p{number}", mem=2000)))
        before = of_models(cluster)
        cluster.state.bookings.release(a_pod(f"p{number}").uid)
        model = {"n1-d0": A100, "n1-d1": V100}[device]
        assert before == {A100: 1000, V100: 1000} | {model: 3000}


def test_where_one_model_is_used_up_the_other_is_given() -> None:
    """Each device is asked about for itself."""
    for key, device in ((A100, "n1-d1"), (V100, "n1-d0")):
        cluster = mixed(a_quota(least={}, most={key: 500}))
        assert given(cluster.reserve(a_pod(mem=1000))) == [device]


def test_where_both_are_used_up_the_pod_is_told_which() -> None:
    cluster = mixed(a_quota(least={}, most={A100: 500, V100: 600}))
    outcome = cluster.reserve(a_pod(mem=1000))
    assert isinstance(outcome, Refused)
    (why,) = outcome.reasons.values()
    assert {f"ElasticQuota default/quota: max: {key}: used 0 MiB + asked 1000 MiB > limit {limit} MiB"
            for key, limit in ((A100, 500), (V100, 600))} <= set(why.details)  # fmt: skip


def test_the_pool_of_one_model_is_no_more_than_its_guarantees() -> None:
    cluster = mixed(a_quota(least={A100: 3000}), a_quota("other", least={A100: 3000}))
    for number in range(2):
        cluster.sees(granted(a_pod(f"a{number}", mem=3000), "n1", "n1-d0:3000"))
    assert given(cluster.reserve(a_pod("b", mem=1000, namespace="other"))) == ["n1-d1"]
    # Who is guaranteed V100 nowhere is not limited there.
    assert of_models(cluster, "other") == {}


def test_a_quota_that_names_models_later_counts_what_runs() -> None:
    cluster = mixed(an_elastic_quota("default", 9000))
    cluster.sees(granted(a_pod("v", mem=1000), "n1", "n1-d1:1000"))
    assert of_models(cluster) == {}
    cluster.limits(a_quota(least={V100: 500}))
    assert of_models(cluster) == {V100: 1000}
    cluster.limits(a_quota(least={A100: 500}))
    assert of_models(cluster) == {}


def test_a_node_that_is_seen_after_its_pods_says_of_which_model_they_are() -> None:
    """As at a start, where nobody knows which list comes first."""
    cluster = Cluster()
    cluster.limits(a_quota(least={V100: 500}))
    cluster.sees(granted(a_pod("v", mem=1000), "n1", "n1-d0:1000"))
    assert of_models(cluster) == {}
    cluster.state.node_changed(a_node(models=["NVIDIA-V100"]))
    assert of_models(cluster) == {V100: 1000}


def test_a_device_that_is_away_for_a_while_stays_what_it_was() -> None:
    cluster = Cluster(node := a_node(models=["NVIDIA-V100"]))
    cluster.limits(a_quota(least={V100: 500}))
    pod = granted(a_pod("v", mem=1000), "n1", "n1-d0:1000")
    cluster.sees(pod)
    cluster.state.node_gone(node)
    cluster.sees(granted(a_pod("v", mem=1000, phase="Running"), "n1", "n1-d0:1000"))
    assert of_models(cluster) == {V100: 1000}
    cluster.state.node_changed(node)
    assert of_models(cluster) == {V100: 1000}
    cluster.sees(ended(pod))
    assert of_models(cluster) == {}


def test_the_amount_without_a_model_counts_beside_it() -> None:
    """And the pod's GB are counted once."""
    gigabytes = "nos.nebuly.com/gpu-memory"
    cluster = mixed(a_quota(least={V100: 5000, "acme.com/mem": 9000, gigabytes: 9}))
    cluster.sees(granted(a_pod("v", mem=1024), "n1", "n1-d1:1024"))
    book = cluster.state.ledger.elastic
    (leaf,) = book.leaves
    used = book.used(leaf)
    assert (used[V100], used["acme.com/mem"], used[gigabytes]) == (1024, 1024, 1)


async def test_what_is_guaranteed_of_a_model_is_taken_back_from_that_model() -> None:
    cluster = mixed(a_quota("a", least={V100: 8000}), a_quota("b", least={A100: 8000}))
    cluster.sees(
        granted(a_pod("on-a100", mem=8000, namespace="b", phase="Running"), "n1", "n1-d0:8000"),
        granted(a_pod("on-v100", mem=8000, namespace="b", phase="Running"), "n1", "n1-d1:8000"),
    )
    refuse(cluster, a_pod("claims", mem=8000, namespace="a"))
    async with preempting(cluster) as api:
        await evicted(api, "on-v100")


def test_without_such_keys_nobody_asks_for_models() -> None:
    cluster = mixed(an_elastic_quota("default", 9000))
    gate = cluster.state.ledger.gate(a_pod())
    assert gate is not None
    assert not gate.per_model


@pytest.mark.parametrize("seed", range(40))
def test_what_is_learnt_of_one_node_is_true_of_the_others(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With and without it every node has the same answer."""
    dice = random.Random(seed)
    nodes = [
        a_node(
            f"n{number}", devices=3, memory=dice.choice([2000, 4000]),
            models=dice.choices(["NVIDIA-A100", "NVIDIA-V100", "NVIDIA-T4"], k=3),
        )
        for number in range(12)
    ]  # fmt: skip
    most = {key: dice.choice([500, 1500, 9000]) for key in (A100, V100)}
    most |= {"acme.com/mem@T4": dice.choice([0, 500, 3000])}
    asks = [
        a_pod(f"p{number}", mem=dice.choice([400, 1000, 2500]), gpu=dice.choice([1, 1, 2]))
        for number in range(12)
    ]

    def outcomes() -> list[object]:
        cluster = Cluster(*nodes)
        cluster.limits(a_quota(least={}, most=most))
        found: list[object] = []
        for pod in asks:
            outcome = cluster.reserve(pod)
            found.append(
                {node: str(why) for node, why in outcome.reasons.items()}
                if isinstance(outcome, Refused)
                else outcome
            )
        return found

    learning = outcomes()
    monkeypatch.setattr("hami.policy.filter.decision._UsedUp.of", lambda *_: None)
    assert outcomes() == learning


def test_a_model_that_is_used_up_on_a_thousand_nodes_is_fitted_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fitted: list[str] = []

    def fit(request: PodRequest, devices: NodeDevices, *more: Any) -> PodAllocation | Rejected:
        fitted.append(devices.node.name)
        return fit_pod(request, devices, *more)

    monkeypatch.setattr("hami.policy.filter.decision.fit_pod", fit)
    cluster = Cluster(*(a_node(f"n{number}", models=["NVIDIA-A100"]) for number in range(1000)))
    cluster.limits(a_quota(least={}, most={A100: 500}))
    outcome = cluster.reserve(a_pod(mem=1000))
    assert isinstance(outcome, Refused)
    assert len(fitted) == 1
    assert {str(why) for why in outcome.reasons.values()} == {"1/1 ResourceQuotaNotFit"}


# What is known of a pod is of now.


def began(pod: Pod, at: str = "2024-01-01T00:00:00Z") -> Pod:
    """The same pod, seen later."""
    return replace(pod, status=PodStatus(phase="Running", start_time=at))


def test_a_key_that_appears_and_a_node_that_speaks_anew_forget_nothing_of_what_runs() -> None:
    """Members are worked out again then, from the pods as they are and not as they came."""
    cluster = mixed(a_quota(least={"acme.com/mem": 8000}))
    pod = granted(a_pod("a", mem=1000), "n1", "n1-d0:1000")
    cluster.sees(pod, began(pod))
    book = cluster.state.ledger.elastic
    before = book.member(pod.uid)
    assert before is not None
    assert before.running

    cluster.limits(a_quota(least={"acme.com/mem": 8000, A100: 500}))
    leaf = book.leaf_of("default")
    assert leaf is not None
    assert book.running_used(leaf) == {"acme.com/mem": 1000, A100: 1000}
    assert book.member(pod.uid) == replace(before, vector={**before.vector, A100: 1000})

    cluster.state.node_changed(a_node(devices=2, models=["NVIDIA-V100", "NVIDIA-V100"]))
    assert book.running_used(leaf) == {"acme.com/mem": 1000, A100: 0}
    assert book.member(pod.uid) == before


def test_planners_see_pods_without_quota_as_they_are_too() -> None:
    cluster = Cluster(a_node())
    pod = granted(a_pod("a", mem=1000), "n1", "n1-d0:1000")
    cluster.sees(pod)
    ledger = cluster.state.ledger
    first = ledger.known(pod.uid)
    assert first is not None
    assert (first.running, first.since) == (False, None)
    for seconds in (1, 2):
        cluster.sees(began(pod, f"1970-01-01T00:00:0{seconds}Z"))
        now = ledger.known(pod.uid)
        assert now is not None
        assert (now.running, now.since) == (True, seconds)
