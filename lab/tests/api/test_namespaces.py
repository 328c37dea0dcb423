"""Namespaces: what they bring, what may be in them, and how they go."""

from __future__ import annotations

import pytest


async def test_a_namespace_has_its_name_as_a_label_and_is_active(api):
    found = await api.get(f"/api/v1/namespaces/{api.namespace}")
    assert found.meta["labels"] == {"kubernetes.io/metadata.name": api.namespace}
    assert found.body["status"] == {"phase": "Active"}
    assert found.body["spec"] == {"finalizers": ["kubernetes"]}


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public", "kube-node-lease"])
async def test_every_cluster_has_these(api, name):
    assert (await api.get(f"/api/v1/namespaces/{name}")).status == 200


async def test_a_namespace_brings_its_service_account(api):
    accounts = await api.get(api.path("serviceaccounts"))
    assert accounts.names == ["default"]


async def test_nothing_lives_in_a_namespace_that_does_not_exist(api):
    answer = await api.post("/api/v1/namespaces/never-made/configmaps", {"metadata": {"name": "a"}})
    assert answer.refusal == (404, "NotFound")
    assert answer.message == 'namespaces "never-made" not found'


async def test_the_default_namespace_stays(api):
    answer = await api.delete("/api/v1/namespaces/default")
    assert answer.refusal == (403, "Forbidden")


async def test_a_namespace_takes_its_content_along(api):
    await api.config_map("a")
    await api.pod("p")
    deleted = await api.delete(f"/api/v1/namespaces/{api.namespace}")
    assert deleted.body["status"]["phase"] == "Terminating"
    assert deleted.meta["deletionTimestamp"]
    await api.eventually(
        lambda: api.get(f"/api/v1/namespaces/{api.namespace}"), lambda answer: answer.status == 404
    )
    assert (await api.get(api.path("configmaps", "a"))).status == 404


async def test_a_namespace_on_its_way_out_takes_nothing_new(api):
    await api.config_map("a", finalizers=["hami.io/test"])
    await api.delete(f"/api/v1/namespaces/{api.namespace}")
    answer = await api.post(api.path("configmaps"), {"metadata": {"name": "b"}})
    assert answer.refusal == (403, "Forbidden")
    assert "because it is being terminated" in answer.message
    assert (await api.get(f"/api/v1/namespaces/{api.namespace}")).status == 200
    waiting = await api.eventually(
        lambda: api.get(api.path("configmaps", "a")),
        lambda answer: "deletionTimestamp" in answer.meta,
    )
    assert waiting.meta["finalizers"] == ["hami.io/test"]
    await api.patch(api.path("configmaps", "a"), {"metadata": {"finalizers": None}})


async def test_a_namespaces_name_is_a_label(api):
    for name in ("with.dot", "a" * 64):
        answer = await api.post("/api/v1/namespaces", {"metadata": {"name": name}})
        assert answer.refusal == (422, "Invalid")
