"""Live resize on a real API server: its tokens, its RBAC, its JSON patch, the chart's policies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from hami.signing import new_private_pem

from .client import Client, pods_path
from .cluster import Cluster
from .objects import a_pod
from .processes import until
from .recount import Amount
from .release import RBAC, Release, annotated
from .service import Service

DEVICE = ("n1", "GPU-n1-0")


@dataclass
class Tenants:
    """Two accounts, of which ``jane`` alone is bound to the chart's role for users."""

    cluster: Cluster
    service: Service
    release: Release
    tokens: dict[str, str]

    def resize(self, who: str, id: str, **amounts: int) -> tuple[int, dict]:
        client = Client(self.service.plain, token=self.tokens[who])
        body = {"requestId": id, "containers": [amounts]}
        path = f"/api/v1/pods/{self.cluster.namespace}/p/resize"
        try:
            status, answer = client.send("POST", path, body)
        finally:
            client.close()
        return status, json.loads(answer)


@pytest.fixture
def tenants(cluster, tmp_path) -> Iterator[Tenants]:
    cluster.add_nodes("n1", devices="t4x1")
    keys = tmp_path / "keys.pem"
    keys.write_bytes(new_private_pem())
    service = cluster.scheduled(signing_key_file=keys)
    with Release(cluster) as release:
        where = f"{RBAC}/namespaces/{cluster.namespace}/rolebindings"
        accounts = f"/api/v1/namespaces/{cluster.namespace}/serviceaccounts"
        for name in ("jane", "joe"):
            cluster.admin.create(accounts, {"metadata": {"name": name}})
        binding = {
            "metadata": {"name": "resizers"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": "hami-resize",
            },
            "subjects": [
                {"kind": "ServiceAccount", "name": "jane", "namespace": cluster.namespace}
            ],
        }
        cluster.admin.create(where, binding)
        tokens = {name: release.token(name) for name in ("jane", "joe", "tenant")}
        cluster.add_pod(a_pod("p", gpu=1, mem=4000, cores=20))
        cluster.bound("p")
        yield Tenants(cluster, service, release, {**tokens, "nobody": "nonsense"})


def test_whoever_may_update_pods_resize(tenants):
    cluster = tenants.cluster
    assert tenants.resize("nobody", "a", memoryMiB=8000)[0] == 401
    status, body = tenants.resize("joe", "a", memoryMiB=8000)
    assert (status, body["reason"]) == (403, "Forbidden")
    assert f"system:serviceaccount:{cluster.namespace}:joe" in body["message"]

    def allowed():
        status, body = tenants.resize("jane", "a", memoryMiB=8000, cores=50)
        assert status in (200, 403), body
        return status == 200

    until("RBAC knows her role", allowed)
    # Under the chart's policies: what the scheduler writes, nobody else may.
    annotations = cluster.pod("p")["metadata"]["annotations"]
    assert annotations["hami.io/vgpu-devices-allocated"] == "GPU-n1-0,NVIDIA,8000,50:;"
    assert annotations["hami.io/allocation-signature"].split(".")[1] == "2"
    path = pods_path(cluster.namespace, "p")
    status, why = annotated(tenants.release.tenant, path, resizes="b:3:0123456789abcdef")
    assert status == 422
    assert "hami.io/resizes" in why
    cluster.agrees(tenants.service)
    assert tenants.service.used()[DEVICE] == Amount(1, 8000, 50)
    status, body = tenants.resize("jane", "b", memoryMiB=20000)
    assert (status, body["refusals"][0]["reason"]) == (409, "CardInsufficientMemory")
    tenants.service.kill()
    tenants.service.start()
    status, body = tenants.resize("jane", "a", memoryMiB=8000, cores=50)
    assert (status, body["generation"]) == (200, 2), "the same request, after a restart"


def test_kubernetes_own_resize_cannot(tenants):
    """Extended resources are immutable there, as the page says."""
    path = pods_path(tenants.cluster.namespace, "p") + "/resize"
    containers = [
        {"name": "main", "resources": {"limits": {"nvidia.com/gpumem": "8000"}}},
    ]
    status, answer = tenants.cluster.admin.send(
        "PATCH",
        path,
        {"spec": {"containers": containers}},
        content="application/strategic-merge-patch+json",
    )
    assert status == 422, answer
    assert b"only cpu and memory resources are mutable" in answer


def test_the_role_edit_is_not_enough(tenants):
    status, body = tenants.resize("tenant", "e", memoryMiB=5000)
    assert (status, body["reason"]) == (403, "Forbidden")
