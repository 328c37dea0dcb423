"""``make -C shim``, which several test processes may call at once."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

SHIM = Path(__file__).parents[2] / "shim"


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One flavour: as released, or under a sanitizer ("asan", "tsan")."""

    folder: Path
    flavour: str

    @property
    def library(self) -> Path:
        """libvgpu.so in the flavour that also takes its slice from ``HAMI_SLICE_DIR``."""
        return self.folder / ("libvgpu.so" if self.flavour else "test/libvgpu.so")

    @property
    def released(self) -> Path:
        return self.folder / "libvgpu.so"

    @property
    def simulator(self) -> Path:
        """The folder with libcuda.so.1, libnvidia-ml.so.1 and simgpud."""
        return self.folder / "simgpu"

    def program(self, name: str) -> Path:
        return self.folder / "programs" / name

    def environment(self) -> dict[str, str]:
        """The environment in which a program finds the simulated driver, and sanitizers work
        preloaded.
        """
        return {
            **{key: os.environ[key] for key in ("PATH", "HOME", "TMPDIR") if key in os.environ},
            "LD_LIBRARY_PATH": str(self.simulator),
            "ASAN_OPTIONS": "verify_asan_link_order=0:detect_leaks=0:abort_on_error=0",
            "TSAN_OPTIONS": "halt_on_error=1",
        }


def build(flavour: str) -> Build:
    """Build a flavour unless it is built; skips the test where that is impossible."""
    make(f"build/{flavour}/all" if flavour else "all")
    return flavoured(flavour)


def flavoured(flavour: str) -> Build:
    folder = SHIM / "build"
    return Build(folder=folder / flavour if flavour else folder, flavour=flavour)


def make(*goals: str) -> None:
    """Make what is not made yet; skips the test where a tool or a sanitizer is missing."""
    for tool in ("make", "cc"):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool} to build shim/ with")
    folder = SHIM / "build"
    folder.mkdir(exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            ["make", "-C", str(SHIM), *goals], check=False, capture_output=True, text=True
        )
    sanitized = any(goal.startswith(("build/asan/", "build/tsan/")) for goal in goals)
    if done.returncode != 0 and sanitized and "cannot find -l" in done.stderr:
        pytest.skip(f"cc cannot link the sanitizer: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr[-4000:]
