"""The resources that kubelet sees: the vendor's own, and those of its static devices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

import structlog

from hami.domain.errors import HamiError
from hami.node.device.inventory import Inventory
from hami.node.kubelet.displacement import Displacement
from hami.node.kubelet.server import DevicePluginServer
from hami.node.kubelet.static_calls import static_tokens
from hami.node.kubelet.tokens import Token

FIRST_LIST = 5.0
"""Seconds to wait for the devices before kubelet is told of those that it knows itself."""


class TokenSource(Protocol):
    """Says which ids kubelet may give away now."""

    async def tokens(self) -> Sequence[Token]: ...


class ServedResources:
    """Runs a server for each resource; one whose devices are gone stays, and lists none.

    ``source`` gives the list of the vendor's own resource, which ``server`` serves; the static
    devices are the ``inventory``'s, and ``static_server`` makes a server for them. ``displacement``
    watches each of the servers. ``changed`` has every list made anew.
    """

    def __init__(
        self,
        server: DevicePluginServer,
        source: TokenSource,
        inventory: Inventory,
        displacement: Displacement,
        *,
        static_server: Callable[[str], DevicePluginServer],
    ) -> None:
        self._server = server
        self._source = source
        self._inventory = inventory
        self._displacement = displacement
        self._static_server = static_server
        self._others: dict[str, DevicePluginServer] = {}
        self._unserved: set[str] = set()
        self._due = asyncio.Event()
        self._due.set()
        self._log = structlog.get_logger("hami.kubelet")

    @property
    def servers(self) -> Sequence[DevicePluginServer]:
        """The vendor's own resource first."""
        return (self._server, *self._others.values())

    def changed(self) -> None:
        self._due.set()

    async def run(self) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            self._begin(self._server, tasks)
            await self._until_known()
            while True:
                await self._due.wait()
                self._due.clear()
                self._server.publish(await self._source.tokens())
                self._publish_static(tasks)

    async def _until_known(self) -> None:
        """Wait for the devices, but not too long.

        An empty list fails the pods that arrive meanwhile. No list at all fails those that kubelet
        admits again after its restart; it keeps the devices that they hold.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LIST):
                await self._inventory.known.wait()

    def _begin(self, server: DevicePluginServer, tasks: asyncio.TaskGroup) -> None:
        tasks.create_task(server.run())
        tasks.create_task(self._displacement.watch(server))

    def _publish_static(self, tasks: asyncio.TaskGroup) -> None:
        static = self._inventory.static
        for resource in static.keys() - self._others.keys() - self._unserved:
            try:
                server = self._static_server(resource)
            except HamiError as error:
                self._unserved.add(resource)
                self._log.error("a resource is not served", resource=resource, error=str(error))
                continue
            self._log.info("serving another resource", resource=resource)
            self._others[resource] = server
            self._begin(server, tasks)
        for resource, server in self._others.items():
            server.publish(static_tokens(static.get(resource, ())))
