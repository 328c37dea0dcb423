"""What the wheels of hami-nvidia and hami-simgpu bring, compiled: it loads in tenants' images."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from hami_lab.demo.enforced import PROGRAM
from hami_lab.demo.simulated_device import answer_of, script, simulated_device
from hami_nvidia.handover import library as agents_library
from hami_nvidia.handover.library import install
from hami_nvidia.settings.node_settings import NodeSettings
from hami_simgpu import SimulatedDriver

from hami.domain.devices import Device
from hami.domain.units import MIB, DeviceId, MemoryMiB, VendorKey
from hami.slices.limits_page import DeviceLimit, PageLimits, encode
from hami.slices.usage_region import empty_region

CONTEXT = 442 * MIB
"""What a CUDA context takes of an A100, and the simulated one takes as well."""
UUID = "GPU-00000000-0000-4000-8000-000000000001"
ROOT = Path(__file__).parents[1]
PROJECTS = {"hami_nvidia": ROOT / "plugins/nvidia", "hami_simgpu": ROOT / "shim/simgpu"}
MACHINES = {"x86_64": "EM_X86_64", "aarch64": "EM_AARCH64"}
LIBRARIES = [f"hami_nvidia/lib/{machine}/libvgpu.so" for machine in MACHINES]
FOR_PROGRAMS = [f"hami_simgpu/lib/{machine}/libvgpu.so" for machine in MACHINES]
SIMULATED = [
    f"hami_simgpu/lib/{machine}/{name}"
    for machine in MACHINES
    for name in ("libcuda.so.1", "libnvidia-ml.so.1", "simgpud")
]
EVERYTHING = LIBRARIES + FOR_PROGRAMS + SIMULATED

# Two compilers' worth of everything: minutes where others build too.
pytestmark = pytest.mark.timeout(900)


def python(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], check=False, capture_output=True, text=True, cwd="/"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@contextmanager
def alone() -> Iterator[Path]:
    """Of all test processes, where they keep sources: what one compiled of them, the next has.

    The compiler keeps everything that it makes, and finds it by the path and content of the source.
    """
    kept = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "hami" / "sdist"
    kept.mkdir(parents=True, exist_ok=True)
    with (kept / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield kept


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> dict[str, Path]:
    """The source distributions by package, unpacked elsewhere: there is no checkout around them."""
    if find_spec("ziglang") is None:
        pytest.skip("ziglang is not installed: no wheel can be made without a compiler")
    return {package: unpacked(tmp_path_factory.mktemp(package), package) for package in PROJECTS}


def unpacked(folder: Path, package: str) -> Path:
    made = "import build_backend, sys; build_backend.build_sdist(sys.argv[1])"
    command = (
        f"import os, sys; os.chdir({str(PROJECTS[package])!r}); sys.path.insert(0, '.'); {made}"
    )
    python("-c", command, str(folder))
    [packed] = folder.glob("*.tar.gz")
    with alone() as kept:
        source = kept / hashlib.sha256(packed.read_bytes()).hexdigest()
        if not source.exists():
            with tempfile.TemporaryDirectory(dir=kept) as scratch, tarfile.open(packed) as archive:
                archive.extractall(scratch, filter="data")
                [root] = Path(scratch).iterdir()
                root.rename(source)
    return source


@pytest.fixture(scope="module")
def wheel(sources, tmp_path_factory) -> Path:
    """Where pip installed both packages, from wheels made of the source distributions."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = ["-m", "pip", "--disable-pip-version-check"]
    options = ["--no-deps", "--no-build-isolation", f"--wheel-dir={folder}"]
    with alone():
        python(*pip, "wheel", *options, *map(str, sources.values()))
    made = map(str, folder.glob("*.whl"))
    installed = folder / "installed"
    python(*pip, "install", "--no-deps", "--no-index", f"--target={installed}", *made)
    return installed


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


def exported(path: Path) -> set[str]:
    with path.open("rb") as file:
        symbols = ELFFile(file).get_section_by_name(".dynsym").iter_symbols()
        return {symbol.name for symbol in symbols if symbol["st_shndx"] != "SHN_UNDEF"}


@pytest.mark.parametrize("package", PROJECTS)
def test_the_source_distribution_needs_no_checkout_around_it(sources, package):
    assert (sources[package] / "shim" / "include" / "hami_slice.h").is_file()
    assert not list(sources[package].glob("shim/build"))


def test_the_production_wheel_has_the_library_and_nothing_simulated(wheel):
    files = {
        str(path.relative_to(wheel))
        for path in (wheel / "hami_nvidia").rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"}
    }
    assert files == {*LIBRARIES, "hami_nvidia/py.typed"}
    assert not [path for path in (wheel / "hami_nvidia").rglob("*") if "simul" in path.name]


def test_the_simulators_wheel_has_the_simulator(wheel):
    files = {str(path.relative_to(wheel)) for path in (wheel / "hami_simgpu").rglob("*.*")}
    files |= {str(path.relative_to(wheel)) for path in (wheel / "hami_simgpu").rglob("simgpud")}
    python_files = {
        "hami_simgpu/__init__.py",
        "hami_simgpu/gpus.py",
        "hami_simgpu/gpus.yaml",
        "hami_simgpu/py.typed",
    }
    assert {f for f in files if not f.endswith(".pyc")} == {
        *FOR_PROGRAMS, *SIMULATED, *python_files
    }  # fmt: skip


