"""The scale subresource of workloads: how many replicas, as an autoscaling/v1 Scale."""

from __future__ import annotations

from typing import Any

from hami_lab.api.objects.refusals import rejected_patch

Json = dict[str, Any]


def scale_of(body: Json) -> Json:
    """A workload as a Scale."""
    metadata = {
        k: v
        for k, v in body["metadata"].items()
        if k in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    }
    replicas = body["spec"].get("replicas", 1)
    selector = (body["spec"].get("selector") or {}).get("matchLabels") or {}
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        # Go's types leave out a zero.
        "spec": {"replicas": replicas} if replicas else {},
        "status": {
            "replicas": (body.get("status") or {}).get("replicas", 0),
            "selector": ",".join(f"{key}={value}" for key, value in sorted(selector.items())),
        },
    }


def scaled(body: Json, scale: Any) -> Json:
    """The workload with a Scale's replicas.

    Raises:
        Refusal: 422, the Scale names no number.
    """
    replicas = (scale.get("spec") or {}).get("replicas", 0) if isinstance(scale, dict) else None
    if not isinstance(replicas, int) or isinstance(replicas, bool) or replicas < 0:
        raise rejected_patch(f"spec.replicas of a Scale is {replicas!r}, not a number from 0 on")
    body["spec"]["replicas"] = replicas
    return body
