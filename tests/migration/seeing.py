"""Builders of a cluster as HAMi 2.10 leaves it."""

from __future__ import annotations

import base64
import gzip
import json
from typing import Any

import msgspec

from hami.domain.kubernetes.objects import Pod
from hami.migration.seen import AdmissionHooks, HamiWorkload, ReportedNode, SeenCluster

GPU = {"id": "GPU-0", "count": 10, "devmem": 40960, "devcore": 100, "type": "NVIDIA-A100", "health": True, "mode": "hami-core"}  # fmt: skip


def a_workload(name: str, **changed: Any) -> HamiWorkload:
    """A Deployment or DaemonSet of HAMi's chart."""
    component = name.removeprefix("gpu-")
    body = {
        "metadata": {
            "name": name,
            "namespace": "kube-system",
            "labels": {
                "app.kubernetes.io/component": component,
                "app.kubernetes.io/instance": "hami",
                "app.kubernetes.io/version": "2.10.0",
            },
        },
        "spec": {"template": {"spec": {"serviceAccountName": name}}},
    }
    return msgspec.convert(put(body, changed), HamiWorkload)


def a_plugin(**changed: Any) -> HamiWorkload:
    body = {
        "spec__template__spec__nodeSelector": {"gpu": "on"},
        "spec__updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}},
    }
    return a_workload("hami-device-plugin", **(body | changed))


def a_node(name: str = "n1", *, kubelet: str = "v1.31.0", runtime: str = "containerd://2.0.1", mode: str = "hami-core", labels: dict[str, str] | None = None, has: dict[str, str] | None = None, **annotations: str) -> ReportedNode:  # fmt: skip
    """``annotations``: ``hami.io/`` before, ``-`` for ``_``."""
    register = json.dumps([GPU | {"id": f"GPU-{name}", "mode": mode}])
    found = {"hami.io/node-nvidia-register": register} if mode else {}
    found |= {f"hami.io/{key.replace('_', '-')}": text for key, text in annotations.items()}
    body = {
        "metadata": {"name": name, "annotations": found, "labels": {"gpu": "on"} if labels is None else labels},
        "status": {
            "allocatable": {"nvidia.com/gpu": "10"} | (has or {}),
            "nodeInfo": {"kubeletVersion": kubelet, "containerRuntimeVersion": runtime},
        },
    }  # fmt: skip
    return msgspec.convert(body, ReportedNode)


def a_pod(name: str = "p", node: str = "n1", *, allocated: str | None = "GPU-n1,NVIDIA,1000,10:;", asks: bool = True, container: dict[str, Any] | None = None, **changed: Any) -> Pod:  # fmt: skip
    """A pod that runs, as HAMi's scheduler bound it."""
    annotations = {"hami.io/vgpu-node": node, "hami.io/bind-phase": "success"}
    if allocated is not None:
        annotations["hami.io/vgpu-devices-allocated"] = allocated
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "1000"} if asks else {}
    body = {
        "metadata": {"name": name, "namespace": "team-a", "uid": name, "annotations": annotations},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "main", "resources": {"limits": limits}, **(container or {})}],
        },
        "status": {"phase": "Running"},
    }
    return msgspec.convert(put(body, changed), Pod)


def a_hook(policy: str = "Ignore") -> AdmissionHooks:
    body = {"metadata": {"name": "hami-webhook"}, "webhooks": [{"name": "vgpu.hami.io", "failurePolicy": policy}]}  # fmt: skip
    return msgspec.convert(body, AdmissionHooks)


def a_cluster(**changed: Any) -> SeenCluster:
    """Two nodes, a pod, HAMi's own values."""
    parts: dict[str, Any] = {
        "schedulers": [a_workload("hami-scheduler")],
        "plugins": [a_plugin()],
        "nodes": [a_node("n1"), a_node("n2")],
        "pods": [a_pod()],
        "hook": a_hook(),
        "values": {},
    }
    return SeenCluster(**(parts | changed))


def a_release(**release: Any) -> str:
    """The entry ``release`` of Helm's Secret, as the API server sends it."""
    packed = gzip.compress(json.dumps(release).encode(), mtime=0)
    return base64.b64encode(base64.b64encode(packed)).decode()


def put(body: dict[str, Any], changed: dict[str, Any]) -> dict[str, Any]:
    for path, value in changed.items():
        *above, last = path.split("__")
        place = body
        for part in above:
            place = place.setdefault(part, {})
        place[last] = value
    return body
