"""Strategic merge patch: lists of objects merge by the key that Kubernetes' types name.

Also the merge of server-side apply, which follows the same keys. The keys are those of
Kubernetes' API reference ("patch strategy", "patch merge key").
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hami_lab.api.objects.refusals import bad_request

Json = dict[str, Any]

_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "containers": "name",
        "initContainers": "name",
        "ephemeralContainers": "name",
        "volumes": "name",
        "env": "name",
        "ports": "containerPort",
        "volumeMounts": "mountPath",
        "volumeDevices": "devicePath",
        "imagePullSecrets": "name",
        "hostAliases": "ip",
        "topologySpreadConstraints": "topologyKey",
        "schedulingGates": "name",
        "resourceClaims": "name",
        "conditions": "type",
        "addresses": "type",
        "podIPs": "ip",
        "ownerReferences": "uid",
        "secrets": "name",
        "webhooks": "name",
    }
)
"""Field -> the key its list merges by. Taints and tolerations are replaced whole."""

_SETS = frozenset({"finalizers", "podCIDRs"})
"""Lists of texts that grow together."""

_SERVICE_PORTS = "port"


def strategic_patch(body: Any, patch: Any) -> Any:
    """Apply a strategic merge patch; ``body`` is changed.

    Raises:
        Refusal: 400, a list's entry has no merge key.
    """
    if not isinstance(patch, dict):
        return patch
    if not isinstance(body, dict):
        body = {}
    if patch.get("$patch") == "replace":
        return {name: value for name, value in patch.items() if name != "$patch"}
    for name, value in patch.items():
        if name == "$retainKeys" and isinstance(value, list):
            for gone in [key for key in body if key not in value]:
                del body[gone]
    for name, value in patch.items():
        _apply(body, name, value)
    return body


def _apply(body: Json, name: str, value: Any) -> None:
    if name in ("$patch", "$retainKeys") or name.startswith("$setElementOrder/"):
        return
    if name.startswith("$deleteFromPrimitiveList/"):
        field = name.partition("/")[2]
        body[field] = [each for each in body.get(field) or () if each not in value]
    elif value is None:
        body.pop(name, None)
    elif isinstance(value, dict):
        if value.get("$patch") == "delete":
            body.pop(name, None)
        else:
            body[name] = strategic_patch(body.get(name), value)
    elif isinstance(value, list):
        body[name] = _list(name, body.get(name), value)
    else:
        body[name] = value


def _list(name: str, old: Any, patch: list[Any]) -> list[Any]:
    if name in _SETS:
        return [*(old or ()), *(each for each in patch if each not in (old or ()))]
    key = merge_key(name, patch or old)
    if key is None:
        return patch
    if any(isinstance(each, dict) and each.get("$patch") == "replace" for each in patch):
        return [each for each in patch if each.get("$patch") != "replace"]
    return _merge(name, key, list(old or ()), patch)


def _merge(name: str, key: str, merged: list[Any], patch: list[Any]) -> list[Any]:
    added = []
    for each in patch:
        if not isinstance(each, dict) or key not in each:
            raise bad_request(f"map: {each} does not contain declared merge key: {key} ({name})")
        at = next((i for i, m in enumerate(merged) if m.get(key) == each[key]), None)
        if each.get("$patch") == "delete":
            merged = [m for m in merged if m.get(key) != each[key]]
        elif at is None:
            added.append(strategic_patch({}, each))
        else:
            merged[at] = strategic_patch(merged[at], each)
    # kube-apiserver puts the patch's own entries first.
    return [*added, *merged]


def merge_key(name: str, entries: Any) -> str | None:
    """The key of a list's entries; None: the list is one value."""
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        return None
    if name == "ports" and any("port" in each for each in entries):
        return _SERVICE_PORTS
    return _KEYS.get(name)


def applied(body: Any, wanted: Any, before: Any) -> Any:
    """Server-side apply by one manager: what it wanted ``before`` and no longer does goes away."""
    if not isinstance(wanted, dict) or not isinstance(body, dict):
        return wanted
    for name in before if isinstance(before, dict) else ():
        if name not in wanted:
            body.pop(name, None)
    for name, value in wanted.items():
        old = before.get(name) if isinstance(before, dict) else None
        key = merge_key(name, value) if isinstance(value, list) else None
        if key is None:
            body[name] = applied(body.get(name), value, old)
        else:
            body[name] = _applied_list(key, body.get(name) or [], value, old or [])
    return body


def _applied_list(key: str, body: list[Any], wanted: list[Any], before: list[Any]) -> list[Any]:
    names = {each.get(key) for each in wanted}
    dropped = {each.get(key) for each in before} - names
    kept = {each.get(key): each for each in body if each.get(key) not in dropped}
    earlier = {each.get(key): each for each in before}
    for each in wanted:
        name = each.get(key)
        kept[name] = applied(kept.get(name, {}), each, earlier.get(name, {}))
    return list(kept.values())
