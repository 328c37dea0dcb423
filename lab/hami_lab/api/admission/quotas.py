"""ResourceQuota: the admission that refuses, and the controller that counts.

As in kube-apiserver only the tracked keys are counted and refused by. An entry of ``status.used``
that someone else wrote for another key of ``spec.hard`` stays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hami_lab.api.admission.charges import Charge, charge, in_scope, scoped, tracked, unspecified
from hami_lab.api.objects.kinds import Kind
from hami_lab.api.objects.refusals import forbidden
from hami_lab.api.objects.storage import Item, Key, Record, Storage
from hami_lab.api.typed.quantities import ZERO, parse

Json = dict[str, Any]

_QUOTAS = ("", "resourcequotas")
_PODS = ("", "pods")
_FREE = frozenset({("", "events"), ("coordination.k8s.io", "leases")})
"""What is written too often to be counted unless a quota names it: kept out, as nobody does."""


class Quotas:
    """All quotas, and what is used of each; kept up to date with every change."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._used: dict[Key, Charge] = {}
        storage.on_change.append(self._react)

    def admit(self, kind: Kind, body: Json) -> None:
        """Whether a new object still fits into every quota of its namespace.

        Raises:
            Refusal: 403 with the quota, what is asked, used and allowed.
        """
        namespace, name = body["metadata"].get("namespace", ""), body["metadata"]["name"]
        quotas = self._of(namespace)
        if not quotas or kind.storage in _FREE:
            return
        asked = charge(kind.storage, body)
        for item in quotas:
            spec = item.object().get("spec") or {}
            if not _counts(spec, kind.storage, body):
                continue
            hard: Mapping[str, str] = spec.get("hard") or {}
            if kind.storage == _PODS and (missing := unspecified(body, hard)):
                why = f"failed quota: {item.key[1]}: must specify {'; '.join(missing)}"
                raise forbidden(kind, name, why)
            self._refuse_excess(kind, name, item, hard, asked)

    def restore(self) -> None:
        """Count what stored objects use."""
        for item in self._storage.collection(_QUOTAS).within():
            spec = item.object().get("spec") or {}
            self._used[item.key] = self._recount(item.key[0], spec)

    def _refuse_excess(
        self, kind: Kind, name: str, item: Item, hard: Mapping[str, str], asked: Charge
    ) -> None:
        used = self._used.get(item.key, {})
        over = [
            key
            for key in sorted(hard)
            if tracked(key)
            and asked.get(key, ZERO).value > 0
            and (used.get(key, ZERO) + asked[key]).value > parse(hard[key]).value
        ]
        if over:

            def shown(amounts: Mapping[str, Any]) -> str:
                return ",".join(f"{key}={amounts.get(key, ZERO)}" for key in over)

            raise forbidden(
                kind,
                name,
                f"exceeded quota: {item.key[1]}, requested: {shown(asked)}, "
                f"used: {shown(used)}, limited: {shown(hard)}",
            )

    def _of(self, namespace: str) -> list[Item]:
        quotas = self._storage.collection(_QUOTAS)
        return quotas.within(namespace) if namespace and quotas.items else []

    def _react(self, storage: tuple[str, str], record: Record) -> None:
        if storage == _QUOTAS:
            self._quota_changed(record)
        if storage in _FREE:
            return
        for item in self._of(record.item.key[0]):
            if storage == _QUOTAS and item.key == record.item.key and record.type == "ADDED":
                continue  # its own first count saw it already
            self._count(storage, record, item)

    def _quota_changed(self, record: Record) -> None:
        key = record.item.key
        if record.type == "DELETED":
            self._used.pop(key, None)
            return
        body = record.item.object()
        spec, before = body.get("spec"), record.previous
        if before is None or before.object().get("spec") != spec:
            self._used[key] = self._recount(key[0], spec or {})
        self._publish(key)

    def _recount(self, namespace: str, spec: Json) -> Charge:
        total: Charge = {}
        for collection in self._storage.collections():
            if collection.storage in _FREE:
                continue
            for item in collection.within(namespace):
                body = item.object()
                if _counts(spec, collection.storage, body):
                    _add(total, charge(collection.storage, body), sign=1)
        return total

    def _count(self, storage: tuple[str, str], record: Record, quota: Item) -> None:
        """Take the old version of an object out of a quota's count and the new one in."""
        spec = quota.object().get("spec") or {}
        used = self._used.setdefault(quota.key, {})
        before = dict(used)
        if record.previous is not None:
            old = record.previous.object()
            if _counts(spec, storage, old):
                _add(used, charge(storage, old), sign=-1)
        if record.type != "DELETED":
            new = record.item.object()
            if _counts(spec, storage, new):
                _add(used, charge(storage, new), sign=1)
        if used != before:
            self._publish(quota.key)

    def _publish(self, key: Key) -> None:
        """Write ``status`` where it is not right: the limits, and what is used of them."""
        item = self._storage.get(_QUOTAS, *key)
        if item is None:
            return
        body = item.object()
        hard: Mapping[str, str] = (body.get("spec") or {}).get("hard") or {}
        status = body.get("status") or {}
        foreign = {k: v for k, v in (status.get("used") or {}).items() if k in hard}
        counted = self._used.get(key, {})
        used = {k: str(counted.get(k, ZERO)) for k in hard if tracked(k)}
        wanted = {"hard": dict(hard), "used": dict(sorted({**foreign, **used}.items()))}
        if not wanted["used"]:
            del wanted["used"]
        if status != wanted:
            body["status"] = wanted
            self._storage.put(_QUOTAS, body)


def _counts(spec: Json, storage: tuple[str, str], body: Json) -> bool:
    if not scoped(spec):
        return True
    return storage == _PODS and in_scope(spec, body)


def _add(total: Charge, more: Charge, *, sign: int) -> None:
    for name, amount in more.items():
        now = total.get(name, ZERO) + amount if sign > 0 else total.get(name, ZERO) - amount
        if now.value:
            total[name] = now
        else:
            total.pop(name, None)
