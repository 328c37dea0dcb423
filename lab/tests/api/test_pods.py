"""Pods: defaults, quantities, and what a pod may not be."""

from __future__ import annotations

import pytest

from .cluster import a_pod


async def test_a_pod_gets_its_defaults(api):
    created = await api.created("pods", {
        "metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "busybox"}]},
    })  # fmt: skip
    spec = created.body["spec"]
    expected = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "serviceAccountName": "default",
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
        "enableServiceLinks": True,
        "securityContext": {},
    }
    assert {key: spec[key] for key in expected} == expected
    container = spec["containers"][0]
    assert container["resources"] == {}
    assert container["imagePullPolicy"] == "Always"
    assert container["terminationMessagePath"] == "/dev/termination-log"
    assert created.body["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert created.meta["generation"] == 1
    keys = [toleration["key"] for toleration in spec["tolerations"]]
    assert keys == ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("busybox", "Always"),
        ("busybox:latest", "Always"),
        ("busybox:1", "IfNotPresent"),
        ("registry.io:5000/busybox", "Always"),
        ("busybox@sha256:" + "0" * 64, "IfNotPresent"),
    ],
)
async def test_the_pull_policy_follows_the_tag(api, image, policy):
    body = a_pod("p")
    body["spec"]["containers"][0]["image"] = image
    created = await api.created("pods", body)
    assert created.body["spec"]["containers"][0]["imagePullPolicy"] == policy


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("3000", "3k"),
        (3000, "3k"),
        ("8000", "8k"),
        ("1000000", "1M"),
        ("0.5Gi", "512Mi"),
        ("10240Mi", "10Gi"),
        ("1.5k", "1500"),
        ("1024", "1024"),
        ("999999", "999999"),
        ("80k", "80k"),
        ("1e3", "1e3"),
        ("16Gi", "16Gi"),
        ("500M", "500M"),
        ("17179869184", "17179869184"),
        ("1.5Gi", "1536Mi"),
        ("+7", "+7"),
        ("007", "007"),
        ("01000", "1k"),
        ("12e6", "12e6"),
        ("1E3", "1E3"),
        ("1000E3", "1e6"),
        ("1e1", "10"),
        ("1.500k", "1.500k"),
        ("1.50k", "1500"),
        ("0.001k", "1"),
        ("1.0Gi", "1Gi"),
        ("02Gi", "02Gi"),
        ("2048Mi", "2Gi"),
        (" 8 ", "8"),
        ("Gi", "0"),
        ("+", "0"),
        ("2000Ki", "2000Ki"),
        ("1048576Ki", "1Gi"),
        ("0", "0"),
        (0, "0"),
        ("0.0", "0"),
        ("1000000000000", "1T"),
        ("100e1", "1e3"),
        ("5.", "5."),
    ],
)
async def test_a_quantity_is_rewritten(api, sent, stored):
    answer = await api.post(api.path("pods"), a_pod("p", limits={"nvidia.com/gpumem": sent}))
    assert answer.status == 201, answer.body
    resources = answer.body["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {"nvidia.com/gpumem": stored}


@pytest.mark.parametrize(
    ("sent", "stored"),
    [
        ("0.5", "500m"), (0.5, "500m"), ("0.1", "100m"), ("100m", "100m"), ("1000m", "1"),
        ("1500m", "1500m"), ("0.0001", "1m"), ("1500u", "2m"), ("2", "2"), ("1.5e-1", "150e-3"), ("1.005", "1.005"),
    ],
)  # fmt: skip
async def test_cpu_may_be_a_fraction(api, sent, stored):
    created = await api.pod("p", limits={"cpu": sent})
    assert created.body["spec"]["containers"][0]["resources"]["limits"] == {"cpu": stored}


async def test_requests_default_to_limits(api):
    created = await api.pod(
        "p", limits={"nvidia.com/gpu": 1, "cpu": "1", "memory": "1Gi"}, requests={"cpu": "500m"}
    )
    resources = created.body["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {"nvidia.com/gpu": "1", "cpu": "500m", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("limits", "requests", "expected"),
    [
        pytest.param({"cpu": 1, "memory": "1Gi"}, {}, "Guaranteed", id="limits for both"),
        pytest.param({"cpu": 1}, {}, "Burstable", id="a limit for one"),
        pytest.param({"cpu": 2, "memory": "1Gi"}, {"cpu": 1}, "Burstable", id="asks for less"),
        pytest.param({}, {"memory": "1Gi"}, "Burstable", id="a request alone"),
        pytest.param({"nvidia.com/gpu": 1}, {}, "BestEffort", id="a device alone"),
    ],
)
async def test_the_quality_of_service_is_of_cpu_and_memory(api, limits, requests, expected):
    created = await api.pod("p", limits=limits, requests=requests)
    assert created.body["status"]["qosClass"] == expected


@pytest.mark.parametrize(
    "value", ["abc", "", True, "1,5", "1 Gi", "--1", "1GiB", "0x10", "1K", "1gi", "1e"]
)
async def test_what_is_no_quantity_is_a_bad_request(api, value):
    answer = await api.post(api.path("pods"), a_pod("p", limits={"nvidia.com/gpu": value}))
    assert answer.refusal == (400, "BadRequest")


@pytest.mark.parametrize(
    ("limits", "requests", "field"),
    [
        pytest.param({"nvidia.com/gpu": "1.5"}, None, "limits[nvidia.com/gpu]", id="a fraction"),
        pytest.param({"nvidia.com/gpu": "1500m"}, None, "limits[nvidia.com/gpu]", id="thousandths"),
        pytest.param({"nvidia.com/gpu": "-1"}, None, "limits[nvidia.com/gpu]", id="negative"),
        pytest.param({"nvidia.com/gpu": "1Ei"}, None, "limits[nvidia.com/gpu]", id="too many"),
        pytest.param({"gpu": "1"}, None, "limits[gpu]", id="no domain"),
        pytest.param(None, {"nvidia.com/gpu": "1"}, "limits", id="a request alone"),
        pytest.param({"nvidia.com/gpu": "2"}, {"nvidia.com/gpu": "1"}, "requests", id="asks for less than the limit"),
        pytest.param({"cpu": "1"}, {"cpu": "2"}, "requests", id="asks for more CPU than the limit"),
        pytest.param({"cpu": "-1"}, None, "limits[cpu]", id="negative CPU"),
    ],
)  # fmt: skip
async def test_resources_are_checked(api, limits, requests, field):
    answer = await api.post(api.path("pods"), a_pod("p", limits=limits, requests=requests))
    assert answer.refusal == (422, "Invalid")
    assert f"spec.containers[0].resources.{field}" in answer.fields()


def without_image() -> dict:
    body = a_pod("p")
    del body["spec"]["containers"][0]["image"]
    return body


C = {"name": "c", "image": "b:1"}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        pytest.param(a_pod("p", containers=[]), "spec.containers", id="no container"),
        pytest.param(without_image(), "spec.containers[0].image", id="no image"),
        pytest.param(a_pod("p", containers=[C, C]), "spec.containers[1].name", id="a name twice"),
        pytest.param(a_pod("p", containers=[{**C, "name": "C_1"}]), "spec.containers[0].name", id="a bad name"),
        pytest.param(a_pod("p", initContainers=[C]), "spec.initContainers[0].name", id="an init container's name"),
        pytest.param(a_pod("p", restartPolicy="Often"), "spec.restartPolicy", id="an unknown restart policy"),
        pytest.param(a_pod("p", nodeSelector={"k": "_/"}), "spec.nodeSelector", id="a bad node selector"),
        pytest.param(a_pod("p", nodeName="N_1"), "spec.nodeName", id="a bad node name"),
    ],
)  # fmt: skip
async def test_a_pods_spec_is_checked(api, body, field):
    answer = await api.post(api.path("pods"), body)
    assert answer.refusal == (422, "Invalid")
    assert any(found.startswith(field) for found in answer.fields()), answer.body


