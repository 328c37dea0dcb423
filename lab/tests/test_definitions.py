"""The custom resources of hami on the embedded cluster are those of the chart."""

from __future__ import annotations

import pytest
import yaml
from hami_lab.api.builtin.controllers import custom_kinds
from hami_lab.cluster import EmbeddedCluster
from hami_lab.cluster.definitions import definitions
from hami_lab.cluster.objects import resource_of
from hami_lab.demo.workloads import read_objects

from hami.domain.errors import ConfigError
from tests.kubernetes.chart import CHART

MANIFESTS = """
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: team-a}
spec: {containers: [{name: main, image: example.com/none:1}]}
---
apiVersion: nos.nebuly.com/v1alpha1
kind: ElasticQuota
metadata: {name: quota-a, namespace: team-a}
spec:
  min: {nos.nebuly.com/gpu-memory: 40, cpu: 500m}
  max: {nos.nebuly.com/gpu-memory: 80}
---
apiVersion: nos.nebuly.com/v1alpha1
kind: CompositeElasticQuota
metadata: {name: quota-bc, namespace: team-b}
spec:
  namespaces: [team-b, team-c]
  min: {nos.nebuly.com/gpu-memory: 10}
---
apiVersion: quota.hami.io/v1alpha1
kind: QuotaTree
metadata: {name: tree}
spec:
  nodes: [{name: research, weight: 2}]
"""


def test_they_are_the_charts():
    chart = [yaml.safe_load(path.read_text()) for path in (CHART / "crds").glob("*.yaml")]
    ours = list(definitions())
    assert len(ours) == len(chart) == 3
    by_name = {definition["metadata"]["name"]: definition for definition in chart}
    for definition in ours:
        other = by_name[definition["metadata"]["name"]]
        assert custom_kinds(definition) == custom_kinds(other)
        assert definition["spec"]["names"] == other["spec"]["names"]


def test_quotas_come_before_the_pods_that_they_count():
    kinds = [document.value["kind"] for document in read_objects([("x.yaml", MANIFESTS)])]
    assert kinds == ["QuotaTree", "CompositeElasticQuota", "ElasticQuota", "Pod"]


def test_another_version_of_them_is_not_known():
    with pytest.raises(ConfigError, match=r"knows no ElasticQuota in 'nos\.nebuly\.com/v1'"):
        resource_of("nos.nebuly.com/v1", "ElasticQuota")


async def test_a_cluster_has_them_from_the_start():
    async with EmbeddedCluster() as cluster:
        for name in ("team-a", "team-b"):
            await cluster.apply(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            )
        await cluster.apply(MANIFESTS)
        for kind, name, namespace in (
            ("ElasticQuota", "quota-a", "team-a"),
            ("CompositeElasticQuota", "quota-bc", "team-b"),
        ):
            resource = resource_of("nos.nebuly.com/v1alpha1", kind)
            found = await cluster.client.get(resource, name, namespace=namespace)
            assert found.spec
            assert "min" in found.spec
        tree = resource_of("quota.hami.io/v1alpha1", "QuotaTree")
        assert (await cluster.client.get(tree, "tree")).spec == {
            "nodes": [{"name": "research", "weight": 2}]
        }
