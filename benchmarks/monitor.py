"""What the monitor costs a node with 100 containers on 8 devices: processor time, memory.

Real slices on disk whose programs write into their regions, and a made-up ``/proc``.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.rows import Row, ms, p50
from hami.slices.c_layout import BucketC, UsageC
from tests.monitor.world import GIB, NodeSlice, NodeSlices, ProcTree

SLICES, DEVICES, SECONDS = 100, 8, 15.0
MOST_MS, MOST_MIB = 10, 60
FIRST_PID = 100_000
_CHARGED = UsageC.buckets.offset + BucketC.charged.offset


def measure() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        slices = _populate(root)
        seen = _ticks(root / "world.json", slices)
    assert seen["slices"] == seen["told"] == SLICES, seen
    cpu = seen["cpu"]
    return [
        Row(
            what=f"A tick of the monitor with {SLICES} slices on {DEVICES} devices, processor p50",
            value=round(p50(cpu) * 1000, 1),
            unit="ms",
            most=MOST_MS,
            seen=f"least {ms(min(cpu))}, most {ms(max(cpu))} of {len(cpu)}; its own time, NVML "
            "not counted",
        ),
        Row(
            what="The monitor's memory with them",
            value=round(seen["resident_kib"] / 1024),
            unit="MiB",
            most=MOST_MIB,
            seen=f"peak {seen['peak_kib'] / 1024:.0f} MiB",
        ),
    ]


def _populate(root: Path) -> list[NodeSlice]:
    """One process in each slice, in a pid namespace of its own."""
    slices, proc = NodeSlices(root / "slices"), ProcTree(root / "proc")
    uuids = [f"GPU-{index:08x}-aaaa-bbbb-cccc-000000000000" for index in range(DEVICES)]
    devices: dict[str, dict[str, int]] = {uuid: {} for uuid in uuids}
    made = []
    for number in range(SLICES):
        uuid = uuids[number % DEVICES]
        held = slices.add(uuid, memory=6 * GIB, cores=8)
        pid = FIRST_PID + number
        namespace = proc.add(
            pid,
            pod_uid=held.pod_uid,
            container_id=f"{number:064x}",
            page=held.limits,
            inner_pid=7,
            namespace=held.id,
        )
        held.charge(0, 7, 2 * GIB, locked=False, start_time=1, pid_namespace=namespace)
        devices[uuid][str(pid)] = 2 * GIB + (300 << 20)
        made.append(held)
    slices.close()
    world = {"slices": str(root / "slices"), "proc": str(root / "proc"), "devices": devices}
    (root / "world.json").write_text(json.dumps(world))
    return made


def _ticks(world: Path, slices: Sequence[NodeSlice]) -> dict[str, Any]:
    """Run the monitor, while the programs compute."""
    command = [sys.executable, "-m", "benchmarks.monitor_process", str(world), str(SECONDS)]
    regions = [os.open(held.path / "usage", os.O_RDWR) for held in slices]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            charged = 0
            while process.poll() is None:
                charged += 30_000_000
                for region in regions:
                    os.pwrite(region, struct.pack("<Q", charged), _CHARGED)
                time.sleep(0.3)
            assert process.stdout is not None
            found: dict[str, Any] = json.loads(process.stdout.read())
            return found
    finally:
        for region in regions:
            os.close(region)
