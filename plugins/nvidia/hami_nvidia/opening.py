"""Which NVML this node has: the driver's, or a simulated one."""

from __future__ import annotations

from hami_nvidia.driver import DriverNvml
from hami_nvidia.node_config import NodeSettings
from hami_nvidia.nvml import Nvml
from hami_nvidia.simulated_nvml import SimulatedNvml
from hami_nvidia.simulated_spec import read_simulation


def open_nvml(settings: NodeSettings) -> Nvml:
    """Nothing is asked of a driver yet, so that there need not be one.

    Raises:
        ConfigError: the file that describes simulated GPUs cannot be used.
    """
    if settings.simulated_nvml is None:
        return DriverNvml(settings.container_driver_root)
    return SimulatedNvml(read_simulation(settings.simulated_nvml, settings.node_name))
