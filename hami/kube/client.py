"""The API server, verb by verb, with lean structs in and out.

``kubernetes.aio`` finds the server and our credentials; the calls themselves go through aiohttp and
msgspec, because its models cost a hundred times more to decode (372 µs a pod).
"""

from __future__ import annotations

import random
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from types import MappingProxyType, TracebackType
from typing import Any, Literal, Self, TypeVar
from urllib.parse import quote

import msgspec

from hami.kube.identity.credentials import find_credentials
from hami.kube.identity.settings import KubeSettings
from hami.kube.messages import (
    LISTS,
    VERSIONS,
    Page,
    WatchEvent,
    decoded,
    parsed,
    read_event,
    whole,
)
from hami.kube.outages import Outage
from hami.kube.pace import TokenBucket, Turns
from hami.kube.resources import PODS, HasMetadata, Lease, Resource
from hami.kube.transport import JSON, ApiCall, Request, Transport

T = TypeVar("T", bound=HasMetadata)

WATCH_SECONDS = 300
"""The shortest time for which we ask the server to keep a watch open; the longest is twice that, so
that many watches do not end together. Both are client-go's (tools/cache/reflector.go)."""
WATCH_IDLE = 90.0
"""A watch without a line for this long is given up: kube-apiserver sends a bookmark every minute
(https://kubernetes.io/docs/reference/using-api/api-concepts/#watch-bookmarks), and a connection
whose other end vanished sends nothing at all."""

