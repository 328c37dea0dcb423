"""Tables: the columns that ``kubectl get`` prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from hami_lab.api.objects.kinds import Kind
from hami_lab.api.objects.times import age

Json = dict[str, Any]
Cells = Callable[[Json], list[Any]]


def table(kind: Kind, objects: Iterable[Json], version: str) -> Json:
    """A meta.k8s.io/v1 Table with a row for each object."""
    names, cells = _COLUMNS.get(kind.storage, _PLAIN)
    columns = [
        {
            "name": name.removesuffix("*"),
            "type": "string",
            "format": "name" if name == "Name" else "",
            "description": "",
            # kubectl shows the others with `-o wide`.
            "priority": 1 if name.endswith("*") else 0,
        }
        for name in names.split("|")
    ]
    rows = [
        {
            "cells": cells(body),
            "object": {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": body["metadata"],
            },
        }
        for body in objects
    ]
    return {
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version},
        "columnDefinitions": columns,
        "rows": rows,
    }


def _name(body: Json) -> str:
    return str(body["metadata"]["name"])


def _age(body: Json) -> str:
    return age(body["metadata"].get("creationTimestamp"))


def _plain(body: Json) -> list[Any]:
    return [_name(body), _age(body)]


def _pod(body: Json) -> list[Any]:
    spec, status = body["spec"], body.get("status") or {}
    found = status.get("containerStatuses") or ()
    sidecars = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    total = len(spec["containers"]) + len(sidecars)
    ready = sum(bool(each.get("ready")) for each in found)
    restarts = sum(each.get("restartCount", 0) for each in found)
    node = spec.get("nodeName") or "<none>"
    return [
        _name(body),
        f"{ready}/{total}",
        _pod_state(body, found),
        str(restarts),
        _age(body),
        status.get("podIP") or "<none>",
        node,
    ]


def _pod_state(body: Json, found: Iterable[Json]) -> str:
    """The word that kubectl shows: why it does not run, or its phase."""
    status = body.get("status") or {}
    if body["metadata"].get("deletionTimestamp"):
        return "Terminating"
    for each in found:
        state = each.get("state") or {}
        for part in ("waiting", "terminated"):
            if reason := (state.get(part) or {}).get("reason"):
                return str(reason)
    gated = any(c.get("reason") == "SchedulingGated" for c in status.get("conditions") or ())
    if gated:
        return "SchedulingGated"
    return str(status.get("reason") or status.get("phase") or "Unknown")


def _node(body: Json) -> list[Any]:
    status, spec = body.get("status") or {}, body.get("spec") or {}
    ready = [c.get("status") for c in status.get("conditions") or () if c.get("type") == "Ready"]
    shown = "Unknown" if not ready else ("Ready" if ready[0] == "True" else "NotReady")
    if spec.get("unschedulable"):
        shown += ",SchedulingDisabled"
    prefix = "node-role.kubernetes.io/"
    labels = body["metadata"].get("labels") or {}
    roles = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))
    version = (status.get("nodeInfo") or {}).get("kubeletVersion") or ""
    return [_name(body), shown, ",".join(roles) or "<none>", _age(body), version]


def _namespace(body: Json) -> list[Any]:
    return [_name(body), (body.get("status") or {}).get("phase", ""), _age(body)]


def _quota(body: Json) -> list[Any]:
    status = body.get("status") or {}
    hard, used = status.get("hard") or {}, status.get("used") or {}
    shown = [f"{key}: {used.get(key, '?')}/{hard[key]}" for key in sorted(hard)]
    requests = [each for each in shown if not each.startswith("limits.")]
    limits = [each for each in shown if each.startswith("limits.")]
    return [_name(body), ", ".join(requests), ", ".join(limits), _age(body)]


def _event(body: Json) -> list[Any]:
    about = body.get("involvedObject") or {}
    seen = body.get("lastTimestamp") or body.get("eventTime") or body.get("firstTimestamp")
    return [
        age(seen or body["metadata"].get("creationTimestamp")),
        body.get("type", ""),
        body.get("reason", ""),
        f"{str(about.get('kind', '')).lower()}/{about.get('name', '')}",
        (body.get("message") or "").strip(),
    ]


def _lease(body: Json) -> list[Any]:
    return [_name(body), (body.get("spec") or {}).get("holderIdentity") or "", _age(body)]


def _deployment(body: Json) -> list[Any]:
    status, wanted = body.get("status") or {}, (body.get("spec") or {}).get("replicas", 1)
    ready = f"{status.get('readyReplicas', 0)}/{wanted}"
    updated, available = (status.get(f"{w}Replicas", 0) for w in ("updated", "available"))
    return [_name(body), ready, str(updated), str(available), _age(body)]


def _job(body: Json) -> list[Any]:
    status, spec = body.get("status") or {}, body.get("spec") or {}
    done = f"{status.get('succeeded', 0)}/{spec.get('completions') or 1}"
    ends = [c["type"] for c in status.get("conditions") or () if c.get("status") == "True"]
    return [_name(body), ends[0] if ends else "Running", done, _age(body)]


def _budget(body: Json) -> list[Any]:
    spec, status = body.get("spec") or {}, body.get("status") or {}
    return [
        _name(body),
        str(spec.get("minAvailable", "N/A")),
        str(spec.get("maxUnavailable", "N/A")),
        str(status.get("disruptionsAllowed", 0)),
        _age(body),
    ]


_PLAIN: tuple[str, Cells] = ("Name|Age", _plain)
_COLUMNS: Mapping[tuple[str, str], tuple[str, Cells]] = MappingProxyType(
    {
        ("", "pods"): ("Name|Ready|Status|Restarts|Age|IP*|Node*", _pod),
        ("", "nodes"): ("Name|Status|Roles|Age|Version", _node),
        ("", "namespaces"): ("Name|Status|Age", _namespace),
        ("", "resourcequotas"): ("Name|Request|Limit|Age", _quota),
        ("", "events"): ("Last Seen|Type|Reason|Object|Message", _event),
        ("coordination.k8s.io", "leases"): ("Name|Holder|Age", _lease),
        ("apps", "deployments"): ("Name|Ready|Up-to-date|Available|Age", _deployment),
        ("batch", "jobs"): ("Name|Status|Completions|Age", _job),
        ("policy", "poddisruptionbudgets"): (
            "Name|Min Available|Max Unavailable|Allowed Disruptions|Age",
            _budget,
        ),
    }
)
