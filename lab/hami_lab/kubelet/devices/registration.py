"""``kubelet.sock``: where plugins register, and what becomes of their connections.

A resource has one registration, the latest. The stream of a former one is still read until it
ends, and then, as in kubelet, whoever has the resource by that time is disconnected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import grpc

from hami.domain.errors import ConfigError
from hami.node.kubelet.api import v1beta1_pb2 as api
from hami_lab.kubelet.devices.endpoints import Endpoint, PluginFailed
from hami_lab.kubelet.devices.ledger import ListedDevice
from hami_lab.kubelet.devices.races import Races

SOCKET = "kubelet.sock"
VERSION = "v1beta1"
LONGEST_PATH = 107
"""Bytes of a unix socket's path (unix(7))."""


class Listener(Protocol):
    """Told of what plugins do."""

    def connected(self, endpoint: Endpoint) -> None: ...

    def listed(self, resource: str, devices: Sequence[ListedDevice]) -> None: ...

    def disconnected(self, resource: str) -> None: ...


class Registrations:
    """Serves Registration in ``folder`` between :meth:`start` and :meth:`stop`."""

    def __init__(
        self,
        folder: Path,
        listener: Listener,
        *,
        races: Races,
        prestart_timeout: float,
        on_problem: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._listener = listener
        self._races = races
        self._prestart_timeout = prestart_timeout
        self._on_problem = on_problem
        self._endpoints: dict[str, Endpoint] = {}
        self._streams: set[asyncio.Task[None]] = set()
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Listen.

        Raises:
            ConfigError: the folder's path is too long for a socket.
        """
        path = self._folder / SOCKET
        if len(str(path).encode()) > LONGEST_PATH:
            raise ConfigError(
                f"{path} is longer than {LONGEST_PATH} bytes, the most that a unix socket's path "
                f"may have; use a folder with a shorter name"
            )
        server = grpc.aio.server()
        method: grpc.RpcMethodHandler[api.RegisterRequest, api.Empty]
        method = grpc.unary_unary_rpc_method_handler(
            self._register,
            request_deserializer=api.RegisterRequest.FromString,
            response_serializer=lambda message: message.SerializeToString(),
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": method}),)
        )
        server.add_insecure_port(f"unix:{path}")
        await server.start()
        self._server = server

    async def stop(self) -> None:
        """As when kubelet ends: plugins see their streams end, and nobody is told of it here."""
        server, self._server = self._server, None
        for task in self._streams:
            task.cancel()
        await asyncio.gather(*self._streams, return_exceptions=True)
        self._streams.clear()
        endpoints, self._endpoints = self._endpoints, {}
        for endpoint in endpoints.values():
            await endpoint.disconnect()
        if server is not None:
            await server.stop(None)

    def drop_stream(self, resource: str) -> None:
        """Lose the stream of the plugin that has the resource now."""
        if (endpoint := self._endpoints.get(resource)) is not None:
            endpoint.drop_stream()

    async def _register(self, request: api.RegisterRequest, context: Any) -> api.Empty:
        await self._races.registration.wait()
        if request.version != VERSION:
            text = f"requested API version {request.version!r} is not supported by kubelet"
            await context.abort(grpc.StatusCode.UNKNOWN, f"{text}; supported: {VERSION}")
        if "/" not in request.resource_name:
            text = f"the ResourceName {request.resource_name!r} is invalid"
            await context.abort(grpc.StatusCode.UNKNOWN, text)
        endpoint = Endpoint(
            request.resource_name,
            self._folder / request.endpoint,
            prestart_timeout=self._prestart_timeout,
        )
        try:
            await endpoint.connect()
        except PluginFailed as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
        self._endpoints[endpoint.resource] = endpoint
        self._listener.connected(endpoint)
        task = asyncio.create_task(self._follow(endpoint))
        self._streams.add(task)
        task.add_done_callback(self._ended)
        return api.Empty()

    async def _follow(self, endpoint: Endpoint) -> None:
        async for devices in endpoint.lists():
            self._listener.listed(endpoint.resource, devices)
        await self._races.stream_end.wait()
        # By name, as kubelet does: a newer registration goes when an older stream ends.
        current = self._endpoints.pop(endpoint.resource, None)
        if current is not None:
            await current.disconnect()
            self._listener.disconnected(endpoint.resource)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._streams.discard(task)
        with suppress(asyncio.CancelledError):
            if (error := task.exception()) is not None:
                self._on_problem(f"a plugin's stream broke the kubelet stand-in: {error!r}")
