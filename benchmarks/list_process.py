"""The measure of a start: a process that reads the same nodes and pods, and does nothing with them.

``python -m benchmarks.list_process KUBECONFIG`` lists and decodes them as the service does on its
first list, but without a break, prints how many there are, and ends.
"""

from __future__ import annotations

import asyncio
import gc
import sys
from pathlib import Path

from hami.kube.client import KubeClient
from hami.kube.identity.settings import KubeSettings
from hami.kube.informer import FIRST_PAGE, T
from hami.kube.resources import NODES, PODS, Resource


async def read(client: KubeClient, resource: Resource[T]) -> list[T]:
    found: list[T] = []
    async for page in client.pages(resource, page_size=FIRST_PAGE):
        found += map(resource.decoder.decode, page.items)
    return found


async def main() -> None:
    gc.disable()
    settings = KubeSettings(kubeconfig=Path(sys.argv[1]))
    async with await KubeClient.connect(settings) as client:
        nodes, pods = await asyncio.gather(read(client, NODES), read(client, PODS))
        sys.stdout.write(f"{len(nodes) + len(pods)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
