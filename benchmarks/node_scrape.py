"""What a scrape of a monitor takes on a node with 10 000 slices, from outside, over HTTP.

``python -m benchmarks.node_scrape`` is the monitor's side. It prints its address, makes a new table
for each line of standard input, as a tick does, and ends with it.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import time
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import IO

from benchmarks.rows import Row, ms, p50
from hami.domain.units import CorePercent, DeviceId, PodUid, VendorKey
from hami.http.addresses import parse_bind
from hami.http.listening import listening
from hami.monitor.metrics import MonitorMetrics
from hami.monitor.routes import node_routes
from hami.monitor.table import (
    DeviceFigures,
    NodeTable,
    ProcessFigures,
    SliceDevice,
    SliceFigures,
    VendorFigures,
)
from hami.monitor.usage_history import UsageHistory

SLICES, DEVICES, SCRAPES = 10_000, 8, 20
MOST_MS, MOST_MIB = 100, 150
NVIDIA = VendorKey("NVIDIA")


def measure() -> list[Row]:
    """Scrape a process of its own."""
    command = [sys.executable, "-m", "benchmarks.node_scrape"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        url = process.stdout.readline().decode().strip()
        seconds, busy, size = [], [], 0
        for _ in range(SCRAPES):
            process.stdin.write(b"tick\n")
            process.stdin.flush()
            process.stdout.readline()
            before, begin = _on_processor(process.pid), time.perf_counter()
            with urllib.request.urlopen(url) as answer:
                size = _read(answer)
            seconds.append(time.perf_counter() - begin)
            busy.append(_on_processor(process.pid) - before)
        peak = _peak_mib(process.pid)
        process.communicate()
    return [
        Row(
            what=f"A scrape of a monitor, {SLICES} slices, the least of {SCRAPES}",
            value=round(min(busy) * 1000),
            unit="ms",
            most=MOST_MS,
            seen=f"time of the processor, p50 {ms(p50(busy))}; {size / 1e6:.0f} MB, "
            f"read after {ms(min(seconds))}, p50 {ms(p50(seconds))}",
        ),
        Row(what="Its peak memory", value=peak, unit="MiB", most=MOST_MIB),
    ]


def _read(answer: IO[bytes]) -> int:
    size = 0
    while piece := answer.read(1 << 20):
        size += len(piece)
    return size


def _on_processor(pid: int) -> float:
    """Seconds, of all threads."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def _peak_mib(pid: int) -> int:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) // 1024


def full_node() -> NodeTable:
    return NodeTable(
        node="node-0001",
        taken_at=time.time(),
        devices=tuple(
            DeviceFigures(
                vendor=NVIDIA,
                id=_device(index),
                index=index,
                model="NVIDIA H100 80GB HBM3",
                memory_total_bytes=80 << 30,
                memory_used_bytes=70 << 30,
                utilisation=87.5,
                memory_utilisation=40.0,
            )
            for index in range(DEVICES)
        ),
        slices=tuple(map(_slice, range(SLICES))),
        vendors=(VendorFigures(vendor=NVIDIA, measured_at=time.time()),),
    )


def _device(index: int) -> DeviceId:
    return DeviceId(f"GPU-0f3a51c2-7d1e-4b8e-9c55-{index:012}")


def _slice(number: int) -> SliceFigures:
    used = (number + 1) << 16
    return SliceFigures(
        id=f"slice-{number:08}",
        vendor=NVIDIA,
        namespace=f"team-{number % 50}",
        pod=f"serve-{number % 100}-7d9f8c6b5-{number:05}",
        pod_uid=PodUid(f"6b1f7c9e-52aa-4c55-8f5b-{number:012}"),
        container="main",
        generation=1,
        created_at=time.time() - 3600,
        library="1",
        processes=(ProcessFigures(pid=number + 1, slot=0, used_bytes=(used,)),),
        devices=(
            SliceDevice(
                index=0,
                device_id=_device(number % DEVICES),
                memory_limit_bytes=1 << 30,
                used_bytes=used,
                charged_bytes=used - 4096,
                buffer_bytes=used - 4096,
                internal_bytes=4096,
                guarantee=CorePercent(1),
                share=number % 400 / 100,
                utilisation=number % 300 / 100,
                waited_seconds=number / 7,
                last_active_at=time.time() - number % 60,
            ),
        ),
    )


async def serve() -> None:
    table, history = full_node(), UsageHistory()
    routes = node_routes(lambda: table, MonitorMetrics([NVIDIA]), history)
    async with listening(parse_bind("127.0.0.1:0"), routes) as url:
        _say(f"{url}/metrics")
        while await asyncio.to_thread(sys.stdin.readline):
            # After a tick everything in the table is new.
            slices = tuple(
                replace(held, devices=tuple(map(replace, held.devices))) for held in table.slices
            )
            table = replace(table, slices=slices, taken_at=time.time())
            history.observe(table, time.monotonic())
            _say("ticked")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(serve())
