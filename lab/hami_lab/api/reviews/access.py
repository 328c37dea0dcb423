"""What RBAC says to a SubjectAccessReview.

https://kubernetes.io/docs/reference/access-authn-authz/rbac/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hami_lab.api.objects.kinds import Kinds
from hami_lab.api.objects.refusals import Cause, invalid_named
from hami_lab.api.objects.storage import Storage

Json = dict[str, Any]

RBAC = "rbac.authorization.k8s.io"
ALL = "*"


@dataclass(frozen=True, slots=True)
class _User:
    name: str
    groups: frozenset[str]

    def named_by(self, subject: Mapping[str, Any], namespace: str) -> bool:
        """``namespace``: the binding's."""
        name = subject.get("name", "")
        match subject.get("kind"):
            case "User":
                return bool(name == self.name)
            case "Group":
                return name in self.groups
            case "ServiceAccount":
                where = subject.get("namespace") or namespace
                return self.name == f"system:serviceaccount:{where}:{name}"
            case _:
                return False


class Access:
    """Reads roles and bindings as they are stored."""

    def __init__(self, kinds: Kinds, storage: Storage) -> None:
        self._kinds = kinds
        self._storage = storage

    def review(self, asked: Json) -> Json:
        """A SubjectAccessReview's answer.

        Raises:
            Refusal: 422.
        """
        spec = asked.get("spec") or {}
        _check(spec)
        user = _User(spec.get("user") or "", frozenset(spec.get("groups") or ()))
        status: Json = {"allowed": "system:masters" in user.groups}
        if not status["allowed"] and (reason := self._allowed_by(user, spec)):
            status = {"allowed": True, "reason": f"RBAC: allowed by {reason}"}
        return {**asked, "metadata": asked.get("metadata") or {}, "status": status}

    def _allowed_by(self, user: _User, spec: Json) -> str:
        """The binding that gives the right; empty: none does."""
        about = spec.get("resourceAttributes")
        namespace = (about or {}).get("namespace") or ""
        for binding, role in self._bindings(user, namespace):
            rules = role.get("rules") or ()
            matched = (
                any(_of_resource(rule, about) for rule in rules)
                if about is not None
                else any(_of_path(rule, spec["nonResourceAttributes"]) for rule in rules)
            )
            if matched:
                return binding
        return ""

    def _bindings(self, user: _User, namespace: str) -> Iterator[tuple[str, Json]]:
        """Every binding that names the user, for people, and its role."""
        scopes = [("clusterrolebindings", "")]
        scopes += [("rolebindings", namespace)] if namespace else []
        for plural, where in scopes:
            kind = self._kinds.named(plural, RBAC)
            for item in self._storage.collection(kind.storage).within(where):
                binding = item.object()
                if any(user.named_by(s, where) for s in binding.get("subjects") or ()):
                    named = binding.get("roleRef") or {}
                    name = binding["metadata"]["name"]
                    words = f'{kind.kind} "{"/".join(filter(None, (name, where)))}" of '
                    words += f'{named.get("kind")} "{named.get("name")}"'
                    yield words, self._role(named, where)

    def _role(self, named: Json, namespace: str) -> Json:
        """The role that a binding names; empty while there is none."""
        of_cluster = named.get("kind") == "ClusterRole"
        kind = self._kinds.named("clusterroles" if of_cluster else "roles", RBAC)
        where = "" if of_cluster else namespace
        item = self._storage.get(kind.storage, where, named.get("name") or "")
        return item.object() if item else {}


def _of_resource(rule: Json, about: Json) -> bool:
    resource, sub = about.get("resource") or "", about.get("subresource") or ""
    whole = f"{resource}/{sub}" if sub else resource
    names, resources = rule.get("resourceNames") or (), rule.get("resources") or ()
    return (
        _any_of(rule.get("verbs"), about.get("verb") or "")
        and _any_of(rule.get("apiGroups"), about.get("group") or "")
        and (_any_of(resources, whole) or (bool(sub) and f"{ALL}/{sub}" in resources))
        and (not names or about.get("name") in names)
    )


def _of_path(rule: Json, about: Json) -> bool:
    path = about.get("path") or ""
    named = (
        one == path or (one.endswith(ALL) and path.startswith(one[:-1]))
        for one in rule.get("nonResourceURLs") or ()
    )
    return _any_of(rule.get("verbs"), about.get("verb") or "") and any(named)


def _any_of(allowed: Any, word: str) -> bool:
    return ALL in (allowed or ()) or word in (allowed or ())


def _check(spec: Json) -> None:
    causes = []
    both = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (both[0] is None) == (both[1] is None):
        text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        causes.append(Cause("spec.resourceAttributes", f"Invalid value: null: {text}"))
    if not spec.get("user") and not spec.get("groups"):
        text = "at least one of user or group must be specified"
        causes.append(Cause("spec.user", f'Invalid value: "": {text}'))
    if causes:
        raise invalid_named("SubjectAccessReview", "authorization.k8s.io", "", causes)
