"""What the monitor answers over HTTP about its node; texts are made in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hami.http.connection import JSON_TYPE, RouteAnswer, Routes
from hami.http.metrics import METRICS_TYPE
from hami.monitor.exposition.node_text import NodeText
from hami.monitor.metrics import MonitorMetrics
from hami.monitor.node_api import node_json
from hami.monitor.table import NodeTable
from hami.monitor.usage_history import UsageHistory


def node_routes(
    table: Callable[[], NodeTable],
    metrics: MonitorMetrics,
    history: UsageHistory,
    *,
    legacy_metrics: bool = False,
) -> Routes:
    """``/metrics`` and ``/api/v1/node``; ``table`` gives the newest one, on the loop."""
    text = NodeText(legacy=legacy_metrics)

    async def scrape() -> RouteAnswer:
        own = metrics.text().encode()
        body = await asyncio.to_thread(text.body, table(), before=own)
        return RouteAnswer(body=body, type=METRICS_TYPE)

    async def node() -> RouteAnswer:
        body = await asyncio.to_thread(node_json, table(), history.last_hour)
        return RouteAnswer(body=body, type=JSON_TYPE)

    return {"/metrics": scrape, "/api/v1/node": node}
