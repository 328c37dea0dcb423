"""The least that an extender in Python can do: name some node, send the binding, remember nothing.

``python -m benchmarks.bare_extender`` reads one line of JSON with the API server's ``url``,
``token`` and ``ca`` file, prints its own URL, and answers until its standard input ends. The
throughput of kube-scheduler with it is the most that this machine allows any extender in Python.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
from itertools import count

import aiohttp
import msgspec

_END = b"\r\n\r\n"
_LENGTH = b"content-length: "


class Filter(msgspec.Struct, rename="pascal"):
    node_names: list[str]


class Bind(msgspec.Struct):
    name: str = msgspec.field(name="PodName")
    namespace: str = msgspec.field(name="PodNamespace")
    uid: str = msgspec.field(name="PodUID")
    node: str = msgspec.field(name="Node")


class Bare(asyncio.Protocol):
    """One connection of kube-scheduler's, one request after the other."""

    def __init__(self, api: aiohttp.ClientSession, url: str, numbers: count[int]) -> None:
        self._api = api
        self._url = url
        self._numbers = numbers
        self._received = b""
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        end = self._received.find(_END)
        if end < 0:
            return
        head = self._received[:end].lower() + b"\r\n"
        start = head.index(_LENGTH) + len(_LENGTH)
        whole = end + len(_END) + int(head[start : head.index(b"\r", start)])
        if len(self._received) < whole:
            return
        body, self._received = self._received[end + len(_END) : whole], b""
        if head.startswith(b"post /filter"):
            names = msgspec.json.decode(body, type=Filter).node_names
            self._answer({"NodeNames": [names[next(self._numbers) % len(names)]]})
        else:
            task = asyncio.ensure_future(self._bind(msgspec.json.decode(body, type=Bind)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _bind(self, wanted: Bind) -> None:
        path = f"/api/v1/namespaces/{wanted.namespace}/pods/{wanted.name}/binding"
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": wanted.name, "uid": wanted.uid},
            "target": {"kind": "Node", "name": wanted.node},
        }
        async with self._api.post(self._url + path, data=msgspec.json.encode(body)) as response:
            said = await response.read()
            self._answer({"Error": "" if response.status < 300 else said.decode()})

    def _answer(self, answer: object) -> None:
        body = msgspec.json.encode(answer)
        head = (
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        self._transport.write(head.encode() + body)


async def main() -> None:
    told = json.loads(sys.stdin.readline())
    tls = ssl.create_default_context(cafile=told["ca"])
    headers = {
        "Authorization": f"Bearer {told['token']}",
        "Content-Type": "application/json",
    }
    connector = aiohttp.TCPConnector(ssl=tls, limit=200)
    loop, numbers = asyncio.get_running_loop(), count()
    async with aiohttp.ClientSession(connector=connector, headers=headers) as api:
        server = await loop.create_server(lambda: Bare(api, told["url"], numbers), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        sys.stdout.write(f"http://127.0.0.1:{port}\n")
        sys.stdout.flush()
        await loop.run_in_executor(None, sys.stdin.read)
        server.close()


if __name__ == "__main__":
    asyncio.run(main())
