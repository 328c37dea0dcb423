"""Admission reviews as the API server sends them, and the answers that it gets."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.admission import Admission, Denied
from hami.domain.allocations import ContainerAllocation, ContainerKind, PodAllocation
from hami.domain.devices import Grant
from hami.domain.kubernetes.objects import Metadata, Pod, ResourceQuota, ResourceQuotaSpec
from hami.hookspecs import hookimpl
from hami.policy.pods.admission import AdmissionSettings
from hami.policy.quota import QuotaLedger
from hami.scheduler.web.pod_webhook import Webhook
from hami.vendors.registry import Vendors, load_vendors
from hami.wire.admission import AdmissionReview
from hami.wire.bodies import BadBody

from ...builders import a_plugin, answering

GPU, MEMORY = "nvidia.com/gpu", "nvidia.com/gpumem"
SLICE = {GPU: "1", MEMORY: "1000"}
QUOTA = ResourceQuota(
    metadata=Metadata(name="team", namespace="ml", uid="q"),
    spec=ResourceQuotaSpec(hard={f"limits.{MEMORY}": "8k"}),
)


@dataclass
class Counted:
    """Metrics that remember what was counted."""

    outcomes: list[str] = field(default_factory=list)

    def reviewed(self, seconds: float, outcome: str) -> None:
        assert seconds >= 0
        self.outcomes.append(outcome)


def a_webhook(
    *quotas: ResourceQuota,
    used: int = 0,
    vendors: Vendors | None = None,
    counted: Counted | None = None,
    **settings: Any,
) -> Webhook:
    """``used``: MiB that another pod of the namespace ``ml`` has."""
    registry = vendors or load_vendors()
    ledger = QuotaLedger(registry)
    for quota in quotas:
        ledger.set_quota(quota)
    if used:
        ledger.charge(Pod(metadata=Metadata(name="o", namespace="ml", uid="o")), taking(used))
    chosen = AdmissionSettings(**settings)
    return Webhook(
        vendors=lambda: registry,
        ledger=lambda: ledger,
        settings=lambda: chosen,
        metrics=counted or Counted(),
    )


def taking(memory: int) -> PodAllocation:
    grant = Grant(vendor="NVIDIA", device_id="GPU-0", memory_mib=memory)
    container = ContainerAllocation(name="c", kind=ContainerKind.APP, grants=(grant,))
    return PodAllocation(node="n1", containers=(container,))


def a_pod(limits: dict[str, Any] | None = None, **parts: Any) -> dict[str, Any]:
    """A Pod as the API server sends it, with fields that we do not read."""
    container = {
        "name": "main",
        "image": "cuda",
        "resources": {"limits": limits} if limits else {},
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        **parts.pop("container", {}),
    }
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"generateName": "p-", "creationTimestamp": None, **parts.pop("metadata", {})},
        "spec": {
            "containers": [container],
            "schedulerName": "default-scheduler",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "tolerationSeconds": 300}],
            **parts.pop("spec", {}),
        },
        "status": {},
        **parts,
    }


def a_review(pod: Any, version: str = "v1", **request: Any) -> bytes:
    asked = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
        "namespace": "ml",
        "operation": "CREATE",
        "userInfo": {"username": "jo", "groups": ["system:authenticated"]},
        "object": pod,
        "oldObject": None,
        "dryRun": False,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    body = {
        "kind": "AdmissionReview",
        "apiVersion": f"admission.k8s.io/{version}",
        "request": asked | request,
    }
    return json.dumps(body).encode()


def answer_of(webhook: Webhook, body: bytes) -> dict[str, Any]:
    answer = webhook.review(body)
    assert isinstance(answer, AdmissionReview)
    return json.loads(msgspec.json.encode(answer))


def patch_of(webhook: Webhook, body: bytes) -> list[dict[str, Any]]:
    response = answer_of(webhook, body)["response"]
    assert response["allowed"], response
    return json.loads(base64.b64decode(response["patch"])) if "patch" in response else []


def denial_of(webhook: Webhook, body: bytes) -> str:
    response = answer_of(webhook, body)["response"]
    assert not response["allowed"]
    return response["status"]["message"]


def applied(pod: dict[str, Any], patch: list[dict[str, Any]]) -> dict[str, Any]:
    """RFC 6902 as far as the webhook uses it, on the pod as it was sent."""
    pod = json.loads(json.dumps(pod))
    for operation in patch:
        *path, last = [
            part.replace("~1", "/").replace("~0", "~") for part in operation["path"][1:].split("/")
        ]
        target: Any = pod
        for part in path:
            target = target[int(part)] if isinstance(target, list) else target[part]
        if isinstance(target, list):
            target.append(operation["value"]) if last == "-" else target.__setitem__(
                int(last), operation["value"]
            )
        elif operation["op"] == "remove":
            del target[last]
        else:
            assert operation["op"] == "add" or last in target
            target[last] = operation["value"]
    return pod


# Goldens.


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_pod_with_devices_gets_our_scheduler_in_the_version_it_was_asked_in(version):
    body = a_review(a_pod({GPU: "1", MEMORY: "3k"}), version)
    answer = answer_of(a_webhook(), body)
    patch = answer["response"].pop("patch")
    assert answer == {
        "apiVersion": f"admission.k8s.io/{version}",
        "kind": "AdmissionReview",
        "response": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "allowed": True,
            "patchType": "JSONPatch",
        },
    }
    assert json.loads(base64.b64decode(patch)) == [
        {"op": "replace", "path": "/spec/schedulerName", "value": "hami-scheduler"}
    ]


def test_a_denial_is_403_with_the_text_that_kubectl_shows():
    body = a_review(a_pod({GPU: "1", MEMORY: "9k"}))
    assert answer_of(a_webhook(QUOTA), body) == {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "response": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "allowed": False,
            "status": {
                "code": 403,
                "reason": "Forbidden",
                "message": "exceeding resource quota: ResourceQuota ml/team: "
                "limits.nvidia.com/gpumem: used 0 MiB + asked 9000 MiB > limit 8000 MiB",
            },
        },
    }


# What is looked at.


UNCHANGED = [
    pytest.param(a_review(a_pod()), id="no devices"),
    pytest.param(
        a_review(a_pod({GPU: "1"}, spec={"schedulerName": "volcano"})), id="another scheduler's"
    ),
    pytest.param(a_review(a_pod({GPU: "1"}), operation="UPDATE"), id="an update"),
    pytest.param(a_review(None, operation="DELETE"), id="a deletion"),
    pytest.param(
        a_review(a_pod({GPU: "1"}), operation="UPDATE", subResource="status"), id="a subresource"
    ),
    pytest.param(
        a_review({}, kind={"group": "apps", "version": "v1", "kind": "Deployment"}),
        id="another kind",
    ),
    pytest.param(
        a_review({}, kind={"group": "x.io", "version": "v1", "kind": "Pod"}), id="another's pod"
    ),
]


@pytest.mark.parametrize("body", UNCHANGED)
def test_what_needs_no_change_passes_without_a_patch(body):
    counted = Counted()
    response = answer_of(a_webhook(counted=counted), body)["response"]
    assert response == {"uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "allowed": True}
    assert counted.outcomes == ["allowed"]


def test_the_patch_leaves_fields_alone_that_we_do_not_read():
    forged = {"annotations": {"hami.io/vgpu-node": "n1", "team": "a"}, "labels": {"app": "x"}}
    pod = a_pod(SLICE, metadata=forged, container={"env": [{"name": "A", "value": "b"}]})
    changed = applied(pod, patch_of(a_webhook(), a_review(pod)))
    assert changed["metadata"]["annotations"] == {"team": "a"}
    changed["metadata"]["annotations"] = forged["annotations"]
    changed["spec"]["schedulerName"] = "default-scheduler"
    assert changed == pod


def debugging(limits: dict[str, Any] | None, **fields: Any) -> bytes:
    """What the API server asks when ``kubectl debug`` adds a container to a pod."""
    pod = a_pod(limits)
    debugger = {"name": "debugger", "image": "busybox", "targetContainerName": "main", **fields}
    old = [{"name": "older", "securityContext": {"privileged": True}}]
    before = {**pod, "spec": {**pod["spec"], "ephemeralContainers": old}}
    after = {**pod, "spec": {**pod["spec"], "ephemeralContainers": [*old, debugger]}}
    return a_review(after, operation="UPDATE", subResource="ephemeralcontainers", oldObject=before)


def test_an_ephemeral_container_of_a_pod_with_slices_is_shown_no_device():
    hidden = {"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}
    path = "/spec/ephemeralContainers/1/env"
    assert patch_of(a_webhook(), debugging(SLICE)) == [
        {"op": "add", "path": path, "value": [hidden]}
    ]
    assert patch_of(a_webhook(), debugging(SLICE, env=[hidden])) == []
    assert patch_of(a_webhook(), debugging(None)) == []


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"securityContext": {"privileged": True}}, "ephemeral container debugger is privileged"),
        ({"env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}, "debugger sets NVIDIA_VISIBLE_DEVICES"),
        ({"volumeMounts": [{"name": "v", "mountPath": "/var/run/hami/nvidia"}]}, "at /var/run/hami/nvidia, over the limits"),
        ({"volumeDevices": [{"name": "v", "devicePath": "/dev/sda"}]}, "debugger has a device at /dev/sda"),
    ],
)  # fmt: skip
def test_an_ephemeral_container_that_would_see_devices_is_denied_beside_slices(fields, text):
    assert text in denial_of(a_webhook(), debugging(SLICE, **fields))
    assert patch_of(a_webhook(), debugging(None, **fields)) == []


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
def test_a_pod_of_more_containers_than_anybody_needs_is_denied_before_a_vendor_sees_them(kind):
    shown: list[Any] = []

    def hami_admit(container: Any) -> Admission:
        shown.append(container)
        return Admission()

    vendors = Vendors.of({"acme": a_plugin(hookimpl(hami_admit))})
    pod = a_pod({GPU: "1"})
    pod["spec"].setdefault(kind, []).extend({"name": f"c{i}"} for i in range(1000))
    assert denial_of(a_webhook(vendors=vendors), a_review(pod)) == (
        "the pod has 1001 containers, and 1000 are the most that is admitted; divide it into "
        "several pods"
    )
    assert not shown
    pod["spec"][kind].pop()
    assert answer_of(a_webhook(vendors=vendors), a_review(pod))["response"]["allowed"]
    assert len(shown) == 1000


SETTING = Admission(
    env={"NVIDIA_X": "1"}, limits={"acme.com/mem": "5"}, pod_annotations={"acme.com/a": "b"}
)


@pytest.mark.parametrize(
    "metadata", [{}, {"annotations": None}, {"annotations": {}}, {"annotations": {"a": "b"}}]
)
@pytest.mark.parametrize("env", [{}, {"env": None}, {"env": [{"name": "A", "valueFrom": {}}]}])
def test_asking_again_about_the_patched_pod_changes_nothing(metadata, env):
    vendors = Vendors.of({"acme": a_plugin(answering("hami_admit", SETTING))})
    webhook = a_webhook(vendors=vendors)
    pod = a_pod({"acme.com/gpu": "1"}, metadata=metadata, container=env)
    patch = patch_of(webhook, a_review(pod))
    assert len(patch) == 4
    assert patch_of(webhook, a_review(applied(pod, patch))) == []


# The namespace.


@pytest.mark.parametrize("metadata", [{}, {"namespace": ""}, {"namespace": "ml"}])
def test_the_quota_is_that_of_the_requests_namespace(metadata):
    pod = a_pod({GPU: "1", MEMORY: "9k"}, metadata=metadata)
    assert "exceeding resource quota" in denial_of(a_webhook(QUOTA), a_review(pod))
    assert patch_of(a_webhook(QUOTA), a_review(pod, namespace="other"))


def test_the_namespace_does_not_come_back_as_a_change():
    paths = [o["path"] for o in patch_of(a_webhook(), a_review(a_pod(SLICE)))]
    assert paths == ["/spec/schedulerName"]


# Denials.


@pytest.mark.parametrize(
    ("pod", "text"),
    [
        (a_pod({GPU: "1", MEMORY: "500M"}), "500M counts MiB; write 500Mi"),
        (a_pod({GPU: "1.5"}), "main"),
        (a_pod({GPU: "-1"}), "main"),
        (a_pod({GPU: "1"}, container={"securityContext": {"privileged": True}}), "container main is privileged"),
        (a_pod({GPU: "1"}, spec={"nodeName": "n1"}), "pod has node assigned"),
        (a_pod(spec={"containers": []}), "pod has no containers"),
    ],
)  # fmt: skip
def test_what_could_never_run_is_denied_with_the_reason(pod, text, logged):
    counted = Counted()
    assert text in denial_of(a_webhook(counted=counted), a_review(pod))
    assert counted.outcomes == ["denied"]
    assert [(e["event"], e["namespace"], e["pod"]) for e in logged] == [
        ("a pod was denied", "ml", "p-")
    ]


def test_a_vendors_denial_reaches_the_author():
    vendors = Vendors.of({"acme": a_plugin(answering("hami_admit", Denied("not on Mondays")))})
    body = a_review(a_pod({"acme.com/gpu": "1"}))
    assert denial_of(a_webhook(vendors=vendors), body) == "not on Mondays"


@pytest.mark.parametrize(
    ("mode", "used", "asked", "allowed"),
    [
        ("impossible", 5000, 8000, True),
        ("impossible", 0, 8001, False),
        ("deny", 5000, 3000, True),
        ("deny", 5000, 3001, False),
        ("pending", 5000, 9000, True),
    ],
)
def test_the_quota_mode_decides_what_is_denied_at_creation(mode, used, asked, allowed):
    webhook = a_webhook(QUOTA, used=used, quota=mode)
    response = answer_of(webhook, a_review(a_pod({GPU: "1", MEMORY: str(asked)})))["response"]
    assert response["allowed"] == allowed


@pytest.mark.parametrize(
    "pod",
    [None, [], "x", 7, {"spec": 7}, {"metadata": {"annotations": {"a": 1}}}, {"spec": {"containers": [{"env": [{}]}]}}],
)  # fmt: skip
def test_a_pod_that_cannot_be_read_is_denied_as_a_bad_request(pod):
    response = answer_of(a_webhook(), a_review(pod))["response"]
    assert (response["allowed"], response["status"]["code"]) == (False, 400)
    assert response["status"]["message"].startswith("the pod cannot be read: ")


@pytest.mark.parametrize("dry_run", [True, False, None])
def test_a_dry_run_gets_the_same_answer(dry_run):
    body = a_review(a_pod({GPU: "1"}), dryRun=dry_run)
    assert patch_of(a_webhook(), body)


# Bodies that are no review.


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "Input data was truncated"),
        (b"nonsense", "JSON is malformed"),
        (b"[]", "Expected `object`"),
        (b"{}", "kind '' of apiVersion ''; expected admission.k8s.io/v1 or admission.k8s.io/v1beta1"),
        (a_review(a_pod(), "v2"), "apiVersion 'admission.k8s.io/v2'"),
        (a_review(a_pod()).replace(b'"AdmissionReview"', b'"Pod"'), "kind 'Pod'"),
        (b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}', "it has no request with a uid"),
        (a_review(a_pod(), uid=""), "it has no request with a uid"),
        (a_review(a_pod(), operation=7), "Expected `str`, got `int`"),
    ],
)  # fmt: skip
def test_what_is_no_review_is_said_to_be_none(body, problem):
    counted = Counted()
    answer = a_webhook(counted=counted).review(body)
    assert isinstance(answer, BadBody)
    assert str(answer).startswith("the body is no AdmissionReview: ")
    assert problem in str(answer)
    assert counted.outcomes == ["error"]


def test_a_bug_is_counted_and_passes_on():
    class Broken(Exception):
        pass

    def broken():
        raise Broken

    counted = Counted()
    webhook = a_webhook(counted=counted)
    webhook._ledger = broken
    with pytest.raises(Broken):
        webhook.review(a_review(a_pod({GPU: "1"})))
    assert counted.outcomes == ["error"]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2)
    | st.dictionaries(
        st.sampled_from(
            ["spec", "metadata", "containers", "resources", "limits", GPU, MEMORY, "name", "env",
             "annotations", "initContainers", "nodeName"]
        ),
        inner,
        max_size=4,
    ),
    max_leaves=12,
)  # fmt: skip


@given(VALUES | st.builds(lambda c: a_pod(container=c), st.dictionaries(st.sampled_from(["resources", "env", "name"]), VALUES)))  # fmt: skip
def test_no_object_whatsoever_makes_the_webhook_fail(pod):
    answer = WEBHOOK.review(a_review(pod))
    assert isinstance(answer, AdmissionReview)
    assert answer.response.allowed or 400 <= answer.response.status.code < 500


WEBHOOK = a_webhook(QUOTA)
