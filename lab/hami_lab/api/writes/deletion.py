"""How objects go: preconditions, grace, finalizers, and what is deleted with them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hami_lab.api.objects.kinds import Kind, Kinds
from hami_lab.api.objects.refusals import bad_request, conflict, forbidden
from hami_lab.api.objects.storage import Item, Record, Storage, item_of
from hami_lab.api.objects.times import now

Json = dict[str, Any]

_PODS = ("", "pods")
_IMMORTAL = frozenset({"default", "kube-system", "kube-public"})
_POLICIES = frozenset({"", "Background", "Foreground", "Orphan"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """``grace`` in seconds, None: as the object says."""

    grace: int | None = None
    uid: str = ""
    resource_version: str = ""
    propagation: str = ""
    dry_run: bool = False


def delete_options(body: Json, query: dict[str, str]) -> DeleteOptions:
    """From the body and, where it says nothing, from the query.

    Raises:
        Refusal: 400.
    """
    preconditions = body.get("preconditions") or {}
    grace = body.get("gracePeriodSeconds", query.get("gracePeriodSeconds"))
    propagation = body.get("propagationPolicy") or query.get("propagationPolicy") or ""
    if propagation not in _POLICIES:
        raise bad_request(f'invalid propagationPolicy "{propagation}"')
    if grace is not None:
        try:
            grace = int(grace)
        except (TypeError, ValueError) as error:
            raise bad_request(f"gracePeriodSeconds {grace!r} is no number") from error
    return DeleteOptions(
        grace=grace,
        uid=str(preconditions.get("uid") or ""),
        resource_version=str(preconditions.get("resourceVersion") or ""),
        propagation=propagation,
        dry_run=bool(body.get("dryRun") or query.get("dryRun")),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """The object's last or present state, and whether it is gone by now."""

    item: Item
    gone: bool


