"""What an agent's account may do, what a tenant may not, and that it suffices: by a real API server."""

from __future__ import annotations

import pytest

from .chart import rendered
from .client import NAMESPACES, Client, Refused, pods_path
from .objects import a_pod
from .release import AGENT, Release, annotated, patched, status_of_node, status_of_pod

ALLOCATION = {
    "hami.io/vgpu-devices-allocated": "GPU-n1-0,NVIDIA,1000,0:;",
    "hami.io/vgpu-devices-to-allocate": "GPU-n1-0,NVIDIA,1000,0:;",
    "hami.io/allocation-signature": "signed",
    "hami.io/bind-phase": "allocating",
}


@pytest.fixture(scope="module")
def there(control_plane, tmp_path_factory):
    """Two nodes; pods ``here`` and ``there`` on them, and one that waits; the chart's policies."""
    from .cluster import Cluster

    with Cluster(control_plane, tmp_path_factory.mktemp("rights")) as cluster:
        cluster.add_nodes("n1", "n2")
        for name, node in (("here", "n1"), ("there", "n2"), ("waits", "")):
            spec = {"nodeName": node} if node else {}
            cluster.add_pod(a_pod(name, annotations=ALLOCATION, spec=spec))
        with Release(cluster) as release:
            yield release


@pytest.fixture
def agent(there) -> Client:
    return there.agent_on("n1")


def pod(there, name):
    return pods_path(there.namespace, name)


def test_the_api_server_understands_every_expression(there):
    assert there.warnings() == []


# What an agent may.


@pytest.mark.parametrize(
    "key", ["node-nvidia-register", "node-nvidia-score", "node-handshake-dcu", "node-identity"]
)
def test_it_advertises_on_its_own_node(there, agent, key):
    assert annotated(agent, status_of_node("n1"), **{key: "new"}) == (200, "")
    assert annotated(agent, status_of_node("n1"), **{key: None}) == (200, "")


def test_it_completes_an_allocation_of_its_own_node(there, agent):
    path = status_of_pod(there.namespace, "here")
    texts = {"bind-phase": "success", "vgpu-devices-to-allocate": ";", "vgpu-mig-allocations": "[]"}
    assert annotated(agent, path, **texts) == (200, "")
    found = there.cluster.pod("here")["metadata"]["annotations"]
    assert {key: found[f"hami.io/{key}"] for key in texts} == texts


def test_it_tells_of_pods(there, agent):
    event = {
        "metadata": {"generateName": "e-", "namespace": there.namespace},
        "involvedObject": {"kind": "Pod", "namespace": there.namespace, "name": "here"},
        "reason": "R",
        "message": "m",
    }
    assert agent.create(f"{NAMESPACES}/{there.namespace}/events", event)["reason"] == "R"


LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


def a_lease(name, holder, **labels):
    about = {"name": name, "labels": {"hami.io/agent": "NVIDIA"} | labels}
    return {"metadata": about, "spec": {"holderIdentity": holder}}


def made(client, lease):
    try:
        client.create(LEASES, lease)
    except Refused as error:
        return error.status, error.message
    return 201, ""


def test_it_renews_its_own_lease_and_nobody_else_s(there, agent):
    assert made(agent, a_lease("hami-nvidia-n1", "n1")) == (201, "")
    renewed = {"spec": {"renewTime": "2026-01-01T00:00:00.000000Z"}}
    assert patched(agent, f"{LEASES}/hami-nvidia-n1", renewed) == (200, "")
    other = there.agent_on("n2")
    for client, path, patch in (
        (other, "hami-nvidia-n1", renewed),
        (other, "hami-nvidia-n1", {"spec": {"holderIdentity": "n2"}}),
        (agent, "hami-nvidia-n1", {"spec": {"holderIdentity": "n2"}}),
    ):
        code, text = patched(client, f"{LEASES}/{path}", patch)
        assert (code, "may not write lease hami-nvidia-n1, which is not its own" in text) == (422, True), text  # fmt: skip
    assert made(agent, a_lease("hami-nvidia-n2", "n2"))[0] == 422
    # Kubelet's own, which has no label.
    there.cluster.admin.create(
        LEASES, {"metadata": {"name": "n1"}, "spec": {"holderIdentity": "n1"}}
    )
    assert patched(agent, f"{LEASES}/n1", renewed)[0] == 422
    assert agent.send("DELETE", f"{LEASES}/hami-nvidia-n1")[0] == 403
    for name in ("hami-nvidia-n1", "n1"):
        there.cluster.admin.delete(f"{LEASES}/{name}")


