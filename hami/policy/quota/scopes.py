"""Which pods a ResourceQuota counts: Kubernetes' scopes, with their meaning at the API server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hami.domain.kubernetes import quantity
from hami.domain.kubernetes.objects import Pod, ResourceQuota, ScopeRequirement

_KNOWN = frozenset(
    {
        "Terminating",
        "NotTerminating",
        "BestEffort",
        "NotBestEffort",
        "PriorityClass",
        "CrossNamespacePodAffinity",
    }
)
_COMPUTE = ("cpu", "memory")


@dataclass(frozen=True, slots=True)
class Scopes:
    """All requirements must match; none counts every pod."""

    requirements: tuple[ScopeRequirement, ...] = ()

    def match(self, pod: Pod) -> bool:
        requirements = self.requirements
        return not requirements or all(_matches(each, pod) for each in requirements)


def read_scopes(quota: ResourceQuota) -> tuple[Scopes, tuple[str, ...]]:
    """The scopes of an object, and the names that Kubernetes does not know."""
    selector = quota.spec.scope_selector
    requirements = [
        *(ScopeRequirement(scope_name=s, operator="Exists") for s in quota.spec.scopes or ()),
        *((selector.match_expressions if selector else None) or ()),
    ]
    known = tuple(r for r in requirements if r.scope_name in _KNOWN)
    return Scopes(known), tuple(r.scope_name for r in requirements if r.scope_name not in _KNOWN)


def _matches(requirement: ScopeRequirement, pod: Pod) -> bool:
    match requirement.scope_name:
        case "Terminating":
            return _terminating(pod)
        case "NotTerminating":
            return not _terminating(pod)
        case "BestEffort":
            return _best_effort(pod)
        case "NotBestEffort":
            return not _best_effort(pod)
        case "CrossNamespacePodAffinity":
            return _crosses_namespaces(pod)
        case _:
            return _priority_class(requirement, pod.spec.priority_class_name)


def _terminating(pod: Pod) -> bool:
    """It has a deadline; not: it is being deleted."""
    deadline = pod.spec.active_deadline_seconds
    return deadline is not None and deadline >= 0


def _best_effort(pod: Pod) -> bool:
    """No container asks for compute, or only for none of it: ``cpu: "0"``."""
    return not any(
        _is_positive(quantities.get(resource))
        for container, _ in pod.each_container()
        for quantities in (container.limits, container.requests)
        for resource in _COMPUTE
    )


def _is_positive(text: str | None) -> bool:
    read = quantity.parse(text) if text else None
    return isinstance(read, quantity.Quantity) and read.value > 0


def _crosses_namespaces(pod: Pod) -> bool:
    """A pod (anti-)affinity term names namespaces or selects them."""
    affinity = pod.spec.affinity or {}
    terms: list[object] = []
    for rules in (_map(affinity.get(kind)) for kind in ("podAffinity", "podAntiAffinity")):
        terms += _list(rules.get("requiredDuringSchedulingIgnoredDuringExecution"))
        preferred = _list(rules.get("preferredDuringSchedulingIgnoredDuringExecution"))
        terms += [_map(weighted).get("podAffinityTerm") for weighted in preferred]
    return any(
        _map(term).get("namespaces") or _map(term).get("namespaceSelector") is not None
        for term in terms
    )


def _map(value: object) -> dict[str, Any]:
    """Affinity is kept as it was written, so every level is looked at before it is used."""
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _priority_class(requirement: ScopeRequirement, name: str) -> bool:
    values = requirement.values or ()
    match requirement.operator:
        case "In":
            return name in values
        case "NotIn":
            return name not in values
        case "DoesNotExist":
            return not name
        case _:
            return bool(name)