class Deletion:
    """Deletes objects, and what belongs to them."""

    def __init__(self, kinds: Kinds, storage: Storage) -> None:
        self._kinds = kinds
        self._storage = storage
        storage.on_change.append(self._react)

    def delete(self, kind: Kind, item: Item, options: DeleteOptions) -> Deleted:
        """Begin or finish the deletion of an object.

        Raises:
            Refusal: 409 where a precondition does not hold, 403 where it may not be deleted.
        """
        self.check(kind, item, options)
        body = item.object()
        metadata = body["metadata"]
        if kind.storage == ("", "namespaces"):
            return self._namespace(kind, item, body, options)
        grace = _grace(kind, body, options.grace)
        if metadata.get("deletionTimestamp"):
            waiting = metadata.get("deletionGracePeriodSeconds") or 0
            if metadata.get("finalizers") and waiting == 0:
                return Deleted(item=item, gone=False)
            if grace >= waiting > 0:
                return Deleted(item=item, gone=False)
        if grace == 0 and not metadata.get("finalizers"):
            return self._remove(kind, body, options)
        return self._mark(kind, body, grace, dry_run=options.dry_run)

    def check(self, kind: Kind, item: Item, options: DeleteOptions) -> None:
        name = item.key[1]
        if kind.storage == ("", "namespaces") and name in _IMMORTAL:
            raise forbidden(kind, name, "this namespace may not be deleted")
        if options.uid and options.uid != item.uid:
            raise conflict(
                kind,
                name,
                f"the UID in the precondition ({options.uid}) does not match the UID in record "
                f"({item.uid}). The object might have been deleted and then recreated",
                resource=kind.kind,
            )
        if options.resource_version and options.resource_version != str(item.version):
            raise conflict(
                kind,
                name,
                f"the ResourceVersion in the precondition ({options.resource_version}) does not "
                f"match the ResourceVersion in record ({item.version}). The object might have "
                "been modified",
                resource=kind.kind,
            )

    def finish(self, kind: Kind, body: Json) -> bool:
        """Take out an object whose last finalizer went while it was being deleted."""
        metadata = body["metadata"]
        due = (
            metadata.get("deletionTimestamp")
            and not metadata.get("finalizers")
            and not metadata.get("deletionGracePeriodSeconds")
            and kind.storage != ("", "namespaces")
        )
        if due:
            self._storage.remove(kind.storage, body)
        return bool(due)

    def _remove(self, kind: Kind, body: Json, options: DeleteOptions) -> Deleted:
        if kind.storage == _PODS:
            _stamp(body, 0)
        if options.dry_run:
            return Deleted(item=item_of(kind.storage, body), gone=True)
        if options.propagation == "Orphan":
            self._orphan(body["metadata"].get("uid", ""))
        return Deleted(item=self._storage.remove(kind.storage, body), gone=True)

    def _mark(self, kind: Kind, body: Json, grace: int, *, dry_run: bool) -> Deleted:
        _stamp(body, grace)
        if dry_run:
            return Deleted(item=item_of(kind.storage, body), gone=False)
        return Deleted(item=self._storage.put(kind.storage, body), gone=False)

    def _orphan(self, uid: str) -> None:
        for storage, key in self._storage.owned.pop(uid, set()):
            if (item := self._storage.get(storage, *key)) is not None:
                self._storage.put(storage, _without_owner(item.object(), uid))

    def _react(self, _storage: tuple[str, str], record: Record) -> None:
        """What an object that went takes with it."""
        if record.type != "DELETED":
            return
        uid = record.item.uid
        for owned_storage, key in sorted(self._storage.owned.pop(uid, set())):
            item = self._storage.get(owned_storage, *key)
            if item is None:
                continue
            body = item.object()
            others = [o for o in body["metadata"]["ownerReferences"] if o.get("uid") != uid]
            if others:
                self._storage.put(owned_storage, _without_owner(body, uid))
            else:
                kind = self._kinds.named(owned_storage[1], owned_storage[0])
                self.delete(kind, item, DeleteOptions())
        if namespace := record.item.key[0]:
            self._finish_namespace(namespace)

    def _namespace(self, kind: Kind, item: Item, body: Json, options: DeleteOptions) -> Deleted:
        if not body["metadata"].get("deletionTimestamp"):
            body["metadata"]["deletionTimestamp"] = now()
            body.setdefault("status", {})["phase"] = "Terminating"
            if options.dry_run:
                return Deleted(item=item_of(kind.storage, body), gone=False)
            item = self._storage.put(kind.storage, body)
            self._empty(item.key[1])
        return Deleted(item=item, gone=False)

    def _empty(self, namespace: str) -> None:
        """Delete everything in a namespace; pods that run end as their kubelet says."""
        for collection in self._storage.collections():
            for item in collection.within(namespace):
                # An owner before it in this loop may have taken it along.
                if collection.items.get(item.key) is item:
                    kind = self._kinds.named(collection.storage[1], collection.storage[0])
                    self.delete(kind, item, DeleteOptions())
        self._finish_namespace(namespace)

    def _finish_namespace(self, namespace: str) -> None:
        storage = ("", "namespaces")
        item = self._storage.get(storage, "", namespace)
        if item is None or item.fields["status.phase"] != "Terminating":
            return
        if any(collection.within(namespace) for collection in self._storage.collections()):
            return
        body = item.object()
        if not body["metadata"].get("finalizers"):
            self._storage.remove(storage, body)


def _grace(kind: Kind, body: Json, asked: int | None) -> int:
    """Seconds that a pod has to end; only a pod that a kubelet runs has any."""
    if kind.storage != _PODS:
        return 0
    spec, status = body.get("spec") or {}, body.get("status") or {}
    if not spec.get("nodeName") or status.get("phase") in ("Succeeded", "Failed"):
        return 0
    own = spec.get("terminationGracePeriodSeconds")
    seconds = asked if asked is not None else (30 if own is None else own)
    return 1 if seconds < 0 else int(seconds)


def _stamp(body: Json, grace: int) -> None:
    metadata = body["metadata"]
    if not metadata.get("deletionTimestamp") and metadata.get("generation"):
        metadata["generation"] += 1
    metadata["deletionTimestamp"] = now(after_seconds=grace)
    metadata["deletionGracePeriodSeconds"] = grace


def _without_owner(body: Json, uid: str) -> Json:
    owners = [o for o in body["metadata"].get("ownerReferences") or () if o.get("uid") != uid]
    body["metadata"]["ownerReferences"] = owners
    if not owners:
        del body["metadata"]["ownerReferences"]
    return body
