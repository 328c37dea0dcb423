"""``/healthz`` and ``/readyz``, as kubelet's probes ask for them.

(https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes/)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus

from hami.http.connection import Route, RouteAnswer, Routes

Reasons = Callable[[], Sequence[str]]
"""What is wrong, each as a text with its cause; empty when nothing is. Called on the loop."""


def probe_routes(*, failed: Reasons, missing: Reasons) -> Routes:
    """``failed``: what only a restart mends. ``missing``: what the process still waits for.

    Both answer 200 and ``ok``, or 503 and one reason per line. That they answer at all shows that
    the loop turns.
    """
    return {
        "/healthz": _route(failed),
        "/readyz": _route(lambda: [*failed(), *missing()]),
    }


def _route(reasons: Reasons) -> Route:
    async def route() -> RouteAnswer:
        if found := reasons():
            body = "".join(f"{reason}\n" for reason in found).encode()
            return RouteAnswer(body=body, status=HTTPStatus.SERVICE_UNAVAILABLE)
        return RouteAnswer(body=b"ok\n")

    return route
