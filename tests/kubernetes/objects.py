"""Builders of manifests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .client import Object

SHORT = {
    "cpu": "cpu",
    "gpu": "nvidia.com/gpu",
    "mem": "nvidia.com/gpumem",
    "percent": "nvidia.com/gpumem-percentage",
    "cores": "nvidia.com/gpucores",
    "dcu": "hygon.com/dcunum",
    "dcumem": "hygon.com/dcumem",
    "mock": "mock.hami.io/device",
    "mockmem": "mock.hami.io/memory",
    "mockcores": "mock.hami.io/cores",
}


def a_container(
    name: str = "main",
    *,
    policy: str = "",
    image: str = "example.com/none:1",
    runs: str = "",
    **asks: object,
) -> Object:
    """A container. ``asks``: limits, by the short names above. ``policy``: Always makes a sidecar.
    ``runs``: a line for the shell.
    """
    limits = {SHORT[key]: str(value) for key, value in asks.items()}
    container: Object = {"name": name, "image": image, "resources": {"limits": limits}}
    more = {"restartPolicy": policy, "command": ["/bin/sh", "-c", runs] if runs else None}
    return container | {key: value for key, value in more.items() if value}


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
    """A pod; ``asks`` are those of its one container, unless ``containers`` are given."""
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
