"""Short ways to say manifests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .client import Object

SHORT = {
    "gpu": "nvidia.com/gpu",
    "mem": "nvidia.com/gpumem",
    "percent": "nvidia.com/gpumem-percentage",
    "cores": "nvidia.com/gpucores",
    "dcu": "hygon.com/dcunum",
    "dcumem": "hygon.com/dcumem",
}


def a_container(name: str = "main", *, policy: str = "", **asks: object) -> Object:
    """``asks``: limits, by the short names above; ``policy``: Always makes a sidecar."""
    limits = {SHORT[key]: str(value) for key, value in asks.items()}
    container: Object = {
        "name": name,
        "image": "example.com/none:1",
        "resources": {"limits": limits},
    }
    return container | ({"restartPolicy": policy} if policy else {})


def a_pod(
    name: str,
    *,
    scheduler: str = "hami-scheduler",
    annotations: Mapping[str, str] | None = None,
    containers: Sequence[Object] = (),
    inits: Sequence[Object] = (),
    spec: Mapping[str, Any] | None = None,
    **asks: object,
) -> Object:
    """``asks`` are of its one container, unless ``containers`` are given."""
    return {
        "metadata": {"name": name, "annotations": dict(annotations or {})},
        "spec": {
            "schedulerName": scheduler,
            "containers": list(containers) or [a_container(**asks)],
            "initContainers": list(inits),
            "terminationGracePeriodSeconds": 0,
            **(spec or {}),
        },
    }