@pytest.mark.parametrize("name", EVERYTHING)
def test_it_carries_what_is_compiled_for_both_machines(wheel, name):
    with (wheel / name).open("rb") as file:
        assert ELFFile(file)["e_machine"] == MACHINES[name.split("/")[2]]


@pytest.mark.parametrize("name", EVERYTHING)
def test_no_symbol_is_newer_than_glibc_2_17(wheel, name):
    assert max(versions_needed(wheel / name)) <= (2, 17)


@pytest.mark.parametrize("name", LIBRARIES + FOR_PROGRAMS)
def test_the_library_needs_nothing_of_nvidia_to_load(wheel, name):
    assert {library.split(".so")[0] for library in libraries_needed(wheel / name)} <= {
        "libc", "libdl", "libpthread", "libm", "ld-linux-x86-64", "ld-linux-aarch64",
    }  # fmt: skip


@pytest.mark.parametrize("name", LIBRARIES)
def test_loading_it_needs_no_right_that_a_container_may_lack(wheel, name):
    """Neither an executable stack nor text that is written to, which seccomp and SELinux forbid."""
    with (wheel / name).open("rb") as file:
        elf = ELFFile(file)
        [stack] = [part for part in elf.iter_segments() if part["p_type"] == "PT_GNU_STACK"]
        dynamic = elf.get_section_by_name(".dynamic")
        assert stack["p_flags"] & 1 == 0
        assert list(dynamic.iter_tags("DT_TEXTREL")) == []


@pytest.mark.parametrize("name", LIBRARIES + FOR_PROGRAMS)
def test_the_library_stands_in_front_of_what_is_in_its_list(wheel, sources, name):
    hooks = (sources["hami_nvidia"] / "shim/lib/hooks.def").read_text().splitlines()
    lines = [line for line in hooks if line.startswith(("HAMI_HOOK(", "HAMI_NVML_HOOK("))]
    listed = {line.partition("(")[2].split(",")[0].rstrip(")") for line in lines}
    assert exported(wheel / name) == listed | {"dlsym", "dlvsym"}


@pytest.mark.parametrize("name", LIBRARIES)
def test_no_variable_chooses_another_slice_in_a_container(wheel, name):
    """Whoever runs there could set it."""
    assert b"HAMI_SLICE_DIR" not in (wheel / name).read_bytes()
    assert b"HAMI_SLICE_ID" in (wheel / name).read_bytes()


def test_the_agent_finds_the_packaged_library(wheel, tmp_path, monkeypatch):
    monkeypatch.setattr(agents_library, "files", lambda _: wheel / "hami_nvidia")
    installed = install(NodeSettings(hook_path=tmp_path))
    packaged = wheel / "hami_nvidia/lib" / platform.machine() / "libvgpu.so"
    assert installed.path.read_bytes() == packaged.read_bytes()


def test_the_demo_finds_what_the_wheel_brings(wheel):
    program = (
        "import json, sys; sys.path.insert(0, sys.argv[1])\n"
        "from hami_lab.simgpu import installed_driver\n"
        "found = installed_driver('NVIDIA')\n"
        "print(json.dumps([str(found.library), str(found.folder)]))\n"
    )
    library, folder = json.loads(python("-c", program, str(wheel)))
    here = wheel / "hami_simgpu/lib" / platform.machine()
    assert (Path(library), Path(folder)) == (here / "libvgpu.so", here)


@pytest.mark.parametrize("name", [LIBRARIES[0], FOR_PROGRAMS[0]], ids=["released", "for programs"])
async def test_a_program_is_limited_by_what_the_wheel_brings(wheel, name, tmp_path):
    """As installed: with the permissions that pip gives, and by the compiler's own code."""
    machine = platform.machine()
    if machine not in MACHINES:
        pytest.skip(f"the wheel brings nothing for {machine}")
    folder = wheel / "hami_simgpu/lib" / machine
    driver = SimulatedDriver(library=wheel / name.replace("x86_64", machine), folder=folder)
    assert driver.whole
    device = Device(
        id=DeviceId(UUID),
        vendor=VendorKey("NVIDIA"),
        model="NVIDIA A100",
        memory_mib=MemoryMiB(16384),
    )
    limit = DeviceLimit(uuid=UUID, memory_bytes=4096 * MIB, cores=0, context_reserve_bytes=CONTEXT)
    slice_ = tmp_path / "slice"
    slice_.mkdir()
    (slice_ / "limits").write_bytes(encode(PageLimits(generation=1, devices=(limit,))))
    (slice_ / "usage").write_bytes(empty_region())
    given = {"CUDA_DEVICE_MEMORY_LIMIT": "4096m"} if name in LIBRARIES else {}
    given["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = str(tmp_path / "shared")
    async with (
        simulated_device(driver, device, tmp_path / "device") as simulated,
        script(PROGRAM, simulated.environment(given, slice_)) as process,
    ):
        answer = json.loads(await answer_of(process, "it", b"\n"))
        given_at_most = await simulated.most_held()
    assert answer["refused"] == "CUDA_ERROR_OUT_OF_MEMORY"
    # Limits from variables, which is all that HAMi's agent sets, say nothing of contexts.
    reserved = 0 if name in LIBRARIES else CONTEXT
    assert (answer["before"][1], answer["taken"]) == (4096 * MIB, 4096 * MIB - reserved)
    assert given_at_most == 4096 * MIB - reserved + CONTEXT
