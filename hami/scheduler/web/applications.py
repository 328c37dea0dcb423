"""The HTTP applications: kube-scheduler's extender, and what everybody else calls.

Hot routes take the raw request and return bytes, because a framework's conversion costs more
than the decision. A body that cannot be read is answered with 400 and text; what the extender
has to say goes into the extender's own ``Error`` field, which kube-scheduler shows on the pod.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec
import structlog
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from hami.scheduler.pending.answers import encoded
from hami.scheduler.web.bodies import (
    USUAL,
    Bodies,
    BodyHandler,
    BodyLimits,
    BodyRefused,
    FastRoute,
    Handler,
)
from hami.scheduler.web.filter_args import read_args
from hami.scheduler.web.late_api import PATHS as API_PATHS
from hami.scheduler.web.late_api import LateApi
from hami.scheduler.web.pod_webhook import Webhook
from hami.scheduler.web.quota_webhook import PATHS, QuotaWebhook
from hami.scheduler.web.resize_route import BODY_BYTES, PATH, ResizeParts, resize_route
from hami.wire.admission import AdmissionReview
from hami.wire.bodies import BadBody, decode_body
from hami.wire.extender import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
)

if TYPE_CHECKING:
    from fastapi import APIRouter

_METRICS = "text/plain; version=0.0.4; charset=utf-8"


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


def extender_app(extender: ExtenderPort, health: Health, limits: BodyLimits = USUAL) -> App:
    """``/filter``, ``/preempt``, ``/bind`` and health."""
    app = App()
    _add_extender(app, extender, health, limits)
    _add_health(app, health)
    return app


def public_app(
    webhook: Webhook | None,
    health: Health,
    metrics: MetricsText,
    api_router: Callable[[], APIRouter] | None = None,
    limits: BodyLimits = USUAL,
    *,
    quota_webhook: QuotaWebhook | None = None,
    resizing: ResizeParts | None = None,
) -> App:
    """The webhooks, health, metrics, resizes and the read-only API, described by its OpenAPI.

    Without a webhook it is the listener for metrics.
    """
    app = App()
    bodies = Bodies(limits, limits.review)
    if webhook is not None:
        app.add_route("/webhook", bodies.read_by(_webhook_route(webhook)), ["POST"])
    if quota_webhook is not None:
        for path in PATHS:
            app.add_route(path, bodies.read_by(_quota_webhook_route(quota_webhook)), ["POST"])
    _add_health(app, health)
    app.add_route("/metrics", _metrics_route(metrics), ["GET"])
    if resizing is not None:
        small = Bodies(limits, BODY_BYTES)
        app.add_route(PATH, resize_route(resizing, small, health.missing), ["POST"])
    if api_router is not None:
        api = LateApi(api_router)
        for path in API_PATHS:
            app.router.routes.append(Route(path, api))
    return app


def whole_app(
    extender: ExtenderPort,
    webhook: Webhook,
    health: Health,
    metrics: MetricsText,
    api_router: Callable[[], APIRouter] | None = None,
    limits: BodyLimits = USUAL,
    *,
    quota_webhook: QuotaWebhook | None = None,
    resizing: ResizeParts | None = None,
) -> App:
    """Everything on one listener, as HAMi has it."""
    app = public_app(
        webhook,
        health,
        metrics,
        api_router,
        limits,
        quota_webhook=quota_webhook,
        resizing=resizing,
    )
    _add_extender(app, extender, health, limits)
    return app


class App(Starlette):
    """Starlette, with errors in JSON, and routes that none of its layers is wrapped around.

    They cost more than the decisions behind them: 0.4 ms of a filter's 0.7. ``fast_routes`` are
    for a listener that knows how to do without ASGI too (:mod:`hami.scheduler.web.fast_path`).
    """

    def __init__(self) -> None:
        super().__init__(
            exception_handlers={BodyRefused: _refused_body, HTTPException: _refused_call}
        )
        self.router.redirect_slashes = False
        self.fast_routes: dict[bytes, FastRoute] = {}
        self._hot: dict[str, Handler] = {}

    def add_hot_route(self, path: str, bodies: Bodies, handler: BodyHandler) -> None:
        """``POST`` on exactly this path; any other method is answered as ever."""
        self.fast_routes[path.encode()] = FastRoute(bodies, handler)
        self._hot[path] = route = bodies.read_by(handler)
        self.add_route(path, route, ["POST"])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        hot = self._hot.get(scope.get("path", "")) if scope.get("method") == "POST" else None
        if hot is None:
            await super().__call__(scope, receive, send)
            return
        try:
            response = await hot(Request(scope, receive))
        except BodyRefused as error:
            response = error.answer()
        await response(scope, receive, send)


async def _refused_body(_: Request, error: Exception) -> Response:
    assert isinstance(error, BodyRefused)
    return error.answer()


async def _refused_call(_: Request, error: Exception) -> Response:
    """No such path, or method: as FastAPI says it of the API."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"detail": error.detail}, error.status_code, error.headers)


