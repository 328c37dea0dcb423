"""Finding things among the chart's objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from ..kubernetes.client import Object


def one(objects: Sequence[Object], kind: str, name: str) -> Object:
    found = [o for o in objects if (o["kind"], o["metadata"]["name"]) == (kind, name)]
    assert len(found) == 1, f"{len(found)} of {kind} {name}"
    return found[0]


def all_of(objects: Sequence[Object], *kinds: str) -> list[Object]:
    return [thing for thing in objects if thing["kind"] in kinds]


def pod_of(workload: Object) -> Object:
    """The spec of its pods."""
    return workload["spec"]["template"]["spec"]


def container(workload: Object, name: str) -> Object:
    (found,) = [c for c in pod_of(workload)["containers"] if c["name"] == name]
    return found


def flags(container: Mapping[str, Any]) -> dict[str, str]:
    """The values of its arguments ``--name=value``."""
    pairs = (arg[2:].partition("=") for arg in container["args"] if arg.startswith("--"))
    return {name: value for name, _, value in pairs}


def kube_scheduler_configuration(objects: Sequence[Object]) -> Object:
    text = one(objects, "ConfigMap", "hami-kube-scheduler")["data"]["config.yaml"]
    return yaml.safe_load(text)
