"""The four sorts of PATCH: JSON patch, merge patch, strategic merge patch, server-side apply."""

from __future__ import annotations

from typing import Any

import jsonpatch

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
    try:
        return jsonpatch.apply_patch(body, operations, in_place=True)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException, TypeError) as error:
        # TypeError: a path goes on into a text, or is no text itself.
        raise DoesNotApply(str(error)) from error


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