async def test_a_sidecar_is_an_init_container_that_restarts(api):
    created = await api.pod("p", initContainers=[{**C, "name": "s", "restartPolicy": "Always"}])
    assert created.body["spec"]["initContainers"][0]["restartPolicy"] == "Always"


@pytest.mark.parametrize(
    "patch",
    [
        pytest.param({"nodeName": "n2"}, id="the node"),
        pytest.param({"schedulerName": "other"}, id="the scheduler"),
        pytest.param({"priority": 7}, id="the priority"),
        pytest.param({"containers": [{**C, "resources": {"limits": {"cpu": "1"}}}]}, id="resources"),
        pytest.param({"nodeSelector": {"a": "b"}}, id="the node selector"),
        pytest.param({"restartPolicy": "Never"}, id="the restart policy"),
    ],
)  # fmt: skip
async def test_most_of_a_pods_spec_never_changes(api, patch):
    await api.pod("p")
    answer = await api.patch(api.path("pods", "p"), {"spec": patch})
    assert answer.refusal == (422, "Invalid")
    assert "spec" in answer.fields()


async def test_tolerations_are_only_added(api):
    toleration = {"key": "a", "operator": "Exists"}
    await api.pod("p", tolerations=[toleration])
    path = api.path("pods", "p")
    fewer = await api.patch(path, {"spec": {"tolerations": []}})
    assert fewer.refusal == (422, "Invalid")
    more = {"spec": {"tolerations": [toleration, {"key": "b", "operator": "Exists"}]}}
    answer = await api.patch(path, more)
    keys = [each["key"] for each in answer.body["spec"]["tolerations"]]
    # The two that every pod has come back by themselves.
    assert keys == ["a", "b", "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]


async def test_labels_and_annotations_of_a_pod_change(api):
    created = await api.pod("p")
    changed = {"labels": {"a": "b"}, "annotations": {"hami.io/wake-up": "1"}}
    answer = await api.patch(api.path("pods", "p"), {"metadata": changed})
    assert {key: answer.meta[key] for key in changed} == changed
    assert int(answer.version) > int(created.version)
    assert answer.meta["generation"] == 1


async def test_the_spec_and_the_status_are_written_apart(api):
    await api.pod("p")
    path = api.path("pods", "p")
    main = await api.patch(path, {"status": {"phase": "Failed"}})
    assert main.body["status"]["phase"] == "Pending"
    both = {"spec": {"schedulerName": "other"}, "status": {"phase": "Running"}}
    status = await api.patch(path + "/status", both)
    assert status.status == 200
    assert status.body["spec"]["schedulerName"] == "nobody"
    assert status.body["status"]["phase"] == "Running"


async def test_the_status_may_bring_annotations(api):
    await api.pod("p")
    body = {"metadata": {"annotations": {"a": "b"}}, "status": {"phase": "Running"}}
    answer = await api.patch(api.path("pods", "p", "status"), body)
    assert answer.meta["annotations"] == {"a": "b"}


async def test_a_gated_pod_says_so_until_its_gates_are_gone(api):
    created = await api.pod("p", schedulingGates=[{"name": "hami.io/gate"}])
    condition = created.body["status"]["conditions"][0]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "SchedulingGated")
    more = {"spec": {"schedulingGates": [{"name": "hami.io/gate"}, {"name": "hami.io/b"}]}}
    assert (await api.patch(api.path("pods", "p"), more)).status == 422
    answer = await api.patch(api.path("pods", "p"), {"spec": {"schedulingGates": None}})
    assert answer.status == 200
    assert "schedulingGates" not in answer.body["spec"]


