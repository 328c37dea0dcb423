"""Whether a body has the types of its resource, before anything looks at its values.

A wrong type is 400 (422 in a patch). What passes has its quantities rewritten and its nulls
dropped, as kube-apiserver decodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from hami_lab.api.typed.quantities import NotAQuantity, canonical_entries
from hami_lab.api.typed.shapes import (
    ConfigMap,
    Crd,
    DisruptionBudget,
    Event,
    Lease,
    Namespace,
    Node,
    Pod,
    PriorityClass,
    Quota,
    Secret,
    Shape,
    Thing,
    WebhookConfiguration,
    Workload,
)

Json = dict[str, Any]

_SHAPES: Mapping[tuple[str, str], type[Thing]] = MappingProxyType(
    {
        ("", "pods"): Pod,
        ("", "nodes"): Node,
        ("", "namespaces"): Namespace,
        ("", "resourcequotas"): Quota,
        ("coordination.k8s.io", "leases"): Lease,
        ("", "events"): Event,
        ("policy", "poddisruptionbudgets"): DisruptionBudget,
        ("", "configmaps"): ConfigMap,
        ("", "secrets"): Secret,
        ("scheduling.k8s.io", "priorityclasses"): PriorityClass,
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"): WebhookConfiguration,
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"): WebhookConfiguration,
        ("apiextensions.k8s.io", "customresourcedefinitions"): Crd,
    }
)


class WrongShape(ValueError):
    """A field has another type than its resource says."""


def check(storage: tuple[str, str], body: Json) -> None:
    """Whether every field that is read has its type; quantities are rewritten in place.

    Raises:
        WrongShape: with the field and what is wrong about it.
    """
    shape = _shape(storage)
    try:
        msgspec.convert(body, shape)
        if shape is not Thing:
            drop_nulls(body)
        _rewrite(storage, body)
    except (msgspec.ValidationError, NotAQuantity) as error:
        raise WrongShape(str(error)) from error


def check_as(shape: type[Shape], body: Json) -> None:
    """Whether a body that is no stored object has its types.

    Raises:
        WrongShape: with the field and what is wrong about it.
    """
    try:
        msgspec.convert(body, shape)
    except msgspec.ValidationError as error:
        raise WrongShape(str(error)) from error
    drop_nulls(body)


def drop_nulls(part: Any) -> None:
    """A null is a field that is not set, however deep."""
    if isinstance(part, dict):
        for name in [name for name, value in part.items() if value is None]:
            del part[name]
        for value in part.values():
            if isinstance(value, dict | list):
                drop_nulls(value)
    elif isinstance(part, list):
        for value in part:
            drop_nulls(value)


def _shape(storage: tuple[str, str]) -> type[Thing]:
    if storage[0] in ("apps", "batch") and storage[1] not in _TEMPLATELESS:
        return Workload
    return _SHAPES.get(storage, Thing)


_TEMPLATELESS = frozenset({"cronjobs", "controllerrevisions"})


def _rewrite(storage: tuple[str, str], body: Json) -> None:
    """Quantities as kube-apiserver stores them."""
    match storage:
        case ("", "pods"):
            _pod_quantities(body.get("spec") or {})
        case ("", "nodes"):
            _entries(body.get("status"), "capacity", "allocatable")
        case ("", "resourcequotas"):
            _entries(body.get("spec"), "hard")
            _entries(body.get("status"), "hard", "used")
        case ("apps" | "batch", _):
            template = (body.get("spec") or {}).get("template") or {}
            _pod_quantities(template.get("spec") or {})
        case _:
            pass


def _pod_quantities(spec: Json) -> None:
    _entries(spec, "overhead")
    _entries(spec.get("resources"), "limits", "requests")
    for field in ("containers", "initContainers"):
        for container in spec.get(field) or ():
            _entries(container.get("resources"), "limits", "requests")


def _entries(parent: Any, *fields: str) -> None:
    if isinstance(parent, dict):
        for field in fields:
            if parent.get(field) is not None:
                parent[field] = canonical_entries(parent[field])
