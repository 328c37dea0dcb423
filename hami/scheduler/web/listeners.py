"""Which application listens where, by the configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hami.scheduler.certificates.served_certificate import ServedCertificate
from hami.scheduler.settings.config import SchedulerConfig
from hami.scheduler.web.applications import (
    ExtenderPort,
    Health,
    MetricsText,
    extender_app,
    public_app,
    whole_app,
)
from hami.scheduler.web.pod_webhook import Webhook
from hami.scheduler.web.quota_webhook import QuotaWebhook
from hami.scheduler.web.resize_route import ResizeParts
from hami.scheduler.web.server import Listener
from hami.scheduler.web.tls import TlsFiles, TlsOrigin, TlsServed

if TYPE_CHECKING:
    from fastapi import APIRouter

EXTENDER, PUBLIC, METRICS = "extender", "public", "metrics"
"""The listeners' names; with ``http-bind`` the first two are one, ``public``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What stands behind the listeners."""

    extender: ExtenderPort
    webhook: Webhook
    health: Health
    metrics: MetricsText
    api_router: Callable[[], APIRouter] | None = None
    quota_webhook: QuotaWebhook | None = None
    resizing: ResizeParts | None = None
    certificate: ServedCertificate | None = None


def listeners_of(config: SchedulerConfig, served: Served) -> list[Listener]:
    """The listeners that this configuration asks for."""
    s = served
    if config.http_bind:
        app = whole_app(
            s.extender,
            s.webhook,
            s.health,
            s.metrics,
            s.api_router,
            quota_webhook=s.quota_webhook,
            resizing=s.resizing,
        )
        bind = config.bind("http_bind")
        listeners = [Listener(name=PUBLIC, bind=bind, app=app, tls=_tls(config, s))]
    else:
        listeners = [
            Listener(
                name=EXTENDER,
                bind=config.bind("extender_bind"),
                app=extender_app(s.extender, s.health),
                tls=_extender_tls(config, s),
            ),
            Listener(
                name=PUBLIC,
                bind=config.bind("public_bind"),
                app=public_app(
                    s.webhook,
                    s.health,
                    s.metrics,
                    s.api_router,
                    quota_webhook=s.quota_webhook,
                    resizing=s.resizing,
                ),
                tls=_tls(config, s),
            ),
        ]
    if config.metrics_bind_address:
        app = public_app(None, s.health, s.metrics, s.api_router, resizing=s.resizing)
        bind = config.bind("metrics_bind_address")
        listeners.append(Listener(name=METRICS, bind=bind, app=app))
    return listeners


def _tls(
    config: SchedulerConfig, served: Served, client_ca: Path | None = None
) -> TlsOrigin | None:
    if served.certificate is not None:
        return TlsServed(certificate=served.certificate, client_ca=client_ca)
    if config.cert_file is None or config.key_file is None:
        return None
    return TlsFiles(cert=config.cert_file, key=config.key_file, client_ca=client_ca)


def _extender_tls(config: SchedulerConfig, served: Served) -> TlsOrigin | None:
    return _tls(config, served, config.client_ca_file) if config.extender_speaks_tls else None
