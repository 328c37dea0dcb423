"""The HTTP applications: kube-scheduler's extender, and what everybody else calls.

Hot routes take the raw request and return bytes, because FastAPI's own conversion costs more
than the decision. A body that cannot be read is answered with 400 and text; what the extender
has to say goes into the extender's own ``Error`` field, which kube-scheduler shows on the pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import structlog
from fastapi import APIRouter, FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from hami import __version__
from hami.domain.errors import HamiError
from hami.scheduler.answers import encoded
from hami.scheduler.filter_args import read_args
from hami.scheduler.webhook import Webhook
from hami.wire.bodies import BadBody, decode_body
from hami.wire.extender import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
)

_JSON = "application/json"
_TOO_BUSY = 503
_METRICS = "text/plain; version=0.0.4; charset=utf-8"

Handler = Callable[[Request], Awaitable[Response]]
BodyHandler = Callable[[bytes], Awaitable[Response]]


class ExtenderPort(Protocol):
    """What kube-scheduler asks; bad input is answered in the ``error`` field, never raised."""

    async def filter(self, args: ExtenderArgs) -> ExtenderFilterResult: ...

    async def preempt(self, args: ExtenderPreemptionArgs) -> ExtenderPreemptionResult: ...

    async def bind(self, args: ExtenderBindingArgs) -> ExtenderBindingResult: ...


class Health(Protocol):
    """``missing``: what the service still waits for; empty when it is ready.

    ``failed``: parts that have stopped for good, so that only a restart mends them.
    """

    def missing(self) -> Sequence[str]: ...

    def failed(self) -> Sequence[str]: ...


class MetricsText(Protocol):
    """The metrics in Prometheus' text format, piece by piece: there may be 50 MB of it."""

    def pieces(self) -> AsyncIterator[bytes]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """``body`` and ``review`` are bytes of one request, to the extender and to the webhook.

    ``body_seconds``: until all of it is there. ``held``: bytes of all requests together to the
    extender, and as many to the webhook, that are not answered yet. The API server stores 1.5 MiB
    per object, and a review has two at most.
    """

    body: int = 16 * 1024 * 1024
    review: int = 4 * 1024 * 1024
    body_seconds: float = 60.0
    held: int = 64 * 1024 * 1024


def extender_app(extender: ExtenderPort, health: Health, limits: Limits = Limits()) -> FastAPI:
    """``/filter``, ``/preempt``, ``/bind`` and health."""
    app = _bare_app()
    _add_extender(app, extender, health, limits)
    _add_health(app, health)
    return app


def public_app(
    webhook: Webhook | None,
    health: Health,
    metrics: MetricsText,
    api_router: APIRouter | None = None,
    limits: Limits = Limits(),
) -> App:
    """``/webhook``, health, metrics and the read-only API, whose description is its OpenAPI.

    Without a webhook it is the listener for metrics.
    """
    app = _bare_app(described=api_router is not None)
    if webhook is not None:
        bodies = Bodies(limits, limits.review)
        app.add_route("/webhook", bodies.read_by(_webhook_route(webhook)), ["POST"])
    _add_health(app, health)
    app.add_route("/metrics", _metrics_route(metrics), ["GET"])
    if api_router is not None:
        app.include_router(api_router)
    return app


def whole_app(
    extender: ExtenderPort,
    webhook: Webhook,
    health: Health,
    metrics: MetricsText,
    api_router: APIRouter | None = None,
    limits: Limits = Limits(),
) -> App:
    """Everything on one listener, as HAMi has it."""
    app = public_app(webhook, health, metrics, api_router, limits)
    _add_extender(app, extender, health, limits)
    return app


