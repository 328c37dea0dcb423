"""What built-in controllers write back: namespaces' accounts, nodes' taints, CRDs' kinds."""

from __future__ import annotations

import uuid
from typing import Any

from hami_lab.api.objects.kinds import Kind, Kinds
from hami_lab.api.objects.storage import Record, Storage
from hami_lab.api.objects.times import now
from hami_lab.api.typed.defaults import NOT_READY

Json = dict[str, Any]

_NAMESPACES = ("", "namespaces")
_NODES = ("", "nodes")
_ACCOUNTS = ("", "serviceaccounts")
_CONFIG_MAPS = ("", "configmaps")
_CRDS = ("apiextensions.k8s.io", "customresourcedefinitions")


class Controllers:
    """Reacts to changes at once, in the turn of the loop that made them."""

    def __init__(self, kinds: Kinds, storage: Storage) -> None:
        self._kinds = kinds
        self._storage = storage
        self.certificate = ""
        """What clients verify the server by; PEM."""
        storage.on_change.append(self._react)

    def _react(self, storage: tuple[str, str], record: Record) -> None:
        if storage == _NAMESPACES and record.type == "ADDED":
            self._furnish(record.item.key[1])
        elif storage == _NODES and record.type != "DELETED":
            self._taint(record)
        elif storage == _CRDS:
            self.serve(record)

    def _furnish(self, namespace: str) -> None:
        """What every namespace has: an account, and the server's certificate."""
        self._storage.put(_ACCOUNTS, {"metadata": _metadata(namespace, "default")})
        metadata = _metadata(namespace, "kube-root-ca.crt")
        data = {"ca.crt": self.certificate}
        self._storage.put(_CONFIG_MAPS, {"metadata": metadata, "data": data})

    def _taint(self, record: Record) -> None:
        """A node that reports Ready loses the taint it was born with, and gets it back."""
        body = record.item.object()
        conditions = (body.get("status") or {}).get("conditions") or ()
        ready = [c.get("status") for c in conditions if c.get("type") == "Ready"]
        taints = body["spec"].get("taints") or []
        others = [t for t in taints if t.get("key") != NOT_READY]
        if ready == ["True"]:
            wanted = others
        elif ready:
            wanted = [*others, not_ready_taint()]
        else:
            return
        if len(wanted) != len(taints):
            body["spec"]["taints"] = wanted
            if not wanted:
                del body["spec"]["taints"]
            self._storage.put(_NODES, body)

    def restore(self) -> None:
        """Make the resources of stored CRDs available again."""
        for item in self._storage.collection(_CRDS).within():
            self.serve(Record("ADDED", item, None))

    def serve(self, record: Record) -> None:
        """Make a CRD's resource available, or take it away with all its objects."""
        before = record.previous
        served = custom_kinds(record.item.object()) if record.type != "DELETED" else []
        for kind in custom_kinds(before.object()) if before else ():
            if kind not in served:
                self._kinds.remove(kind)
            if not served:
                self._drop(kind)
        for kind in served:
            self._kinds.add(kind)
        body = record.item.object()
        if record.type != "DELETED" and not (body.get("status") or {}).get("conditions"):
            body["status"] = _established(body["spec"])
            self._storage.put(_CRDS, body)

    def _drop(self, kind: Kind) -> None:
        for item in self._storage.collection(kind.storage).within():
            self._storage.remove(kind.storage, item.object())
        self._storage.drop(kind.storage)


def _metadata(namespace: str, name: str) -> Json:
    uid, created = str(uuid.uuid4()), now()
    return {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": created}


def not_ready_taint() -> Json:
    return {"key": NOT_READY, "effect": "NoSchedule"}


def custom_kinds(crd: Json) -> list[Kind]:
    """The resource that a CRD defines, once for each version that is served."""
    spec = crd["spec"]
    names = spec["names"]
    return [
        Kind(
            group=spec["group"],
            version=version["name"],
            plural=names["plural"],
            kind=names["kind"],
            singular=names.get("singular") or names["kind"].lower(),
            namespaced=spec["scope"] == "Namespaced",
            short_names=tuple(names.get("shortNames") or ()),
            categories=tuple(names.get("categories") or ()),
            subresources=("status",) if "status" in (version.get("subresources") or {}) else (),
            versioned_spec=True,
            needs_version=True,
            custom=True,
            storage=(spec["group"], names["plural"]),
        )
        for version in spec.get("versions") or ()
        if version.get("served")
    ]


def _established(spec: Json) -> Json:
    names = dict(spec["names"])
    names.setdefault("singular", names["kind"].lower())
    names.setdefault("listKind", f"{names['kind']}List")
    conditions = [
        {
            "type": type,
            "status": "True",
            "lastTransitionTime": now(),
            "reason": reason,
            "message": message,
        }
        for type, reason, message in (
            ("NamesAccepted", "NoConflicts", "no conflicts found"),
            ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
        )
    ]
    stored = [v["name"] for v in spec.get("versions") or () if v.get("storage")]
    return {"acceptedNames": names, "conditions": conditions, "storedVersions": stored}
