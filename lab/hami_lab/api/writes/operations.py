"""The writes: create, replace, patch, delete, each through defaults, checks and admission."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hami_lab.api.admission.chain import Admission
from hami_lab.api.admission.quotas import Quotas
from hami_lab.api.admission.webhooks import Webhooks
from hami_lab.api.builtin.controllers import Controllers
from hami_lab.api.builtin.disruption import Disruption
from hami_lab.api.objects.kinds import Kind, Kinds
from hami_lab.api.objects.persistence import ObjectFile
from hami_lab.api.objects.refusals import (
    Cause,
    already_exists,
    bad_request,
    invalid,
    invalid_option,
    modified,
    not_found,
    rejected_patch,
    unknown_resource,
    wrong_uid,
)
from hami_lab.api.objects.request import Request
from hami_lab.api.objects.storage import Item, Storage, copied, item_of
from hami_lab.api.objects.times import now
from hami_lab.api.typed.conforming import WrongType, conform
from hami_lab.api.typed.defaults import begin, fill
from hami_lab.api.typed.types import type_of
from hami_lab.api.typed.updates import carry_over, count_generation, immutable
from hami_lab.api.typed.validation import problems
from hami_lab.api.writes.deletion import Deleted, DeleteOptions, Deletion

Json = dict[str, Any]
Change = Callable[[Json], Json]
"""The object as it is -> as it is to be; called again when another write came in between."""

_TRIES = 20
_SYSTEM = (
    "uid",
    "creationTimestamp",
    "generation",
    "resourceVersion",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"
"""Kubernetes' letters for generated names: none that make words or look alike."""


