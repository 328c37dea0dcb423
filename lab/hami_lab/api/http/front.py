"""The server's front: requests in, Status objects or objects out, watches as streams.

A plain ASGI application: on the hot paths (bindings, lists of 20 000 pods, watches) a framework's
routing and response classes would cost more than the work itself.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

import msgspec

from hami_lab.api.http import bodies, discovery
from hami_lab.api.http.calls import Call, Calls
from hami_lab.api.http.faults import Fault, Faults
from hami_lab.api.http.paths import NoSuchPath, query_of, request_of
from hami_lab.api.http.pod_proxy import passed_on, proxy_path
from hami_lab.api.http.verbs import Answer, Verbs
from hami_lab.api.http.watching import Watch
from hami_lab.api.objects.refusals import Refusal
from hami_lab.api.objects.request import Request
from hami_lab.api.writes.operations import Operations

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_JSON = (b"content-type", b"application/json")
_TEXT = (b"content-type", b"text/plain; charset=utf-8")


_HEALTH = frozenset({"/healthz", "/livez", "/readyz"})


class Dropped(Exception):
    """A fault closed the connection: there is nobody to answer."""


class Application:
    """The ASGI application of one API server."""

    def __init__(
        self,
        operations: Operations,
        *,
        faults: Faults,
        calls: Calls,
        token: str,
        bookmark_seconds: float,
    ) -> None:
        self._operations = operations
        self._verbs = Verbs(operations, token)
        self._faults = faults
        self._calls = calls
        self._token = token
        self._bookmark_seconds = bookmark_seconds
        self._watches: set[Watch] = set()
        faults.on_cut.append(self.end_watches)

    def end_watches(self, resource: str = "") -> None:
        """Let the open watches end now, all or those of one resource."""
        for watch in self._watches:
            if resource in ("", watch.request.kind.plural, watch.request.kind.resource):
                watch.ended = True
                watch.wake()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        request: Request | None = None
        status = 0
        try:
            body = await _body(receive)
            if scope["path"] in _HEALTH:
                await _send(send, 200, b"ok", _TEXT)
                return
            self._authenticate(headers)
            plain = self._about(scope)
            if plain is not None:
                await _send(send, 200, plain)
                return
            if await self._passed_on(scope, headers, send):
                return
            request = self._request(scope, headers)
            status = await self._carry_out(request, body, headers, receive, send, scope)
        except NoSuchPath:
            await _send(send, 404, b"404 page not found\n", _TEXT)
        except Dropped:
            scope["state"]["transport"].abort()
        except Refusal as refusal:
            status = refusal.code
            await _refuse(send, refusal, request)
        finally:
            if request is not None:
                self._count(request, status)

    async def _passed_on(self, scope: Scope, headers: dict[bytes, str], send: Send) -> bool:
        """Whether it was for a pod's own server."""
        asked = proxy_path(scope["path"])
        if asked is None:
            return False
        operations, query = self._operations, scope["query_string"].decode("latin-1")
        answer = await passed_on(
            scope["method"], asked, query, operations.kinds, operations.storage
        )
        agent = headers.get(b"user-agent", "")
        self._calls.add(Call("get", "pods", "proxy", answer.status, agent))
        await _send(send, answer.status, answer.body, (b"content-type", answer.type.encode()))
        return True

    def _count(self, request: Request, status: int) -> None:
        kind, agent = request.kind, request.user_agent
        self._calls.add(Call(request.verb, kind.plural, request.subresource, status, agent))

    def _request(self, scope: Scope, headers: dict[bytes, str]) -> Request:
        return request_of(
            scope["method"],
            scope["path"],
            query_of(scope["query_string"]),
            self._operations.kinds,
            user_agent=headers.get(b"user-agent", ""),
            accept=headers.get(b"accept", ""),
        )

    async def _carry_out(
        self,
        request: Request,
        body: bytes,
        headers: dict[bytes, str],
        receive: Receive,
        send: Send,
        scope: Scope,
    ) -> int:
        faults = self._faults.striking(request)
        await _strike(faults)
        if request.verb == "watch":
            await self._watch(request, faults, receive, send, scope)
            return 200
        content_type = headers.get(b"content-type", "")
        answer = await self._verbs.answer(request, body, content_type)
        if any(fault.drop == "after" for fault in faults):
            raise Dropped
        await _answer(send, answer, request)
        return answer.status

    async def _watch(
        self,
        request: Request,
        faults: list[Fault],
        receive: Receive,
        send: Send,
        scope: Scope,
    ) -> None:
        """Stream until the watch ends or its client leaves."""
        watch = Watch(
            request, self._operations.storage, faults, bookmark_seconds=self._bookmark_seconds
        )
        self._watches.add(watch)
        leaving = asyncio.ensure_future(_gone(receive, watch))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": [_JSON]})
            await send({"type": "http.response.body", "body": b"", "more_body": True})
            async for part in watch.lines(time.monotonic):
                if watch.ended and scope["state"]["transport"].is_closing():
                    return
                await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._watches.discard(watch)
            leaving.cancel()

    def _authenticate(self, headers: dict[bytes, str]) -> None:
        if not self._token:
            return
        wanted = f"Bearer {self._token}"
        if not hmac.compare_digest(headers.get(b"authorization", "").encode(), wanted.encode()):
            raise Refusal(401, "Unauthorized", "Unauthorized")

    def _about(self, scope: Scope) -> bytes | None:
        """Discovery; None where the path is a resource's."""
        kinds = self._operations.kinds
        parts = [part for part in scope["path"].split("/") if part]
        match parts:
            case ["api"]:
                host, port = scope["server"] or ("127.0.0.1", 0)
                return _encoded(discovery.core_versions(f"{host}:{port}"))
            case ["apis"]:
                return _encoded(discovery.groups(kinds))
            case ["apis", group] if group in kinds.groups():
                found = discovery.group(group, kinds.groups()[group])
                return _encoded({"kind": "APIGroup", "apiVersion": "v1", **found})
            case ["api", version] if kinds.has_version("", version):
                return _encoded(discovery.resources(version, kinds.within("", version)))
            case ["apis", group, version] if kinds.has_version(group, version):
                found_kinds = kinds.within(group, version)
                return _encoded(discovery.resources(f"{group}/{version}", found_kinds))
            case ["version"]:
                return _encoded(discovery.version())
            case ["openapi", "v3"]:
                return _encoded(discovery.openapi_paths(kinds))
            case ["openapi", "v3", "api", version]:
                return _encoded(discovery.openapi(version, kinds.within("", version)))
            case ["openapi", "v3", "apis", group, version]:
                document = discovery.openapi(f"{group}/{version}", kinds.within(group, version))
                return _encoded(document)
            case _:
                return None


