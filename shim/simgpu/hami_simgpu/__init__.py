"""Where the simulated NVIDIA driver is, and the library that limits programs on it.

A wheel brings them for both machines; in a checkout ``make -C shim`` builds them. The library is
that of hami-nvidia, compiled so that it also takes its slice from ``HAMI_SLICE_DIR``: a program
outside a container has nothing mounted at ``/run/hami``. Nothing of this is ever put onto a node.
"""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

__version__ = "1.0.0.dev0"

LIBRARY = "libvgpu.so"
DAEMON = "simgpud"
CUDA = "libcuda.so.1"
NVML = "libnvidia-ml.so.1"


class NotBuilt(FileNotFoundError):
    """There is none for this machine; says how to get it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedDriver:
    """``folder`` holds libcuda.so.1, libnvidia-ml.so.1 and the daemon behind them, simgpud."""

    library: Path
    folder: Path

    @property
    def whole(self) -> bool:
        """All of it is there."""
        parts = (self.library, *(self.folder / name for name in (CUDA, NVML, DAEMON)))
        return all(part.is_file() for part in parts)


def simulated_driver() -> SimulatedDriver:
    """What this package brings for this machine, else what is built in the checkout around it.

    Raises:
        NotBuilt: neither is there.
    """
    package = Path(str(files("hami_simgpu")))
    brought = package / "lib" / platform.machine()
    built = package.parents[1] / "build"
    for found in (
        SimulatedDriver(library=brought / LIBRARY, folder=brought),
        SimulatedDriver(library=built / "test" / LIBRARY, folder=built / "simgpu"),
    ):
        if found.whole:
            return found
    raise NotBuilt(
        f"no {LIBRARY} and no simulated driver for {platform.machine()} are here; in a checkout, "
        f"with gcc or clang, `make -C shim simulated` builds them"
    )
