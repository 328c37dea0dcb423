"""From a request and its body to the answer: one function for each verb."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec

from hami_lab.api.http import bodies, events_v1
from hami_lab.api.http.encoding import list_bytes, object_bytes, wants_table
from hami_lab.api.objects.listing import Listing, Page
from hami_lab.api.objects.refusals import (
    Refusal,
    bad_request,
    invalid,
    method_not_allowed,
    rejected_patch,
    success,
    unsupported_media_type,
)
from hami_lab.api.objects.request import Request
from hami_lab.api.objects.storage import Item
from hami_lab.api.patches import documents as patches
from hami_lab.api.patches.strategic import applied, strategic_patch
from hami_lab.api.reviews.access import Access
from hami_lab.api.reviews.tokens import Tokens
from hami_lab.api.typed.conforming import WrongType, conform
from hami_lab.api.typed.types import KINDS, type_of
from hami_lab.api.writes.deletion import Deleted, delete_options
from hami_lab.api.writes.operations import Change, Operations
from hami_lab.api.writes.placing import Placing
from hami_lab.api.writes.scaling import scale_of, scaled

Json = dict[str, Any]

_EVENTS = "events.k8s.io"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    body: bytes


class Verbs:
    """Carries requests out, all but watches."""

    def __init__(self, operations: Operations, token: str) -> None:
        """``token``: the administrator's."""
        self._operations = operations
        self._tokens = Tokens(operations.kinds, operations.storage, token)
        self._access = Access(operations.kinds, operations.storage)
        self._placing = Placing(operations)
        self._listing = Listing(operations.storage)

    async def answer(self, request: Request, body: bytes, content_type: str) -> Answer:
        """Carry a request out.

        Raises:
            Refusal: why it is not.
        """
        match request.verb:
            case "get":
                return self._get(request)
            case "list":
                page = self._listing.page(request)
                table = wants_table(request.accept)
                return Answer(status=200, body=list_bytes(request.kind, page, table=table))
            case "create":
                return await self._create(request, body, content_type)
            case "update":
                return await self._update(request, body, content_type)
            case "patch":
                return await self._patch(request, body, content_type)
            case "delete":
                return await self._delete(request, _options(body, content_type))
            case "deletecollection":
                return await self._delete_collection(request, _options(body, content_type))
            case _:
                raise method_not_allowed()

    def _get(self, request: Request) -> Answer:
        item = self._operations.find(request.kind, request.namespace, request.name)
        return self._shown(request, item)

    def _shown(self, request: Request, item: Item, *, created: bool = False) -> Answer:
        if request.subresource == "scale":
            body = msgspec.json.encode(scale_of(item.object()))
        else:
            body = object_bytes(request.kind, item, table=wants_table(request.accept))
        return Answer(status=201 if created else 200, body=body)

    async def _create(self, request: Request, body: bytes, content_type: str) -> Answer:
        if request.subresource == "token":
            account = self._operations.find(request.kind, request.namespace, request.name)
            asked = bodies.object_of(body, content_type, "TokenRequest")
            _conforms("authentication.k8s.io/v1 TokenRequest", asked)
            return _created(self._tokens.issue(account, asked))
        if request.subresource:
            return await self._place(request, bodies.object_of(body, content_type, "Binding"))
        found = bodies.object_of(body, content_type, request.kind.kind)
        if request.kind.review:
            _conforms(f"{request.kind.group_version} {request.kind.kind}", found)
            asked_of = self._tokens if request.kind.kind == "TokenReview" else self._access
            kind = request.kind
            shown = {"kind": kind.kind, "apiVersion": kind.group_version}
            return _created({**asked_of.review(found), **shown})
        if request.kind.group == _EVENTS:
            if problems := events_v1.problems(found):
                name = str((found.get("metadata") or {}).get("name") or "")
                raise invalid(replace(request.kind, group=""), name, problems)
            found = events_v1.to_core(found)
        return self._shown(request, await self._operations.create(request, found), created=True)

    async def _place(self, request: Request, found: Json) -> Answer:
        metadata = found.get("metadata")
        if not request.name:
            name = metadata.get("name") if isinstance(metadata, dict) else None
            if not isinstance(name, str) or not name:
                raise bad_request("a Binding names its pod in metadata.name")
            request = replace(request, name=name)
        if request.subresource == "eviction":
            await self._placing.evict(request, found)
        else:
            await self._placing.bind(request, found)
        return _created({**success(), "code": 201})

    async def _update(self, request: Request, body: bytes, content_type: str) -> Answer:
        found = bodies.object_of(body, content_type, request.kind.kind)
        if request.subresource == "scale":
            plain = replace(request, subresource="")
            item = await self._operations.patch(plain, lambda current: scaled(current, found))
            return self._shown(request, item)
        if request.kind.group == _EVENTS:
            found = events_v1.to_core(found)
        item, created = await self._operations.replace(request, found)
        return self._shown(request, item, created=created)

    async def _patch(self, request: Request, body: bytes, content_type: str) -> Answer:
        media = content_type.partition(";")[0].strip().lower()
        if media == patches.APPLY_PATCH:
            return await self._apply(request, body)
        change = _change(request, media, body)
        if request.subresource == "scale":
            plain = replace(request, subresource="")
            item = await self._operations.patch(
                plain, lambda current: scaled(current, change(scale_of(current)))
            )
        else:
            item = await self._operations.patch(request, change)
        return self._shown(request, item)

    async def _apply(self, request: Request, body: bytes) -> Answer:
        wanted = bodies.object_of(body, patches.APPLY_PATCH, request.kind.kind)
        merge = partial(applied, type_of(request.kind))
        item, created = await self._operations.apply(request, wanted, merge)
        return self._shown(request, item, created=created)

    async def _delete(self, request: Request, options: Json) -> Answer:
        chosen = delete_options(options, dict(request.query))
        if options.get("dryRun") and not request.dry_run:
            request = replace(request, query={**request.query, "dryRun": "All"})
        request.check_options()
        deleted = await self._operations.delete(request, chosen)
        return Answer(status=200, body=_deleted(request, deleted))

    async def _delete_collection(self, request: Request, options: Json) -> Answer:
        page = self._listing.page(request)
        for item in page.items:
            namespace, name = item.key
            one = replace(request, verb="delete", namespace=namespace, name=name)
            try:
                await self._delete(one, options)
            except Refusal as refusal:
                if refusal.code != 404:
                    raise
        shown = Page(items=page.items, version=self._operations.storage.version)
        return Answer(status=200, body=list_bytes(request.kind, shown))


