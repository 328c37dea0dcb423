"""What the API server sends, as values: pages of a list, events of a watch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from hami.domain.errors import shortened
from hami.kube.errors import ApiError
from hami.kube.resources import HasMetadata, Resource
from hami.kube.transport import Request, Status

T = TypeVar("T", bound=HasMetadata)
D = TypeVar("D")

UNREADABLE = "Unreadable"
"""The reason of an :class:`ApiError` for an answer that came but cannot be understood."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A part of a list, not decoded yet, and the version of the whole list."""

    items: list[msgspec.Raw]
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Added(Generic[T]):
    object: T


@dataclass(frozen=True, slots=True, kw_only=True)
class Modified(Generic[T]):
    object: T


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted(Generic[T]):
    object: T


@dataclass(frozen=True, slots=True, kw_only=True)
class Bookmark:
    """A watch's bookmark: nothing else changed up to this version."""

    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """The identity of an object that may not decode as a whole."""

    namespace: str
    name: str
    uid: str
    resource_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Undecodable:
    """An event about an object that does not decode as its kind."""

    head: Head
    deleted: bool
    problem: str


WatchEvent = Added[T] | Modified[T] | Deleted[T] | Bookmark | Undecodable


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class _List(msgspec.Struct):
    metadata: _ListMeta
    items: list[msgspec.Raw] | None = None


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _HeadMetadata(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Head(msgspec.Struct):
    metadata: _HeadMetadata = _HeadMetadata()


class _Version(msgspec.Struct):
    major: str = ""
    minor: str = ""


LISTS = msgspec.json.Decoder(_List)
VERSIONS = msgspec.json.Decoder(_Version)
_EVENTS = msgspec.json.Decoder(_Event)
_HEADS = msgspec.json.Decoder(_Head)
_STATUSES = msgspec.json.Decoder(Status)


def head_of(raw: msgspec.Raw | bytes) -> Head:
    """Decode name, uid and version alone, which costs a fraction of the whole object.

    Raises:
        msgspec.MsgspecError: not even that can be read.
    """
    meta = _HEADS.decode(raw).metadata
    return Head(
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        resource_version=meta.resource_version,
    )


def parsed(decoder: msgspec.json.Decoder[D], request: Request, body: msgspec.Raw | bytes) -> D:
    """Decode an answer.

    Raises:
        ApiError: the answer cannot be understood. Its status is 200, because what was asked for
            has happened.
    """
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        begin = shortened(bytes(body)[:200].decode(errors="replace"))
        raise ApiError(
            f"the answer cannot be read: {error}: {begin}",
            call=f"{request.verb} {request.about}",
            status=200,
            reason=UNREADABLE,
        ) from error


def decoded(resource: Resource[T], request: Request, body: msgspec.Raw | bytes) -> T:
    return parsed(resource.decoder, request, body)


def whole(resource: Resource[T], body: Any) -> bytes:
    """``body`` as JSON with its kind; fields that a struct leaves empty are left out."""
    content = msgspec.to_builtins(body)
    if isinstance(body, msgspec.Struct):
        content = _said(content)
    kind = {"apiVersion": resource.group_version, "kind": resource.kind}
    return msgspec.json.encode(kind | content)


def _said(content: Any) -> Any:
    """The value without fields that are None, at any depth."""
    if not isinstance(content, dict):
        return content
    return {key: _said(value) for key, value in content.items() if value is not None}


def read_event(resource: Resource[T], request: Request, line: bytes) -> WatchEvent[T]:
    """Decode one line of a watch.

    Raises:
        ApiError: the server's own error event, or a line that is no event.
    """
    event = parsed(_EVENTS, request, line)
    if event.type == "ERROR":
        said = parsed(_STATUSES, request, event.object)
        raise ApiError(
            said.message,
            call=f"{request.verb} {request.about}",
            status=said.code or 0,
            reason=said.reason,
            retry_after=said.details.retry_after_seconds if said.details else None,
        )
    if event.type == "BOOKMARK":
        return Bookmark(
            resource_version=parsed(_HEADS, request, event.object).metadata.resource_version
        )
    try:
        found = resource.decoder.decode(event.object)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        parsed(_HEADS, request, event.object)
        return Undecodable(
            head=head_of(event.object), deleted=event.type == "DELETED", problem=str(error)
        )
    match event.type:
        case "ADDED":
            return Added(object=found)
        case "MODIFIED":
            return Modified(object=found)
        case "DELETED":
            return Deleted(object=found)
        case other:
            raise ApiError(
                f"an event of type {shortened(other)!r}, which nobody knows",
                call=f"{request.verb} {request.about}",
                status=200,
                reason=UNREADABLE,
            )
