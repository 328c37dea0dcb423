"""The Helm chart: well-formed, and its lists of annotations are those of the vendors' profiles."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest
import yaml

from hami.domain.kubernetes.objects import Metadata, Node
from hami.kube.leases.heartbeat import NAMESPACE
from hami.kube.resources import COMPOSITE_QUOTAS, ELASTIC_QUOTAS, QUOTA_TREES
from hami.scheduler.web.quota_webhook import PATHS
from hami.vendors.registry import load_vendors
from hami.wire import keys
from hami.wire.allocation import allocation_keys

from .kubernetes.chart import CHART, complaints, rendered, values
from .kubernetes.plane import documented_roles

VENDORS = load_vendors()
SHIPPED = tuple(VENDORS)
ENTRIES = values()["vendors"]
KEYS = {key: entry["annotations"] for key, entry in ENTRIES.items()}
CORE = yaml.safe_load((CHART / "files" / "annotations.yaml").read_text())


def named(objects, kind, name):
    found = [o for o in objects if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    assert len(found) == 1
    return found[0]


def vendors_keys(vendor):
    """What the profile and the plugin itself write on a node."""
    profile = VENDORS[vendor].profile
    written = profile.node_annotations
    declared = {written.register, written.handshake, written.lock} - {""}
    asked = Node(metadata=Metadata(name="n", annotations={"mock.hami.io/devices": "h100x8"}))
    devices = VENDORS[vendor].node_devices(
        Node(metadata=Metadata(name="n", annotations=VENDORS.simulated_annotations(asked, {})))
    )
    return declared | set(VENDORS[vendor].node_annotations(devices))


def test_helm_has_nothing_to_say_about_it():
    assert complaints() == []


def test_every_vendor_is_in_the_lists():
    assert sorted(KEYS) == sorted(SHIPPED)


@pytest.mark.parametrize("vendor", SHIPPED)
def test_an_agent_may_write_what_its_vendor_writes_on_a_node(vendor):
    assert set(KEYS[vendor]["node"]) == vendors_keys(vendor)


@pytest.mark.parametrize("vendor", SHIPPED)
def test_an_agent_completes_an_allocation_and_does_not_make_one(vendor):
    pods = VENDORS[vendor].profile.pod_annotations
    assert set(KEYS[vendor]["pod"]) == {pods.to_allocate, *pods.also_written} - {""}
    assert set(KEYS[vendor]["allocation"]) == {pods.allocated}


def test_the_core_s_keys_are_those_of_the_wire():
    """A new key of the scheduler's must be put into one of the lists."""
    assert set(CORE["pod"]) | set(CORE["allocation"]) == allocation_keys([])
    assert set(CORE["node"]) == {keys.NODE_IDENTITY, keys.NODE_LOCK}
    assert CORE["pod"] == [keys.BIND_PHASE], "signatures are the scheduler's alone"


def test_an_agent_may_patch_nothing_but_status():
    rules = named(rendered(), "ClusterRole", "hami-node-agent")["rules"]
    granted = {(r, verb) for rule in rules for r in rule["resources"] for verb in rule["verbs"]}
    writes = {(r, verb) for r, verb in granted if verb not in ("get", "list", "watch")}
    assert writes == {
        ("pods/status", "patch"), ("nodes/status", "patch"), ("events", "create"), ("events", "patch"),
    }  # fmt: skip
    assert granted - writes == {
        (resource, verb) for resource in ("pods", "nodes") for verb in ("get", "list", "watch")
    }


def test_an_agent_renews_a_lease_beside_kubelet_s_and_nowhere_else():
    role = named(rendered(), "Role", "hami-node-agent")
    assert role["metadata"]["namespace"] == NAMESPACE
    assert role["rules"] == [
        {
            "apiGroups": ["coordination.k8s.io"],
            "resources": ["leases"],
            "verbs": ["create", "patch"],
        }
    ]
    binding = named(rendered(namespace="there"), "RoleBinding", "hami-node-agent")
    assert binding["metadata"]["namespace"] == NAMESPACE
    assert [subject["namespace"] for subject in binding["subjects"]] == ["there"]


def test_a_plugin_of_one_s_own_is_a_value():
    more = {"node": ["acme.com/register"], "pod": ["acme.com/todo"], "allocation": ["acme.com/is"]}
    acme = {"enabled": True, "managedResources": ["acme.com/device"], "annotations": more}
    policies = rendered({"vendors": {"ACME": acme}})
    agent = str(named(policies, "ValidatingAdmissionPolicy", "hami-node-agent"))
    others = str(named(policies, "ValidatingAdmissionPolicy", "hami-allocations"))
    assert [key in agent for key in ("acme.com/register", "acme.com/todo", "acme.com/is")] == [True, True, False]  # fmt: skip
    assert [key in others for key in ("acme.com/register", "acme.com/todo", "acme.com/is")] == [False, True, True]  # fmt: skip
    assert "hami.io/node-nvidia-register" in agent, "the others stay"


def test_without_the_policies_the_rights_stay():
    def by_kind(values):
        return Counter(o["kind"] for o in rendered(values))

    without = by_kind({}) - by_kind({"policies": {"enabled": False}})
    assert without == {
        "ValidatingAdmissionPolicy": 4,
        "ValidatingAdmissionPolicyBinding": 4,
    }