def _created(answer: Json) -> Answer:
    return Answer(status=201, body=msgspec.json.encode(answer))


def _options(body: bytes, content_type: str) -> Json:
    """DeleteOptions; there need not be any."""
    if not body:
        return {}
    options = bodies.object_of(body, content_type or "application/json", "DeleteOptions")
    _conforms("v1 DeleteOptions", options)
    return options


def _conforms(kind: str, body: Json) -> None:
    """Whether the fields of what is sent, and never stored, have the types of its kind.

    Raises:
        Refusal: 400.
    """
    try:
        conform(KINDS[kind], body)
    except WrongType as error:
        name = kind.rpartition(" ")[2]
        raise bad_request(f"the body cannot be handled as {name}: {error}") from error


def _deleted(request: Request, deleted: Deleted) -> bytes:
    kind = request.kind
    if kind.answers_object or not deleted.gone:
        return object_bytes(kind, deleted.item)
    details = {"name": request.name, "kind": kind.plural, "uid": deleted.item.uid}
    if kind.group:
        details["group"] = kind.group
    return msgspec.json.encode(success(**details))


def _change(request: Request, media: str, body: bytes) -> Change:
    """What a patch does to an object.

    Raises:
        Refusal: 400, 415.
    """
    if media == patches.JSON_PATCH:
        operations = _decoded(body)
        if not isinstance(operations, list):
            raise bad_request("error decoding patch: a JSON patch is a list of operations")
        return _in_own_words(request, lambda current: _json_patched(current, operations))
    if media not in (patches.MERGE_PATCH, patches.STRATEGIC_PATCH):
        raise Refusal(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})
    if media == patches.STRATEGIC_PATCH and request.kind.custom:
        raise unsupported_media_type(f"{patches.JSON_PATCH}, {patches.MERGE_PATCH}")
    patch = _decoded(body)
    if not isinstance(patch, dict):
        raise bad_request("error decoding patch: a merge patch is an object")
    if media == patches.MERGE_PATCH:
        return _in_own_words(request, lambda current: patches.merge_patch(current, patch))
    # Before events are translated: their patch, too, has the fields of its own group.
    type_ = KINDS[f"{request.kind.group_version} {request.kind.kind}"]
    return _in_own_words(request, lambda current: strategic_patch(type_, current, patch))


def _decoded(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise bad_request(f"error decoding patch: {error}") from error


def _json_patched(current: Json, operations: Any) -> Json:
    try:
        patched = patches.json_patch(current, operations)
    except patches.DoesNotApply as error:
        raise Refusal(
            422,
            "Invalid",
            f"the server rejected our request due to an error in our request: {error}",
            details={},
        ) from error
    if not isinstance(patched, dict):
        raise rejected_patch("the result is no object")
    return patched


def _in_own_words(request: Request, change: Change) -> Change:
    """A patch of events.k8s.io speaks of that group's fields."""
    if request.kind.group != _EVENTS:
        return change
    return lambda current: events_v1.to_core(change(events_v1.from_core(current)))
