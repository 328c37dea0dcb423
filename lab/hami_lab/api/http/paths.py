"""From an HTTP request line to what it asks for."""

from __future__ import annotations

from urllib.parse import parse_qsl

from hami_lab.api.objects.kinds import Kind, Kinds
from hami_lab.api.objects.refusals import method_not_allowed, unknown_resource
from hami_lab.api.objects.request import Request


class NoSuchPath(LookupError):
    """Not a path of the Kubernetes API at all."""


def query_of(query: bytes) -> dict[str, str]:
    """The query's parameters; the first of several equal ones counts."""
    found: dict[str, str] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        found.setdefault(name, value)
    return found


def request_of(
    method: str,
    path: str,
    query: dict[str, str],
    kinds: Kinds,
    *,
    user_agent: str,
    accept: str,
) -> Request:
    """Take a resource's path apart.

    Raises:
        NoSuchPath: the group and version are not served.
        Refusal: 404 for an unknown resource, 405 for a method it has not.
    """
    kind, namespace, name, subresource = _target(path, kinds)
    verb = _verb(method, name, subresource, query)
    if kind.review and verb != "create":
        raise method_not_allowed()
    if not name and kind.namespaced and not namespace and verb not in ("list", "watch"):
        raise method_not_allowed()
    return Request(
        verb=verb,
        kind=kind,
        namespace=namespace if kind.namespaced else "",
        name=name,
        subresource=subresource,
        query=query,
        user_agent=user_agent,
        accept=accept,
    )


def _target(path: str, kinds: Kinds) -> tuple[Kind, str, str, str]:
    group, version, rest = _group_version(path, kinds)
    namespace = ""
    # /namespaces/x is the namespace itself, and so are its subresources.
    own = len(rest) == 3 and rest[2] in ("status", "finalize")
    if rest[0] == "namespaces" and len(rest) > 2 and not own:
        namespace, rest = rest[1], rest[2:]
    if len(rest) > 3:
        raise unknown_resource()
    plural, name, subresource = [*rest, "", ""][:3]
    if (group, version, plural) == ("", "v1", "bindings") and not name:
        # The older way to bind: the pod's name is in the body.
        plural, subresource = "pods", "binding"
    kind = kinds.find(group, version, plural)
    if kind is None or (namespace and not kind.namespaced):
        raise unknown_resource()
    if subresource and subresource not in kind.subresources:
        raise unknown_resource()
    return kind, namespace, name, subresource


def _group_version(path: str, kinds: Kinds) -> tuple[str, str, list[str]]:
    parts = [part for part in path.split("/") if part]
    if parts[:1] == ["api"]:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[:1] == ["apis"] and len(parts) >= 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        raise NoSuchPath(path)
    if not rest or not kinds.has_version(group, version):
        raise NoSuchPath(path)
    return group, version, rest


def _verb(method: str, name: str, subresource: str, query: dict[str, str]) -> str:
    if subresource in ("binding", "eviction", "token"):
        if method != "POST":
            raise method_not_allowed()
        return "create"
    if method == "GET" and not name:
        return "watch" if query.get("watch", "").lower() in ("1", "t", "true") else "list"
    verbs = {
        ("GET", True): "get",
        ("PUT", True): "update",
        ("PATCH", True): "patch",
        ("DELETE", True): "delete",
        ("POST", False): "create",
        ("DELETE", False): "deletecollection",
    }
    verb = verbs.get((method, bool(name)))
    if verb is None or (subresource and verb not in ("get", "update", "patch")):
        raise method_not_allowed()
    return verb
