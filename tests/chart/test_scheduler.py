"""The scheduler's pods: what they may do, how they are reached, what kube-scheduler is told."""

from __future__ import annotations

import re

import pytest
import yaml

from ..kubernetes.chart import CHART, rendered
from ..kubernetes.plane import extender
from .objects import all_of, container, flags, kube_scheduler_configuration, one, pod_of

DEPLOYMENT = ("Deployment", "hami-scheduler")


def deployment(values=None):
    return one(rendered(values), *DEPLOYMENT)


def documented_configuration():
    text = (CHART.parents[1] / "docs" / "scheduler.md").read_text()
    blocks = (yaml.safe_load(b) for b in re.findall(r"```yaml\n(apiVersion: kubesch.*?)```", text, re.DOTALL))  # fmt: skip
    (found,) = blocks
    return found


def test_its_pods_are_what_pod_security_calls_restricted():
    """https://kubernetes.io/docs/concepts/security/pod-security-standards/"""
    pod = pod_of(deployment())
    assert pod["securityContext"] == {
        "runAsNonRoot": True, "runAsUser": 65532, "runAsGroup": 65532,
        "seccompProfile": {"type": "RuntimeDefault"},
    }  # fmt: skip
    for each in pod["containers"]:
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    assert not any(set(volume) & {"hostPath"} for volume in pod["volumes"])
    assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)


def test_kube_scheduler_is_told_what_the_docs_say():
    found, documented = kube_scheduler_configuration(rendered()), documented_configuration()
    assert found["extenders"] == documented["extenders"]
    assert {key: found[key] for key in documented} == documented
    assert found["leaderElection"] == {
        "leaderElect": True,
        "resourceName": "hami-scheduler",
        "resourceNamespace": "hami",
    }


def test_the_tests_on_a_real_kubernetes_ask_the_same_extender():
    (asked,) = kube_scheduler_configuration(rendered())["extenders"]
    theirs = extender(asked["urlPrefix"], managedResources=asked["managedResources"])
    assert asked == theirs


def test_the_leader_is_the_replica_beside_the_leading_kube_scheduler():
    told = flags(container(deployment(), "scheduler"))
    election = kube_scheduler_configuration(rendered())["leaderElection"]
    assert told["leader-mode"] == "colocated"
    assert told["leader-elect-resource-name"] == election["resourceName"]
    assert told["leader-elect-resource-namespace"] == election["resourceNamespace"]


def test_only_enabled_vendors_resources_go_through_hami():
    def managed(**vendors):
        objects = rendered({"vendors": {k: {"enabled": on} for k, on in vendors.items()}})
        (asked,) = kube_scheduler_configuration(objects)["extenders"]
        assert all(resource["ignoredByScheduler"] for resource in asked["managedResources"])
        return {resource["name"].partition("/")[0] for resource in asked["managedResources"]}

    assert managed() == {"nvidia.com"}
    assert managed(NVIDIA=False, DCU=True, MOCK=True) == {"hygon.com", "mock.hami.io"}


def test_a_configuration_of_one_s_own_is_merged():
    more = {"profiles": [{"schedulerName": "other"}], "leaderElection": {"leaseDuration": "30s"}}
    found = kube_scheduler_configuration(rendered({"kubeScheduler": {"configuration": more}}))
    assert found["profiles"] == more["profiles"]
    assert found["leaderElection"]["resourceName"] == "hami-scheduler"
    assert found["leaderElection"]["leaseDuration"] == "30s"


def test_a_new_configuration_replaces_the_pods_and_a_live_setting_does_not():
    def annotations(values):
        return deployment(values)["spec"]["template"]["metadata"]["annotations"]

    assert annotations({"kubeScheduler": {"qps": 7}}) != annotations({})
    assert annotations({"scheduler": {"settings": {"log-level": "debug"}}}) == annotations({})
    assert annotations({"deviceConfig": {"nvidia": {"defaultGPUNum": 2}}}) == annotations({})


@pytest.mark.parametrize(
    ("values", "image"),
    [
        ({}, "hami-scheduler:1.0.0.dev0"),
        ({"image": {"registry": "r.example.com/x/"}}, "r.example.com/x/hami-scheduler:1.0.0.dev0"),
        ({"scheduler": {"image": {"tag": "7"}}}, "hami-scheduler:7"),
        ({"scheduler": {"image": {"tag": "sha256:ab"}}}, "hami-scheduler@sha256:ab"),
    ],
)
def test_images_have_a_registry_and_a_tag_or_a_digest(values, image):
    assert container(deployment(values), "scheduler")["image"] == image


