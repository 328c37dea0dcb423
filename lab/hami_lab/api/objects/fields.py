"""Which fields a fieldSelector may name, and their values."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

Storage = tuple[str, str]

_ALWAYS = ("metadata.name", "metadata.namespace")
_EXTRA: Mapping[Storage, tuple[str, ...]] = MappingProxyType(
    {
        ("", "pods"): (
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.nominatedNodeName",
        ),
        ("", "nodes"): ("spec.unschedulable",),
        ("", "namespaces"): ("status.phase",),
        ("", "secrets"): ("type",),
        ("", "services"): ("spec.clusterIP", "spec.type"),
        ("", "events"): (
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ),
        ("apps", "replicasets"): ("status.replicas",),
        ("batch", "jobs"): ("status.successful",),
    }
)


def supported(storage: Storage) -> tuple[str, ...]:
    """The fields that objects of this resource can be selected by."""
    return _ALWAYS + _EXTRA.get(storage, ())


def selectable(storage: Storage, body: Mapping[str, Any]) -> Mapping[str, str]:
    """Field -> its value as text; empty where it is not set."""
    metadata = body["metadata"]
    found = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata.get("namespace", ""),
    }
    for path in _EXTRA.get(storage, ()):
        found[path] = _text(body, path)
    return found


def _text(body: Mapping[str, Any], path: str) -> str:
    if path == "source":
        source = body.get("source") or {}
        return str(source.get("component") or body.get("reportingComponent") or "")
    value: Any = body
    for name in path.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    if isinstance(value, bool) or path in ("spec.unschedulable", "spec.hostNetwork"):
        return "true" if value else "false"
    return "" if value is None else str(value)
