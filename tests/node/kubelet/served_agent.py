"""A device plugin on a real socket, with answers that show what was asked."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from hami.domain.slices import ContainerEdits
from hami.node.kubelet.device_list import DeviceList
from hami.node.kubelet.server import DevicePluginServer
from hami.node.kubelet.tokens import Token

RESOURCE = "nvidia.com/gpu"
TWO = (Token("slot-0", healthy=True), Token("slot-1", healthy=True))


class Calls:
    """Answers that show what was asked."""

    def __init__(self) -> None:
        self.prepared: list[frozenset[str]] = []
        self.refusal: Exception | None = None
        self.hold: asyncio.Event | None = None
        self.under_way = 0
        self.most_at_once = 0
        self.entered = asyncio.Event()
        self.answers: Sequence[ContainerEdits] | None = None

    async def allocate(self, requests):
        self._raise()
        await self._held()
        if self.answers is not None:
            return self.answers
        return [ContainerEdits(cdi_devices=tuple(f"x/y={id}" for id in ids)) for ids in requests]

    async def prefer(self, available, must_include, size):
        self._raise()
        return [*must_include, *(id for id in reversed(available) if id not in must_include)][:size]

    async def prepare(self, ids):
        self._raise()
        await self._held()
        self.prepared.append(ids)

    def _raise(self) -> None:
        if self.refusal is not None:
            raise self.refusal

    async def _held(self) -> None:
        self.under_way += 1
        self.most_at_once = max(self.most_at_once, self.under_way)
        self.entered.set()
        try:
            if self.hold is not None:
                await self.hold.wait()
        finally:
            self.under_way -= 1


class Agent:
    def __init__(self, folder: Path, name: str = "nvidia-gpu") -> None:
        self.calls = Calls()
        self.problems: list[str] = []
        self.devices = DeviceList()
        self.server = DevicePluginServer(
            RESOURCE,
            self.calls,
            self.devices,
            folder=folder,
            kubelet_socket=folder / "kubelet.sock",
            pre_start=True,
            on_problem=self.problems.append,
            name=name,
        )
        self.server.publish(TWO)

    @asynccontextmanager
    async def running(self):
        task = asyncio.create_task(self.server.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def sockets(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("hami-*"))
