"""Admission webhooks: which are called for a request, and the calls over HTTPS."""

from __future__ import annotations

import base64
import binascii
import ssl
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import aiohttp
import msgspec

from hami.domain.kubernetes.selectors import Selector, holds, object_selector
from hami_lab.api.objects.kinds import Kind
from hami_lab.api.objects.refusals import Refusal
from hami_lab.api.objects.request import Request
from hami_lab.api.objects.storage import Storage

Json = dict[str, Any]

_GROUP = "admissionregistration.k8s.io"
MUTATING = (_GROUP, "mutatingwebhookconfigurations")
VALIDATING = (_GROUP, "validatingwebhookconfigurations")
_GROUPS = ("system:masters", "system:authenticated")


class CallFailed(Exception):
    """A webhook gave no usable answer; its failurePolicy decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hook:
    """One webhook of a configuration."""

    name: str
    url: str
    ca: bytes
    timeout: float
    ignorable: bool
    reinvoked: bool
    dry_run_allowed: bool
    rules: tuple[Json, ...]
    namespace_selector: Selector
    object_selector: Selector

    def concerns(self, operation: str, request: Request) -> bool:
        """By its rules alone."""
        return any(_rule_matches(rule, operation, request) for rule in self.rules)


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """What a webhook is asked about."""

    operation: str
    request: Request
    object: Json | None
    old: Json | None

    def labels(self) -> Sequence[Json]:
        bodies = [body for body in (self.object, self.old) if body is not None]
        return [body.get("metadata", {}).get("labels") or {} for body in bodies]


class Webhooks:
    """Knows all configurations and calls them; ``close`` ends its connections."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._session: aiohttp.ClientSession | None = None
        self._contexts: dict[bytes, ssl.SSLContext] = {}
        self._hooks: dict[tuple[str, str], tuple[int, list[Hook]]] = {}

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    def concerned(self, configured: tuple[str, str], review: Review) -> list[Hook]:
        """The webhooks to be called, in the order of their configurations' names."""
        if review.request.kind.group == _GROUP:
            return []
        return [
            hook
            for hook in self.configured(configured)
            if hook.concerns(review.operation, review.request) and self._selected(hook, review)
        ]

    def configured(self, configured: tuple[str, str]) -> list[Hook]:
        """All webhooks of one sort, in the order of their configurations' names."""
        collection = self._storage.collection(configured)
        if not collection.items:
            return []
        newest = collection.log.end
        found = self._hooks.get(configured)
        if found is None or found[0] != newest:
            hooks = [hook for item in collection.within() for hook in hooks_of(item.object())]
            found = self._hooks[configured] = (newest, hooks)
        return found[1]

    def _selected(self, hook: Hook, review: Review) -> bool:
        if hook.object_selector and not any(
            holds(hook.object_selector, labels) for labels in review.labels()
        ):
            return False
        if not hook.namespace_selector:
            return True
        request = review.request
        if request.kind.storage == ("", "namespaces"):
            return any(holds(hook.namespace_selector, labels) for labels in review.labels())
        if not request.namespace:
            return True
        namespace = self._storage.get(("", "namespaces"), "", request.namespace)
        return namespace is not None and holds(hook.namespace_selector, namespace.labels)

    async def call(self, hook: Hook, review: Review) -> Json | None:
        """Ask one webhook: the ``response``, or None where its failure is ignored.

        Raises:
            Refusal: it denied (its own code), or it failed and must not (500).
        """
        request = review.request
        if request.dry_run and not hook.dry_run_allowed:
            raise Refusal(
                400, "BadRequest", f"admission webhook {hook.name!r} does not support dry run"
            )
        try:
            response = await self._post(hook, admission_review(review))
        except CallFailed as error:
            if hook.ignorable:
                return None
            text = f'failed calling webhook "{hook.name}": {error}'
            raise Refusal(
                500,
                "InternalError",
                f"Internal error occurred: {text}",
                details={"causes": [{"message": text}]},
            ) from error
        request.warnings.extend(response.get("warnings") or ())
        if response.get("allowed") is not True:
            raise _denied(hook.name, response.get("status") or {})
        return response

    async def _post(self, hook: Hook, review: Json) -> Json:
        url = f"{hook.url}{'&' if '?' in hook.url else '?'}timeout={hook.timeout:g}s"
        if self._session is None:
            self._session = aiohttp.ClientSession()
        try:
            async with self._session.post(
                url,
                data=msgspec.json.encode(review),
                headers={"Content-Type": "application/json", "Accept": "application/json"},
                ssl=self._context(hook.ca),
                timeout=aiohttp.ClientTimeout(total=hook.timeout),
            ) as answer:
                body = await answer.read()
                if answer.status != 200:
                    raise CallFailed(f"the server answered {answer.status}: {body[:200]!r}")
                return _response(body, review["request"]["uid"])
        except TimeoutError as error:
            raise CallFailed(f'failed to call webhook: Post "{url}": deadline exceeded') from error
        except (aiohttp.ClientError, ssl.SSLError, OSError, ValueError) as error:
            raise CallFailed(f'failed to call webhook: Post "{url}": {error}') from error

    def _context(self, ca: bytes) -> ssl.SSLContext:
        found = self._contexts.get(ca)
        if found is None:
            found = ssl.create_default_context(cadata=ca.decode() if ca else None)
            self._contexts[ca] = found
        return found


