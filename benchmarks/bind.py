"""``/bind`` against a bare binding by the same client library on the same API server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.http_calls import Connection, a_post
from benchmarks.population import A_SLICE, NAMESPACE, Json, Size, a_pod, node_name
from benchmarks.rows import Row, ms, p50, p99, ratio
from benchmarks.stage import ApiProcess, Stage
from hami.kube.client import KubeClient, PodBinding
from hami.kube.identity.settings import KubeSettings
from hami.kube.resources import EVENTS
from hami.wire import keys

SIZE = Size(nodes=200, pods=800)
BINDS, WARM_UP = 300, 20
MOST_RATIO, MOST_WRITES = 2.0, 1.0


def measure() -> list[Row]:
    with Stage(SIZE) as stage:
        service = stage.service()
        # What is bound past the service asks for nothing: else it would tell its owner so, beside
        # the next bind.
        pods = [
            stage.api.create(a_pod(f"bound-{kind}-{number:03}", limits))
            for number in range(BINDS + WARM_UP)
            for kind, limits in (("ours", A_SLICE), ("bare", {}))
        ]
        with Connection(service.extender) as extender:
            return asyncio.run(_measure(stage.api, extender, pods[::2], pods[1::2]))


async def _measure(
    api: ApiProcess, extender: Connection, ours: Sequence[Json], bares: Sequence[Json]
) -> list[Row]:
    taken: list[float] = []
    bare: list[float] = []
    async with await KubeClient.connect(KubeSettings(kubeconfig=api.kubeconfig)) as client:
        api.told("writes")
        for mine, other in zip(ours, bares, strict=True):
            node = _filtered(extender, mine)
            taken.append(_bound(extender, mine, node))
            written = api.get(mine["metadata"]["name"])["metadata"]["annotations"]
            # As long as ours. Under its own key, another pod's signature would be reported.
            written["example.com/signature"] = written.pop(keys.ALLOCATION_SIGNATURE)
            bare.append(await _bare(client, other, node, written))
        told = api.told("writes")
        writes = sum(times for _, resource, _, times in told if resource != "events")
        # The service also reports each unsigned allocation that it found, at its own pace.
        events = await client.list(EVENTS)
        writes += sum(event.reason != "UnsignedAllocation" for event in events)
    taken, bare = taken[WARM_UP:], bare[WARM_UP:]
    return [
        Row(
            what="Bind, p50, against a bare POST to the same API server",
            value=ratio(p50(taken), p50(bare)),
            unit="x",
            most=MOST_RATIO,
            seen=f"{ms(p50(taken))}, p99 {ms(p99(taken))}; bare {ms(p50(bare))}, "
            f"p99 {ms(p99(bare))}",
        ),
        Row(
            what="API writes for a bind",
            value=round((writes - len(bares)) / len(ours), 2),
            unit="writes",
            most=MOST_WRITES,
        ),
    ]


def _filtered(extender: Connection, pod: Json) -> str:
    names = [node_name(number) for number in range(SIZE.nodes)]
    args = {"Pod": pod, "Nodes": None, "NodeNames": names}
    _, answer = extender.ask(a_post("/filter", json.dumps(args).encode()))
    (node,) = json.loads(answer)["NodeNames"]
    return str(node)


def _bound(extender: Connection, pod: Json, node: str) -> float:
    about = pod["metadata"]
    args = {
        "PodName": about["name"],
        "PodNamespace": NAMESPACE,
        "PodUID": about["uid"],
        "Node": node,
    }
    taken, answer = extender.ask(a_post("/bind", json.dumps(args).encode()))
    assert json.loads(answer)["Error"] == "", answer
    return taken


async def _bare(client: KubeClient, pod: Json, node: str, annotations: dict[str, Any]) -> float:
    """The same write for another pod, by the client alone, without the service."""
    about = pod["metadata"]
    binding = PodBinding(
        namespace=NAMESPACE,
        name=about["name"],
        uid=about["uid"],
        node=node,
        annotations=annotations,
        labels={},
    )
    begin = time.perf_counter()
    await client.bind(binding, timeout=10)
    return time.perf_counter() - begin
