"""The C programs of ``shim/tests``, built where there is a compiler."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SHIM = Path(__file__).parents[2] / "shim"


def built(program: str, folder: Path) -> Path:
    """``units/page_stress`` or ``asan/units/page_stress``, built; skips the test where that fails."""
    for tool in ("make", "cc"):
        if shutil.which(tool) is None:
            pytest.skip(f"there is no {tool} to build {program} with")
    target = folder / program
    command = ["make", "-C", str(SHIM), f"BUILD={folder}", str(target)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode != 0 and program.startswith("asan/") and "cannot find -l" in done.stderr:
        pytest.skip(f"cc cannot build with sanitizers: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr
    return target
