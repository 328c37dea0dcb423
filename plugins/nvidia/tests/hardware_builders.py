"""A node with simulated GPUs, its settings and slices, for cases that are about one thing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from hami_nvidia.devices.discovery import discover
from hami_nvidia.settings.node_settings import NodeSettings, node_settings

from hami.domain.devices import Device

from .stand_in.nvml import SimulatedNvml
from .stand_in.spec import read_simulation


def simulated(folder: Path, gpus: Any, **rest: Any) -> SimulatedNvml:
    """``simulated(tmp_path, "a100-40gx2")``; the same folder and GPUs are the same hardware."""
    path = folder / "gpus.yaml"
    path.write_text(yaml.safe_dump({"gpus": gpus, "node": "n", "waitSeconds": 0, **rest}))
    return SimulatedNvml(read_simulation(path, ""))


def settings(*, entry: dict[str, Any] | None = None, **section: Any) -> NodeSettings:
    """By HAMi's keys: ``settings(deviceSplitCount=5, entry={"operatingmode": "mig"})``."""
    entries = [{"name": "n", **entry}] if entry else []
    return node_settings(
        {"nvidia": section, "node": {"name": "n", "identity": "kubelet"}, "nodeconfig": entries}
    )


def mig(**section: Any) -> NodeSettings:
    return settings(entry={"operatingmode": "mig"}, **section)


def uuids(nvml: SimulatedNvml) -> list[str]:
    return [simulated.gpu.uuid for simulated in nvml._gpus.values()]


def lose(nvml: SimulatedNvml, number: int = 0, why: str = "GPU is lost") -> None:
    with nvml.state.changing() as state:
        state.gpu(uuids(nvml)[number]).lost = why


def bring_back(nvml: SimulatedNvml, number: int = 0) -> None:
    lose(nvml, number, "")


def take_driver_away(nvml: SimulatedNvml, why: str = "Driver Not Loaded") -> None:
    with nvml.state.changing() as state:
        state.away = why


def discovered(
    nvml: SimulatedNvml, with_: NodeSettings | None = None, **known: Any
) -> list[Device]:
    return list(discover(nvml, with_ or settings(), **known).devices)
