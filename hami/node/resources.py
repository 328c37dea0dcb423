"""The resources that kubelet sees: the vendor's own, and those of its static devices."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path

import structlog

from hami.domain.devices import Device
from hami.node.server import DevicePluginServer, PluginCalls
from hami.node.static_calls import static_tokens
from hami.node.tokens import Token


class ServedResources:
    """A server for each resource; one whose devices are gone lists none, and stays.

    ``tokens`` gives the list of the vendor's own resource, ``static`` the other devices.
    ``changed`` has every list made anew.
    """

    def __init__(
        self,
        server: DevicePluginServer,
        *,
        tokens: Callable[[], Awaitable[Sequence[Token]]],
        static: Callable[[], Mapping[str, Sequence[Device]]],
        static_calls: Callable[[str], PluginCalls],
        folder: Path,
        kubelet_socket: Path,
        name: str,
        on_problem: Callable[[str], None],
    ) -> None:
        self._server = server
        self._tokens = tokens
        self._static = static
        self._static_calls = static_calls
        self._folder = folder
        self._kubelet_socket = kubelet_socket
        self._name = name
        self._on_problem = on_problem
        self._others: dict[str, DevicePluginServer] = {}
        self._due = asyncio.Event()
        self._due.set()
        self._log = structlog.get_logger("hami.kubelet")

    def changed(self) -> None:
        self._due.set()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._server.run())
            while True:
                await self._due.wait()
                self._due.clear()
                self._server.publish(await self._tokens())
                self._publish_static(tasks)

    def _publish_static(self, tasks: asyncio.TaskGroup) -> None:
        static = self._static()
        for resource in static.keys() - self._others.keys():
            self._log.info("serving another resource", resource=resource)
            server = DevicePluginServer(
                resource,
                self._static_calls(resource),
                folder=self._folder,
                kubelet_socket=self._kubelet_socket,
                pre_start=False,
                on_problem=self._on_problem,
                name=f"{self._name}-{resource.rpartition('/')[2]}",
            )
            self._others[resource] = server
            tasks.create_task(server.run())
        for resource, server in self._others.items():
            server.publish(static_tokens(static.get(resource, ())))
