"""Request bodies: JSON, YAML, some protobuf, and never more than a real server takes."""

from __future__ import annotations

from typing import Any

import msgspec

from hami.domain.errors import ConfigError, shortened
from hami.simulate.documents import read_documents
from hami_lab.api.http import protobuf
from hami_lab.api.objects.refusals import Refusal, bad_request, unsupported_media_type

Json = dict[str, Any]

MOST_BYTES = 3 * 1024 * 1024
_DEEPEST = 200
_ACCEPTED = f"application/json, application/yaml, {protobuf.MEDIA_TYPE}"


def too_large() -> Refusal:
    return Refusal(413, "RequestEntityTooLarge", f"Request entity too large: limit is {MOST_BYTES}")


def value(body: bytes, content_type: str, what: str) -> Any:
    """Decode a body; ``what`` it should be, for the message.

    Raises:
        Refusal: 400, 415.
    """
    media = content_type.partition(";")[0].strip().lower()
    if media in ("application/yaml", "application/apply-patch+yaml"):
        return _yaml(body, what)
    if media == protobuf.MEDIA_TYPE:
        return protobuf.decode(body)
    if media and not (media == "application/json" or media.endswith("+json")):
        raise unsupported_media_type(_ACCEPTED)
    try:
        found = msgspec.json.decode(body)
        _check_depth(found)
        return found
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        shown = shortened(body.decode(errors="replace")) or "<empty>"
        raise bad_request(
            f"the object provided is unrecognized (must be of type {what}): couldn't get "
            f"version/kind; json parse error: {error} ({shown})"
        ) from error


def object_of(body: bytes, content_type: str, what: str) -> Json:
    """Decode a body that must be an object.

    Raises:
        Refusal: 400, 415.
    """
    found = value(body, content_type, what)
    if not isinstance(found, dict):
        raise bad_request(
            f"the object provided is unrecognized (must be of type {what}): couldn't get "
            "version/kind; this is no JSON object"
        )
    return found


def _yaml(body: bytes, what: str) -> Any:
    try:
        documents = read_documents("body", body.decode())
    except (ConfigError, UnicodeDecodeError) as error:
        raise bad_request(f"error decoding {what}: {error}") from error
    if len(documents) != 1:
        raise bad_request(f"error decoding {what}: {len(documents)} documents, 1 is wanted")
    return documents[0].value


def _check_depth(found: Any, depth: int = 0) -> None:
    """Nesting so deep that no code here could walk it is refused at the door."""
    if depth > _DEEPEST:
        raise RecursionError(f"nested more than {_DEEPEST} deep")
    if isinstance(found, dict):
        for each in found.values():
            if isinstance(each, dict | list):
                _check_depth(each, depth + 1)
    elif isinstance(found, list):
        for each in found:
            if isinstance(each, dict | list):
                _check_depth(each, depth + 1)
