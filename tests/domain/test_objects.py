"""Kubernetes objects as the API server sends them: what we read of them, and what follows."""

from __future__ import annotations

import msgspec
import pytest

from hami.domain.allocations import ContainerKind
from hami.domain.errors import Malformed, shortened
from hami.domain.kubernetes.objects import (
    Container,
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    Metadata,
    Node,
    Pod,
    PodSpec,
    PodStatus,
    ResourceQuota,
    Resources,
)

POD = b"""{
  "apiVersion": "v1", "kind": "Pod",
  "metadata": {
    "name": "web-0", "generateName": "web-", "namespace": "team", "uid": "7c9e", "resourceVersion": "41",
    "creationTimestamp": "2026-01-02T03:04:05Z", "deletionTimestamp": null,
    "labels": null, "annotations": {"acme.com/use-type": "One"},
    "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:metadata": {}}}],
    "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "1", "controller": true}]
  },
  "spec": {
    "initContainers": [
      {"name": "fetch", "resources": {}, "restartPolicy": null},
      {"name": "log", "resources": null, "restartPolicy": "Always", "env": null}
    ],
    "containers": [
      {"name": "app", "image": "app:1",
       "resources": {"limits": {"acme.com/gpu": "1", "acme.com/mem": "3k"}, "requests": {"cpu": "100m"}},
       "env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
       "securityContext": {"privileged": true, "runAsUser": 0}}
    ],
    "affinity": {"podAffinity": {"anything": [1, null]}}, "tolerations": [{"operator": "Exists"}],
    "nodeName": "n1", "priority": 7, "priorityClassName": "high", "preemptionPolicy": "Never",
    "activeDeadlineSeconds": 60, "runtimeClassName": null, "overhead": {"cpu": "10m"}, "schedulerName": "hami-scheduler"
  },
  "status": {"phase": "Running", "initContainerStatuses": [
    {"name": "fetch", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
    {"name": "log", "state": {"running": {"startedAt": "2026-01-02T03:04:06Z"}}}]}
}"""


def test_a_real_pod_decodes_into_what_we_read():
    pod = msgspec.json.decode(POD, type=Pod)
    assert (pod.full_name, pod.uid, pod.labels) == ("team/web-0", "7c9e", {})
    assert pod.annotations == {"acme.com/use-type": "One"}
    assert pod.metadata.owner_references[0].controller is True
    assert [(c.name, kind.value) for c, kind in pod.each_container()] == [
        ("fetch", "init"),
        ("log", "sidecar"),
        ("app", "app"),
    ]
    app = pod.spec.containers[0]
    assert (app.quantity("acme.com/mem"), app.quantity("cpu"), app.privileged) == (
        "3k",
        "100m",
        True,
    )
    assert [(v.name, v.value) for v in app.env] == [("A", "1"), ("B", "")]
    assert pod.init_finished
    assert not pod.finished
    assert pod.spec.affinity == {"podAffinity": {"anything": [1, None]}}
    assert (pod.spec.priority, pod.spec.preemption_policy) == (7, "Never")


@pytest.mark.parametrize(
    ("text", "type"),
    [
        pytest.param(
            b'{"metadata": {"annotations": null, "labels": null, "ownerReferences": null},'
            b' "spec": {"containers": [{"name": "a", "resources": {"limits": null, "requests": null},'
            b' "securityContext": {"privileged": null}, "env": null}], "initContainers": null,'
            b' "affinity": null, "tolerations": null, "nodeSelector": null, "priority": null},'
            b' "status": {"initContainerStatuses": null}}',
            Pod,
            id="a pod",
        ),
        pytest.param(
            b'{"metadata": {}, "spec": {"unschedulable": null, "taints": null},'
            b' "status": {"allocatable": null, "capacity": null}}',
            Node,
            id="a node",
        ),
        pytest.param(
            b'{"spec": {"hard": null, "scopes": null, "scopeSelector": {"matchExpressions": null}},'
            b' "status": {"hard": null, "used": null}}',
            ResourceQuota,
            id="a quota",
        ),
    ],
)
def test_null_means_absent(text, type):
    decoded = msgspec.json.decode(text, type=type)
    assert decoded.name == ""
    if isinstance(decoded, Pod):
        (container, kind), *others = decoded.each_container()
        assert (container.limits, container.quantity("cpu"), container.privileged, kind, others) == (
            {}, None, False, ContainerKind.APP, [],
        )  # fmt: skip
        assert (decoded.annotations, decoded.labels) == ({}, {})
        assert not decoded.init_finished
    if isinstance(decoded, Node):
        assert (decoded.allocatable, decoded.annotations) == (None, {})


