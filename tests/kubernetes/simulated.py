"""GPUs of a node that are not there, behind a driver that an agent loads as it loads NVIDIA's."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hami_simgpu import SimulatedDriver

from ..shim.builds import build
from ..shim.simulated import SimulatedGpus


@contextmanager
def simulated_gpus(gpus: str, node: str, folder: Path) -> Iterator[Mapping[str, Any]]:
    """The section ``nvidia:`` of an agent that is started meanwhile: it inherits our environment."""
    made = build("")
    driver = SimulatedDriver(library=made.library, folder=made.simulator)
    configuration, section = driver.prepare(gpus, node, folder / "host")
    daemon = SimulatedGpus(folder, build=made, config=configuration)
    with daemon, patch.dict(os.environ, HAMI_SIM_DIR=str(daemon.folder)):
        yield section
