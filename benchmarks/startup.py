"""From nothing to ready: the service reads a large cluster; and the memory that it then has."""

from __future__ import annotations

import time

from benchmarks.population import Size
from benchmarks.rows import Row, ratio
from benchmarks.stage import Child, ServiceProcess, Stage

STARTS = 3
MOST_RATIO, MOST_MIB = 2.5, 400


def measure() -> list[Row]:
    """The best start, because disturbances only ever make one longer; and the most memory."""
    seconds: list[float] = []
    listed: list[float] = []
    mib: list[float] = []
    size = Size()
    with Stage(size) as stage:
        for _ in range(STARTS):
            listed.append(_list_seconds(stage, size))
            service = ServiceProcess(stage.api, stage.folder)
            try:
                seconds.append(service.ready_after)
                mib.append(service.resident_mib())
            finally:
                service.close()
    cluster = f"{size.nodes} nodes x 8 devices, {size.pods} bound pods, half of them signed"
    return [
        Row(
            what=f"Ready after start, {cluster}, against listing and decoding them",
            value=ratio(min(seconds), min(listed)),
            unit="x",
            most=MOST_RATIO,
            seen=f"{STARTS} starts: {_written(seconds)}; listing: {_written(listed)}",
        ),
        Row(
            what="Resident memory when it is ready",
            value=round(max(mib)),
            unit="MiB",
            most=MOST_MIB,
        ),
    ]


def _list_seconds(stage: Stage, size: Size) -> float:
    """A process that reads the same and ends, from its start on too."""
    begin = time.perf_counter()
    child = Child("list_process", str(stage.api.kubeconfig))
    read = int(child.line())
    taken = time.perf_counter() - begin
    child.close()
    assert read == size.nodes + size.pods
    return taken


def _written(seconds: list[float]) -> str:
    return ", ".join(f"{taken:.1f} s" for taken in sorted(seconds))
