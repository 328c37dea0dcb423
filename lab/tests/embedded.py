"""An API server with clients, and builders of pods for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from hami_lab.api import ApiServer
from hami_lab.kubelet.nodes import LIVE_NODES
from hami_lab.live import LIVE_PODS, LivePod

from hami.kube.client import KubeClient
from hami.kube.identity.settings import KubeSettings

T = TypeVar("T")
PATIENCE = 20.0


@asynccontextmanager
async def a_server(folder: Path) -> AsyncIterator[tuple[ApiServer, KubeClient]]:
    async with ApiServer() as server:
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(server.kubeconfig()))
        async with await KubeClient.connect(KubeSettings(kubeconfig=kubeconfig)) as client:
            yield server, client


@asynccontextmanager
async def running(*parts: Any) -> AsyncIterator[None]:
    """Run each part's ``run`` beside the block; a part that fails fails the block."""
    async with asyncio.TaskGroup() as tasks:
        started = [tasks.create_task(part.run()) for part in parts]
        for part in parts:
            if hasattr(part, "synced"):
                await part.synced.wait()
        yield
        for task in started:
            task.cancel()


async def eventually(look: Callable[[], Awaitable[T | None]], what: str = "") -> T:
    end = asyncio.get_running_loop().time() + PATIENCE
    while True:
        if (found := await look()) is not None:
            return found
        assert asyncio.get_running_loop().time() < end, f"not in time: {what or look}"
        await asyncio.sleep(0.01)


def a_container(name: str = "main", **resources: str) -> dict[str, Any]:
    """A container: ``a_container(cpu="1", **{"acme.com/gpu": "1"})``."""
    return {"name": name, "image": "x", "resources": {"limits": resources, "requests": resources}}


def a_pod(
    name: str, *containers: dict[str, Any], annotations: dict[str, str] | None = None, **spec: Any
) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {
            "restartPolicy": "Never",
            "containers": list(containers) or [a_container()],
            **spec,
        },
    }


def a_node(
    name: str, annotations: dict[str, str] | None = None, **allocatable: str
) -> dict[str, Any]:
    status: dict[str, Any] = {"conditions": [{"type": "Ready", "status": "True"}]}
    if allocatable:
        status |= {"capacity": allocatable, "allocatable": allocatable}
    return {"metadata": {"name": name, "annotations": annotations or {}}, "status": status}


class Pods:
    """The pods of one namespace through a client, and ways to wait for them."""

    def __init__(self, client: KubeClient) -> None:
        self.client = client

    async def add(self, *pods: dict[str, Any]) -> None:
        for pod in pods:
            await self.client.create(LIVE_PODS, pod, namespace="default")

    async def get(self, name: str) -> LivePod:
        return await self.client.get(LIVE_PODS, name, namespace="default")

    async def until(self, name: str, holds: Callable[[LivePod], object]) -> LivePod:
        async def look() -> LivePod | None:
            pod = await self.get(name)
            return pod if holds(pod) else None

        return await eventually(look, name)

    async def bound(self, name: str) -> str:
        return (await self.until(name, lambda pod: pod.spec.node_name)).spec.node_name

    async def refused(self, name: str, saying: str = "") -> str:
        def said(pod: LivePod) -> bool:
            condition = pod.condition("PodScheduled")
            return bool(condition and condition.status == "False" and saying in condition.message)

        pod = await self.until(name, said)
        return pod.condition("PodScheduled").message

    async def phase(self, name: str, phase: str) -> LivePod:
        return await self.until(name, lambda pod: pod.status and pod.status.phase == phase)

    async def annotate(self, name: str, **annotations: str) -> None:
        patch = {"metadata": {"annotations": annotations}}
        await self.client.patch(LIVE_PODS, name, patch, namespace="default")


async def add_nodes(client: KubeClient, *nodes: dict[str, Any]) -> None:
    """Add nodes, and wait until they lose the taint that a new node has."""
    for node in nodes:
        await client.create(LIVE_NODES, node)

    async def untainted() -> bool | None:
        there = [await client.get(LIVE_NODES, node["metadata"]["name"]) for node in nodes]
        return all(not (n.spec and n.spec.taints) for n in there) or None

    await eventually(untainted, "nodes without taints")
