"""A small device plugin that does as the test says, served like a real one."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from hami.node.kubelet.api import v1beta1_pb2 as api

GPU = "acme.com/gpu"


def _method(kind: Any, call: Any, request: Any) -> Any:
    return kind(
        call,
        request_deserializer=request.FromString,
        response_serializer=lambda message: message.SerializeToString(),
    )


class FakePlugin:
    """``calls`` is what kubelet asked, in order; each Allocate answers with a CDI name of its own.

    ``allocating`` and ``starting`` are gates; ``refuse_allocate`` and ``refuse_start`` the texts of
    errors, empty for none. ``on_start`` runs within PreStartContainer.
    """

    def __init__(
        self, folder: Path, *ids: str, resource: str = GPU, name: str = "fake.sock"
    ) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.healthy = dict.fromkeys(ids, True)
        self.numa: dict[str, int] = {}
        self.preferred: Callable[[list[str], int], list[str]] | None = None
        self.pre_start = True
        self.refuse_allocate = self.refuse_start = ""
        self.allocating, self.starting = asyncio.Event(), asyncio.Event()
        self.allocating.set()
        self.starting.set()
        self.on_start: Callable[[frozenset[str]], None] = lambda ids: None
        self.stream_ended = asyncio.Event()
        self.resource = resource
        self.serial = 0
        self._folder = folder
        self._name = name
        self._server: Any = None
        self._sends: list[asyncio.Event] = []

    async def serve(self) -> None:
        self._server = grpc.aio.server()
        methods = {
            "GetDevicePluginOptions": _method(
                grpc.unary_unary_rpc_method_handler, self._options, api.Empty
            ),
            "ListAndWatch": _method(grpc.unary_stream_rpc_method_handler, self._watch, api.Empty),
            "GetPreferredAllocation": _method(
                grpc.unary_unary_rpc_method_handler, self._prefer, api.PreferredAllocationRequest
            ),
            "Allocate": _method(
                grpc.unary_unary_rpc_method_handler, self._allocate, api.AllocateRequest
            ),
            "PreStartContainer": _method(
                grpc.unary_unary_rpc_method_handler, self._start, api.PreStartContainerRequest
            ),
        }
        handler = grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods)
        self._server.add_generic_rpc_handlers((handler,))
        self._server.add_insecure_port(f"unix:{self._folder / self._name}")
        await self._server.start()

    async def register(self, version: str = "v1beta1") -> None:
        async with grpc.aio.insecure_channel(
            f"unix:{self._folder / 'kubelet.sock'}",
            options=[("grpc.default_authority", "localhost")],
        ) as channel:
            call = channel.unary_unary(
                "/v1beta1.Registration/Register",
                request_serializer=api.RegisterRequest.SerializeToString,
                response_deserializer=api.Empty.FromString,
            )
            request = api.RegisterRequest(
                version=version, endpoint=self._name, resource_name=self.resource
            )
            await call(request)

    async def begin(self) -> None:
        await self.serve()
        await self.register()

    async def end(self) -> None:
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def __aenter__(self) -> FakePlugin:
        await self.begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    def send(self, **healthy: bool) -> None:
        """Change devices (``send(a=False)``) and send the list again."""
        self.healthy |= healthy
        for event in self._sends:
            event.set()

    def called(self, name: str) -> list[Any]:
        return [about for what, about in self.calls if what == name]

    async def _options(self, request: Any, context: Any) -> Any:
        return api.DevicePluginOptions(
            pre_start_required=self.pre_start,
            get_preferred_allocation_available=self.preferred is not None,
        )

    async def _watch(self, request: Any, context: Any) -> Any:
        news = asyncio.Event()
        self._sends.append(news)
        try:
            while True:
                news.clear()
                yield api.ListAndWatchResponse(devices=[self._device(id) for id in self.healthy])
                await news.wait()
        finally:
            self._sends.remove(news)
            self.stream_ended.set()

    def _device(self, id: str) -> Any:
        nodes = [api.NUMANode(ID=self.numa[id])] if id in self.numa else []
        health = "Healthy" if self.healthy[id] else "Unhealthy"
        return api.Device(ID=id, health=health, topology=api.TopologyInfo(nodes=nodes))

    async def _prefer(self, request: Any, context: Any) -> Any:
        (one,) = request.container_requests
        available, must = list(one.available_deviceIDs), list(one.must_include_deviceIDs)
        self.calls.append(("prefer", (sorted(available), sorted(must), one.allocation_size)))
        chosen = self.preferred(available, one.allocation_size)
        answer = api.ContainerPreferredAllocationResponse(deviceIDs=chosen)
        return api.PreferredAllocationResponse(container_responses=[answer])

    async def _allocate(self, request: Any, context: Any) -> Any:
        (one,) = request.container_requests
        self.calls.append(("allocate", sorted(one.devices_ids)))
        await self.allocating.wait()
        if self.refuse_allocate:
            await context.abort(grpc.StatusCode.INTERNAL, self.refuse_allocate)
        self.serial += 1
        name = f"acme.hami.io/slice=s{self.serial}"
        answer = api.ContainerAllocateResponse(
            envs={"ACME_VISIBLE_DEVICES": "void"}, cdi_devices=[api.CDIDevice(name=name)]
        )
        return api.AllocateResponse(container_responses=[answer])

    async def _start(self, request: Any, context: Any) -> Any:
        self.calls.append(("start", sorted(request.devices_ids)))
        await self.starting.wait()
        if self.refuse_start:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, self.refuse_start)
        self.on_start(frozenset(request.devices_ids))
        return api.PreStartContainerResponse()


def slices_of(folder: Path, ids: frozenset[str]) -> list[tuple[str, str, str]]:
    """Pod, container and slice of the checkpoint's entries with exactly these ids."""
    data = json.loads((folder / "kubelet_internal_checkpoint").read_text())["Data"]
    found = []
    for entry in data["PodDeviceEntries"] or ():
        if {id for group in entry["DeviceIDs"].values() for id in group} == ids:
            answer = api.ContainerAllocateResponse.FromString(base64.b64decode(entry["AllocResp"]))
            name = answer.cdi_devices[0].name.partition("=")[2]
            found.append((entry["PodUID"], entry["ContainerName"], name))
    return found


def write_spec(cdi: Path, slice: str, owner: str, **edits: Any) -> None:
    """Write a CDI spec whose environment names the slice's owner."""
    spec = {
        "cdiVersion": "0.6.0",
        "kind": "acme.hami.io/slice",
        "devices": [
            {
                "name": slice,
                "containerEdits": {
                    "env": [f"OWNER={owner}", "ACME_VISIBLE_DEVICES=GPU-1"],
                    **edits,
                },
            }
        ],
    }
    (cdi / f"{slice}.json").write_text(json.dumps(spec))


def preparing(plugins: Path, cdi: Path) -> Callable[[frozenset[str]], None]:
    """An ``on_start`` that writes a spec for every slice with these ids, as a careful agent does."""

    def prepare(ids: frozenset[str]) -> None:
        for pod, container, slice in slices_of(plugins, ids):
            write_spec(cdi, slice, f"{pod}/{container}")

    return prepare
