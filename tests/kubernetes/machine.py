"""Which parts of a real Kubernetes this machine can run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path, PurePath

CNI = Path("/usr/lib/cni")
BUSYBOX = Path("/usr/bin/busybox")  # Debian's busybox-static
DEBIAN = ("runc", "containernetworking-plugins", "busybox-static")


def on_a_real_node(file: str) -> bool:
    """Whether the tests of this file may use the one node that this machine can be."""
    return PurePath(file).name.startswith("test_node_")


def lacking() -> str:
    """What this machine lacks to be a node, as a sentence; empty when nothing."""
    if os.geteuid() != 0:
        return "a node needs root"
    there = (shutil.which("runc"), (CNI / "ptp").exists(), BUSYBOX.exists())
    packages = [name for name, found in zip(DEBIAN, there, strict=True) if not found]
    return f"a node needs apt-get install {' '.join(packages)}" if packages else ""
