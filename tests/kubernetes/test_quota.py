"""Device quotas in ordinary ResourceQuota objects, beside the built-in controller."""

from __future__ import annotations

import time

import pytest

from .client import Refused, quotas_path
from .objects import a_pod
from .processes import until

MEMORY = "limits.nvidia.com/gpumem"
COUNT = "limits.nvidia.com/gpu"


def used(cluster, name="q"):
    return cluster.quota_used(name)


def published(cluster, **expected):
    """``count`` and ``memory`` as ``status.used`` has them, some time or other."""
    wanted = {{"count": COUNT, "memory": MEMORY}[k]: str(v) for k, v in expected.items()}

    def said():
        now = used(cluster)
        return {key: plain(now.get(key, "none")) for key in wanted} == wanted

    until(f"status.used says {wanted}", said, seen=lambda: used(cluster))


def plain(quantity):
    """``6k`` is how the API server stores 6000."""
    return f"{quantity[:-1]}000" if quantity.endswith("k") else quantity


def test_a_pod_beyond_the_quota_waits_and_says_why(cluster):
    cluster.add_nodes("n1", "n2", devices="t4x2")
    cluster.add_quota("q", **{MEMORY: "8000"})
    cluster.scheduled()
    cluster.add_pod(a_pod("fits", gpu=1, mem=6000))
    cluster.bound("fits")
    cluster.add_pod(a_pod("waits", gpu=1, mem=3000))
    said = cluster.refused("waits", "ResourceQuotaNotFit")
    for part in (f"{cluster.namespace}/q", "gpumem", "8000", "6000", "3000"):
        assert part in said


def test_a_higher_limit_wakes_it(cluster):
    cluster.add_nodes("n1")
    cluster.add_quota("q", **{MEMORY: "8000"})
    cluster.scheduled()
    cluster.add_pod(a_pod("waits", gpu=1, mem=9000))
    cluster.refused("waits", "ResourceQuotaNotFit")
    cluster.admin.merge(quotas_path(cluster.namespace, "q"), {"spec": {"hard": {MEMORY: "9000"}}})
    cluster.bound("waits")


def test_so_does_a_pod_that_goes(cluster):
    cluster.add_nodes("n1")
    cluster.add_quota("q", **{MEMORY: "8000"})
    cluster.scheduled()
    cluster.add_pod(a_pod("first", gpu=1, mem=6000))
    cluster.bound("first")
    cluster.add_pod(a_pod("waits", gpu=1, mem=6000))
    cluster.refused("waits", "ResourceQuotaNotFit")
    cluster.remove_pod("first")
    cluster.bound("waits")


def test_usage_is_published_and_the_built_in_controller_keeps_it(cluster):
    cluster.add_nodes("n1", devices="t4x2")
    cluster.add_quota("q", **{MEMORY: "30000", COUNT: "10", "pods": "10"})
    cluster.scheduled()
    cluster.add_pod(a_pod("a", gpu=1, mem=6000))
    cluster.bound("a")
    published(cluster, count=1, memory=6000)
    assert used(cluster)["pods"] == "1"
    # Now the built-in controller writes: a pod without devices comes, the hard limits change.
    cluster.add_pod(a_pod("other"))
    until("it has counted", lambda: used(cluster)["pods"] == "2")
    hard = {"spec": {"hard": {"pods": "11"}}}
    cluster.admin.merge(quotas_path(cluster.namespace, "q"), hard)

    def copied():
        quota = cluster.admin.get(quotas_path(cluster.namespace, "q"))
        return quota["status"]["hard"]["pods"] == "11"

    until("it has copied the new limit", copied)
    published(cluster, count=1, memory=6000)
    cluster.remove_pod("a")
    published(cluster, count=0, memory=0)
    until("it has counted again", lambda: used(cluster)["pods"] == "1")
    published(cluster, count=0, memory=0)


def test_publishing_is_not_a_write_per_pod(cluster):
    cluster.add_nodes("n1", "n2", devices="t4x4")
    cluster.add_quota("q", **{COUNT: "100"})
    cluster.scheduled()
    begin = time.monotonic()
    names = [f"p{n}" for n in range(60)]
    cluster.add_pods(*(a_pod(name, gpu=1, mem=100) for name in names))
    cluster.bound(*names)
    published(cluster, count=60)
    taken = time.monotonic() - begin
    writes = cluster.writes("hami", "resourcequotas/status")
    assert len(writes) <= taken + 2, "at most one a second"


def test_each_object_is_a_limit_of_its_own(cluster):
    cluster.add_nodes("n1", devices="t4x4")
    cluster.add_quota("loose", **{COUNT: "10"})
    cluster.add_quota("tight", **{COUNT: "1"})
    cluster.scheduled()
    cluster.add_pod(a_pod("one", gpu=1, mem=100))
    cluster.bound("one")
    cluster.add_pod(a_pod("two", gpu=1, mem=100))
    assert f"{cluster.namespace}/tight" in cluster.refused("two", "ResourceQuotaNotFit")
    cluster.admin.delete(quotas_path(cluster.namespace, "tight"))
    cluster.bound("two")


def test_several_devices_count_with_their_memory(cluster):
    cluster.add_nodes("n1", devices="t4x4")
    cluster.add_quota("q", **{MEMORY: "10000"})
    cluster.scheduled()
    cluster.add_pod(a_pod("p", gpu=3, mem=4000))
    assert "12000" in cluster.refused("p", "ResourceQuotaNotFit")


def test_the_api_servers_own_key_is_its_own_business(cluster):
    cluster.add_nodes("n1", devices="t4x4")
    cluster.add_quota("q", **{"requests.nvidia.com/gpu": "1", COUNT: "5"})
    cluster.scheduled()
    cluster.add_pod(a_pod("one", gpu=1, mem=100))
    cluster.bound("one")
    until("counted", lambda: used(cluster).get("requests.nvidia.com/gpu") == "1")
    with pytest.raises(Refused, match="exceeded quota: q"):
        cluster.add_pod(a_pod("two", gpu=1, mem=100))
    published(cluster, count=1)
