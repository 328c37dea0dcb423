"""What ``pip install hami-nvidia`` brings: libraries that load in the images that tenants have."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection

PLUGIN = Path(__file__).parents[1]
MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
LIBRARIES = [f"lib/{machine}/libvgpu.so" for machine in MACHINES]
SIMULATED = [
    f"simulated/{machine}/{name}"
    for machine in MACHINES
    for name in ("libcuda.so.1", "libnvidia-ml.so.1", "simgpud")
]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    if find_spec("ziglang") is None:
        pytest.skip("ziglang is not installed: no wheel can be made without a compiler")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    command += ["--disable-pip-version-check", f"--wheel-dir={folder}", str(PLUGIN)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    [made] = folder.glob("*.whl")
    with zipfile.ZipFile(made) as archive:
        archive.extractall(folder / "content")
    return folder / "content" / "hami_nvidia"


def versions_needed(path: Path) -> set[tuple[int, ...]]:
    with path.open("rb") as file:
        needs = ELFFile(file).get_section_by_name(".gnu.version_r")
        assert isinstance(needs, GNUVerNeedSection)
        names = [version.name for _, versions in needs.iter_versions() for version in versions]
    assert all(name.startswith("GLIBC_") for name in names), names
    return {tuple(map(int, name.removeprefix("GLIBC_").split("."))) for name in names}


def libraries_needed(path: Path) -> set[str]:
    with path.open("rb") as file:
        dynamic = ELFFile(file).get_section_by_name(".dynamic")
        assert isinstance(dynamic, DynamicSection)
        return {tag.needed for tag in dynamic.iter_tags("DT_NEEDED")}


@pytest.mark.parametrize("name", LIBRARIES + SIMULATED)
def test_it_carries_what_is_compiled_for_both_machines(wheel, name):
    with (wheel / name).open("rb") as file:
        assert ELFFile(file)["e_machine"] == MACHINES[name.split("/")[1]]


@pytest.mark.parametrize("name", LIBRARIES + SIMULATED)
def test_no_symbol_is_newer_than_glibc_2_17(wheel, name):
    assert max(versions_needed(wheel / name)) <= (2, 17)


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_library_needs_nothing_of_nvidia_to_load(wheel, name):
    assert {library.split(".so")[0] for library in libraries_needed(wheel / name)} <= {
        "libc", "libdl", "libpthread", "libm", "ld-linux-x86-64", "ld-linux-aarch64",
    }  # fmt: skip


def test_the_agent_finds_the_packaged_library(wheel):
    """Where ``hami_nvidia.library`` looks for it."""
    assert (wheel / "library.py").is_file()
    assert (wheel / "lib" / "x86_64" / "libvgpu.so").is_file()
