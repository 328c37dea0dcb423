"""What an update keeps from the object as it was, and what it may not change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hami_lab.api.objects.kinds import Kind
from hami_lab.api.objects.refusals import Cause

Json = dict[str, Any]

_SYSTEM = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "namespace",
    "name",
    "generateName",
    "resourceVersion",
)
_POD_MAY_CHANGE = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds")
_POD_RULE = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only "
    "additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set "
    "to 1 if it was previously negative)"
)


def carry_over(kind: Kind, subresource: str, old: Json, new: Json) -> None:
    """Put back what this sort of update does not touch; ``new`` is changed."""
    metadata, was = new.setdefault("metadata", {}), old["metadata"]
    if subresource and kind.custom:
        metadata.clear()
        metadata.update(was)
    for field in _SYSTEM:
        _keep(metadata, was, field)
    if subresource == "status":
        _keep(metadata, was, "ownerReferences")
        _keep(metadata, was, "finalizers")
        for field in (set(old) | set(new)) - {"metadata", "status", "kind", "apiVersion"}:
            _keep(new, old, field)
    elif kind.has_status:
        _keep(new, old, "status")
    if kind.plural == "namespaces" and not kind.group:
        _keep(new, old, "spec")


def _keep(new: Json, old: Json, field: str) -> None:
    if field in old:
        new[field] = old[field]
    else:
        new.pop(field, None)


def count_generation(kind: Kind, old: Json, new: Json) -> None:
    """One more when what the user wants changed."""
    if kind.versioned_spec and _wanted(old) != _wanted(new):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1


def _wanted(body: Json) -> Json:
    return {k: v for k, v in body.items() if k not in ("metadata", "status", "kind", "apiVersion")}


def immutable(kind: Kind, old: Json, new: Json) -> Iterator[Cause]:
    """What the update changes and must not."""
    if old["metadata"].get("deletionTimestamp"):
        before = old["metadata"].get("finalizers") or ()
        added = [f for f in new["metadata"].get("finalizers") or () if f not in before]
        if added:
            listed = ", ".join(f'"{each}"' for each in added)
            yield Cause.forbidden(
                "metadata.finalizers",
                "no new finalizers can be added if the object is being deleted, "
                f"found new finalizers []string{{{listed}}}",
            )
    match kind.storage:
        case ("", "pods"):
            yield from _pod(old.get("spec") or {}, new.get("spec") or {})
        case ("scheduling.k8s.io", "priorityclasses"):
            if old.get("value") != new.get("value"):
                yield Cause.forbidden("value", "may not be changed in an update.")
        case ("", "secrets" | "configmaps"):
            if old.get("immutable") and old.get("data") != new.get("data"):
                yield Cause.forbidden("data", "field is immutable when `immutable` is set")
        case _:
            pass


def _pod(old: Json, new: Json) -> Iterator[Cause]:
    gates = [each.get("name") for each in old.get("schedulingGates") or ()]
    added = [
        each.get("name")
        for each in new.get("schedulingGates") or ()
        if each.get("name") not in gates
    ]
    if added:
        yield Cause.forbidden(
            "spec.schedulingGates", "only deletion is allowed, but found new scheduling gate"
        )
    was, now = _fixed(old, gated=bool(gates)), _fixed(new, gated=bool(gates))
    tolerations = new.get("tolerations") or ()
    if was != now or any(each not in tolerations for each in old.get("tolerations") or ()):
        changed = sorted(field for field in {*was, *now} if was.get(field) != now.get(field))
        yield Cause.forbidden("spec", f"{_POD_RULE}\nchanged: {', '.join(changed)}")


def _fixed(spec: Json, *, gated: bool) -> Json:
    """What of a pod's spec never changes; a gated pod may still narrow where it goes."""
    free = {*_POD_MAY_CHANGE, "schedulingGates", *(("nodeSelector", "affinity") if gated else ())}
    fixed = {field: value for field, value in spec.items() if field not in free and value}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [{**each, "image": ""} for each in fixed[field]]
    return fixed
