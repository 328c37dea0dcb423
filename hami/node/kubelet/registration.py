"""One registration with kubelet: the call, and why it failed."""

from __future__ import annotations

from pathlib import Path

import grpc
import grpc.aio

from hami.domain.errors import HamiError, shortened
from hami.node.kubelet.api import v1beta1_pb2 as api

VERSION = "v1beta1"
METHOD = f"/{VERSION}.Registration/Register"
PATIENCE = 15.0
"""Seconds: kubelet connects to our socket, for up to ten, before it answers."""

CHANNEL = (
    # Go's and Rust's servers refuse the path of a unix socket as a host name.
    ("grpc.default_authority", "localhost"),
    # A shared one would remember the back-off of a kubelet that is gone.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_http_proxy", 0),
)


class RegistrationFailed(HamiError):
    """kubelet is away, or does not take the registration."""


async def register(
    kubelet_socket: Path, endpoint: str, resource: str, options: api.DevicePluginOptions
) -> None:
    """Tell kubelet that ``resource`` is served on the socket ``endpoint`` beside its own.

    kubelet answers after it has connected to that socket.
    """
    request = api.RegisterRequest(
        version=VERSION, endpoint=endpoint, resource_name=resource, options=options
    )
    target = f"unix:{kubelet_socket}"
    async with grpc.aio.insecure_channel(target, options=CHANNEL) as channel:
        call = channel.unary_unary(
            METHOD,
            request_serializer=api.RegisterRequest.SerializeToString,
            response_deserializer=api.Empty.FromString,
        )
        try:
            await call(request, timeout=PATIENCE)
        except grpc.aio.AioRpcError as error:
            raise RegistrationFailed(_explained(error, kubelet_socket, resource)) from error


def _explained(error: grpc.aio.AioRpcError, kubelet_socket: Path, resource: str) -> str:
    details = error.details() or ""
    what = f"register {resource} with kubelet at {kubelet_socket}"
    match error.code():
        case grpc.StatusCode.UNAVAILABLE:
            # gRPC says the address three times, and the reason after the last colon.
            reason = shortened(details.rpartition(": ")[2])
            return f"{what}: nobody answers ({reason}), as when kubelet does not run"
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return f"{what}: no answer within {PATIENCE:g} s"
        case code:
            return f"{what}: refused with {code.name}: {shortened(details, 300)}"
