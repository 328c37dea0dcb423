"""Quota objects as they come and go, and what is told of them."""

from __future__ import annotations

from hami.domain.allocations import PodAllocation
from hami.policy.quota.elastic import Options
from hami.scheduler.cluster.feeds import ElasticFeed

from ..builders import Cluster, a_node, a_pod, a_quota, acme, an_elastic_quota

MALFORMED = ["MalformedQuota"]


def told(cluster: Cluster) -> list[str]:
    found = [problem.reason for problem in cluster.problems]
    cluster.problems.clear()
    return found


def test_a_resource_quota_made_anew_with_the_old_fault_is_told_again():
    cluster, bad = Cluster(a_node()), a_quota(mem="junk")
    cluster.state.quota_changed(bad)
    assert told(cluster) == MALFORMED
    cluster.state.quota_changed(bad)
    assert told(cluster) == []
    cluster.state.quota_gone(bad)
    cluster.state.quota_changed(bad)
    assert told(cluster) == MALFORMED


async def test_an_elastic_quota_made_anew_with_the_old_fault_is_told_again():
    cluster, bad = Cluster(a_node()), an_elastic_quota("team", 2, 1)
    feed, arrange = ElasticFeed(cluster.state.quota_objects), cluster.state.quota_objects.arrange
    feed.changed(bad, None)
    arrange()
    assert told(cluster) == MALFORMED
    arrange()
    assert told(cluster) == []
    feed.gone(bad)
    feed.changed(bad, None)
    arrange()
    assert told(cluster) == MALFORMED


async def test_a_guarantee_made_anew_without_backing_is_told_again():
    cluster, quota = Cluster(a_node()), an_elastic_quota("team", 2)
    feed, quotas = ElasticFeed(cluster.state.quota_objects), cluster.state.quota_objects
    for _ in range(2):
        feed.changed(quota, None)
        quotas.arrange()
        quotas.tell_unbacked({"acme.com/mem": "too little"})
        assert told(cluster) == ["GuaranteeNotBacked"]
        feed.gone(quota)


def test_a_reload_leaves_the_pool_what_the_cluster_has():
    cluster = Cluster(a_node(memory=8000), options=Options(pool="capacity"))
    cluster.limits(an_elastic_quota("team", 1000))
    assert isinstance(cluster.reserve(a_pod("before", mem=5000, namespace="team")), PodAllocation)
    before = dict(cluster.state.ledger.elastic.pool)
    cluster.state.use(acme())
    assert cluster.state.ledger.elastic.pool == before
    assert isinstance(cluster.reserve(a_pod("after", mem=3000, namespace="team")), PodAllocation)
