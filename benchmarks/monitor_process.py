"""A monitor on a node of the benchmark's own: a process that prints what its ticks cost it.

``python -m benchmarks.monitor_process WORLD.json SECONDS`` ticks every half second, as on a node.
The driver's own work is not in it: NVML is answered from a list.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from hami.cli.imports import import_structlog_alone
from hami.cli.memory_use import LibraryPages

TICK = 0.5
TICKS = 5
"""Measured together: one may come a little late, and then two are near each other."""


def main(arguments: Sequence[str]) -> None:
    import_structlog_alone()
    # Only now: hami.cli.node_process imports structlog.
    from hami.cli.node_process import imported_lean  # noqa: PLC0415

    monitor, pages = imported_lean("hami.monitor.monitor")
    world = json.loads(Path(arguments[0]).read_text())
    asyncio.run(_run(monitor, world, float(arguments[1]), pages))


async def _run(monitor: Any, world: Any, seconds: float, pages: LibraryPages) -> None:
    # As late as the monitor itself would: what only this benchmark needs is small.
    from hami_nvidia.vendor import NvidiaVendor  # noqa: PLC0415

    from hami.monitor.settings.config import MonitorConfig  # noqa: PLC0415
    from hami.monitor.settings.source import MonitorSource  # noqa: PLC0415
    from hami.vendors.registry import Vendors  # noqa: PLC0415

    config = MonitorConfig.model_validate(
        {
            "slices": world["slices"],
            "proc_root": world["proc"],
            "hook_path": f"{world['slices']}/none",
            "tick": TICK,
        }
    )
    vendors = Vendors.of({"nvidia": NvidiaVendor(lambda _: cast("Any", Listed(world)))})
    measured = monitor.chosen(vendors, ())
    running = monitor.Monitor(config, MonitorSource(), vendors, measured, None)
    ready = asyncio.Event()
    task = asyncio.ensure_future(running.run(ready.set))
    await ready.wait()
    pages.release()
    await asyncio.sleep(2 * TICK)
    ticks, cpu = [], time.process_time()
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await asyncio.sleep(TICKS * TICK)
        now = time.process_time()
        ticks.append((now - cpu) / TICKS)
        cpu = now
    status = Path("/proc/self/status").read_text()
    [resident] = [line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")]
    told = sum(bool(held.processes) for held in running.ticking.table.slices)
    print(
        json.dumps(
            {
                "cpu": ticks,
                "resident_kib": int(resident),
                "peak_kib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
                "slices": len(running.ticking.table.slices),
                "told": told,
            }
        ),
        flush=True,
    )
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    running.close()


class Listed:
    """NVML, answered from ``world``: each process computes a little more or less every time."""

    def __init__(self, world: Any) -> None:
        from hami_nvidia.nvml import interface  # noqa: PLC0415

        self._say = interface
        self._devices: dict[str, dict[str, int]] = world["devices"]
        self._asked = 0

    def gpus(self) -> list[Any]:
        return [
            self._say.Gpu(
                uuid=cast("Any", id),
                index=index,
                minor=index,
                name="NVIDIA H100 80GB HBM3",
                pci_bus_id=f"00000000:{index:02X}:00.0",
                memory_bytes=80 << 30,
            )
            for index, id in enumerate(self._devices)
        ]

    def links(self, gpu: str) -> list[Any]:  # noqa: ARG002 -- the protocol's signature
        return []

    def ancestor(self, one: str, other: str) -> Any:  # noqa: ARG002
        return self._say.Ancestor.CPU

    def mig_mode(self, gpu: str) -> None:  # noqa: ARG002
        return None

    def memory(self, device: str) -> Any:
        self._asked += 1
        return self._say.MemoryInUse(sum(self._devices[device].values()), 80 << 30)

    def busy_rates(self, gpu: str) -> Any:  # noqa: ARG002
        return self._say.BusyRates(90, 40)

    def running(self, gpu: str) -> list[Any]:
        found = self._devices[gpu].items()
        return [
            self._say.RunningProcess(int(pid), used + (self._asked % 5 == 0) * (2 << 20))
            for pid, used in found
        ]

    def utilisation(self, gpu: str, since_us: int) -> list[Any]:  # noqa: ARG002
        now_us = int(time.time() * 1_000_000)
        return [
            self._say.UtilisationSample(int(pid), now_us, 3 + (self._asked + int(pid)) % 9)
            for pid in self._devices[gpu]
        ]

    def close(self) -> None:
        pass


if __name__ == "__main__":
    main(sys.argv[1:])
