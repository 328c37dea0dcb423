"""kubelet's calls, timed in a process that does nothing else.

``python -m benchmarks.kubelet_calls ECHO_SOCKET`` reads an :class:`Order` a line and answers each
with :class:`Times`, until its standard input ends.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import grpc
import grpc.aio
import msgspec

from benchmarks.grpc_echo import METHOD
from tests.node.fake_kubelet import CHANNEL, Plugin


class Order(msgspec.Struct, kw_only=True):
    """One order: the ids of each call; ``at once`` calls go together, ``rounds`` times."""

    call: Literal["Allocate", "PreStartContainer", "Allocate at once"]
    socket: str
    ids: list[list[str]]
    rounds: int = 1


class Times(msgspec.Struct, kw_only=True):
    """Seconds of each call, and of an empty ``echo`` call after it; what was refused, and why."""

    taken: list[float] = []
    echo: list[float] = []
    refused: list[str] = []


class _Caller:
    def __init__(self, order: Order, echo: Callable[[bytes], Awaitable[bytes]]) -> None:
        self._order = order
        self._plugin = Plugin(Path(order.socket))
        self._echo = echo
        self._times = Times()

    async def times(self) -> Times:
        try:
            for _ in range(self._order.rounds):
                await self._round()
            return self._times
        finally:
            await self._plugin.disconnect()

    async def _round(self) -> None:
        order, times = self._order, self._times
        if order.call == "Allocate at once":
            begin = time.perf_counter()
            await asyncio.gather(*(self._allowed(ids) for ids in order.ids))
            times.taken.append(time.perf_counter() - begin)
            return
        for ids in order.ids:
            # By turns, so that other work of the machine slows both alike.
            times.taken.append(await _timed(self._allowed(ids)))
            times.echo.append(await _timed(self._echo(b"x" * 20)))

    async def _allowed(self, ids: list[str]) -> None:
        plugin = self._plugin
        prepares = self._order.call == "PreStartContainer"
        try:
            await (plugin.pre_start(*ids) if prepares else plugin.allocate(tuple(ids)))
        except grpc.aio.AioRpcError as error:
            self._times.refused.append(str(error.details()))


async def _timed(call: Awaitable[Any]) -> float:
    begin = time.perf_counter()
    await call
    return time.perf_counter() - begin


async def main(echo_socket: str) -> None:
    loop = asyncio.get_running_loop()
    async with grpc.aio.insecure_channel(f"unix:{echo_socket}", options=CHANNEL) as channel:
        echo: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
        gc.freeze()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            order = msgspec.json.decode(line, type=Order)
            times = await _Caller(order, echo).times()
            sys.stdout.write(msgspec.json.encode(times).decode() + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
