"""Builders of manifests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]
SHORT = {
    "gpu": "nvidia.com/gpu",
    "mem": "nvidia.com/gpumem",
    "percent": "nvidia.com/gpumem-percentage",
    "cores": "nvidia.com/gpucores",
}
REGISTER = "hami.io/node-nvidia-register"


def a_node(name: str, *, devices: int = 1, memory: int = 16000, slots: int = 10, locked: bool = False,
           agent: str = "simulated", model: str = "NVIDIA-T4", without: Sequence[int] = (), ill: Sequence[int] = (),
           **annotations: str) -> Json:  # fmt: skip
    """Devices ``GPU-<name>-<index>``; ``locked``: its agent finds its pod by HAMi's lock.

    ``agent``: what its agent says; ``kubelet``: an agent of ours, whose Lease counts.

    ``without`` and ``ill`` are indexes of devices. ``annotations``' names are completed by
    ``hami.io/``, with ``-`` for ``_``.
    """
    register = [
        {"id": f"GPU-{name}-{i}", "index": i, "count": slots, "devmem": memory, "devcore": 100,
         "type": model, "numa": 0, "mode": "hami-core", "health": i not in ill}
        for i in range(devices) if i not in without
    ]  # fmt: skip
    identity = {} if locked else {"hami.io/node-identity": f"NVIDIA={agent}"}
    more = {f"hami.io/{k.replace('_', '-')}": text for k, text in annotations.items()}
    capacity = {"nvidia.com/gpu": str(slots * devices), "pods": "200"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {
                REGISTER: json.dumps(register) + "\n" * (agent == "kubelet"),
                **identity,
                **more,
            },
        },
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def a_container(name: str = "main", *, policy: str = "", **asks: object) -> Json:
    """``policy``: Always makes a sidecar of an init container."""
    limits = {SHORT[key]: str(value) for key, value in asks.items()}
    container: Json = {"name": name, "image": "example.com/none:1", "resources": {"limits": limits}}
    return container | ({"restartPolicy": policy} if policy else {})


def a_pod(name: str, *, namespace: str = "default", inits: Sequence[Json] = (),
          annotations: Mapping[str, str] | None = None, labels: Mapping[str, str] | None = None,
          priority: str = "", spec: Json | None = None, **asks: object) -> Json:  # fmt: skip
    """A pod. ``priority``: a PriorityClass; ``asks``: its one container's requests, by the short
    names; ``spec``: further fields.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": dict(annotations or {}),
            "labels": dict(labels or {}),
        },
        "spec": {
            "schedulerName": "hami-scheduler",
            "containers": [a_container(**asks)],
            "initContainers": list(inits),
            **({"priorityClassName": priority} if priority else {}),
            **(spec or {}),
        },
    }


def a_quota(name: str, namespace: str = "default", **hard: object) -> Json:
    """A quota with limits by the short names."""
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"hard": {f"limits.{SHORT[key]}": str(value) for key, value in hard.items()}},
    }
