"""The embedded API server as a process of its own, with a whole cluster in it.

``python -m benchmarks.api_process FOLDER NODES PODS`` writes ``kubeconfig`` and
``signing-key.pem`` into FOLDER, fills itself, prints a line of JSON, and then obeys the lines of
its standard input, one answer a line, until that ends.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hami_lab.api import ApiServer
from hami_lab.api.http.calls import WRITES

from benchmarks.population import NAMESPACE, Population, Size
from hami.signing import Signer
from hami.wire import keys

HANDSHAKE = "hami.io/node-handshake"
"""An annotation that device plugins write repeatedly."""


class Filled:
    """The filled server, with what a benchmark may ask of it."""

    def __init__(self, server: ApiServer, population: Population) -> None:
        self._server = server
        self._population = population
        self._beats = 0

    async def fill(self) -> None:
        for node in self._population.nodes():
            await self._server.create(node)
        for pod in self._population.pods():
            stored = await self._server.create(pod)
            if signature := self._population.signature(stored):
                annotations = {keys.ALLOCATION_SIGNATURE: signature}
                await self._server.patch(
                    "pods",
                    pod["metadata"]["name"],
                    {"metadata": {"annotations": annotations}},
                    namespace=NAMESPACE,
                )

    async def relist(self) -> int:
        """Change every node and forget the history, so that watchers must list nodes anew."""
        self._beats += 1
        stamp = {HANDSHAKE: f"Reported_2026.01.01 00:00:{self._beats % 60:02}"}
        nodes = self._server.objects("nodes")
        for node in nodes:
            await self._server.patch(
                "nodes", node["metadata"]["name"], {"metadata": {"annotations": stamp}}
            )
        self._server.forget_history()
        return len(nodes)

    async def lists(self) -> int:
        """How many pages of nodes have been read."""
        return self._server.calls.count(verb="list", resource="nodes")

    async def writes(self) -> list[list[Any]]:
        """The writes since the last call: verb, resource, subresource, count."""
        counted = [
            [call.verb, call.resource, call.subresource, times]
            for call, times in self._server.calls
            if call.verb in WRITES
        ]
        self._server.calls.clear()
        return counted

    async def obey(self) -> None:
        """Obey orders until standard input ends."""
        orders = {"relist": self.relist, "lists": self.lists, "writes": self.writes}
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            say(await orders[line.strip()]())


def say(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def a_signing_key(path: Path) -> Signer:
    """A new key, in the file where the service reads it."""
    pem = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    path.write_bytes(pem)
    return Signer.from_pem(pem)


async def main() -> None:
    folder, *numbers = sys.argv[1:]
    size = Size(**dict(zip(("nodes", "pods"), map(int, numbers), strict=True)))
    signer = a_signing_key(Path(folder) / "signing-key.pem")
    async with ApiServer() as server:
        filled = Filled(server, Population(size, signer))
        await filled.fill()
        (Path(folder) / "kubeconfig").write_text(json.dumps(server.kubeconfig()))
        gc.collect()
        gc.freeze()
        say({"url": server.url})
        await filled.obey()


if __name__ == "__main__":
    asyncio.run(main())
