"""What one object counts against a ResourceQuota, as the built-in evaluators count it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from hami_lab.api.typed.quantities import ZERO, Amount, parse

Json = dict[str, Any]
Charge = dict[str, Amount]

ONE = Amount(Fraction(1))
COMPUTE = ("cpu", "memory", "ephemeral-storage")
_COUNTED = frozenset(
    {"services", "configmaps", "secrets", "replicationcontrollers", "resourcequotas",
     "persistentvolumeclaims"}
)  # fmt: skip
_MUST_SPECIFY = frozenset(
    {"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}
)


def tracked(name: str) -> bool:
    """Whether the built-in controller counts this key; ``limits.<extended>`` it does not."""
    if name == "pods" or name.startswith("count/") or name in _COUNTED or name in COMPUTE:
        return True
    kind, dot, resource = name.partition(".")
    if not dot:
        return name.startswith("hugepages-")
    if kind == "requests":
        return resource in COMPUTE or "/" in resource or resource.startswith("hugepages-")
    return kind == "limits" and resource in COMPUTE


def charge(storage: tuple[str, str], body: Json) -> Charge:
    """Key -> amount, for every key that a quota may have."""
    group, plural = storage
    found: Charge = {f"count/{plural}.{group}" if group else f"count/{plural}": ONE}
    if not group and plural in _COUNTED:
        found[plural] = ONE
    if storage == ("", "pods") and not _ended(body):
        found["pods"] = ONE
        requests, limits = needed(body["spec"], "requests"), needed(body["spec"], "limits")
        for name, amount in requests.items():
            found[f"requests.{name}"] = amount
            if name in COMPUTE or name.startswith("hugepages-"):
                found[name] = amount
        for name, amount in limits.items():
            if name in COMPUTE:
                found[f"limits.{name}"] = amount
    return found


def _ended(body: Json) -> bool:
    return (body.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def needed(spec: Json, field: str) -> Charge:
    """The most that a pod uses at once: its apps and sidecars, or an init container before them."""
    apps: Charge = {}
    for container in spec.get("containers") or ():
        _add(apps, _resources(container, field))
    peak: Charge = {}
    sidecars: Charge = {}
    for container in spec.get("initContainers") or ():
        own = _resources(container, field)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, own)
            own = {}
        at_once = dict(sidecars)
        _add(at_once, own)
        _raise(peak, at_once)
    _add(apps, sidecars)
    _raise(apps, peak)
    _add(apps, {k: parse(v) for k, v in (spec.get("overhead") or {}).items()})
    return apps


def _resources(container: Json, field: str) -> Charge:
    entries = (container.get("resources") or {}).get(field) or {}
    return {name: parse(text) for name, text in entries.items()}


def _add(total: Charge, more: Mapping[str, Amount]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, ZERO) + amount


def _raise(total: Charge, other: Mapping[str, Amount]) -> None:
    for name, amount in other.items():
        if name not in total or total[name].value < amount.value:
            total[name] = amount


def unspecified(body: Json, hard: Iterable[str]) -> list[str]:
    """``cpu for: a,b``: what a quota on CPU and memory wants every container to say."""
    spec = body["spec"]
    containers = [*(spec.get("containers") or ()), *(spec.get("initContainers") or ())]
    missing = []
    for key in sorted(set(hard) & _MUST_SPECIFY):
        kind, _, resource = key.rpartition(".")
        field = kind or "requests"
        names = [c["name"] for c in containers if resource not in _resources(c, field)]
        if names:
            missing.append(f"{key} for: {','.join(sorted(names))}")
    return missing


def in_scope(quota: Json, body: Json) -> bool:
    """Whether a quota's scopes take in this pod."""
    for scope in quota.get("scopes") or ():
        if not _scope(scope, body):
            return False
    selector = quota.get("scopeSelector") or {}
    return all(_expression(each, body) for each in selector.get("matchExpressions") or ())


def scoped(quota: Json) -> bool:
    """A quota with scopes counts pods alone."""
    return bool(quota.get("scopes") or quota.get("scopeSelector"))


def _scope(scope: str, body: Json) -> bool:
    spec = body["spec"]
    match scope:
        case "Terminating":
            return spec.get("activeDeadlineSeconds") is not None
        case "NotTerminating":
            return spec.get("activeDeadlineSeconds") is None
        case "BestEffort":
            return (body.get("status") or {}).get("qosClass") == "BestEffort"
        case "NotBestEffort":
            return (body.get("status") or {}).get("qosClass") != "BestEffort"
        case "PriorityClass":
            return bool(spec.get("priorityClassName"))
        case _:
            return False


def _expression(expression: Json, body: Json) -> bool:
    scope, values = expression.get("scopeName", ""), expression.get("values") or ()
    name = body["spec"].get("priorityClassName") or ""
    match expression.get("operator"):
        case "In":
            return scope == "PriorityClass" and name in values
        case "NotIn":
            return scope == "PriorityClass" and name not in values
        case "DoesNotExist":
            return not _scope(scope, body)
        case _:
            return _scope(scope, body)