async def _strike(faults: list[Fault]) -> None:
    """What happens before a call is carried out.

    Raises:
        Dropped: the connection is to be closed.
        Refusal: the status that the fault answers.
    """
    for fault in faults:
        if fault.latency:
            await asyncio.sleep(fault.latency)
        if fault.drop == "before":
            raise Dropped
        if fault.status:
            reasons = {
                409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError",
                503: "ServiceUnavailable", 504: "Timeout",
            }  # fmt: skip
            raise Refusal(
                fault.status,
                fault.reason or reasons.get(fault.status, ""),
                f"a fault of the simulated API server: {fault.status}",
                retry_after=fault.retry_after,
            )


async def _gone(receive: Receive, watch: Watch) -> None:
    """End a watch whose client left."""
    while (await receive())["type"] != "http.disconnect":
        continue
    watch.ended = True
    watch.wake()


async def _body(receive: Receive) -> bytes:
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Dropped
        part = message.get("body", b"")
        size += len(part)
        if size > bodies.MOST_BYTES:
            raise bodies.too_large()
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)


def _encoded(found: Any) -> bytes:
    return msgspec.json.encode(found)


async def _answer(send: Send, answer: Answer, request: Request) -> None:
    await _send(send, answer.status, answer.body, _JSON, *_warnings(request.warnings))


def _warnings(texts: Iterable[str]) -> list[tuple[bytes, bytes]]:
    return [(b"warning", f'299 - "{text}"'.replace("\n", " ").encode()) for text in texts]


async def _refuse(send: Send, refusal: Refusal, request: Request | None) -> None:
    headers = [_JSON]
    if refusal.retry_after is not None:
        headers.append((b"retry-after", str(refusal.retry_after).encode()))
    headers += _warnings(request.warnings if request else ())
    await _send(send, refusal.code, _encoded(refusal.status()), *headers)


async def _send(send: Send, status: int, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    length = (b"content-length", str(len(body)).encode())
    start = {
        "type": "http.response.start",
        "status": status,
        "headers": [*(headers or (_JSON,)), length],
    }
    await send(start)
    await send({"type": "http.response.body", "body": body})
