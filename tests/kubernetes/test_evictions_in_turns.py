"""ReplicaSets in quotas over different resources, beside an idle lender, on a real Kubernetes."""

from __future__ import annotations

import time

import pytest

from .client import pods_path
from .elastic import MEMORY, a_quota, quotas
from .objects import a_container
from .processes import until

COUNT = "nvidia.com/gpu"
MINS = {"a": {COUNT: 2}, "b": {MEMORY: 20}, "lender": {COUNT: 8, MEMORY: 80}}
WATCHED = 40
"""Seconds; in so many 151 pods went before shares were of what ``min`` names alone."""


def a_replica_set(replicas, **asks):
    labels = {"app": "train"}
    return {
        "metadata": {"name": "train"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "schedulerName": "hami-scheduler",
                    "terminationGracePeriodSeconds": 0,
                    "containers": [a_container(**asks)],
                },
            },
        },
    }


@pytest.mark.parametrize("shares", ["floor", "waterfill"])
def test_they_come_to_rest(defined, shares):
    """Five devices, of which each takes one pod; both teams want all of them."""
    cluster = defined
    cluster.add_nodes("n1", devices="t4x5")
    cluster.scheduled(quota_fair_share=shares)
    spaces = {}
    for team, least in MINS.items():
        spaces[team] = cluster.add_namespace(f"{cluster.namespace}-{team}")
        cluster.admin.create(quotas(spaces[team]), a_quota("quota", min=least))
    for team in "ab":
        path = f"/apis/apps/v1/namespaces/{spaces[team]}/replicasets"
        cluster.admin.create(path, a_replica_set(5, gpu=1, mem=10 * 1024))

    def bound():
        found = [cluster.admin.list(pods_path(spaces[team])) for team in "ab"]
        return [sum(bool(pod["spec"].get("nodeName")) for pod in pods) for pods in found]

    until("each has what it is guaranteed", lambda: sorted(bound()) == [2, 3], seen=bound)
    time.sleep(WATCHED)
    assert sorted(bound()) == [2, 3]
    evictions = [w for w in cluster.plane.writes() if w.what == "pods/eviction" and w.status == 201]
    assert len([w for w in evictions if w.namespace in spaces.values()]) <= 3
