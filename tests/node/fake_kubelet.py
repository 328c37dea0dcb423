"""kubelet, as far as a device plugin can see it: a real socket, driven by the test."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

from hami.node.kubelet.api import v1beta1_pb2 as api
from hami.node.kubelet.checkpoint import CHECKPOINT

Context = grpc.aio.ServicerContext[Any, Any]
CHANNEL = (("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1))


Sent = TypeVar("Sent", bound=Message)
Answered = TypeVar("Answered", bound=Message)


def call(
    channel: grpc.aio.Channel, method: str, request: type[Sent], response: type[Answered]
) -> grpc.aio.UnaryUnaryMultiCallable[Sent, Answered]:
    return channel.unary_unary(
        f"/v1beta1.DevicePlugin/{method}",
        request_serializer=request.SerializeToString,
        response_deserializer=response.FromString,
    )


class Plugin:
    """One registered endpoint, as kubelet holds it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.channel = grpc.aio.insecure_channel(f"unix:{path}", options=CHANNEL)
        self.lists: list[dict[str, str]] = []
        self.raw: list[api.ListAndWatchResponse] = []
        self.news = asyncio.Event()
        self.following: asyncio.Task[None] | None = None
        self.options: api.DevicePluginOptions | None = None

    async def connect(self) -> None:
        self.options = await call(
            self.channel, "GetDevicePluginOptions", api.Empty, api.DevicePluginOptions
        )(api.Empty(), timeout=5)

    def follow(self) -> None:
        self.following = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        stream = self.channel.unary_stream(
            "/v1beta1.DevicePlugin/ListAndWatch",
            request_serializer=api.Empty.SerializeToString,
            response_deserializer=api.ListAndWatchResponse.FromString,
        )(api.Empty())
        with suppress(grpc.aio.AioRpcError):
            async for response in stream:
                self.raw.append(response)
                self.lists.append({device.ID: device.health for device in response.devices})
                self.news.set()
                self.news = asyncio.Event()

    @property
    def open(self) -> bool:
        return self.following is not None and not self.following.done()

    async def seen(self, count: int) -> dict[str, str]:
        """The last list, once there were ``count`` lists."""
        while len(self.lists) < count:
            await self.news.wait()
        return self.lists[-1]

    async def disconnect(self) -> None:
        if self.following is not None:
            self.following.cancel()
            with suppress(asyncio.CancelledError):
                await self.following
        await self.channel.close()

    async def allocate(self, *containers: tuple[str, ...]) -> api.AllocateResponse:
        request = api.AllocateRequest(
            container_requests=[api.ContainerAllocateRequest(devices_ids=ids) for ids in containers]
        )
        return await call(self.channel, "Allocate", api.AllocateRequest, api.AllocateResponse)(
            request
        )

    async def prefer(self, *asked: tuple[list[str], list[str], int]) -> list[list[str]]:
        request = api.PreferredAllocationRequest()
        for available, must, size in asked:
            request.container_requests.add(
                available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
            )
        response = await call(
            self.channel, "GetPreferredAllocation", api.PreferredAllocationRequest,
            api.PreferredAllocationResponse,
        )(request)  # fmt: skip
        return [list(each.deviceIDs) for each in response.container_responses]

    async def pre_start(self, *ids: str) -> None:
        await call(
            self.channel, "PreStartContainer", api.PreStartContainerRequest,
            api.PreStartContainerResponse,
        )(api.PreStartContainerRequest(devices_ids=ids))  # fmt: skip

    async def raw_call(self, method: str, data: bytes) -> bytes:
        return await self.channel.unary_unary(f"/v1beta1.DevicePlugin/{method}")(data)


class FakeKubelet:
    """``refuses``: Register's answers, in order. ``follows``: whether it asks for the list.

    ``overlaps`` are registrations that came while an earlier stream was open: the real kubelet then
    disconnects the newer plugin when the old stream ends.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "kubelet.sock"
        self.refuses: list[tuple[grpc.StatusCode, str]] = []
        self.follows = True
        self.hold_answers: asyncio.Event | None = None
        self.plugins: list[Plugin] = []
        self.requests: list[api.RegisterRequest] = []
        self.overlaps: list[str] = []
        self._server: grpc.aio.Server | None = None
        self._news = asyncio.Event()

    async def start(self) -> None:
        """Start as kubelet does: it first deletes every other file in the folder, and no folder."""
        self.folder.mkdir(exist_ok=True)
        for path in self.folder.iterdir():
            if path.name != CHECKPOINT and not path.is_dir():
                path.unlink()
        self._server = grpc.aio.server()
        self._server.add_generic_rpc_handlers(
            (
                grpc.method_handlers_generic_handler(
                    "v1beta1.Registration",
                    {
                        "Register": grpc.unary_unary_rpc_method_handler(
                            self._register,
                            request_deserializer=api.RegisterRequest.FromString,
                            response_serializer=api.Empty.SerializeToString,
                        )
                    },
                ),
            )
        )
        self._server.add_insecure_port(f"unix:{self.path}")
        await self._server.start()

    async def _register(self, request: api.RegisterRequest, context: Context) -> api.Empty:
        self.requests.append(request)
        self._wake()
        if any(plugin.open for plugin in self.plugins):
            self.overlaps.append(request.endpoint)
        if self.refuses:
            await context.abort(*self.refuses.pop(0))
        plugin = Plugin(self.folder / request.endpoint)
        await plugin.connect()
        if self.follows:
            plugin.follow()
        self.plugins.append(plugin)
        self._wake()
        if self.hold_answers is not None:
            await self.hold_answers.wait()
        return api.Empty()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def registered(self, count: int) -> Plugin:
        """The newest plugin, once ``count`` have registered and it has sent its list."""
        while len(self.plugins) < count:
            await self._news.wait()
        plugin = self.plugins[-1]
        if self.follows:
            await plugin.seen(1)
        return plugin

    async def asked(self, count: int) -> None:
        """Wait until Register was called ``count`` times."""
        while len(self.requests) < count:
            await self._news.wait()

    async def die(self) -> None:
        """Stop without cleaning up: the socket's file stays, and nothing listens on it."""
        aside = self.folder / "aside"
        if self._server is not None:
            # gRPC removes the file of the name it made.
            self.path.rename(aside)
            await self._server.stop(None)
            self._server = None
            aside.rename(self.path)
        for plugin in self.plugins:
            await plugin.disconnect()

    async def restart(self) -> None:
        await self.die()
        await self.start()


def stale_socket(path: Path) -> None:
    """A socket file as a killed process leaves it."""
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