@pytest.mark.parametrize("type", [Pod, Node, ResourceQuota])
def test_an_empty_object_decodes(type):
    assert msgspec.json.decode(b"{}", type=type) == type()


@pytest.mark.parametrize("type", [Pod, ResourceQuota])
def test_no_namespace_is_default(type):
    assert type().namespace == "default"
    assert type(metadata=Metadata(namespace="team")).namespace == "team"


@pytest.mark.parametrize(
    ("limits", "requests", "resource", "expected"),
    [
        pytest.param({"x": "1"}, {"x": "2"}, "x", "1", id="the limit wins"),
        pytest.param({}, {"x": "2"}, "x", "2", id="else the request"),
        pytest.param({"x": ""}, {"x": "2"}, "x", "", id="an empty limit is a limit"),
        pytest.param({"y": "1"}, {}, "x", None, id="neither"),
        pytest.param({"": "1"}, {}, "", None, id="a resource that the vendor does not have"),
    ],
)
def test_quantity(limits, requests, resource, expected):
    container = Container(resources=Resources(limits=limits, requests=requests))
    assert container.quantity(resource) == expected


@pytest.mark.parametrize(
    ("phase", "expected"),
    [("Succeeded", True), ("Failed", True), ("Running", False), ("Pending", False), ("", False)],
)
def test_finished(phase, expected):
    assert Pod(status=PodStatus(phase=phase)).finished is expected
    assert not Pod().finished


INIT, OTHER = Container(name="i"), Container(name="j")
SIDECAR = Container(name="s", restart_policy="Always")


def ended(name: str, code: int = 0) -> ContainerStatus:
    state = ContainerState(terminated=ContainerStateTerminated(exit_code=code))
    return ContainerStatus(name=name, state=state)


@pytest.mark.parametrize(
    ("inits", "statuses", "expected"),
    [
        pytest.param([INIT], [ended("i")], True, id="it ended with exit 0"),
        pytest.param([INIT], [ended("i", 1)], False, id="it failed and will run again"),
        pytest.param([INIT], [ContainerStatus(name="i")], False, id="it has no state yet"),
        pytest.param([INIT], [ContainerStatus(name="i", state=ContainerState())], False, id="it runs"),
        pytest.param([INIT], None, False, id="nothing is known"),
        pytest.param([INIT, OTHER], [ended("i")], False, id="one of two"),
        pytest.param([INIT, OTHER], [ended("j"), ended("i")], True, id="both of two"),
        pytest.param([INIT, SIDECAR], [ended("i")], True, id="fix: a sidecar never ends and is not waited for"),
        pytest.param([SIDECAR], [ended("s")], False, id="a sidecar that ended frees nothing"),
        pytest.param([INIT, SIDECAR], [ended("s")], False, id="a sidecar's exit 0 is not the init container's"),
        pytest.param([], [], False, id="no init containers: nothing to free"),
    ],
)  # fmt: skip
def test_init_finished(inits, statuses, expected):
    pod = Pod(
        spec=PodSpec(containers=[Container(name="a")], init_containers=inits),
        status=PodStatus(init_container_statuses=statuses),
    )
    assert pod.init_finished is expected


def test_what_is_malformed_names_the_key_the_place_and_the_text():
    found = Malformed(
        annotation="acme.com/register", position="device 2", text="x" * 200, problem="no number"
    )
    assert str(found) == f"annotation acme.com/register, device 2: no number: '{'x' * 79}…'"


def test_shortening_never_lengthens():
    assert [shortened("abc", n) for n in (1, 2, 3, 4)] == ["…", "a…", "abc", "abc"]
