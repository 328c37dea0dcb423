"""Strategic merge patch: lists of objects merge by the key that Kubernetes' types name.

The merge of server-side apply, too, follows these keys.
https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/
"""

from __future__ import annotations

from typing import Any

from hami_lab.api.objects.refusals import bad_request
from hami_lab.api.typed.types import ANY, Entries, Items, Record, Type

Json = dict[str, Any]


def strategic_patch(type_: Type, body: Any, patch: Any) -> Any:
    """Apply a strategic merge patch to an object of a type; ``body`` is changed.

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
        _apply(field_of(type_, name), body, name, value)
    return body


def _apply(type_: Type, body: Json, name: str, value: Any) -> None:
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
            body[name] = strategic_patch(type_, body.get(name), value)
    elif isinstance(value, list):
        body[name] = _list(type_, name, body.get(name), value)
    else:
        body[name] = value


def field_of(type_: Type, name: str) -> Type:
    """The type of one field or entry; ``any`` where nothing is known of it."""
    match type_:
        case Record(fields=fields):
            return fields.get(name, ANY)
        case Entries(value):
            return value
        case _:
            return ANY


def _list(type_: Type, name: str, old: Any, patch: list[Any]) -> list[Any]:
    if not isinstance(type_, Items) or not type_.merge:
        return patch
    if type_.merge == "*":
        return [*(old or ()), *(each for each in patch if each not in (old or ()))]
    if any(isinstance(each, dict) and each.get("$patch") == "replace" for each in patch):
        return [each for each in patch if each.get("$patch") != "replace"]
    return _merge(type_, name, list(old or ()), patch)


def _merge(type_: Items, name: str, merged: list[Any], patch: list[Any]) -> list[Any]:
    key, added = type_.merge, []
    for each in patch:
        if not isinstance(each, dict) or key not in each:
            raise bad_request(f"map: {each} does not contain declared merge key: {key} ({name})")
        at = next((i for i, m in enumerate(merged) if m.get(key) == each[key]), None)
        if each.get("$patch") == "delete":
            merged = [m for m in merged if m.get(key) != each[key]]
        elif at is None:
            added.append(strategic_patch(type_.item, {}, each))
        else:
            merged[at] = strategic_patch(type_.item, merged[at], each)
    # kube-apiserver puts the patch's own entries first.
    return [*added, *merged]


def applied(type_: Type, body: Any, wanted: Any, before: Any) -> Any:
    """Server-side apply by one manager: what it wanted ``before`` and no longer does goes away."""
    if not isinstance(wanted, dict) or not isinstance(body, dict):
        return wanted
    for name in before if isinstance(before, dict) else ():
        if name not in wanted:
            body.pop(name, None)
    for name, value in wanted.items():
        old = before.get(name) if isinstance(before, dict) else None
        of = field_of(type_, name)
        if isinstance(of, Items) and of.merge not in ("", "*") and isinstance(value, list):
            body[name] = _applied_list(of, body.get(name) or [], value, old or [])
        else:
            body[name] = applied(of, body.get(name), value, old)
    return body


def _applied_list(type_: Items, body: list[Any], wanted: list[Any], before: list[Any]) -> list[Any]:
    key = type_.merge
    names = {each.get(key) for each in wanted}
    dropped = {each.get(key) for each in before} - names
    kept = {each.get(key): each for each in body if each.get(key) not in dropped}
    earlier = {each.get(key): each for each in before}
    for each in wanted:
        name = each.get(key)
        kept[name] = applied(type_.item, kept.get(name, {}), each, earlier.get(name, {}))
    return list(kept.values())
