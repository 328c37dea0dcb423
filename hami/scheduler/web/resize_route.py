"""``POST /api/v1/pods/{namespace}/{name}/resize``: identified, allowed, handed on, answered."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import msgspec
import structlog
from starlette.requests import Request
from starlette.responses import Response

from hami.kube.reviews import UserInfo
from hami.scheduler.metrics import Metrics
from hami.scheduler.resize.authorizer import NotAllowed
from hami.scheduler.resize.resizer import Done, NotDone, Outcome
from hami.scheduler.web.bodies import JSON, Bodies, Handler
from hami.wire.bodies import BadBody
from hami.wire.resizes import (
    NotResizedBody,
    ResizeBody,
    ResizedBody,
    holders,
    read_resize,
    refusal_body,
)

PATH = "/api/v1/pods/{namespace}/{name}/resize"
BODY_BYTES = 64 * 1024

_STATUS: Mapping[str, tuple[int, str]] = MappingProxyType(
    {
        "busy": (409, "Busy"),
        "conflict": (409, "Conflict"),
        "error": (502, "Failed"),
        "not_found": (404, "NotFound"),
        "not_leading": (503, "NotLeading"),
        "refused": (409, "Refused"),
        "reused_id": (422, "RequestIdReused"),
        "superseded": (409, "Superseded"),
        "unknown": (504, "Unknown"),
    }
)
"""By the word of what was not done."""
_AGAIN = frozenset({"busy", "conflict", "not_leading", "unknown"})
"""The same request may come to something else in a second."""


class ResizerPort(Protocol):
    """Carries resizes out; never raises for what a caller sends."""

    async def resize(self, namespace: str, name: str, body: ResizeBody) -> Outcome: ...


class AuthorizerPort(Protocol):
    """Knows whose a token is, and what he may."""

    async def may_resize(self, token: str, namespace: str, name: str) -> UserInfo | NotAllowed: ...


@dataclass(frozen=True, slots=True)
class ResizeParts:
    """What stands behind the route."""

    resizer: ResizerPort
    authorizer: AuthorizerPort
    metrics: Metrics


def resize_route(
    resizing: ResizeParts, bodies: Bodies, missing: Callable[[], Sequence[str]]
) -> Handler:
    """The route; ``missing`` is what the service still waits for."""

    async def route(request: Request) -> Response:
        async def answer(body: bytes) -> Response:
            return await _answer(resizing, missing, request, body)

        return await bodies.read_by(answer)(request)

    return route


async def _answer(
    resizing: ResizeParts, missing: Callable[[], Sequence[str]], request: Request, body: bytes
) -> Response:
    if not _is_private(request):
        return _refusal(403, "NotEncrypted", "a token is taken over HTTPS, or on this machine")
    if waiting := missing():
        return _refusal(503, "NotReady", f"waiting for {', '.join(waiting)}", again=True)
    token = _token(request)
    if token is None:
        text = "send your token of the API server: Authorization: Bearer TOKEN"
        return _unauthenticated(text)
    read = read_resize(body)
    if isinstance(read, BadBody):
        return _refusal(400, "BadRequest", str(read))
    namespace, name = request.path_params["namespace"], request.path_params["name"]
    user = await resizing.authorizer.may_resize(token, namespace, name)
    if isinstance(user, NotAllowed):
        resizing.metrics.resized("busy" if user.why == "busy" else "denied")
        return _denied(user)
    try:
        outcome = await resizing.resizer.resize(namespace, name, read)
    except Exception as error:  # noqa: BLE001 -- the caller is told where to look
        structlog.get_logger().exception("a request failed", route="resize")
        resizing.metrics.resized("error")
        text = f"{type(error).__name__}: {error}; the scheduler's log has the details"
        return _refusal(500, "InternalError", text)
    resizing.metrics.resized(_word(outcome))
    return _shown(outcome, read)


def _is_private(request: Request) -> bool:
    """Nobody on the way reads the token: a Unix socket, TLS, or a forwarded port."""
    if request.url.scheme == "https" or request.client is None:
        return True
    try:
        address = ipaddress.ip_address(request.client.host)
    except ValueError:
        return False
    # A listener for both families names an IPv4 caller so.
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback


def _token(request: Request) -> str | None:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def _word(outcome: Outcome) -> str:
    if isinstance(outcome, NotDone):
        return outcome.word
    return "repeated" if outcome.again else "resized"


def _denied(denied: NotAllowed) -> Response:
    match denied.why:
        case "unauthenticated":
            return _unauthenticated(denied.text)
        case "forbidden":
            return _refusal(403, "Forbidden", denied.text)
        case "busy":
            return _refusal(503, "Busy", denied.text, again=True)


def _unauthenticated(text: str) -> Response:
    response = _refusal(401, "Unauthorized", text)
    response.headers["www-authenticate"] = "Bearer"
    return response


def _refusal(status: int, reason: str, text: str, *, again: bool = False) -> Response:
    return _json(status, NotResizedBody(reason=reason, message=text), again=again)


def _shown(outcome: Outcome, asked: ResizeBody) -> Response:
    match outcome:
        case Done():
            body = ResizedBody(
                pod=outcome.pod.full_name,
                node=outcome.allocation.node,
                request_id=asked.request_id,
                generation=outcome.generation,
                containers=holders(outcome.allocation),
            )
            return _json(200, body)
        case NotDone():
            status, reason = _STATUS[outcome.word]
            refused = tuple(map(refusal_body, outcome.refusals))
            return _json(
                status,
                NotResizedBody(reason=reason, message=outcome.text, refusals=refused),
                again=outcome.word in _AGAIN,
            )


def _json(status: int, body: msgspec.Struct, *, again: bool = False) -> Response:
    headers = {"retry-after": "1"} if again else None
    return Response(msgspec.json.encode(body), status, headers, JSON)
