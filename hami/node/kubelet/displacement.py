"""Whether kubelet still counts what we list: another plugin may have taken our resource's name.

A plugin that registers a name takes it over. While it stays, kubelet's record has its ids and not
ours. When it goes, kubelet counts the name's devices as unhealthy, and our stream stays open
(kubelet 1.36, devicemanager): the node has none of the resource, for good, and nobody is told. What
shows that is the node's status.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NoReturn

import structlog

from hami.domain.kubernetes.objects import Node
from hami.kube.errors import ApiError
from hami.kube.events import EventRecorder
from hami.kube.pace import Backoff
from hami.node.kubelet.checkpoint import registered_ids
from hami.node.kubelet.server import DevicePluginServer

DISPLACED = "DevicePluginDisplaced"
"""The reason of the event about the node."""
LOOK_EVERY = 1.0
PATIENCE, LONGEST = 30.0, 600.0
"""Seconds that the node may lack what we list before it is registered again; kubelet publishes a
change within ten. Longer each time: of two that fight for a name, neither may be fast.
"""


class Displacement:
    """Notices that another device plugin took a resource's name, and registers ours again.

    ``node`` is the node as the agent knows it, which may be old; ``fresh`` asks the API server.
    """

    def __init__(
        self,
        node: Callable[[], Node | None],
        fresh: Callable[[], Awaitable[Node]],
        events: EventRecorder,
    ) -> None:
        self._node = node
        self._fresh = fresh
        self._events = events
        self._log = structlog.get_logger("hami.kubelet")

    async def watch(self, server: DevicePluginServer) -> NoReturn:
        """Register ``server`` again whenever the node lacks its resource; until cancelled."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(first=PATIENCE, most=LONGEST)
        wait = backoff.delay()
        since: float | None = None
        last = loop.time()
        while True:
            await asyncio.sleep(LOOK_EVERY)
            now = loop.time()
            theirs = await asyncio.to_thread(_theirs, server)
            if not theirs and not _lacks(self._node(), server):
                since = None
                continue
            since = now if since is None else since
            if now - since < wait or not (node := await self._confirmed(server, theirs)):
                continue
            if now - last > 2 * LONGEST:
                backoff.reset()
            last, since, wait = now, None, backoff.delay()
            self._tell(node, server, theirs)
            server.register_again()

    async def _confirmed(self, server: DevicePluginServer, theirs: int) -> Node | None:
        """The node as it is, if another plugin is there or the node lacks the resource."""
        try:
            node = await self._fresh()
        except ApiError:
            return None
        return node if theirs or _lacks(node, server) else None

    def _tell(self, node: Node, server: DevicePluginServer, theirs: int) -> None:
        has = f"{theirs} ids of" if theirs else "none of"
        listed = "that are not listed" if theirs else f"although {server.healthy} are healthy"
        text = (
            f"kubelet has {has} {server.resource} {listed} here: "
            "another device plugin registered that name and took it over; registering again. Find "
            f"the other one, whose socket was in {server.folder}, and remove it"
        )
        self._log.error("another device plugin took a resource", why=text)
        self._events.record(node, DISPLACED, text, warning=True)


def _theirs(server: DevicePluginServer) -> int:
    """How many ids kubelet gives away that are not ours. Blocks.

    A list of ours that has just become shorter may be one of before for a moment.
    """
    if not server.registered.is_set():
        return 0
    return len(registered_ids(server.folder, server.resource) - server.ids)


def _lacks(node: Node | None, server: DevicePluginServer) -> bool:
    """Whether kubelet publishes none of the resource, although we list healthy ids.

    A node that says nothing of what can be allocated is not kubelet's.
    """
    if node is None or node.allocatable is None:
        return False
    if not server.healthy or not server.registered.is_set():
        return False
    return node.allocatable.get(server.resource, "0") == "0"
