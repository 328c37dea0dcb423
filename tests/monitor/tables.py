"""Tables of a node for tests; every builder's defaults are a plain node at work."""

from __future__ import annotations

from typing import Any

from hami.monitor.table import (
    DeviceFigures,
    NodeTable,
    ProcessFigures,
    SliceDevice,
    SliceFigures,
    Stranger,
    VendorFigures,
)

GIB = 1 << 30
MIB = 1 << 20
NOW = 1_700_000_000.0


def a_device(index: int = 0, **more: Any) -> DeviceFigures:
    values = {
        "vendor": "NVIDIA", "id": f"GPU-{index}", "model": "NVIDIA-A100", "memory_total_bytes": 80 * GIB,
        "memory_used_bytes": 10 * GIB, "utilisation": 60.0, "memory_utilisation": 30.0,
    }  # fmt: skip
    return DeviceFigures(index=index, **(values | more))


def held(index: int = 0, **more: Any) -> SliceDevice:
    values = {
        "device_id": f"GPU-{index}",
        "memory_limit_bytes": 4 * GIB,
        "used_bytes": 0,
        "charged_bytes": 0,
    }
    return SliceDevice(index=index, **(values | more))


def a_process(pid: int = 4711, **more: Any) -> ProcessFigures:
    return ProcessFigures(pid=pid, **({"slot": 0, "used_bytes": (0,)} | more))


def a_slice(pod: str = "train-0", *devices: SliceDevice, **more: Any) -> SliceFigures:
    values = {
        "id": f"slice-{pod}", "vendor": "NVIDIA", "namespace": "team", "pod_uid": f"uid-{pod}",
        "container": "main", "generation": 1, "created_at": NOW - 60, "library": "1",
    }  # fmt: skip
    return SliceFigures(pod=pod, devices=devices or (held(),), **(values | more))


def a_stranger(device: int = 0, pid: int = 99, **more: Any) -> Stranger:
    return Stranger(**({"vendor": "NVIDIA", "device_id": f"GPU-{device}", "pid": pid} | more))


def a_node(*slices: SliceFigures, **more: Any) -> NodeTable:
    values = {
        "node": "n1", "taken_at": NOW, "tick_seconds": 0.004, "devices": (a_device(),), "slices": slices,
        "vendors": (VendorFigures(vendor="NVIDIA", measured_at=NOW),),
    }  # fmt: skip
    return NodeTable(**(values | more))
