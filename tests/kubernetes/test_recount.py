"""The checker of the other tests, checked by hand-made pods."""

from __future__ import annotations

import json

import pytest

from .recount import ALLOCATED, NODE, REGISTER, Amount, over_allocated, recount

GPU = {"limits": {"nvidia.com/gpu": "1"}}


def a_node(name="n1", devices=2):
    register = [
        {"id": f"GPU-{i}", "count": 10, "devmem": 16000, "devcore": 100, "type": "T4"}
        for i in range(devices)
    ]
    return {"metadata": {"name": name, "annotations": {REGISTER: json.dumps(register)}}}


def a_pod(text, *, inits=(), apps=1, phase="Running", node="n1", said="n1", resources=GPU):
    """``inits``: the restart policy of each init container."""
    return {
        "metadata": {
            "name": "p",
            "namespace": "default",
            "annotations": {ALLOCATED: text, NODE: said},
        },
        "spec": {
            "nodeName": node,
            "initContainers": [{"restartPolicy": p, "resources": resources} for p in inits],
            "containers": [{"resources": resources}] * apps,
        },
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(a_pod("GPU-0,NVIDIA,3000,30:;"), Amount(1, 3000, 30), id="one container"),
        pytest.param(
            a_pod("GPU-0,NVIDIA,3000,30:;GPU-0,NVIDIA,1000,10:;", apps=2),
            Amount(2, 4000, 40),
            id="containers add up",
        ),
        pytest.param(
            a_pod("GPU-0,NVIDIA,9000,10:;GPU-0,NVIDIA,1000,30:;", inits=[""]),
            Amount(1, 9000, 30),
            id="an init container counts by its peak, each dimension alone",
        ),
        pytest.param(
            a_pod("GPU-0,NVIDIA,500,5:;GPU-0,NVIDIA,9000,10:;GPU-0,NVIDIA,1000,30:;", inits=["Always", ""]),
            Amount(2, 9500, 35),
            id="a sidecar runs beside the later init containers and the apps",
        ),
        pytest.param(
            a_pod("GPU-0,NVIDIA,9000,10:;GPU-0,NVIDIA,500,5:;GPU-0,NVIDIA,1000,30:;", inits=["", "Always"]),
            Amount(2, 9000, 35),
            id="but not beside the earlier ones",
        ),
        pytest.param(a_pod("GPU-1,NVIDIA,3000,30:;"), Amount(), id="another device"),
        pytest.param(a_pod("GPU-0,NVIDIA,3000,30:;", phase="Failed"), Amount(), id="an ended pod"),
        pytest.param(a_pod("GPU-0,NVIDIA,3000,30:;", node=""), Amount(), id="a pod on no node"),
        pytest.param(
            a_pod("GPU-0,NVIDIA,3000,30:;", resources={}), Amount(), id="a pod that asks for none"
        ),
    ],
)  # fmt: skip
def test_counts(pod, expected):
    assert recount([pod], [a_node()])["n1", "GPU-0"] == expected


def test_ended_init_containers_count_no_more():
    pod = a_pod("GPU-0,NVIDIA,9000,10:;GPU-0,NVIDIA,1000,30:;", inits=[""])
    pod["status"]["initContainerStatuses"] = [{"state": {"terminated": {"exitCode": 0}}}]
    assert recount([pod], [a_node()])["n1", "GPU-0"] == Amount(1, 1000, 30)


def test_an_unused_device_is_listed_with_nothing():
    assert recount([], [a_node(devices=1)]) == {("n1", "GPU-0"): Amount()}


@pytest.mark.parametrize(
    ("pod", "what"),
    [
        pytest.param(a_pod("GPU-9,NVIDIA,1,1:;"), "GPU-9", id="a device that there is not"),
        pytest.param(a_pod("GPU-0,NVIDIA,1,1:;", said="n2"), "n2", id="another node's allocation"),
        pytest.param(
            a_pod("GPU-0,NVIDIA,1,1:;" * 2), "2 have devices, 1 ask", id="a container too many"
        ),
    ],
)
def test_refuses(pod, what):
    with pytest.raises(AssertionError, match=what):
        recount([pod], [a_node()])


def test_finds_what_is_given_twice():
    pods = [a_pod("GPU-0,NVIDIA,9000,10:;")] * 2
    assert over_allocated(pods, [a_node()]) == {("n1", "GPU-0"): Amount(2, 18000, 20)}
    assert over_allocated(pods[:1], [a_node()]) == {}
