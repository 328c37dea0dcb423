"""The yardstick for kubelet's calls: gRPC for Python with next to nothing behind it.

``python -m benchmarks.grpc_echo SOCKET`` prints a line when it serves, and sends back what it
receives until its standard input ends.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import grpc
import grpc.aio

METHOD = "/echo/Echo"


async def main(socket: str) -> None:
    async def answer(data: bytes, _context: grpc.aio.ServicerContext[Any, Any]) -> bytes:
        return data

    server = grpc.aio.server()
    handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("echo", {"Echo": handler}),)
    )
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    sys.stdout.write("serving\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(None)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
