"""kubelet's connection to one device plugin."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from hami.domain.errors import HamiError
from hami.node.kubelet.api import v1beta1_pb2 as api
from hami_lab.kubelet.devices.ledger import ListedDevice

HEALTHY = "Healthy"
DIAL = 10.0
"""Seconds that kubelet waits for a plugin's socket while it registers."""
_SERVICE = "v1beta1.DevicePlugin"
_AUTHORITY = (("grpc.default_authority", "localhost"),)
_MOST = 16 << 20
_SIZES = (("grpc.max_receive_message_length", _MOST),)

M = TypeVar("M", bound=Message)


class PluginFailed(HamiError):
    """A call to a plugin came to nothing; the text is what kubelet writes of it."""


class Endpoint:
    """One registration: a plugin's socket, what it asks for, its stream of devices.

    ``stopped`` once it was disconnected: every further call fails.
    """

    def __init__(self, resource: str, socket: Path, *, prestart_timeout: float) -> None:
        self.resource = resource
        self.socket = socket
        self.options = api.DevicePluginOptions()
        self.stopped = False
        self._prestart_timeout = prestart_timeout
        self._channel = grpc.aio.insecure_channel(f"unix:{socket}", options=_AUTHORITY + _SIZES)
        self._stream: Any = None

    async def connect(self) -> None:
        """Dial the socket and ask for the plugin's options.

        Raises:
            PluginFailed: nobody answers there.
        """
        try:
            async with asyncio.timeout(DIAL):
                await self._channel.channel_ready()
        except TimeoutError as error:
            await self._channel.close()
            raise PluginFailed(
                f"failed to dial device plugin {self.socket}: not within {DIAL:g} s"
            ) from error
        request = api.Empty()
        self.options = await self._call("GetDevicePluginOptions", request, api.DevicePluginOptions)

    async def lists(self) -> AsyncIterator[Sequence[ListedDevice]]:
        """Every device list that the plugin sends, until its stream ends, however it does."""
        method = self._channel.unary_stream(
            f"/{_SERVICE}/ListAndWatch",
            request_serializer=_serialize,
            response_deserializer=api.ListAndWatchResponse.FromString,
        )
        self._stream = method(api.Empty())
        try:
            async for message in self._stream:
                yield [_device(device) for device in message.devices]
        except grpc.aio.AioRpcError:
            return
        except asyncio.CancelledError:
            if _is_ours():
                raise

    def drop_stream(self) -> None:
        """Lose the stream, as a broken connection would."""
        if self._stream is not None:
            self._stream.cancel()

    async def preferred(
        self, available: Iterable[str], must_include: Iterable[str], size: int
    ) -> frozenset[str]:
        """Which ids the plugin would rather give; empty when it does not care."""
        if not self.options.get_preferred_allocation_available:
            return frozenset()
        request = api.PreferredAllocationRequest(
            container_requests=[
                api.ContainerPreferredAllocationRequest(
                    available_deviceIDs=sorted(available),
                    must_include_deviceIDs=sorted(must_include),
                    allocation_size=size,
                )
            ]
        )
        answer = await self._call(
            "GetPreferredAllocation", request, api.PreferredAllocationResponse
        )
        if not answer.container_responses:
            return frozenset()
        return frozenset(answer.container_responses[0].deviceIDs)

    async def allocate(self, ids: Iterable[str]) -> bytes:
        """The plugin's answer for one container, byte for byte. It has no deadline."""
        request = api.AllocateRequest(
            container_requests=[api.ContainerAllocateRequest(devices_ids=sorted(ids))]
        )
        answer = await self._call("Allocate", request, api.AllocateResponse)
        if not answer.container_responses:
            raise PluginFailed(f"no containers return in allocation response {answer}".rstrip())
        return answer.container_responses[0].SerializeToString()

    async def pre_start(self, ids: Iterable[str]) -> None:
        """Tell the plugin that a container with these ids is about to start, if it asked for it."""
        if not self.options.pre_start_required:
            return
        request = api.PreStartContainerRequest(devices_ids=sorted(ids))
        try:
            await self._call(
                "PreStartContainer",
                request,
                api.PreStartContainerResponse,
                timeout=self._prestart_timeout,
            )
        except PluginFailed as error:
            raise PluginFailed(
                f"device plugin PreStartContainer rpc failed with err: {error}"
            ) from error

    async def disconnect(self) -> None:
        self.stopped = True
        await self._channel.close()

    async def _call(
        self, name: str, request: Message, answer: type[M], *, timeout: float | None = None
    ) -> M:
        if self.stopped:
            raise PluginFailed(f"endpoint {self.resource} has been stopped")
        method = self._channel.unary_unary(
            f"/{_SERVICE}/{name}",
            request_serializer=_serialize,
            response_deserializer=answer.FromString,
        )
        try:
            found: M = await method(request, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            raise PluginFailed(_in_words_of_go(error)) from error
        except grpc.aio.UsageError as error:
            raise PluginFailed(f"endpoint {self.resource} has been stopped") from error
        except asyncio.CancelledError as error:
            if _is_ours():
                raise
            raise PluginFailed("rpc error: code = Canceled desc = the connection closed") from error
        return found


def answer_of(data: bytes) -> api.ContainerAllocateResponse:
    """A stored answer to Allocate.

    Raises:
        PluginFailed: it is none.
    """
    try:
        return api.ContainerAllocateResponse.FromString(data)
    except DecodeError as error:
        raise PluginFailed(f"a stored answer to Allocate cannot be read: {error}") from error


def _serialize(message: Message) -> bytes:
    return message.SerializeToString()


def _device(device: api.Device) -> ListedDevice:
    numa = tuple(node.ID for node in device.topology.nodes)
    return ListedDevice(device.ID, device.health == HEALTHY, numa)


def _in_words_of_go(error: grpc.aio.AioRpcError) -> str:
    """``rpc error: code = DeadlineExceeded desc = ...``, as kubelet prints it."""
    code = "".join(word.capitalize() for word in error.code().name.split("_"))
    return f"rpc error: code = {code} desc = {error.details()}"


def _is_ours() -> bool:
    """Whether this task was cancelled, and not only the call: grpc.aio tells both alike."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
