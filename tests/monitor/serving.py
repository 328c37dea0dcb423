"""Monitors that answer, on a socket, as the real ones do; what they measured is made up."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager

from msgspec.structs import replace

from hami.http.addresses import parse_bind
from hami.http.listening import listening
from hami.monitor.metrics import MonitorMetrics
from hami.monitor.routes import node_routes
from hami.monitor.table import NodeTable
from hami.monitor.usage_history import UsageHistory


@asynccontextmanager
async def a_monitor(
    table: Callable[[], NodeTable],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    minutes: int = 60,
    waiting: Collection[str] = (),
) -> AsyncIterator[str]:
    """Answers with ``table()``, which it saw just so for ``minutes``; yields its URL.

    The pods ``waiting`` waited for compute all the time.
    """
    history = UsageHistory()

    def newest() -> NodeTable:
        now = table()
        for minute in range(minutes):
            for second in (0.0, 59.0):
                at = 60.0 * minute + second
                history.observe(_waited(now, waiting, at), at)
        return now

    routes = node_routes(newest, MonitorMetrics([]), history)
    async with listening(parse_bind(f"{host}:{port}"), routes) as url:
        yield url


def _waited(table: NodeTable, waiting: Collection[str], seconds: float) -> NodeTable:
    slices = [
        replace(one, devices=tuple(replace(d, waited_seconds=seconds) for d in one.devices))
        if one.pod in waiting
        else one
        for one in table.slices
    ]
    return replace(table, slices=tuple(slices))