class App(FastAPI):
    """FastAPI, with routes that none of its layers is wrapped around.

    They cost more than the decisions behind them: 0.4 ms of a filter's 0.7.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._hot: dict[str, Handler] = {}

    def add_hot_route(self, path: str, handler: Handler) -> None:
        """``POST`` on exactly this path; any other method is answered as ever."""
        self._hot[path] = handler
        self.add_route(path, handler, ["POST"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hot = self._hot.get(scope.get("path", "")) if scope.get("method") == "POST" else None
        if hot is None:
            await super().__call__(scope, receive, send)
            return
        request = Request(scope, receive)
        try:
            response = await hot(request)
        except BodyRefused as error:
            response = await _refused_body(request, error)
        await response(scope, receive, send)


def _bare_app(*, described: bool = False) -> App:
    app = App(
        title="hami scheduler",
        version=__version__,
        openapi_url="/openapi.json" if described else None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.add_exception_handler(BodyRefused, _refused_body)
    return app


async def _refused_body(_: Request, error: Exception) -> Response:
    status, text = error.args
    headers = {"connection": "close"}
    if status == _TOO_BUSY:
        headers["retry-after"] = "1"
    return PlainTextResponse(f"{text}\n", status, headers)


def _add_extender(app: App, extender: ExtenderPort, health: Health, limits: Limits) -> None:
    bodies = Bodies(limits, limits.body)
    app.add_hot_route("/filter", bodies.read_by(_filter_route(extender, health)))
    app.add_route("/preempt", bodies.read_by(_preempt_route(extender, health)), ["POST"])
    app.add_hot_route("/bind", bodies.read_by(_bind_route(extender, health)))


def _filter_route(extender: ExtenderPort, health: Health) -> BodyHandler:
    async def filter_route(body: bytes) -> Response:
        args = read_args(body)
        if isinstance(args, BadBody):
            return PlainTextResponse(f"{args}\n", 400)
        try:
            result = await _filter(extender, health, args)
        except Exception as error:  # noqa: BLE001 -- kube-scheduler shows the text on the pod
            result = ExtenderFilterResult(error=_bug("filter", error))
        return Response(encoded(result), media_type=_JSON)

    return filter_route


async def _filter(
    extender: ExtenderPort, health: Health, args: ExtenderArgs
) -> ExtenderFilterResult:
    if missing := health.missing():
        return ExtenderFilterResult(error=_not_ready(missing))
    return await extender.filter(args)


def _preempt_route(extender: ExtenderPort, health: Health) -> BodyHandler:
    async def preempt_route(body: bytes) -> Response:
        args = decode_body(body, ExtenderPreemptionArgs)
        if isinstance(args, BadBody):
            return PlainTextResponse(f"{args}\n", 400)
        try:
            result = await _preempt(extender, health, args)
        except Exception as error:  # noqa: BLE001 -- kube-scheduler shows the status on the pod
            return PlainTextResponse(f"{_bug('preempt', error)}\n", 500)
        return Response(msgspec.json.encode(result), media_type=_JSON)

    return preempt_route


async def _preempt(
    extender: ExtenderPort, health: Health, args: ExtenderPreemptionArgs
) -> ExtenderPreemptionResult:
    """The answer has no field for an error; without a node nobody is evicted."""
    if missing := health.missing():
        structlog.get_logger().info("preemption not judged", error=_not_ready(missing))
        return ExtenderPreemptionResult()
    return await extender.preempt(args)


def _bind_route(extender: ExtenderPort, health: Health) -> BodyHandler:
    async def bind_route(body: bytes) -> Response:
        args = decode_body(body, ExtenderBindingArgs)
        if isinstance(args, BadBody):
            return PlainTextResponse(f"{args}\n", 400)
        try:
            result = await _bind(extender, health, args)
        except Exception as error:  # noqa: BLE001 -- kube-scheduler shows the text on the pod
            result = ExtenderBindingResult(error=_bug("bind", error))
        return Response(msgspec.json.encode(result), media_type=_JSON)

    return bind_route


async def _bind(
    extender: ExtenderPort, health: Health, args: ExtenderBindingArgs
) -> ExtenderBindingResult:
    if missing := health.missing():
        return ExtenderBindingResult(error=_not_ready(missing))
    return await extender.bind(args)


def _not_ready(missing: Sequence[str]) -> str:
    return f"hami scheduler is not ready: waiting for {', '.join(missing)}"


def _bug(route: str, error: Exception) -> str:
    """Log what should not have happened; the text names it for whoever reads the pod's events."""
    structlog.get_logger().exception("a request failed", route=route)
    said = " ".join(f"{type(error).__name__}: {error}".split()).removesuffix(":")
    return f"hami scheduler failed at /{route}: {said}; its log has the details"