async def test_a_node_is_born_with_a_taint_and_its_quantities_rewritten(api):
    name = f"node-{api.namespace}"
    capacity = {"cpu": "4", "memory": "10240Mi", "nvidia.com/gpu": "3000"}
    body = {"metadata": {"name": name}, "status": {"capacity": capacity}}
    try:
        created = await api.post("/api/v1/nodes", body)
        assert created.status == 201
        assert created.body["spec"]["taints"] == [
            {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        ]
        rewritten = {"cpu": "4", "memory": "10Gi", "nvidia.com/gpu": "3k"}
        assert created.body["status"]["capacity"] == rewritten
        assert created.body["status"]["allocatable"] == rewritten
    finally:
        await api.delete(f"/api/v1/nodes/{name}")


async def test_a_node_is_cordoned_and_its_status_written_apart(api):
    name = f"node-{api.namespace}"
    path = f"/api/v1/nodes/{name}"
    try:
        await api.post("/api/v1/nodes", {"metadata": {"name": name}})
        cordoned = await api.patch(
            path, {"spec": {"unschedulable": True}, "status": {"capacity": {"cpu": 4}}}
        )
        assert cordoned.body["spec"]["unschedulable"] is True
        assert "capacity" not in cordoned.body["status"]
        status = {"metadata": {"annotations": {"a": "b"}}, "status": {"capacity": {"cpu": "4000m"}}}
        written = await api.patch(path + "/status", status)
        assert written.body["status"]["capacity"] == {"cpu": "4"}
        assert written.meta["annotations"]["a"] == "b"
    finally:
        await api.delete(path)
