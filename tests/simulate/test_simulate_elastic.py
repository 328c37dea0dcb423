"""Elastic quotas in a simulation: borrowed as far as others leave it, refused with numbers."""

from __future__ import annotations

from typing import Any

import pytest

from hami.domain.errors import ConfigError

from .builders import a_node, a_pod, a_quota, a_running_pod, a_workload, nodes_of, run

MEM = "acme.com/mem"


def elastic(namespace: str, least: Any, most: Any = None, *namespaces: str, **labels: str) -> Any:
    spec: dict[str, Any] = {"min": {MEM: least}} | ({"max": {MEM: most}} if most else {})
    return {
        "apiVersion": "nos.nebuly.com/v1alpha1",
        "kind": "CompositeElasticQuota" if namespaces else "ElasticQuota",
        "metadata": {
            "name": "q",
            "namespace": namespace,
            "labels": {f"quota.hami.io/{key}": text for key, text in labels.items()},
        },
        "spec": spec | ({"namespaces": list(namespaces)} if namespaces else {}),
    }


def pods(namespace: str, replicas: int, mem: int = 100) -> dict[str, Any]:
    pod = a_pod(limits={"gpu": 1, "mem": mem})
    return a_workload("Deployment", "web", pod=pod, replicas=replicas) | {
        "metadata": {"name": "web", "namespace": namespace}
    }


def test_a_team_borrows_what_others_leave_and_no_more():
    result = run(a_node(memory=9000), elastic("a", 300), elastic("b", 200), pods("a", 7))
    assert len(result.placed) == 5
    message = result.pending[0].message
    assert "1/1 ResourceQuotaNotFit" in message
    assert (
        "all elastic quotas: pool: acme.com/mem: used 500 MiB + asked 100 MiB > limit 500 MiB"
        in message
    )


def test_a_max_ends_what_a_team_may_borrow():
    result = run(a_node(memory=9000), elastic("a", 100, 300), elastic("b", 900), pods("a", 7))
    assert len(result.placed) == 3
    assert "ElasticQuota a/q: max: acme.com/mem: used 300 MiB" in result.pending[0].message


def test_a_pod_that_no_quota_could_ever_admit_is_denied():
    result = run(a_node(memory=9000), elastic("a", 100, 300), pods("a", 1, mem=400))
    assert "ElasticQuota a/q: max" in result.denied[0].message


def test_a_composite_counts_its_namespaces_together():
    quota = elastic("x", 300, 300, "a", "b")
    result = run(a_node(memory=9000), quota, pods("a", 2), pods("b", 2), pods("c", 2))
    assert [pod.pod.namespace for pod in result.placed].count("c") == 2
    assert len(result.placed) == 3 + 2


def test_what_runs_already_counts():
    running = a_running_pod("old", "n1", "n1-0", mem=250)
    running["metadata"]["namespace"] = "a"
    result = run(a_node(memory=9000), elastic("a", 300, 300), running, pods("a", 1))
    assert "used 250 MiB" in result.pending[0].message


def test_both_kinds_of_quota_must_admit_a_pod():
    hard = a_quota(namespace="a", mem=150)
    result = run(a_node(memory=9000), hard, elastic("a", 300), pods("a", 3))
    assert len(result.placed) == 1
    assert "ResourceQuota a/team" in result.pending[0].message


def test_a_group_limits_those_in_it():
    tree = {
        "apiVersion": "quota.hami.io/v1alpha1",
        "kind": "QuotaTree",
        "metadata": {"name": "t"},
        "spec": {"nodes": [{"name": "research", "max": {MEM: 200}}]},
    }
    quota = elastic("a", 500, parent="research")
    result = run(a_node(memory=9000), tree, quota, pods("a", 4))
    assert len(result.placed) == 2
    assert "QuotaTree node research: max" in result.pending[0].message


def test_namespaces_of_no_quota_are_free():
    result = run(a_node(), elastic("a", 10), a_pod("x", limits={"gpu": 1, "mem": 100}))
    assert nodes_of(result) == {"x": "n1"}


@pytest.mark.parametrize(
    ("quota", "warning"),
    [
        (elastic("a", "many"), "ElasticQuota a/q: spec.min[acme.com/mem]"),
        (elastic("a", 5, parent="nobody"), 'there is no node "nobody" in any QuotaTree'),
        (elastic("a", 5, 3), "3 is less than min, 5"),
    ],
)
def test_what_is_wrong_with_a_quota_is_warned_about(quota, warning):
    assert any(warning in said for said in run(a_node(), quota).warnings)


def test_a_quota_of_the_wrong_shape_is_an_error_with_its_place():
    quota = elastic("a", 5)
    quota["spec"]["min"] = 7
    with pytest.raises(ConfigError, match=r"ElasticQuota a/q: spec\.min is 7"):
        run(a_node(), quota)
