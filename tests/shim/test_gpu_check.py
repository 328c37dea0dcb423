"""``make gpu-check`` on a simulated card: that it runs, that it can fail, and that it steps aside."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .builds import SHIM, Build, make

ROOT = SHIM.parent


@pytest.fixture(scope="module")
def programs(shim: Build) -> Build:
    """With what gpu-check runs beside the library."""
    make("gpu-programs")
    return shim


def gpu_check(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "shim.gpu", *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
    )


def rows(text: str) -> list[tuple[str, str, str]]:
    """Of the table: part, what, result."""
    lines = [line for line in text.splitlines() if line.startswith("| ")][1:]
    return [tuple(cell.strip() for cell in line.split("|")[1:4]) for line in lines]  # type: ignore[misc]


@pytest.mark.timeout(240)
def test_everything_that_a_simulated_card_can_show_is_as_promised(
    programs: Build, tmp_path: Path
) -> None:
    done = gpu_check("--simulated", "--quick", "--write", "--to", str(tmp_path))
    [file] = tmp_path.glob("gpu-nvidia-h100-80gb-hbm3-*.md")
    found = rows(file.read_text())
    assert not [row for row in found if row[2] in ("failed", "differs")], done.stdout
    assert done.returncode == 0, done.stderr
    by_result = {
        result: {part for part, _, of in found if of == result}
        for result in ("ok", "measured", "skipped")
    }
    assert by_result["ok"] == {"addresses", "conformance", "memory: driver"}
    assert by_result["measured"] == {"conformance", "launch", "share"}
    assert by_result["skipped"] - {"headers"} == {"memory: runtime", "PyTorch"}
    assert "(simulated)" in file.read_text()


def test_a_library_that_limits_nothing_is_found_out(programs: Build, tmp_path: Path) -> None:
    """Something else in its place, which is loaded and does nothing."""
    idle = tmp_path / "libvgpu.so"
    source = tmp_path / "idle.c"
    source.write_text("int hami_idle;\n")
    subprocess.run(["cc", "-shared", "-fPIC", str(source), "-o", str(idle)], check=True)
    done = gpu_check(
        "--simulated", "--quick", "--library", str(idle), "--parts", "addresses", "memory"
    )
    assert done.returncode == 1, done.stdout + done.stderr
    failures = [line for line in done.stdout.splitlines() if line.startswith("failed")]
    assert any("cuMemAlloc:" in line for line in failures)
    assert any("the card's own figure" in line for line in failures)
    assert any("under the library cuGetProcAddress" in line for line in failures)


def test_a_machine_without_a_card_is_told_so(programs: Build, tmp_path: Path) -> None:
    """The simulated driver without a daemon: NVML does not start."""
    done = gpu_check(HAMI_SIM_DIR=str(tmp_path), LD_LIBRARY_PATH=str(programs.simulator))
    assert done.returncode == 0
    assert "skipped, there is no NVIDIA GPU to check" in done.stderr
    assert done.stdout == ""
