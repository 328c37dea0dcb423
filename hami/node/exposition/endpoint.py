"""Where the agent is asked: its listener, from the first moment until it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import structlog

from hami.http.addresses import Bind
from hami.http.connection import RouteAnswer
from hami.http.listening import listening
from hami.http.metrics import metrics_answer
from hami.http.probes import probe_routes
from hami.node.exposition.agent_health import failed, missing
from hami.node.exposition.agent_metrics import build_info, families
from hami.node.exposition.agent_parts import AgentParts


class AgentEndpoint:
    """Answers for an agent whose parts are made while it is asked already.

    The API server may be away for long when a node starts; meanwhile the process is alive and says
    what it waits for.
    """

    def __init__(self, node: str) -> None:
        self._node = node
        self._parts: AgentParts | None = None
        self._families = [build_info()]

    def made_of(self, parts: AgentParts) -> None:
        """The agent has its parts now."""
        self._parts = parts
        self._families = list(families(parts))

    @asynccontextmanager
    async def listens(self, bind: Bind | None) -> AsyncIterator[None]:
        """Answer at this address, or nowhere.

        Raises:
            ConfigError: the address cannot be used.
        """
        if bind is None:
            yield
            return
        routes = {
            **probe_routes(failed=self._failed, missing=self._missing),
            "/metrics": self._metrics,
        }
        async with listening(bind, routes) as url:
            structlog.get_logger("hami.agent").info("health and metrics", url=url)
            yield

    def _failed(self) -> Sequence[str]:
        return list(failed(self._parts)) if self._parts else ()

    def _missing(self) -> Sequence[str]:
        if self._parts is None:
            return [f"beginning: what the API server says of node {self._node} is not known yet"]
        return list(missing(self._parts))

    async def _metrics(self) -> RouteAnswer:
        return metrics_answer(self._families)
