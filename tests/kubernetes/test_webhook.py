"""The webhook as a real API server calls it, and what users read when it denies."""

from __future__ import annotations

import copy

import pytest

from .client import Refused
from .objects import a_container, a_pod
from .recount import ALLOCATED

MEMORY = "limits.nvidia.com/gpumem"


@pytest.fixture(params=["v1", "v1beta1"])
def admitting(cluster, request):
    """A cluster whose API server calls the webhook; v1beta1 is what HAMi's chart registers."""
    service = cluster.service()
    cluster.webhook(service, admissionReviewVersions=[request.param])
    return cluster


def test_a_pod_that_asks_for_devices_becomes_ours(admitting):
    created = admitting.add_pod(a_pod("p", scheduler="default-scheduler", gpu=1, mem=3000))
    assert created["spec"]["schedulerName"] == "hami-scheduler"


def test_a_pod_that_asks_for_none_stays_as_it_is(admitting):
    created = admitting.add_pod(a_pod("p", scheduler="default-scheduler"))
    assert created["spec"]["schedulerName"] == "default-scheduler"
    assert "annotations" not in created["metadata"]


def test_a_pod_of_another_scheduler_is_left_alone(admitting):
    created = admitting.add_pod(a_pod("p", scheduler="volcano", gpu=1, mem=3000))
    assert created["spec"]["schedulerName"] == "volcano"


def test_what_only_the_scheduler_may_write_is_stripped(admitting):
    forged = {ALLOCATED: "GPU-n1-0,NVIDIA,1,1:;", "hami.io/vgpu-node": "n1", "team": "a"}
    created = admitting.add_pod(a_pod("p", annotations=forged, gpu=1, mem=3000))
    assert created["metadata"]["annotations"] == {"team": "a"}


def privileged(pod):
    pod["spec"]["containers"][0]["securityContext"] = {"privileged": True}


def on_a_node(pod):
    pod["spec"]["nodeName"] = "n1"


@pytest.mark.parametrize(
    ("asks", "change", "said"),
    [
        pytest.param({"gpu": 1, "mem": "500M"}, None, "write 500Mi", id="500M counts MiB"),
        pytest.param({"gpu": 1, "percent": 300}, None, "percentage", id="300 percent"),
        pytest.param({"gpu": 1}, privileged, "container main is privileged", id="privileged"),
        pytest.param({"gpu": 1}, on_a_node, "use spec.nodeSelector", id="a node by name"),
    ],
)
def test_denials_reach_the_user(admitting, asks, change, said):
    pod = copy.deepcopy(a_pod("p", **asks))
    if change:
        change(pod)
    with pytest.raises(Refused, match=r'admission webhook "vgpu.hami.io" denied the request') as no:
        admitting.add_pod(pod)
    assert said in no.value.message
    assert 400 <= no.value.status < 500
    assert admitting.pods(admitting.namespace) == []


def test_what_no_quota_could_ever_admit_is_denied(cluster):
    cluster.add_quota("q", **{MEMORY: "8000"})
    cluster.webhook(cluster.service())
    with pytest.raises(Refused, match=f"{cluster.namespace}/q"):
        cluster.add_pod(a_pod("p", gpu=1, mem=9000))
    cluster.add_pod(a_pod("fits", gpu=1, mem=7000))


def test_a_dry_run_changes_nothing(cluster):
    cluster.add_nodes("n1")
    service = cluster.scheduled()
    cluster.webhook(service)  # asks by dry runs until it is called
    assert cluster.pods() == []
    cluster.agrees(service)


def test_what_is_admitted_is_scheduled(cluster):
    cluster.add_nodes("n1", devices="t4x1")
    service = cluster.scheduled()
    cluster.webhook(service)
    side = a_container("side")
    pods = [
        a_pod("p0", scheduler="default-scheduler", containers=[a_container(gpu=1, mem=3000), side]),
        a_pod("p1", scheduler="default-scheduler", gpu=1, percent=10),
    ]
    cluster.add_pods(*pods)
    cluster.bound("p0", "p1")
    cluster.agrees(service)
