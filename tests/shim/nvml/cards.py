"""The same cards twice: as the plugin's stand-in for NVML has them, and as simgpud's configuration."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from hami_nvidia.settings.node_settings import NodeSettings, node_settings
from hami_nvidia.simulation.nvml import SimulatedNvml
from hami_nvidia.simulation.spec import NvmlSimulation, SimulatedGpu, read_simulation


def standing_in(folder: Path, gpus: Any) -> tuple[SimulatedNvml, str]:
    """The stand-in, and the configuration of a daemon with the same cards."""
    path = folder / "gpus.yaml"
    path.write_text(yaml.safe_dump({"gpus": gpus, "node": "n", "waitSeconds": 0}))
    simulation = read_simulation(path, "")
    return SimulatedNvml(simulation), configuration(simulation)


def configuration(simulation: NvmlSimulation) -> str:
    buses = {each.gpu.pci_bus_id: each.gpu.index for each in simulation.gpus}
    return "\n".join(_card(each, buses) for each in simulation.gpus) + "\n"


def settings_for(folder: Path, nvml: SimulatedNvml, *, entry: Any = None) -> NodeSettings:
    """The plugin's settings with a sysfs that has the stand-in's NUMA nodes of the cards."""
    for gpu in nvml.gpus():
        device = folder / "sys/bus/pci/devices" / gpu.pci_bus_id.lower()[4:]
        device.mkdir(parents=True, exist_ok=True)
        (device / "numa_node").write_text(f"{gpu.numa}\n")
    entries = [{"name": "n", **entry}] if entry else []
    return node_settings(
        {
            "nvidia": {"sysRoot": str(folder / "sys")},
            "node": {"name": "n", "identity": "kubelet"},
            "nodeconfig": entries,
        }
    )


def _card(each: SimulatedGpu, buses: dict[str, int]) -> str:
    gpu = each.gpu
    links = ["switch" if link.switch else str(buses[link.remote_bus_id]) for link in each.links]
    words = [
        f'name="{gpu.name}"',
        f"memory={(gpu.memory_bytes or 0) >> 20}",
        f"uuid={gpu.uuid}",
        f"pci={gpu.pci_bus_id}",
        f"numa={gpu.numa}",
        f"mig={int(gpu.mig is not None and gpu.mig.enabled)}",
        *_joined(links),
    ]
    return " ".join(["gpu", *words])


def _joined(links: Sequence[str]) -> list[str]:
    return [f"nvlink={','.join(links)}"] if links else []