def test_kube_scheduler_is_the_cluster_s_version():
    image = container(deployment(), "kube-scheduler")["image"]
    assert re.fullmatch(r"registry\.k8s\.io/kube-scheduler:v1\.\d+\.\d+", image), image
    tag = {"kubeScheduler": {"image": {"tag": "v1.31.2"}}}
    assert container(deployment(tag), "kube-scheduler")["image"].endswith(":v1.31.2")


def test_every_pod_is_pulled_with_the_secrets():
    values = {"image": {"pullSecrets": [{"name": "s"}]}}
    workloads = all_of(rendered(values), "Deployment", "DaemonSet")
    assert len(workloads) == 3
    assert all(pod_of(w)["imagePullSecrets"] == [{"name": "s"}] for w in workloads)
    (test,) = all_of(rendered(values), "Pod")
    assert test["spec"]["imagePullSecrets"] == [{"name": "s"}]


def test_services_reach_every_replica_and_the_leader():
    objects = rendered()
    labels = deployment()["spec"]["template"]["metadata"]["labels"]
    ports = {p["name"]: p["containerPort"] for p in container(deployment(), "scheduler")["ports"]}
    every = one(objects, "Service", "hami-scheduler")["spec"]
    leader = one(objects, "Service", "hami-scheduler-leader")["spec"]
    assert every["selector"].items() <= labels.items()
    assert leader["selector"] == {**every["selector"], "hami.io/scheduler-role": "leader"}
    assert {p["targetPort"]: p["port"] for p in every["ports"]} == {"webhook": 443, "metrics": 9395}
    told = flags(container(deployment(), "scheduler"))
    assert told["public-bind"] == f":{ports['webhook']}"
    assert told["metrics-bind-address"] == f":{ports['metrics']}"
    assert told["extender-bind"].startswith("127.0.0.1:"), "loopback, for kube-scheduler alone"


def test_a_disruption_budget_is_for_several():
    assert all_of(rendered({"scheduler": {"replicas": 1}}), "PodDisruptionBudget") == []
    (budget,) = all_of(rendered(), "PodDisruptionBudget")
    labels = deployment()["spec"]["template"]["metadata"]["labels"]
    assert budget["spec"]["selector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize(
    ("source", "told", "mounted"),
    [("service", "certificate-secret", False), ("secret", "cert-file", True), ("cert-manager", "cert-file", True)],
)  # fmt: skip
def test_the_certificate_is_made_by_the_service_or_mounted(source, told, mounted):
    found = deployment({"certificate": {"source": source}})
    given = flags(container(found, "scheduler"))
    assert {"certificate-secret", "cert-file"} & given.keys() == {told}
    assert any(v["name"] == "tls" for v in pod_of(found)["volumes"]) is mounted


def test_its_own_certificate_names_the_service_and_the_configurations():
    given = flags(container(deployment(), "scheduler"))
    assert given["certificate-secret"] == "hami/hami-scheduler-tls"
    assert given["certificate-names"].split(",") == [
        "hami-scheduler.hami.svc", "hami-scheduler.hami.svc.cluster.local",
    ]  # fmt: skip
    objects = rendered()
    configurations = {
        f"{thing['kind'].removesuffix('WebhookConfiguration').lower()}/{thing['metadata']['name']}"
        for thing in all_of(objects, "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    }  # fmt: skip
    assert set(given["webhook-configurations"].split(",")) == configurations
    url = {"webhooks": {"url": "https://10.0.0.1:8443"}}
    names = flags(container(deployment(url), "scheduler"))["certificate-names"]
    assert names.endswith(",10.0.0.1")


def test_cert_manager_s_ca_outlives_its_certificate():
    objects = rendered({"certificate": {"source": "cert-manager"}})
    certificate = one(objects, "Certificate", "hami-scheduler")["spec"]
    assert certificate["issuerRef"] == {"kind": "Issuer", "name": "hami-ca"}
    assert certificate["secretName"] == "hami-scheduler-tls"
    assert one(objects, "Issuer", "hami-ca")["spec"]["ca"]["secretName"] == "hami-ca"
    mine = {"kind": "ClusterIssuer", "name": "mine"}
    objects = rendered({"certificate": {"source": "cert-manager", "issuerRef": mine}})
    (only,) = all_of(objects, "Certificate", "Issuer")
    assert only["spec"]["issuerRef"] == mine


def test_signing_is_on_and_can_be_switched_off():
    given = flags(container(deployment(), "scheduler"))
    assert given["signing-key-secret"] == "hami/hami-signing-key"
    assert given["public-keys"] == "hami/hami-signing-keys"
    off = rendered({"signing": {"enabled": False}})
    assert not {"signing-key-secret", "public-keys"} & flags(container(one(off, *DEPLOYMENT), "scheduler")).keys()  # fmt: skip
    assert "hami-signing-key" not in str(off)
