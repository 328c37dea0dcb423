"""What the server says about itself: groups, resources, version, and a skeleton of OpenAPI."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hami_lab.api.objects.kinds import Kind, Kinds

Json = dict[str, Any]

_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")
_SUBRESOURCES: Mapping[str, tuple[str, str, str, tuple[str, ...]]] = MappingProxyType(
    {
        "binding": ("Binding", "", "v1", ("create",)),
        "eviction": ("Eviction", "policy", "v1", ("create",)),
        "scale": ("Scale", "autoscaling", "v1", ("get", "patch", "update")),
        "finalize": ("", "", "", ("update",)),
        "status": ("", "", "", ("get", "patch", "update")),
        "token": ("TokenRequest", "authentication.k8s.io", "v1", ("create",)),
    }
)
"""Subresource -> the kind, group and version that it speaks, where it is not its parent's."""

MAJOR, MINOR = "1", "36"


def version() -> Json:
    """The version whose behaviour this server shows."""
    return {
        "major": MAJOR,
        "minor": MINOR,
        "gitVersion": f"v{MAJOR}.{MINOR}.3+hami-sim",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "",
        "compiler": "",
        "platform": "simulated",
    }


def core_versions(address: str) -> Json:
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }


def groups(kinds: Kinds) -> Json:
    found = [group(name, versions) for name, versions in kinds.groups().items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}


def group(name: str, versions: list[str]) -> Json:
    entries = [{"groupVersion": f"{name}/{v}", "version": v} for v in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def resources(group_version: str, found: list[Kind]) -> Json:
    """An APIResourceList: the kinds of one group and version, and their subresources."""
    entries: list[Json] = []
    for kind in found:
        entry: Json = {
            "name": kind.plural,
            "singularName": kind.singular,
            "namespaced": kind.namespaced,
            "kind": kind.kind,
            "verbs": ["create"] if kind.review else list(_VERBS),
        }
        if kind.short_names:
            entry["shortNames"] = list(kind.short_names)
        if kind.categories:
            entry["categories"] = list(kind.categories)
        entries.append(entry)
        entries += [_subresource(kind, name) for name in kind.subresources]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": entries,
    }


def _subresource(kind: Kind, name: str) -> Json:
    shown, group_name, version_name, verbs = _SUBRESOURCES[name]
    entry: Json = {
        "name": f"{kind.plural}/{name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": shown or kind.kind,
        "verbs": list(verbs),
    }
    if shown and (group_name, version_name) != (kind.group, kind.version):
        entry |= {"group": group_name, "version": version_name}
    return entry


def openapi_paths(kinds: Kinds) -> Json:
    """The root of OpenAPI v3: one document for each group and version."""
    paths = {}
    for name, versions in kinds.groups().items():
        for each in versions:
            path = f"apis/{name}/{each}" if name else f"api/{each}"
            paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}"}
    return {"paths": paths}


def openapi(group_version: str, found: list[Kind]) -> Json:
    """Enough for kubectl to see that the server checks fields itself; no schemas."""
    root = f"/apis/{group_version}" if "/" in group_version else f"/api/{group_version}"
    paths: Json = {}
    for kind in found:
        where = "/namespaces/{namespace}" if kind.namespaced else ""
        paths[f"{root}{where}/{kind.plural}/{{name}}"] = {
            "patch": {
                "responses": {"200": {"description": "OK"}},
                "parameters": [
                    {"name": name, "in": "query", "schema": {"type": "string"}}
                    for name in ("dryRun", "fieldManager", "fieldValidation", "force")
                ],
                "x-kubernetes-action": "patch",
                "x-kubernetes-group-version-kind": {
                    "group": kind.group,
                    "version": kind.version,
                    "kind": kind.kind,
                },
            }
        }
    return {
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "unversioned"},
        "paths": paths,
        "components": {"schemas": {}},
    }
