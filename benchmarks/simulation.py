"""The whole command on a large cluster, from outside: wall time and peak memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.rows import Row

NODES, PODS = 1000, 10_000
MOST_SECONDS, MOST_MIB = 20, 400

WORKLOAD = """\
apiVersion: apps/v1
kind: Deployment
metadata: {{name: {name}, namespace: bench}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: {name}}}}}
  template:
    metadata: {{labels: {{app: {name}}}}}
    spec:
      containers:
      - name: main
        image: example.com/serve:1
        resources: {{limits: {limits}}}
---
"""


def write_inputs(folder: Path) -> list[Path]:
    """A cluster of 1000 x 8 H100 and ten deployments that together ask for most of it."""
    cluster, workload = folder / "cluster.yaml", folder / "workload.yaml"
    nodes = (
        f"apiVersion: v1\nkind: Node\nmetadata:\n  name: node-{number:04}\n"
        f'  annotations: {{mock.hami.io/devices: "h100x8"}}\n---\n'
        for number in range(NODES)
    )
    cluster.write_text("".join(nodes))
    asks = (
        '{nvidia.com/gpu: "1", nvidia.com/gpumem: "20000", nvidia.com/gpucores: "20"}',
        '{nvidia.com/gpu: "1", nvidia.com/gpumem-percentage: "30"}',
    )
    deployments = (
        WORKLOAD.format(name=f"serve-{number}", replicas=PODS // 10, limits=asks[number % 2])
        for number in range(10)
    )
    workload.write_text("".join(deployments))
    return [cluster, workload]


def measure() -> list[Row]:
    """Measure ``hami simulate --json``, with the operating system's figures."""
    with tempfile.TemporaryDirectory() as name:
        inputs = write_inputs(Path(name))
        output = Path(name) / "out.json"
        begin = time.perf_counter()
        with output.open("wb") as out:
            command = [sys.executable, "-m", "hami", "simulate", "--json", *map(str, inputs)]
            process = subprocess.Popen(command, stdout=out)
            _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        result = json.loads(output.read_bytes())
    assert process.returncode in (0, 1), process.returncode
    what = f"hami simulate, {NODES} nodes x 8 devices, {PODS} pods"
    placed = f"{len(result['placements'])} placed"
    return [
        Row(what=what, value=round(seconds, 1), unit="s", most=MOST_SECONDS, seen=placed),
        Row(what="Its peak memory", value=usage.ru_maxrss // 1024, unit="MiB", most=MOST_MIB),
    ]