class Operations:
    """All writes go through here, those over HTTP and those of the simulation alike."""

    def __init__(self, *, history: int) -> None:
        self.kinds = Kinds()
        self.storage = Storage(history)
        self.webhooks = Webhooks(self.storage)
        self.admission = Admission(self.storage, self.webhooks)
        self.controllers = Controllers(self.kinds, self.storage)
        self.quotas = Quotas(self.storage)
        self.disruption = Disruption(self.storage)
        self.deletion = Deletion(self.kinds, self.storage)
        self._applied: dict[tuple[str, str], Json] = {}

    def keep_in(self, file: ObjectFile) -> ObjectFile:
        """Take in what a file holds, and write every later change there.

        Raises:
            ConfigError: the file is broken.
        """
        storage = self.storage
        for resource, item in file.load():
            storage.restore(resource, item)
        storage.version = max(storage.version, file.version())
        storage.forget_history()
        self.controllers.restore()
        self.quotas.restore()
        storage.on_change.append(file.write)
        return file

    def find(self, kind: Kind, namespace: str, name: str) -> Item:
        """One object.

        Raises:
            Refusal: 404.
        """
        item = self.storage.get(kind.storage, namespace, name)
        if item is None:
            raise not_found(kind, name)
        return item

    async def create(self, request: Request, body: Json) -> Item:
        """Store a new object.

        Raises:
            Refusal: any 4xx; 500 where a webhook fails.
        """
        request.check_options()
        kind = request.kind
        _identify(request, body)
        self._check_types(kind, body)
        metadata = body["metadata"]
        _strip(kind, metadata)
        request = replace(request, name=metadata.get("name") or "")
        self.admission.namespace(request)
        fill(kind.storage, body)
        self.admission.built_in(request, body)
        concerned = self.admission.concerned("CREATE", request)
        if concerned:
            body = await self.admission.mutate("CREATE", request, body)
        _begin_metadata(kind, body["metadata"])
        request = replace(request, name=body["metadata"].get("name") or "")
        begin(kind.storage, body)
        self.check(kind, body)
        if concerned:
            await self.admission.validate("CREATE", request, _shown(kind, body))
            self.admission.namespace(request)
        if self.storage.get(kind.storage, request.namespace, request.name) is not None:
            raise already_exists(kind, request.name)
        self.quotas.admit(kind, body)
        if request.dry_run:
            return item_of(kind.storage, body)
        return self.storage.put(kind.storage, body)

    async def replace(self, request: Request, body: Json) -> tuple[Item, bool]:
        """PUT: the object, and whether it is new.

        Raises:
            Refusal: any 4xx.
        """
        request.check_options()
        kind = request.kind
        _identify(request, body)
        self._check_types(kind, body)
        name = body["metadata"].get("name") or ""
        if name != request.name:
            raise bad_request(
                f"the name of the object ({name}) does not match the name on the URL "
                f"({request.name})"
            )
        if self.storage.get(kind.storage, request.namespace, request.name) is None:
            if not kind.created_by_update or request.subresource:
                raise not_found(kind, request.name)
            return await self.create(request, body), True
        wanted = body["metadata"].get("resourceVersion") or ""
        uid = body["metadata"].get("uid") or ""
        if wanted and not wanted.isdigit():
            raise bad_request(f'strconv.ParseUint: parsing "{wanted}": invalid syntax')
        if not wanted and kind.needs_version:
            cause = Cause.invalid("metadata.resourceVersion", 0, "must be specified for an update")
            raise invalid(kind, request.name, [cause], shown=kind.plural)

        def change(current: Json) -> Json:
            found = current["metadata"]
            if uid and uid != found["uid"]:
                raise wrong_uid(kind, request.namespace, request.name, uid, found["uid"])
            if wanted and wanted != found["resourceVersion"]:
                raise modified(kind, request.name)
            return {**body, "metadata": dict(body["metadata"])}

        return await self.update(request, change), False

    async def patch(self, request: Request, apply: Change) -> Item:
        """PATCH an existing object with ``apply``.

        Raises:
            Refusal: any 4xx.
        """
        request.check_options()
        kind = request.kind

        def change(current: Json) -> Json:
            version, uid = current["metadata"]["resourceVersion"], current["metadata"]["uid"]
            shown = _shown(kind, current)
            patched = apply(shown)
            if not isinstance(patched.get("metadata"), dict):
                raise rejected_patch("the result is no object with metadata")
            try:
                conform(type_of(kind), patched)
            except WrongType as error:
                raise rejected_patch(str(error)) from error
            metadata = patched["metadata"]
            if metadata.get("name") != request.name:
                raise bad_request(
                    f"the name of the object ({metadata.get('name')}) does not match the name on "
                    f"the URL ({request.name})"
                )
            if metadata.get("resourceVersion") not in (version, "", None):
                raise modified(kind, request.name)
            if metadata.get("uid") not in (uid, "", None):
                cause = Cause.invalid("metadata.uid", metadata["uid"], "field is immutable")
                raise invalid(kind, request.name, [cause])
            return patched

        return await self.update(request, change)

    async def apply(
        self, request: Request, wanted: Json, merge: Callable[[Json, Json, Json], Json]
    ) -> tuple[Item, bool]:
        """Server-side apply: the object, and whether it is new.

        What the same manager applied before and no longer names goes away. Fields have no owners
        here, so there are no conflicts between managers.

        Raises:
            Refusal: any 4xx.
        """
        request.check_options()
        if not request.query.get("fieldManager"):
            cause = Cause.required("fieldManager", "is required for apply patch")
            raise invalid_option("PatchOptions", [cause])
        kind = request.kind
        _identify(request, wanted)
        wanted["metadata"].setdefault("name", request.name)
        current = self.storage.get(kind.storage, request.namespace, request.name)
        if current is None:
            if request.subresource:
                raise not_found(kind, request.name)
            item = await self.create(request, copied(wanted))
            created = True
        else:
            before = self._applied.get((current.uid, request.manager), {})
            item = await self.patch(request, lambda body: merge(body, copied(wanted), before))
            created = False
        if not request.dry_run:
            self._applied[item.uid, request.manager] = copied(wanted)
        return item, created

    async def update(self, request: Request, change: Change) -> Item:
        """Change an object; tried again where another write came in between.

        Raises:
            Refusal: what ``change`` raises, 404, 409, 422, or a webhook's.
        """
        kind = request.kind
        for _ in range(_TRIES):
            current = self.find(kind, request.namespace, request.name)
            new = change(current.object())
            new = {k: v for k, v in new.items() if k not in ("kind", "apiVersion")}
            old = current.object()
            carry_over(kind, request.subresource, old, new)
            fill(kind.storage, new)
            self.admission.built_in_update(request, new)
            if self.admission.concerned("UPDATE", request):
                shown = _shown(kind, old)
                new = await self.admission.mutate("UPDATE", request, new, shown)
                carry_over(kind, request.subresource, old, new)
                self.check(kind, new, old)
                await self.admission.validate("UPDATE", request, _shown(kind, new), shown)
                if self.storage.get(kind.storage, *current.key) is not current:
                    continue
            else:
                self.check(kind, new, old)
            return self._commit(request, current, old, new)
        raise modified(kind, request.name)

    async def delete(self, request: Request, options: DeleteOptions) -> Deleted:
        """Delete one object.

        Raises:
            Refusal: 403, 404, 409, or a webhook's.
        """
        kind = request.kind
        item = self.find(kind, request.namespace, request.name)
        self.deletion.check(kind, item, options)
        if self.admission.concerned("DELETE", request):
            await self.admission.validate("DELETE", request, None, _shown(kind, item.object()))
            item = self.find(kind, request.namespace, request.name)
        return self.deletion.delete(kind, item, options)

    def _commit(self, request: Request, current: Item, old: Json, new: Json) -> Item:
        kind = request.kind
        count_generation(kind, old, new)
        if new == old:
            return current  # as in etcd: nothing changed, so nothing is written or told
        if request.dry_run:
            return item_of(kind.storage, new)
        if self.deletion.finish(kind, new):
            return item_of(kind.storage, {**new, "metadata": {**new["metadata"]}})
        return self.storage.put(kind.storage, new)

    def _check_types(self, kind: Kind, body: Json) -> None:
        try:
            conform(type_of(kind), body)
        except WrongType as error:
            raise bad_request(
                f'{kind.kind} in version "{kind.version}" cannot be handled as a {kind.kind}: '
                f"{error}"
            ) from error

    def check(self, kind: Kind, body: Json, old: Json | None = None) -> None:
        """What is wrong with an object's values.

        Raises:
            Refusal: 422 with every field.
        """
        found = problems(kind.storage, body)
        if old is not None:
            found += immutable(kind, old, body)
        if found:
            raise invalid(kind, body["metadata"].get("name") or "", found)