def _add_extender(app: App, extender: ExtenderPort, health: Health, limits: BodyLimits) -> None:
    bodies = Bodies(limits, limits.body)
    app.add_hot_route("/filter", bodies, _filter_route(extender, health))
    app.add_hot_route("/preempt", bodies, _preempt_route(extender, health))
    app.add_hot_route("/bind", bodies, _bind_route(extender, health))


def _filter_route(extender: ExtenderPort, health: Health) -> BodyHandler:
    async def filter_route(body: bytes) -> bytes | Response:
        args = read_args(body)
        if isinstance(args, BadBody):
            return PlainTextResponse(f"{args}\n", 400)
        try:
            result = await _filter(extender, health, args)
        except Exception as error:  # noqa: BLE001 -- kube-scheduler shows the text on the pod
            result = ExtenderFilterResult(error=_bug("filter", error))
        return encoded(result)

    return filter_route


async def _filter(
    extender: ExtenderPort, health: Health, args: ExtenderArgs
) -> ExtenderFilterResult:
    if missing := health.missing():
        return ExtenderFilterResult(error=_not_ready(missing))
    return await extender.filter(args)


def _preempt_route(extender: ExtenderPort, health: Health) -> BodyHandler:
    async def preempt_route(body: bytes) -> bytes | Response:
        args = decode_body(body, ExtenderPreemptionArgs)
        if isinstance(args, BadBody):
            return PlainTextResponse(f"{args}\n", 400)
        try:
            result = await _preempt(extender, health, args)
        except Exception as error:  # noqa: BLE001 -- kube-scheduler shows the status on the pod
            return PlainTextResponse(f"{_bug('preempt', error)}\n", 500)
        return msgspec.json.encode(result)

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
    async def bind_route(body: bytes) -> bytes | Response:
        args = decode_body(body, ExtenderBindingArgs)
        if isinstance(args, BadBody):
            return PlainTextResponse(f"{args}\n", 400)
        try:
            result = await _bind(extender, health, args)
        except Exception as error:  # noqa: BLE001 -- kube-scheduler shows the text on the pod
            result = ExtenderBindingResult(error=_bug("bind", error))
        return msgspec.json.encode(result)

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
    async def webhook_route(body: bytes) -> bytes | Response:
        try:
            return _reviewed(webhook.review(body))
        except Exception as error:  # noqa: BLE001 -- the webhook's failurePolicy decides on a bug
            return PlainTextResponse(f"{_bug('webhook', error)}\n", 500)

    return webhook_route


def _quota_webhook_route(webhook: QuotaWebhook) -> BodyHandler:
    async def quota_webhook_route(body: bytes) -> bytes | Response:
        try:
            return _reviewed(await webhook.review(body))
        except Exception as error:  # noqa: BLE001 -- the webhook's failurePolicy decides on a bug
            return PlainTextResponse(f"{_bug('validate', error)}\n", 500)

    return quota_webhook_route


def _reviewed(answer: AdmissionReview | BadBody) -> bytes | Response:
    if isinstance(answer, BadBody):
        return PlainTextResponse(f"{answer}\n", 400)
    return msgspec.json.encode(answer)


def _add_health(app: App, health: Health) -> None:
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
