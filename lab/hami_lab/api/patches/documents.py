"""The four sorts of PATCH: JSON patch, merge patch, strategic merge patch, server-side apply."""

from __future__ import annotations

import copy
from typing import Any

from hami_lab.api.objects.refusals import Refusal, bad_request

Json = dict[str, Any]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"

_MOST_OPERATIONS = 10_000


class DoesNotApply(ValueError):
    """An operation of a JSON patch finds nothing to act on."""


def json_patch(body: Json, operations: Any) -> Any:
    """Apply a JSON patch (RFC 6902); ``body`` is changed.

    Raises:
        Refusal: 400, this is no JSON patch.
        DoesNotApply: a path does not exist, a test fails.
    """
    if not isinstance(operations, list) or not all(isinstance(o, dict) for o in operations):
        raise bad_request("error decoding patch: a JSON patch is a list of operations")
    if len(operations) > _MOST_OPERATIONS:
        raise Refusal(
            413,
            "RequestEntityTooLarge",
            f"The allowed maximum operations in a JSON patch is {_MOST_OPERATIONS}, "
            f"got {len(operations)}",
        )
    holder: Json = {"": body}
    for operation in operations:
        _operate(holder, operation)
    if "" not in holder:
        raise DoesNotApply("nothing is left")
    return holder[""]


def _operate(holder: Json, operation: Json) -> None:
    name, path = operation.get("op"), _pointer(operation.get("path"))
    match name:
        case "add":
            _add(holder, path, copy.deepcopy(_value(operation)))
        case "remove":
            _take(holder, path)
        case "replace":
            _find(holder, path)
            _set(holder, path, copy.deepcopy(_value(operation)))
        case "move":
            _add(holder, path, _take(holder, _pointer(operation.get("from"))))
        case "copy":
            _add(holder, path, copy.deepcopy(_find(holder, _pointer(operation.get("from")))))
        case "test":
            if _find(holder, path) != _value(operation):
                raise DoesNotApply(f"test of {operation['path']} failed")
        case _:
            raise DoesNotApply(f"unexpected kind of operation: {name!r}")


def _value(operation: Json) -> Any:
    if "value" not in operation:
        raise DoesNotApply(f"operation {operation.get('op')!r} has no value")
    return operation["value"]


def _pointer(path: Any) -> list[str]:
    if not isinstance(path, str) or (path and not path.startswith("/")):
        raise DoesNotApply(f"path {path!r} is no JSON pointer")
    return ["", *(part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:])]


def _step(value: Any, part: str) -> Any:
    if isinstance(value, dict) and part in value:
        return value[part]
    if isinstance(value, list):
        return value[_index(value, part, len(value) - 1)]
    raise DoesNotApply(f"{part!r} does not exist")


def _index(value: list[Any], part: str, last: int) -> int:
    if not part.isascii() or not part.isdigit() or int(part) > last:
        raise DoesNotApply(f"index {part!r} of a list with {len(value)} entries")
    return int(part)


def _find(holder: Json, path: list[str]) -> Any:
    value: Any = holder
    for part in path:
        value = _step(value, part)
    return value


def _add(holder: Json, path: list[str], value: Any) -> None:
    parent, part = _find(holder, path[:-1]), path[-1]
    if isinstance(parent, list):
        parent.insert(len(parent) if part == "-" else _index(parent, part, len(parent)), value)
    elif isinstance(parent, dict):
        parent[part] = value
    else:
        raise DoesNotApply(f"{part!r} has no parent")


def _set(holder: Json, path: list[str], value: Any) -> None:
    parent, part = _find(holder, path[:-1]), path[-1]
    if isinstance(parent, list):
        parent[_index(parent, part, len(parent) - 1)] = value
    else:
        parent[part] = value


def _take(holder: Json, path: list[str]) -> Any:
    value = _find(holder, path)
    parent, part = _find(holder, path[:-1]), path[-1]
    if isinstance(parent, list):
        del parent[_index(parent, part, len(parent) - 1)]
    else:
        del parent[part]
    return value


def merge_patch(body: Any, patch: Any) -> Any:
    """Apply a JSON merge patch (RFC 7386); ``body`` is changed."""
    if not isinstance(patch, dict):
        return patch
    if not isinstance(body, dict):
        body = {}
    for name, value in patch.items():
        if value is None:
            body.pop(name, None)
        else:
            body[name] = merge_patch(body.get(name), value)
    return body
