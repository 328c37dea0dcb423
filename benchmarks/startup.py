"""From nothing to ready: the service reads a large cluster; and the memory that it then has."""

from __future__ import annotations

from benchmarks.population import Size
from benchmarks.rows import Row
from benchmarks.stage import ServiceProcess, Stage

STARTS = 3
MOST_SECONDS, MOST_MIB = 5, 400


def measure() -> list[Row]:
    """The best start, because disturbances only ever make one longer; and the most memory."""
    seconds: list[float] = []
    mib: list[float] = []
    size = Size()
    with Stage(size) as stage:
        for _ in range(STARTS):
            service = ServiceProcess(stage.api, stage.folder)
            try:
                seconds.append(service.ready_after)
                mib.append(service.resident_mib())
            finally:
                service.close()
    cluster = f"{size.nodes} nodes x 8 devices, {size.pods} bound pods, half of them signed"
    return [
        Row(
            what=f"Ready after start, {cluster}",
            value=round(min(seconds), 1),
            unit="s",
            most=MOST_SECONDS,
            seen=f"{STARTS} starts: {', '.join(f'{taken:.1f} s' for taken in sorted(seconds))}",
        ),
        Row(
            what="Resident memory when it is ready",
            value=round(max(mib)),
            unit="MiB",
            most=MOST_MIB,
        ),
    ]
