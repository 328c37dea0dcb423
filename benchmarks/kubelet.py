"""The node agent and kubelet, over real sockets: an Allocate, and a kubelet that comes back."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from benchmarks.rows import Row, ms, p50, p99, percentile, ratio
from hami.domain.slices import ContainerEdits
from hami.node.server import DevicePluginServer
from hami.node.tokens import Token
from tests.node.fake_kubelet import FakeKubelet, Plugin

CALLS, RESTARTS = 2000, 100
BURST = 100
MOST_REGISTERED = 100.0
"""Milliseconds: kubelet fails pods when a plugin takes longer than about a second."""
MOST_ALLOCATE = 3.0
TOKENS = tuple(Token(f"slot-{number}", healthy=True) for number in range(80))


class Calls:
    """Answers as an agent does: one CDI name each."""

    async def allocate(self, requests: Sequence[tuple[str, ...]]) -> Sequence[ContainerEdits]:
        return [
            ContainerEdits(
                env={"NVIDIA_VISIBLE_DEVICES": "void"},
                cdi_devices=(f"nvidia.hami.io/slice={number:024x}",),
            )
            for number, _ in enumerate(requests)
        ]

    async def prefer(
        self, available: Sequence[str], must_include: Sequence[str], size: int
    ) -> Sequence[str]:
        return [*must_include, *available][:size]

    async def prepare(self, ids: frozenset[str]) -> None:
        """At once."""


def measure() -> list[Row]:
    allocate, echo, bursts, restarts = asyncio.run(_measure())
    return [
        Row(
            what="Allocate over a unix socket, as a multiple of an empty gRPC call, p50",
            value=ratio(p50(allocate), p50(echo)),
            unit="x",
            most=MOST_ALLOCATE,
            seen=f"p50 {ms(p50(allocate))}, p99 {ms(p99(allocate))}; empty p50 {ms(p50(echo))}, "
            f"p99 {ms(p99(echo))}; {BURST} at once: {ms(p50(bursts))}",
        ),
        Row(
            what="kubelet's socket is back until it has our devices, worst of 100",
            value=round(max(restarts) * 1000, 1),
            unit="ms",
            most=MOST_REGISTERED,
            seen=f"p50 {ms(p50(restarts))}, p90 {ms(percentile(restarts, 0.9))}",
        ),
    ]


async def _measure() -> tuple[list[float], list[float], list[float], list[float]]:
    folder = Path(tempfile.mkdtemp(prefix="hami-"))
    kubelet = FakeKubelet(folder)
    server = DevicePluginServer(
        "nvidia.com/gpu",
        Calls(),
        folder=folder,
        kubelet_socket=kubelet.path,
        pre_start=True,
        on_problem=lambda _problem: None,
        name="nvidia-gpu",
    )
    server.publish(TOKENS)
    running = asyncio.create_task(server.run())
    try:
        await kubelet.start()
        plugin = await kubelet.registered(1)
        async with _echo(folder) as echo:
            # By turns: both have the same share of whatever else the machine does.
            allocated, echoed = [], []
            for _ in range(CALLS):
                allocated.append(await _timed(lambda: plugin.allocate(("slot-0",))))
                echoed.append(await _timed(lambda: echo(b"x" * 20)))
        bursts = [await _timed(lambda: _burst(plugin)) for _ in range(20)]
        restarts = [await _restarted(kubelet) for _ in range(RESTARTS)]
        return allocated, echoed, bursts, restarts
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await kubelet.die()
        shutil.rmtree(folder)


@asynccontextmanager
async def _echo(
    folder: Path,
) -> AsyncIterator[grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]]:
    """The least that a gRPC call costs here."""

    async def answer(data: bytes, _context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        return data

    server = grpc.aio.server()
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("echo", {"Echo": handler}),)
    )
    server.add_insecure_port(f"unix:{folder}/echo.sock")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"unix:{folder}/echo.sock") as channel:
            yield channel.unary_unary("/echo/Echo")
    finally:
        await server.stop(None)


async def _burst(plugin: Plugin) -> None:
    await asyncio.gather(*(plugin.allocate((f"slot-{n}",)) for n in range(BURST)))


async def _restarted(kubelet: FakeKubelet) -> float:
    """Seconds from the new socket, which kubelet makes after it has cleaned up, to our list."""
    count = len(kubelet.plugins)
    await kubelet.die()
    await asyncio.sleep(0.05)
    await kubelet.start()
    begin = kubelet.path.stat().st_mtime
    await kubelet.registered(count + 1)
    return time.time() - begin


async def _timed(call: Callable[[], Awaitable[object]]) -> float:
    begin = time.perf_counter()
    await call()
    return time.perf_counter() - begin
