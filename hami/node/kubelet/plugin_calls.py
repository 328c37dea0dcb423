"""kubelet's calls of a device plugin: decoded, answered, and never the agent's end.

What a call raises becomes a gRPC status. Only :class:`CallRefused` speaks to users; anything else
is a fault of ours, goes to the log, and leaves kubelet with one sentence.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NoReturn, Protocol, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import DecodeError, Message

from hami.domain.errors import HamiError, shortened
from hami.domain.slices import ContainerEdits
from hami.node.kubelet.api import v1beta1_pb2 as api
from hami.node.kubelet.device_list import Streams
from hami.node.kubelet.responses import encode

Context = grpc.aio.ServicerContext[Any, Any]
Request = TypeVar("Request", bound=Message)

SERVICE = "v1beta1.DevicePlugin"
LONGEST_STATUS = 800
"""Characters of a status: gRPC refuses more than 8 KiB of it, where one may take nine bytes."""


class CallRefused(HamiError):
    """Tells kubelet not to go on; kubelet shows the text in the pod's status and events."""


class PluginCalls(Protocol):
    """What kubelet asks of an agent."""

    async def allocate(self, requests: Sequence[tuple[str, ...]]) -> Sequence[ContainerEdits]:
        """One answer for each request's ids. An exception fails the pod for good."""

    async def prefer(
        self, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> Sequence[str]:
        """The ``size`` ids to take; empty where kubelet may choose."""

    async def prepare(self, ids: frozenset[str]) -> None:
        """Make a container with these ids ready to start, or raise :class:`CallRefused`."""


def plugin_handlers(
    calls: PluginCalls,
    options: api.DevicePluginOptions,
    streams: Streams,
    on_problem: Callable[[str], None],
) -> grpc.GenericRpcHandler:
    """Everything that a device plugin serves on one socket."""
    service = _Service(calls, options, on_problem)

    async def list_and_watch(_request: bytes, context: Context) -> None:
        await streams.serve(context.write)

    return grpc.method_handlers_generic_handler(
        SERVICE,
        {
            "GetDevicePluginOptions": service.method(api.Empty, service.options),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(list_and_watch),
            "GetPreferredAllocation": service.method(
                api.PreferredAllocationRequest, service.preferred
            ),
            "Allocate": service.method(api.AllocateRequest, service.allocate),
            "PreStartContainer": service.method(api.PreStartContainerRequest, service.pre_start),
        },
    )


class _Service:
    def __init__(
        self,
        calls: PluginCalls,
        options: api.DevicePluginOptions,
        on_problem: Callable[[str], None],
    ) -> None:
        self._calls = calls
        self._options = options
        self._on_problem = on_problem

    def method(
        self, kind: type[Request], answer: Callable[[Request], Awaitable[Message]]
    ) -> grpc.RpcMethodHandler[bytes, bytes]:
        """Decode here: gRPC's own decoding would answer a malformed request with a stack trace.

        Answers are deterministic, because kubelet keeps them and people compare them.
        """
        name = answer.__name__

        async def handle(data: bytes, context: Context) -> bytes:
            try:
                request = kind.FromString(data)
            except DecodeError as error:
                return await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, f"{name}: {error}")
            try:
                return (await answer(request)).SerializeToString(deterministic=True)
            except CallRefused as refused:
                code, text = grpc.StatusCode.FAILED_PRECONDITION, str(refused)
            except Exception as error:  # noqa: BLE001 -- one container's trouble, not the agent's end
                self._blame(name, error)
                code = grpc.StatusCode.INTERNAL
                text = f"the agent failed ({type(error).__name__}); its log says more"
            return await _abort(context, code, text)

        return grpc.unary_unary_rpc_method_handler(handle)

    async def options(self, _request: api.Empty) -> api.DevicePluginOptions:
        return self._options

    async def preferred(
        self, request: api.PreferredAllocationRequest
    ) -> api.PreferredAllocationResponse:
        """An empty answer leaves the choice to kubelet, where an error would fail the pod."""
        response = api.PreferredAllocationResponse()
        for asked in request.container_requests:
            try:
                ids = await self._calls.prefer(
                    tuple(asked.available_deviceIDs),
                    tuple(asked.must_include_deviceIDs),
                    asked.allocation_size,
                )
            except Exception as error:  # noqa: BLE001 -- as above
                self._blame("preferred", error)
                response.container_responses.add()
            else:
                response.container_responses.add(deviceIDs=ids)
        return response

    async def allocate(self, request: api.AllocateRequest) -> api.AllocateResponse:
        asked = [tuple(container.devices_ids) for container in request.container_requests]
        edits = await self._calls.allocate(asked)
        if len(edits) != len(asked):
            raise ValueError(f"{len(edits)} answers to {len(asked)} containers")
        return api.AllocateResponse(container_responses=[encode(each) for each in edits])

    async def pre_start(
        self, request: api.PreStartContainerRequest
    ) -> api.PreStartContainerResponse:
        await self._calls.prepare(frozenset(request.devices_ids))
        return api.PreStartContainerResponse()

    def _blame(self, name: str, error: Exception) -> None:
        self._on_problem(
            f"{type(self._calls).__name__} failed in kubelet's call {name}: "
            f"{type(error).__name__}: {error}"
        )


async def _abort(context: Context, code: grpc.StatusCode, text: str) -> NoReturn:
    await context.abort(code, shortened(text, LONGEST_STATUS))
    raise AssertionError("abort always raises")
