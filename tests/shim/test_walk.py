"""The way of one cuMemAlloc through ``shim/lib``, as a build shows it that records each function."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from .builds import SHIM, Build, make
from .memory import Program
from .simulated import MIB, SimulatedGpus
from .slices import Slice

MOST_FILES = 12


@pytest.fixture(scope="module")
def recording(shim: Build) -> Path:
    """The folder of a library with -finstrument-functions, and of recorder.so to preload before."""
    make("walk")
    return shim.folder / "walk"


def files_of(library: Path, offsets: list[str]) -> list[tuple[str, str]]:
    """Function and file, in the order in which they were entered; inline ones by their header."""
    lines = subprocess.run(
        ["addr2line", "-f", "-e", str(library), *offsets],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    lib = f"{SHIM / 'lib'}/"
    places = [place.rpartition(":")[0] for place in lines[1::2]]
    return [
        (name, str((SHIM / place).resolve()).removeprefix(lib))
        for name, place in zip(lines[::2], places, strict=True)
    ]


def walk(recording: Path, shim: Build, folder: Path, *calls: str) -> list[tuple[str, str]]:
    """What the last of the calls entered, in a process with a slice of one device."""
    written = folder / "walk"
    library = recording / "libvgpu.so"
    with SimulatedGpus(folder, build=shim) as gpus:
        env = {
            **gpus.env("tenant"),
            "HAMI_SLICE_DIR": str(Slice(folder / "slice", 1000 * MIB).folder),
            "HAMI_WALK": str(written),
            "LD_PRELOAD": f"{recording / 'recorder.so'}:{library}",
        }
        with Program(shim.program("memory_console"), env, None) as program:
            for call in calls:
                program.does(*call.split())
    return files_of(library, written.read_text().splitlines()[-1].split())


def listed(text: str) -> list[str]:
    return re.findall(r"^\d+\. `(?:shim/)?lib/([\w/.]+)`", text, re.MULTILINE)


def test_a_cuMemAlloc_crosses_no_more_files_than_the_readme_shows(  # noqa: N802 -- CUDA's name
    recording: Path, shim: Build, tmp_path: Path
) -> None:
    # The first allocation makes tables, and 12 MiB are witnessed: 2 MiB more are not.
    entered = walk(
        recording, shim, tmp_path, "init", "create A 0", f"alloc a {12 * MIB}", f"alloc b {2 * MIB}"
    )
    assert entered[0] == ("cuMemAlloc_v2", "hooks/allocations/linear.c")
    files = list(dict.fromkeys(file for _, file in entered))
    readme = (SHIM / "README.md").read_text().partition("<!-- walk -->")[2].partition("<!-- end")[0]
    assert files == listed(readme)
    page = (SHIM.parent / "docs" / "architecture.md").read_text()
    assert files == listed(page.partition("## Walk: an allocation, cuMemAlloc")[2])
    assert len(files) <= MOST_FILES
