"""Events as the group events.k8s.io calls their fields; what is stored speaks the core group."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from hami_lab.api.objects.refusals import Cause

Json = dict[str, Any]

_TO_CORE: Mapping[str, str] = MappingProxyType(
    {
        "regarding": "involvedObject",
        "note": "message",
        "reportingController": "reportingComponent",
        "deprecatedSource": "source",
        "deprecatedFirstTimestamp": "firstTimestamp",
        "deprecatedLastTimestamp": "lastTimestamp",
        "deprecatedCount": "count",
    }
)
_FROM_CORE: Mapping[str, str] = MappingProxyType({core: own for own, core in _TO_CORE.items()})


def to_core(event: Json) -> Json:
    """An event as the core group writes it."""
    return {_TO_CORE.get(name, name): value for name, value in event.items()}


def from_core(event: Json) -> Json:
    """An event as events.k8s.io writes it."""
    return {
        _FROM_CORE.get(name, name): value
        for name, value in event.items()
        if name not in ("reportingComponent", "reportingInstance") or value
    }


def problems(event: Json) -> list[Cause]:
    """What events.k8s.io asks of a new event and the core group does not."""
    found = []
    if not event.get("eventTime"):
        found.append(Cause.required("eventTime"))
    else:
        wanted = ("reportingController", "reportingInstance", "action", "reason")
        found += [Cause.required(field) for field in wanted if not event.get(field)]
    if event.get("type") not in ("Normal", "Warning"):
        value = event.get("type") or ""
        found.append(Cause.invalid("type", value, f"has invalid value: {value}"))
    return found