# What it may not: ``status`` is the answer, ``said`` a part of its text.


def refused(name, path, patch, status, said):
    return pytest.param(path, patch, status, said, id=name)


def annotation(key, text="x"):
    return {"metadata": {"annotations": {key: text}}}


IMAGE = {"spec": {"containers": [{"name": "main", "image": "example.com/other:1"}]}}
CORDON = {"spec": {"unschedulable": True}}


@pytest.mark.parametrize(
    ("path", "patch", "status", "said"),
    [
        refused("another node's annotation", "nodes/n2/status", annotation("hami.io/node-identity"), 422, "on n1 may not write to node n2, which is not its own"),
        refused("another node's pod", "pods/there/status", annotation("hami.io/bind-phase"), 422, "on n1 may not write to pod {ns}/there, which"),
        refused("a pod that is on no node", "pods/waits/status", annotation("hami.io/bind-phase"), 422, "on n1 may not write to pod {ns}/waits, which"),
        refused("its node's capacity", "nodes/n1/status", {"status": {"capacity": {"nvidia.com/gpu": "1k"}}}, 422, "may not change the status of node n1"),
        refused("a pod's phase", "pods/here/status", {"status": {"phase": "Succeeded"}}, 422, "may not change the status of pod {ns}/here"),
        refused("a stranger's annotation of the node", "nodes/n1/status", annotation("cluster-autoscaler.kubernetes.io/scale-down-disabled"), 422, "may not change annotation cluster-autoscaler.kubernetes.io/scale-down-disabled of node n1"),
        refused("a pod's key on the node", "nodes/n1/status", annotation("hami.io/bind-phase"), 422, "may not change annotation hami.io/bind-phase of node n1"),
        refused("a stranger's annotation of a pod", "pods/here/status", annotation("prometheus.io/scrape"), 422, "annotation prometheus.io/scrape of pod"),
        refused("an allocation", "pods/here/status", annotation("hami.io/vgpu-devices-allocated"), 422, "annotation hami.io/vgpu-devices-allocated of pod"),
        refused("a signature", "pods/here/status", annotation("hami.io/allocation-signature"), 422, "annotation hami.io/allocation-signature of pod"),
        refused("a signature, removed", "pods/here/status", annotation("hami.io/allocation-signature", None), 422, "annotation hami.io/allocation-signature of pod"),
        refused("a pod's label", "pods/here/status", {"metadata": {"labels": {"app": "other"}}}, 422, "may not change labels"),
        refused("a node's label", "nodes/n1/status", {"metadata": {"labels": {"role": "other"}}}, 422, "may not change labels"),
        refused("a finalizer", "pods/here/status", {"metadata": {"finalizers": ["example.com/f"]}}, 422, "may not change labels, finalizers"),
        refused("its pod's image", "pods/here", IMAGE, 403, "cannot patch resource"),
        refused("its pod's annotation past the status", "pods/here", annotation("hami.io/bind-phase"), 403, "cannot patch resource"),
        refused("its node's taints", "nodes/n1", CORDON, 403, "cannot patch resource"),
    ],
)  # fmt: skip
def test_an_agent_may_not_change(there, agent, path, patch, status, said):
    where = (
        f"{NAMESPACES}/{there.namespace}/{path}" if path.startswith("pods") else f"/api/v1/{path}"
    )
    code, text = patched(agent, where, patch)
    assert (code, said.format(ns=there.namespace) in text) == (status, True), text