@pytest.mark.parametrize("role", documented_roles(), ids=lambda role: role["metadata"]["name"])
def test_the_scheduler_s_rights_are_the_documented_ones(role):
    kind, name = role["kind"], role["metadata"]["name"]
    found = named(rendered(), kind, name)
    assert found["rules"] == role["rules"]
    assert found["metadata"].get("namespace") == role["metadata"].get("namespace")
    binding = named(rendered(namespace="there"), f"{kind}Binding", name)
    assert binding["subjects"] == [
        {"kind": "ServiceAccount", "name": "hami-scheduler", "namespace": "there"}
    ]


def quota_webhooks(certificate=None, **hooks):
    objects = rendered({"certificate": certificate or {}, "webhooks": hooks})
    return [o for o in objects if o["kind"] == "ValidatingWebhookConfiguration"]


def given(ca="Q0E="):
    return {"source": "secret", "caBundle": ca}


def test_quotas_are_validated_where_the_api_server_can_trust_the_scheduler():
    assert quota_webhooks(quotas={"enabled": False}) == []
    (found,) = quota_webhooks(given())
    clients = [hook["clientConfig"] for hook in found["webhooks"]]
    assert [client["service"]["path"] for client in clients] == list(PATHS)
    assert {(c["caBundle"], c["service"]["name"], c["service"]["namespace"]) for c in clients} == {
        ("Q0E=", "hami-scheduler", "hami")
    }
    (found,) = quota_webhooks({"source": "cert-manager"})
    assert "caBundle" not in found["webhooks"][0]["clientConfig"]
    assert found["metadata"]["annotations"] == {
        "cert-manager.io/inject-ca-from": "hami/hami-scheduler"
    }


def test_the_scheduler_may_have_an_address_instead_of_a_service():
    (found,) = quota_webhooks(
        given(), url="https://10.0.0.1:8443/", quotas={"failurePolicy": "Ignore"}
    )
    clients = [hook["clientConfig"] for hook in found["webhooks"]]
    assert [c["url"] for c in clients] == [f"https://10.0.0.1:8443{path}" for path in PATHS]
    assert not any("service" in client for client in clients)
    assert {hook["failurePolicy"] for hook in found["webhooks"]} == {"Ignore"}


def pod_webhooks(certificate=None, **hooks):
    objects = rendered({"certificate": certificate or {}, "webhooks": hooks})
    return [o for o in objects if o["kind"] == "MutatingWebhookConfiguration"]


def test_pods_are_reviewed_where_the_api_server_can_trust_the_scheduler():
    assert pod_webhooks(pods={"enabled": False}) == []
    (found,) = pod_webhooks({"source": "cert-manager"})
    assert "caBundle" not in found["webhooks"][0]["clientConfig"]
    (found,) = pod_webhooks(
        given(), url="https://10.0.0.1:8443/", pods={"ignoredNamespaces": ["a"]}
    )
    assert {hook["clientConfig"]["url"] for hook in found["webhooks"]} == {
        "https://10.0.0.1:8443/webhook"
    }
    names = [hook["namespaceSelector"]["matchExpressions"][0] for hook in found["webhooks"]]
    assert [rule["values"] for rule in names] == [["kube-system", "hami", "a"]] * 2


def test_the_webhooks_of_pods_are_the_documented_ones():
    text = (CHART.parents[1] / "docs" / "scheduler.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    (documented,) = [
        found
        for block in blocks
        for found in yaml.safe_load_all(block)
        if found.get("kind") == "MutatingWebhookConfiguration"
    ]
    (hook, *_) = documented["webhooks"]
    (found,) = pod_webhooks(given(hook["clientConfig"]["caBundle"]))
    assert found["webhooks"] == documented["webhooks"]
    assert found["metadata"]["name"] == documented["metadata"]["name"]


@pytest.mark.parametrize("resource", [ELASTIC_QUOTAS, COMPOSITE_QUOTAS, QUOTA_TREES])
def test_a_definition_is_what_the_program_reads(resource):
    group, version = resource.group_version.split("/")
    path = CHART / "crds" / f"{resource.plural}.yaml"
    spec = yaml.safe_load(path.read_text())["spec"]
    assert (spec["group"], spec["names"]["plural"], spec["names"]["kind"]) == (
        group,
        resource.plural,
        resource.kind,
    )
    assert [v["name"] for v in spec["versions"] if v["served"] and v["storage"]] == [version]
    assert (spec["scope"] == "Namespaced") is resource.namespaced
    asked = next(
        rule["rules"][0]
        for rule in quota_webhooks(given())[0]["webhooks"]
        if rule["name"] == f"{resource.plural}.quota.hami.io"
    )
    assert (asked["apiGroups"], asked["apiVersions"], asked["resources"]) == (
        [group],
        [version],
        [resource.plural],
    )


def test_helm_itself_deletes_no_definition():
    """Those of a chart's folder ``crds`` are installed where missing, and then left alone."""
    assert not [o for o in rendered() if o["kind"] == "CustomResourceDefinition"]


def test_two_releases_do_not_share_an_object_of_the_cluster():
    def cluster_wide(name):
        return {
            (o["kind"], o["metadata"]["name"])
            for o in rendered(name=name)
            if "namespace" not in o["metadata"]
        }

    assert cluster_wide("one").isdisjoint(cluster_wide("two"))


def test_its_version_is_the_program_s():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    program = re.search(
        r'__version__ = "(.*)"', Path(CHART.parents[1], "hami/__init__.py").read_text()
    )
    assert chart["appVersion"] == program[1]
