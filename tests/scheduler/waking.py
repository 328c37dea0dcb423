"""A wake-up at work on a state alone, and assertions about it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from hami.domain.kubernetes.objects import SchedulingGate
from hami.domain.scheduling import SchedulingPolicy
from hami.kube.errors import ApiError
from hami.policy.filter.decision import Refused
from hami.scheduler.decide.wakeup import WakeUp
from hami.scheduler.metrics import Metrics
from hami.scheduler.pending.pending_pods import Refusal

from .builders import (
    Cluster,
    a_pod,
    granted,
)


class Patches:
    """The API server as far as a wake-up sees it; calls first fail with ``errors``."""

    def __init__(self) -> None:
        self.woken: list[str] = []
        self.errors: list[ApiError] = []

    async def patch(self, _resource: Any, name: str, patch: Any, *, namespace: str) -> None:
        assert patch["metadata"]["annotations"]["hami.io/wake-up"]
        if self.errors:
            raise self.errors.pop(0)
        self.woken.append(name)


class Leads:
    leading = True
    term = 1
    holder = ""


@asynccontextmanager
async def waking(cluster: Cluster) -> AsyncIterator[Patches]:
    patches = Patches()
    wakeup = WakeUp(
        cluster.state, patches, Leads(), Metrics(), policy=SchedulingPolicy, clock=cluster.clock
    )  # type: ignore[arg-type]
    task = asyncio.create_task(wakeup.run())
    try:
        yield patches
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def refuse(cluster: Cluster, *pods: Any, nodes: list[str] | None = None) -> None:
    """Refuse a pod as a filter does."""
    names = nodes or list(cluster.state.nodes)
    for pod in pods:
        cluster.sees(pod)
        outcome = cluster.reserve(pod, *names)
        assert isinstance(outcome, Refused), pod.name
        if cluster.state.pending.refused(pod, names, Refusal(at=0, outcome=outcome)):
            cluster.state.pending.freed.set()


async def woken(patches: Patches, *names: str) -> None:
    """Assert that exactly these pods were woken, in this order, since the beginning."""
    end = time.monotonic() + 10
    while patches.woken != list(names) and time.monotonic() < end:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    assert patches.woken == list(names)


def gated(pod: Any) -> Any:
    spec = msgspec.structs.replace(pod.spec, scheduling_gates=[SchedulingGate(name="wait")])
    return msgspec.structs.replace(pod, spec=spec)


def deleting(pod: Any) -> Any:
    about = msgspec.structs.replace(pod.metadata, deletion_timestamp="2026-01-01T00:00:00Z")
    return msgspec.structs.replace(pod, metadata=about)


def full(cluster: Cluster, node: str = "n1", name: str = "full") -> Any:
    pod = granted(a_pod(name, mem=8000), node, f"{node}-d0:8000")
    cluster.sees(pod)
    return pod