def test_the_image_stays_when_it_is_sent_to_the_status(there, agent):
    assert patched(agent, status_of_pod(there.namespace, "here"), IMAGE) == (200, "")
    assert there.cluster.pod("here")["spec"]["containers"][0]["image"] == "example.com/none:1"


def test_a_token_that_is_bound_to_no_pod_is_worth_nothing(there):
    stray = there.client(AGENT)
    code, text = annotated(stray, status_of_node("n1"), node_identity="NVIDIA=kubelet")
    assert (code, "names no node" in text) == (422, True)


@pytest.mark.parametrize("method", ["DELETE", "PUT"])
@pytest.mark.parametrize("what", ["pods/here", "pods/here/status"])
def test_nothing_else_is_granted(there, agent, method, what):
    path = f"{NAMESPACES}/{there.namespace}/{what}"
    assert agent.send(method, path, there.cluster.pod("here"))[0] in (403, 405)


def test_it_cannot_read_secrets(there, agent):
    assert agent.send("GET", f"{NAMESPACES}/{there.namespace}/secrets")[0] == 403


# What a tenant with edit rights may.


@pytest.mark.parametrize(
    ("key", "text"),
    [
        *(pytest.param(key, "forged", id=f"{key} edited") for key in sorted(ALLOCATION)),
        *(pytest.param(key, None, id=f"{key} removed") for key in sorted(ALLOCATION)),
        pytest.param("hami.io/vgpu-node", "n2", id="hami.io/vgpu-node added"),
        pytest.param("hami.io/dcu-devices-allocated", "x", id="another vendor's added"),
    ],
)
def test_a_tenant_may_not_change_the_allocation_of_a_bound_pod(there, key, text):
    code, said = patched(there.tenant, pod(there, "here"), annotation(key, text))
    assert (code, f"annotation {key} of a bound pod belongs to hami" in said) == (422, True), said


def test_a_tenant_may_change_the_rest(there):
    assert patched(there.tenant, pod(there, "here"), annotation("example.com/mine")) == (200, "")
    assert patched(there.tenant, pod(there, "here"), {"metadata": {"labels": {"a": "b"}}})[0] == 200


def test_until_it_is_bound_a_pod_is_its_author_s(there):
    """The binding writes its own over them, and the signature is over those."""
    assert patched(there.tenant, pod(there, "waits"), annotation("hami.io/bind-phase"))[0] == 200


def test_ten_thousand_annotations_do_not_keep_anybody_from_writing(there):
    """CEL has a budget; a pod's author could use it up for kubelet too."""
    many = {f"e.com/{n}": "" for n in range(10_000)}
    there.cluster.add_pod(
        a_pod("many", annotations={**ALLOCATION, **many}, spec={"nodeName": "n1"})
    )
    assert patched(there.tenant, pod(there, "many"), annotation("example.com/mine")) == (200, "")
    code, text = patched(there.tenant, pod(there, "many"), annotation("hami.io/bind-phase"))
    assert (code, "belongs to hami" in text) == (422, True), text
    path = status_of_pod(there.namespace, "many")
    assert annotated(there.agent_on("n1"), path, bind_phase="success") == (200, "")


def test_the_scheduler_may_change_it(there):
    scheduler = there.scheduler()
    assert patched(scheduler, pod(there, "there"), annotation("hami.io/bind-phase"))[0] == 200


def test_the_owners_of_the_cluster_may_unless_they_say_otherwise(there):
    assert patched(there.cluster.admin, pod(there, "there"), annotation("hami.io/bind-phase"))[0] == 200  # fmt: skip
    assert "system:masters" not in str(rendered({"policies": {"trustedGroups": []}}))
