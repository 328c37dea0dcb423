"""What the monitor answers over HTTP about its node; texts are made in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from itertools import islice

from hami.http.connection import JSON_TYPE, RouteAnswer, Routes
from hami.http.metrics import METRICS_TYPE
from hami.monitor.exposition.node_text import NodeText
from hami.monitor.metrics import MonitorMetrics
from hami.monitor.node_api import node_json
from hami.monitor.table import NodeTable
from hami.monitor.usage_history import UsageHistory

AT_ONCE = 24
"""Pieces of text sent together: 2 MB of a large node, which a socket takes in few calls."""


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
        return RouteAnswer(body=own, type=METRICS_TYPE, more=_in_thread(text.pieces(table())))

    async def node() -> RouteAnswer:
        body = await asyncio.to_thread(node_json, table(), history.last_hour)
        return RouteAnswer(body=body, type=JSON_TYPE)

    return {"/metrics": scrape, "/api/v1/node": node}


async def _in_thread(pieces: Iterator[bytes]) -> AsyncGenerator[bytes, None]:
    """``AT_ONCE`` joined into one, made while the loop does other things."""
    while some := await asyncio.to_thread(lambda: b"".join(islice(pieces, AT_ONCE))):
        yield some
