"""The least that a device plugin does by HAMi's protocol, for every node at once.

python -m benchmarks.lock_plugin KUBECONFIG

The plugin writes ``success`` to a pod in phase allocating and removes its node's lock: two writes,
as soon as a watch shows the binding. It starts nothing, so it is not what is slow.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from hami.domain.kubernetes.objects import Pod
from hami.kube.client import KubeClient
from hami.kube.compat.node_lock import release_node_lock
from hami.kube.errors import ApiError
from hami.kube.identity.settings import KubeSettings
from hami.kube.informer import Informer
from hami.kube.resources import PODS
from hami.wire import keys

ALLOCATING = "allocating"


class Plugin:
    """The informer's handler."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def changed(self, new: Pod, old: Pod | None) -> None:  # noqa: ARG002 -- the handler's signature
        allocating = new.annotations.get(keys.BIND_PHASE) == ALLOCATING
        if new.spec.node_name and allocating and new.uid not in self._tasks:
            self._tasks[new.uid] = asyncio.create_task(self._serve(new))

    def gone(self, last: Pod) -> None:
        self._tasks.pop(last.uid, None)

    async def _serve(self, pod: Pod) -> None:
        patch = {"metadata": {"annotations": {keys.BIND_PHASE: "success"}}}
        try:
            await self._client.patch(PODS, pod.name, patch, namespace=pod.namespace)
            await release_node_lock(self._client, pod.spec.node_name, pod)
        except ApiError as error:
            sys.stderr.write(f"{pod.full_name}: {error}\n")


def _tell(problem: str) -> None:
    sys.stderr.write(f"{problem}\n")


async def main() -> None:
    async with await KubeClient.connect(KubeSettings(kubeconfig=Path(sys.argv[1]))) as client:
        plugin = Plugin(client)
        informer = Informer(client, PODS, plugin, on_problem=_tell)
        following = asyncio.create_task(informer.run())
        await informer.synced.wait()
        print("ready", flush=True)
        await following


if __name__ == "__main__":
    asyncio.run(main())
