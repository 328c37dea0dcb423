"""The whole chart, as a real API server takes it: strictly, without a warning, its pods too."""

from __future__ import annotations

import pytest

from .chart import EXAMPLES, example, rendered
from .client import NAMESPACES, Refused, pods_path

FOREIGN = ("cert-manager.io/", "monitoring.coreos.com/")
"""Kinds of operators that this control plane does not have."""
CLUSTER = {
    "ClusterRole", "ClusterRoleBinding", "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration",
    "MutatingWebhookConfiguration",
}  # fmt: skip
PLURALS = {"NetworkPolicy": "networkpolicies", "ValidatingAdmissionPolicy": "validatingadmissionpolicies"}  # fmt: skip
ENFORCE, WARN = (f"pod-security.kubernetes.io/{mode}" for mode in ("enforce", "warn"))


@pytest.fixture
def spaces(cluster):
    """A namespace that takes nothing but restricted pods, and one for agents."""
    nodes = f"{cluster.namespace}-nodes"
    cluster.add_namespace(nodes)
    for name, level in ((cluster.namespace, "restricted"), (nodes, "privileged")):
        labels = {ENFORCE: level, WARN: level}
        cluster.admin.merge(f"{NAMESPACES}/{name}", {"metadata": {"labels": labels}})
    yield cluster, nodes
    cluster.admin.delete(f"{NAMESPACES}/{nodes}")


def path_of(thing):
    version, kind = thing["apiVersion"], thing["kind"]
    root = f"/api/{version}" if "/" not in version else f"/apis/{version}"
    plural = PLURALS.get(kind, f"{kind.lower()}s")
    if kind in CLUSTER:
        return f"{root}/{plural}"
    return f"{root}/namespaces/{thing['metadata']['namespace']}/{plural}"


def created(cluster, path, body):
    """Create it as a dry run; the API server's warnings."""
    heard = len(cluster.admin.warnings)
    cluster.admin.create(f"{path}?dryRun=All&fieldValidation=Strict", body)
    return cluster.admin.warnings[heard:]


def of_its_pods(workload):
    """A pod as the workload's controller makes it; its account is not there in a dry run."""
    template = workload["spec"]["template"]
    spec = {**template["spec"], "serviceAccountName": "default"}
    spec.pop("runtimeClassName", None)
    return {"metadata": {"generateName": "p-", "labels": template["metadata"]["labels"]}, "spec": spec}  # fmt: skip


@pytest.mark.parametrize("name", ["", *EXAMPLES])
def test_every_object_is_taken_without_a_warning(spaces, name):
    cluster, nodes = spaces
    values = example(name) if name else {}
    values = {**values, "node": {**values.get("node", {}), "namespace": nodes}}
    objects = rendered(values, name="new", namespace=cluster.namespace)
    taken = 0
    for thing in objects:
        if thing["apiVersion"].startswith(FOREIGN):
            continue
        assert created(cluster, path_of(thing), thing) == [], thing["metadata"]["name"]
        taken += 1
    assert taken > 30


def test_the_scheduler_s_pods_are_restricted_and_the_agents_are_not(spaces):
    cluster, nodes = spaces
    objects = rendered({"node": {"namespace": nodes}}, namespace=cluster.namespace)
    for workload in objects:
        if workload["kind"] not in ("Deployment", "DaemonSet"):
            continue
        pod, where = of_its_pods(workload), workload["metadata"]["namespace"]
        assert created(cluster, pods_path(where), pod) == []
        if workload["kind"] == "DaemonSet":
            with pytest.raises(Refused, match="violates PodSecurity"):
                created(cluster, pods_path(cluster.namespace), pod)