def _identify(request: Request, body: Json) -> None:
    """Whether a body is what its URL says.

    Raises:
        Refusal: 400.
    """
    kind = request.kind
    given, version = body.get("kind") or kind.kind, body.get("apiVersion") or kind.group_version
    if given != kind.kind or version != kind.group_version:
        raise bad_request(
            f'{given} in version "{version}" cannot be handled as a {kind.kind}: '
            f"this is {kind.group_version} {kind.kind}"
        )
    metadata = body.get("metadata")
    if metadata is None:
        metadata = body["metadata"] = {}
    if not isinstance(metadata, dict):
        raise bad_request(f"{kind.kind} cannot be handled: metadata is no object")
    if kind.namespaced:
        if not request.namespace:
            raise unknown_resource()
        if metadata.get("namespace") not in (None, "", request.namespace):
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )
        metadata["namespace"] = request.namespace


def _strip(kind: Kind, metadata: Json) -> None:
    """Take out what the server alone decides."""
    for field in _SYSTEM:
        metadata.pop(field, None)
    if not kind.namespaced:
        metadata.pop("namespace", None)


def _begin_metadata(kind: Kind, metadata: Json) -> None:
    """What the server gives a new object, after the mutating webhooks."""
    if not metadata.get("name") and metadata.get("generateName"):
        letters = "".join(secrets.choice(_SUFFIX) for _ in range(5))
        metadata["name"] = metadata["generateName"][:58] + letters
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = now()
    if kind.versioned_spec:
        metadata["generation"] = 1


def _shown(kind: Kind, body: Json) -> Json:
    """With its kind, as clients and webhooks see it."""
    return {"kind": kind.kind, "apiVersion": kind.group_version, **body}