def _webhook_route(webhook: Webhook) -> BodyHandler:
    async def webhook_route(body: bytes) -> Response:
        try:
            answer = webhook.review(body)
        except Exception as error:  # noqa: BLE001 -- the webhook's failurePolicy decides on a bug
            return PlainTextResponse(f"{_bug('webhook', error)}\n", 500)
        if isinstance(answer, BadBody):
            return PlainTextResponse(f"{answer}\n", 400)
        return Response(msgspec.json.encode(answer), media_type=_JSON)

    return webhook_route


def _add_health(app: FastAPI, health: Health) -> None:
    async def healthz(_: Request) -> Response:
        if failed := health.failed():
            return PlainTextResponse(f"failed: {', '.join(failed)}\n", 503)
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        if missing := [*health.failed(), *health.missing()]:
            return PlainTextResponse(f"waiting for {', '.join(missing)}\n", 503)
        return PlainTextResponse("ok\n")

    app.add_route("/healthz", healthz, ["GET"])
    app.add_route("/readyz", readyz, ["GET"])


def _metrics_route(metrics: MetricsText) -> Handler:
    async def metrics_route(_: Request) -> Response:
        return StreamingResponse(metrics.pieces(), headers={"content-type": _METRICS})

    return metrics_route


class BodyRefused(HamiError):
    """A body that will not be read to its end: the HTTP status, and a text for the caller.

    The answer closes the connection, so that the rest need not be read.
    """


class Bodies:
    """Reads the bodies of requests of one kind; ``most`` bytes each, ``held`` all together.

    Each kind has its own: whoever fills up the webhook's does not keep kube-scheduler out.
    """

    def __init__(self, limits: Limits, most: int) -> None:
        self.held = 0
        self._limits = limits
        self._most = most

    def read_by(self, handler: BodyHandler) -> Handler:
        """The route that hands the whole body to ``handler``."""

        async def route(request: Request) -> Response:
            part = _Part(self)
            try:
                return await handler(await self._read(request, part))
            finally:
                part.let_go()

        return route

    async def _read(self, request: Request, part: _Part) -> bytes:
        """The whole body, whether or not its length was announced.

        One that is not taken is read on and thrown away up to four times the limit: a connection
        that is closed while its other side still writes is reset, and the answer lost.

        Raises:
            BodyRefused: 413 when it is too long, 408 when it comes too slowly, 400 when it ends
                early, 503 when too many others are being answered.
        """
        too_long = BodyRefused(413, f"the body is longer than {self._most} bytes")
        patience = 4 * self._most
        announced = request.headers.get("content-length", "")
        if announced.isdigit() and int(announced) > patience:
            raise too_long
        refusal: BodyRefused | None = None
        length = 0
        try:
            async with asyncio.timeout(self._limits.body_seconds):
                async for block in request.stream():
                    length += len(block)
                    if length > patience:
                        raise too_long
                    if refusal is None:
                        refusal = too_long if length > self._most else self._take(part, block)
                    if refusal is not None:
                        part.let_go()
        except TimeoutError:
            text = f"the body was not there within {self._limits.body_seconds:g} seconds"
            raise BodyRefused(408, text) from None
        except ClientDisconnect:
            raise BodyRefused(400, "the caller went away") from None
        if refusal is not None:
            raise refusal
        return part.whole()

    def _take(self, part: _Part, block: bytes) -> BodyRefused | None:
        if self.held + len(block) > self._limits.held:
            text = f"requests of {self.held} bytes wait for their answers; try again later"
            return BodyRefused(_TOO_BUSY, text)
        part.take(block)
        return None


class _Part:
    """One body and its share of what is held."""

    def __init__(self, bodies: Bodies) -> None:
        self._first = b""
        self._more = bytearray()
        self._bodies = bodies

    def take(self, block: bytes) -> None:
        if self._first:
            self._more += block
        else:
            self._first = block
        self._bodies.held += len(block)

    def whole(self) -> bytes:
        """The body; it is not copied when it came in one block, as most do."""
        return self._first + self._more if self._more else self._first

    def let_go(self) -> None:
        self._bodies.held -= len(self._first) + len(self._more)
        self._first, self._more = b"", bytearray()