PatchKind = Literal["merge", "json", "strategic"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PodBinding:
    """A pod given to a node, and what is written onto the pod in the same transaction.

    ``uid`` is a precondition. ``annotations`` are always kept; servers before 1.35 drop ``labels``
    (https://github.com/kubernetes/enhancements/issues/4742).
    """

    namespace: str
    name: str
    uid: str
    node: str
    annotations: Mapping[str, str]
    labels: Mapping[str, str]


_METHODS = MappingProxyType(
    {
        "get": "GET",
        "list": "GET",
        "watch": "GET",
        "update": "PUT",
        "patch": "PATCH",
        "delete": "DELETE",
    }
)


def _ignore(call: ApiCall) -> None:
    """Count nothing."""


class KubeClient:
    """Calls to one API server. Every method raises :class:`ApiError` when the call fails.

    All callers that retry share ``unreachable``, so that a server that does not answer is one
    outage.
    """

    def __init__(self, transport: Transport) -> None:
        self.unreachable = Outage()
        self._transport = transport

    @classmethod
    async def connect(
        cls,
        settings: KubeSettings | None = None,
        *,
        on_call: Callable[[ApiCall], None] = _ignore,
    ) -> Self:
        """Read configuration and credentials; does not call the server yet.

        Raises:
            ConfigError: there is no usable configuration.
        """
        settings = settings or KubeSettings()
        credentials = await find_credentials(settings)
        pace = TokenBucket(rate=settings.qps, burst=settings.burst)
        return cls(Transport(credentials, pace=pace, timeout=settings.timeout, on_call=on_call))

    async def close(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    @property
    def server(self) -> str:
        """The server's URL."""
        return self._transport.server

    async def get(self, resource: Resource[T], name: str, *, namespace: str = "") -> T:
        request = _request("get", resource, namespace, name)
        return decoded(resource, request, await self._transport.send(request))

    async def pages(
        self,
        resource: Resource[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = 500,
    ) -> AsyncGenerator[Page, None]:
        """The list as of one moment, in pages of at most ``page_size``; 0 asks for all at once.

        Raises:
            ApiError: 410 in the middle: the moment is too long ago, begin again.
        """
        query = _selectors(label_selector, field_selector)
        if page_size:
            query["limit"] = str(page_size)
        while True:
            request = _request("list", resource, namespace, query=query)
            page = parsed(LISTS, request, await self._transport.send(request))
            yield Page(items=page.items or [], resource_version=page.metadata.resource_version)
            if not page.metadata.continue_:
                return
            query["continue"] = page.metadata.continue_

    async def list(
        self,
        resource: Resource[T],
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        page_size: int = 500,
    ) -> list[T]:
        """Every object at once; decoding pauses often enough for others to run."""
        turns = Turns()
        found: list[T] = []
        request = _request("list", resource, namespace)
        async with aclosing(
            self.pages(
                resource,
                namespace=namespace,
                label_selector=label_selector,
                field_selector=field_selector,
                page_size=page_size,
            )
        ) as pages:
            async for page in pages:
                for raw in page.items:
                    found.append(decoded(resource, request, raw))
                    await turns.pause()
        return found

    async def watch(
        self,
        resource: Resource[T],
        resource_version: str,
        *,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        idle: float = WATCH_IDLE,
    ) -> AsyncGenerator[WatchEvent[T], None]:
        """What changes after ``resource_version``, bookmarks included.

        Ends when the server ends it or is silent for ``idle`` seconds. Neither is an error: the
        caller goes on from the last version it has seen.
        https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes

        Raises:
            ApiError: 410 when the version is too old, as a status or as an event; others as ever.
        """
        query = _selectors(label_selector, field_selector) | {
            "watch": "true",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(WATCH_SECONDS * random.uniform(1, 2))),  # noqa: S311 -- jitter
        }
        request = _request("watch", resource, namespace, query=query)
        async with aclosing(self._transport.lines(request, idle=idle)) as lines:
            async for line in lines:
                if line.strip():
                    yield read_event(resource, request, line)

    async def create(self, resource: Resource[T], body: Any, *, namespace: str = "") -> T:
        """Create an object; ``body`` is a struct or a mapping, and its kind is added."""
        request = _request("create", resource, namespace, body=whole(resource, body))
        return decoded(resource, request, await self._transport.send(request))

    async def update(
        self, resource: Resource[T], name: str, body: Any, *, namespace: str = ""
    ) -> T:
        """Replace the whole object by ``body``; a field that ``body`` does not name is lost.

        ``metadata.resourceVersion`` in it is a precondition (409).
        """
        request = _request("update", resource, namespace, name, body=whole(resource, body))
        return decoded(resource, request, await self._transport.send(request))

    async def delete(
        self,
        resource: Resource[T],
        name: str,
        *,
        namespace: str = "",
        uid: str = "",
        grace_seconds: int | None = None,
    ) -> None:
        """Delete an object; ``uid`` is a precondition (409).

        By default a pod is given its own grace period.
        """
        body: dict[str, Any] = {"preconditions": {"uid": uid}} if uid else {}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        request = _request("delete", resource, namespace, name, body=msgspec.json.encode(body))
        await self._transport.send(request)

    async def patch(
        self,
        resource: Resource[T],
        name: str,
        patch: Any,
        *,
        namespace: str = "",
        subresource: str = "",
        kind: PatchKind = "merge",
        timeout: float | None = None,
    ) -> T:
        """Patch an object; ``metadata.resourceVersion`` in a merge patch is a precondition.

        ``timeout`` is in seconds, the client's own by default.
        """
        content_type = {
            "merge": "application/merge-patch+json",
            "json": "application/json-patch+json",
            "strategic": "application/strategic-merge-patch+json",
        }[kind]
        request = _request(
            "patch",
            resource,
            namespace,
            name,
            subresource,
            body=msgspec.json.encode(patch),
            content_type=content_type,
        )
        return decoded(resource, request, await self._transport.send(request, timeout=timeout))

    async def bind(self, binding: PodBinding, *, timeout: float) -> None:
        """Bind a pod with one POST. After ``timeout`` seconds nothing of it is under way from here.

        Raises:
            ApiError: ``outcome_unknown`` says whether the pod may be bound all the same.
        """
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {
                "name": binding.name,
                "namespace": binding.namespace,
                "uid": binding.uid,
                "annotations": dict(binding.annotations),
                "labels": dict(binding.labels),
            },
            "target": {"apiVersion": "v1", "kind": "Node", "name": binding.node},
        }
        request = _request(
            "bind",
            PODS,
            binding.namespace,
            binding.name,
            "binding",
            body=msgspec.json.encode(body),
            repeatable=False,
        )
        await self._transport.send(request, timeout=timeout)

    async def evict(
        self, namespace: str, name: str, *, uid: str = "", grace_seconds: int | None = None
    ) -> None:
        """Ask for a pod's eviction, which its disruption budgets may refuse for now (429).

        https://kubernetes.io/docs/concepts/scheduling-eviction/api-eviction/
        """
        options: dict[str, Any] = {}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": name, "namespace": namespace},
            "deleteOptions": options,
        }
        request = _request(
            "evict",
            PODS,
            namespace,
            name,
            "eviction",
            body=msgspec.json.encode(body),
            repeatable=False,
        )
        await self._transport.send(request)

    async def ask_pod(
        self, namespace: str, name: str, *, port: int, path: str, most: int, timeout: float
    ) -> bytes:
        """GET a path of a pod's HTTP server, through the API server; the body of a 2xx answer.

        Takes the right to get ``pods/proxy``. ``most`` bytes of the answer are read; more of them
        are a failure. ``timeout`` is in seconds.
        https://kubernetes.io/docs/tasks/access-application-cluster/access-cluster-services/
        """
        request = Request(
            verb="get",
            method="GET",
            resource=PODS.plural,
            about=f"pods {namespace}/{name}/proxy",
            path=f"{PODS.path(namespace)}/http:{quote(name, safe='')}:{port}/proxy{path}",
            most=most,
        )
        return await self._transport.send(request, timeout=timeout)

    async def server_version(self) -> tuple[int, int]:
        """Major and minor; vendors' suffixes (``30+``) are left out."""
        request = Request(
            verb="get", method="GET", resource="version", about="/version", path="/version"
        )
        version = parsed(VERSIONS, request, await self._transport.send(request))
        return _number(version.major), _number(version.minor)


def _request(
    verb: str,
    resource: Resource[T],
    namespace: str,
    name: str = "",
    subresource: str = "",
    *,
    query: Mapping[str, str] | None = None,
    body: bytes | None = None,
    content_type: str = JSON,
    repeatable: bool = True,
) -> Request:
    subject = "/".join(part for part in (namespace, name) if part)
    return Request(
        verb=verb,
        method=_METHODS.get(verb, "POST"),
        resource=resource.plural,
        about=f"{resource.plural} {subject}".rstrip(),
        path=resource.path(namespace, name, subresource),
        query=query or {},
        body=body,
        content_type=content_type,
        # A lease that is renewed late is lost, however many other calls are waiting.
        paced=resource.type is not Lease,
        repeatable=repeatable,
    )


def _selectors(label_selector: str, field_selector: str) -> dict[str, str]:
    named = {"labelSelector": label_selector, "fieldSelector": field_selector}
    return {key: value for key, value in named.items() if value}


def _number(text: str) -> int:
    digits = re.match(r"\d+", text)
    return int(digits.group()) if digits else 0
