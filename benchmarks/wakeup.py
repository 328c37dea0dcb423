"""From freed capacity to a bound pod, on the embedded cluster with the real service."""

from __future__ import annotations

import asyncio
import time

from hami_lab.cluster import ClusterSettings, EmbeddedCluster

from benchmarks.rows import Row, ms, p50, p99
from hami.kube.resources import PODS

WAITING, HOLDING = 110, 8
MOST_SECONDS = 1.0
WHOLE = {"nvidia.com/gpu": 1, "nvidia.com/gpucores": 100}


def measure() -> list[Row]:
    taken = asyncio.run(_measure())
    return [
        Row(
            what="Capacity freed until the waiting pod is bound, p99",
            value=round(p99(taken), 2),
            unit="s",
            most=MOST_SECONDS,
            seen=f"p50 {ms(p50(taken))}, worst {ms(max(taken))}, {len(taken)} pods",
        )
    ]


async def _measure() -> list[float]:
    """One node with every device taken: whenever a pod goes, a waiting one comes in.

    The call that deletes is part of the time.
    """
    taken = []
    async with EmbeddedCluster(ClusterSettings()) as cluster:
        await cluster.add_node("n1", f"h100x{HOLDING}")
        holding = [f"holds-{number}" for number in range(HOLDING)]
        await cluster.apply([_pod(name) for name in holding])
        await cluster.bound(*holding)
        waiting = [f"waits-{number:03}" for number in range(WAITING)]
        await cluster.apply([_pod(name) for name in waiting])
        for name in waiting:
            await cluster.refused(name)
        left = set(waiting)
        while left:
            begin = time.perf_counter()
            await cluster.client.delete(PODS, holding.pop(0), namespace="default", grace_seconds=0)
            came = await _first_bound(cluster, left)
            taken.append(time.perf_counter() - begin)
            left.discard(came)
            holding.append(came)
    return taken


async def _first_bound(cluster: EmbeddedCluster, names: set[str]) -> str:
    async def look() -> str | None:
        return next((n for n in names if cluster.pods["default", n].spec.node_name), None)

    return await cluster.eventually("a waiting pod is bound", look)


def _pod(name: str) -> dict[str, object]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": [
                {"name": "main", "image": "example.com/a:1", "resources": {"limits": WHOLE}}
            ],
        },
    }