def hooks_of(configuration: Json) -> Iterator[Hook]:
    """The webhooks of a configuration; one without a reachable address fails when it is called."""
    for webhook in configuration.get("webhooks") or ():
        client = webhook.get("clientConfig") or {}
        service = client.get("service") or {}
        host = f"{service.get('name')}.{service.get('namespace')}.svc:{service.get('port', 443)}"
        yield Hook(
            name=webhook["name"],
            url=client.get("url") or f"https://{host}{service.get('path') or ''}",
            ca=_decoded(client.get("caBundle")),
            timeout=webhook.get("timeoutSeconds", 10),
            ignorable=webhook.get("failurePolicy") == "Ignore",
            reinvoked=webhook.get("reinvocationPolicy") == "IfNeeded",
            dry_run_allowed=webhook.get("sideEffects") in ("None", "NoneOnDryRun"),
            rules=tuple(webhook.get("rules") or ()),
            namespace_selector=object_selector(webhook.get("namespaceSelector")),
            object_selector=object_selector(webhook.get("objectSelector")),
        )


def _decoded(bundle: str | None) -> bytes:
    try:
        return base64.b64decode(bundle or "", validate=True)
    except binascii.Error:
        return b""


def _rule_matches(rule: Json, operation: str, request: Request) -> bool:
    kind = request.kind
    scope = rule.get("scope", "*")
    if scope != "*" and (scope == "Namespaced") != kind.namespaced:
        return False
    return (
        _any(rule.get("apiGroups"), kind.group)
        and _any(rule.get("apiVersions"), kind.version)
        and _any(rule.get("operations"), operation)
        and any(
            _resource_matches(each, kind.plural, request.subresource)
            for each in rule.get("resources") or ()
        )
    )


def _any(values: Any, value: str) -> bool:
    return "*" in (values or ()) or value in (values or ())


def _resource_matches(pattern: str, plural: str, subresource: str) -> bool:
    resource, slash, sub = pattern.partition("/")
    if resource not in ("*", plural):
        return False
    return sub in ("*", subresource) if slash else not subresource


def admission_review(review: Review) -> Json:
    """An AdmissionReview v1, as kube-apiserver sends it."""
    request = review.request
    kind = _asked_kind(request)
    resource = {
        "group": request.kind.group, "version": request.kind.version,
        "resource": request.kind.plural,
    }  # fmt: skip
    asked: Json = {
        "uid": str(uuid.uuid4()),
        "kind": kind,
        "resource": resource,
        "requestKind": kind,
        "requestResource": resource,
        "operation": review.operation,
        "userInfo": {"username": "admin", "groups": list(_GROUPS)},
        "object": review.object,
        "oldObject": review.old,
        "dryRun": request.dry_run,
        "options": {"kind": _options(review.operation), "apiVersion": "meta.k8s.io/v1"},
    }
    if request.subresource:
        asked["subResource"] = asked["requestSubResource"] = request.subresource
    if request.name:
        asked["name"] = request.name
    if request.namespace:
        asked["namespace"] = request.namespace
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": asked}


def _asked_kind(request: Request) -> Json:
    kind: Kind = request.kind
    match request.subresource:
        case "binding":
            return {"group": "", "version": "v1", "kind": "Binding"}
        case "eviction":
            return {"group": "policy", "version": "v1", "kind": "Eviction"}
        case _:
            return {"group": kind.group, "version": kind.version, "kind": kind.kind}


def _options(operation: str) -> str:
    return f"{operation.capitalize()}Options"


def _response(body: bytes, uid: str) -> Json:
    try:
        answer = msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise CallFailed(f"the answer is no JSON: {error}") from error
    response = answer.get("response") if isinstance(answer, dict) else None
    if not isinstance(response, dict):
        raise CallFailed("the answer has no response")
    if response.get("uid") != uid:
        raise CallFailed(f"expected response.uid={uid!r}, got {response.get('uid')!r}")
    if not isinstance(response.get("allowed"), bool):
        raise CallFailed("the response does not say whether the request is allowed")
    return response


def _denied(name: str, status: Json) -> Refusal:
    """kube-apiserver's words; a code below 400 counts as 400."""
    code = status.get("code") or 400
    text = f'admission webhook "{name}" denied the request'
    if explanation := status.get("message") or status.get("reason"):
        text = f"{text}: {explanation}"
    else:
        text = f"{text} without explanation"
    return Refusal(max(400, int(code)), str(status.get("reason") or ""), text)
