"""What the server says about itself."""

from __future__ import annotations

import pytest


async def test_the_core_group_is_v1(api):
    answer = await api.get("/api")
    assert (answer.body["kind"], answer.body["versions"]) == ("APIVersions", ["v1"])


async def test_groups_name_their_versions(api):
    answer = await api.get("/apis")
    assert answer.body["kind"] == "APIGroupList"
    groups = {
        group["name"]: group["preferredVersion"]["groupVersion"] for group in answer.body["groups"]
    }
    expected = {
        "apps": "apps/v1", "batch": "batch/v1", "policy": "policy/v1",
        "coordination.k8s.io": "coordination.k8s.io/v1", "events.k8s.io": "events.k8s.io/v1",
        "storage.k8s.io": "storage.k8s.io/v1", "scheduling.k8s.io": "scheduling.k8s.io/v1",
        "apiextensions.k8s.io": "apiextensions.k8s.io/v1",
        "admissionregistration.k8s.io": "admissionregistration.k8s.io/v1",
    }  # fmt: skip
    assert {name: groups.get(name) for name in expected} == expected
    assert (await api.get("/apis/apps")).body["name"] == "apps"


NEEDED = {
    "v1": {
        "pods": ("Pod", True), "nodes": ("Node", False), "namespaces": ("Namespace", False),
        "resourcequotas": ("ResourceQuota", True), "services": ("Service", True),
        "persistentvolumes": ("PersistentVolume", False),
        "persistentvolumeclaims": ("PersistentVolumeClaim", True),
        "replicationcontrollers": ("ReplicationController", True), "events": ("Event", True),
        "pods/binding": ("Binding", True), "pods/eviction": ("Eviction", True),
        "pods/status": ("Pod", True), "nodes/status": ("Node", False),
    },
    "apps/v1": {
        "deployments": ("Deployment", True), "replicasets": ("ReplicaSet", True),
        "statefulsets": ("StatefulSet", True), "deployments/scale": ("Scale", True),
    },
    "storage.k8s.io/v1": {
        "storageclasses": ("StorageClass", False), "csinodes": ("CSINode", False),
        "csidrivers": ("CSIDriver", False), "csistoragecapacities": ("CSIStorageCapacity", True),
    },
    "policy/v1": {"poddisruptionbudgets": ("PodDisruptionBudget", True)},
}  # fmt: skip


@pytest.mark.parametrize("group_version", NEEDED)
async def test_what_a_scheduler_needs_is_there(api, group_version):
    root = "/api/" if group_version == "v1" else "/apis/"
    answer = await api.get(root + group_version)
    assert answer.body["kind"] == "APIResourceList"
    assert answer.body["groupVersion"] == group_version
    found = {r["name"]: (r["kind"], r["namespaced"]) for r in answer.body["resources"]}
    needed = NEEDED[group_version]
    assert {name: found.get(name) for name in needed} == needed


@pytest.mark.parametrize("group_version", NEEDED)
async def test_every_resource_can_be_listed(api, group_version):
    root = "/api/" if group_version == "v1" else "/apis/"
    for name in NEEDED[group_version]:
        if "/" not in name:
            assert (await api.get(f"{root}{group_version}/{name}", limit=1)).status == 200, name


async def test_pods_have_a_short_name(api):
    resources = (await api.get("/api/v1")).body["resources"]
    assert next(r for r in resources if r["name"] == "pods")["shortNames"] == ["po"]


async def test_the_version_is_1_36(api):
    answer = await api.get("/version")
    assert (answer.body["major"], answer.body["minor"]) == ("1", "36")


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_the_server_is_well(api, path):
    answer = await api.call("GET", path)
    assert answer.status == 200


async def test_a_deployment_is_scaled(api):
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "b:1"}]},
    }
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    await api.created("deployments", {"metadata": {"name": "d"}, "spec": spec})
    scale = await api.get(api.path("deployments", "d", "scale"))
    assert (scale.body["kind"], scale.body["spec"]) == ("Scale", {})
    answer = await api.patch(api.path("deployments", "d", "scale"), {"spec": {"replicas": 2}})
    assert answer.body["spec"] == {"replicas": 2}
    assert (await api.get(api.path("deployments", "d"))).body["spec"]["replicas"] == 2
