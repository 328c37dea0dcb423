"""How a program comes to its slice, on simulated cards and by their ledger."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hami.slices.usage_region import RegionUsage, empty_region, read_usage

from .builds import Build
from .memory import OUT_OF_MEMORY, SUCCESS, Program
from .simulated import MIB, SimulatedGpus
from .slices import Slice, uuid_of

Starts = Callable[..., Program]


@pytest.fixture
def gpus(shim: Build, tmp_path: Path) -> Iterator[SimulatedGpus]:
    with SimulatedGpus(tmp_path, build=shim, gpus=3) as gpus:
        yield gpus


@pytest.fixture
def starts(shim: Build, gpus: SimulatedGpus, tmp_path: Path) -> Starts:
    """``starts(CUDA_DEVICE_MEMORY_LIMIT="1g")``: a program in a container without a slice of ours,
    unless ``HAMI_SLICE_DIR`` says otherwise; it has the context of its first device."""

    def start(**env: str) -> Program:
        around = {
            **gpus.env("a"),
            "HAMI_SLICE_DIR": str(tmp_path / "not-mounted"),
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(tmp_path / "cache"),
            **env,
        }
        program = Program(shim.program("memory_console"), around, shim.library)
        program.does("init")
        return program

    return start


def _current(program: Program, ordinal: int = 0) -> Program:
    program.does("retain", ordinal, "P")
    program.does("current", "P")
    return program


def _fits(program: Program, mib: int) -> bool:
    """Exactly so much, and not one block more."""
    return (
        program.call("alloc", "a", mib * MIB) == SUCCESS
        and program.call("alloc", "b", 2 * MIB) == OUT_OF_MEMORY
        and program.call("free", "a") == SUCCESS
    )


def _usage(path: Path) -> RegionUsage:
    usage = read_usage(path)
    assert isinstance(usage, RegionUsage)
    return usage


# ---- The mounted slice


def _held(region: Path, slot: int) -> bool:
    """Whether anybody has the lock on it (struct flock of 64-bit Linux)."""
    wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, slot, 1, 0)
    with region.open("r+b") as file:
        found = fcntl.fcntl(file, fcntl.F_OFD_GETLK, wanted)
    kind: int = struct.unpack("hhqqi4x", found)[0]
    return kind != fcntl.F_UNLCK


def test_a_process_that_uses_cuda_holds_a_slot_while_it_lives(
    starts: Starts, tmp_path: Path
) -> None:
    slice_ = Slice(tmp_path / "slice", 100 * MIB)
    region = slice_.folder / "usage"
    with starts(**slice_.env()) as first:
        assert [(slot.pid, slot.generation) for slot in slice_.usage().slots] == [
            (first.process.pid, 1)
        ]
        with starts(**slice_.env()) as second:
            pids = [slot.pid for slot in slice_.usage().slots]
            assert pids == [first.process.pid, second.process.pid]
            assert [_held(region, slot) for slot in range(3)] == [True, True, False]
            first.kill()
            assert [_held(region, slot) for slot in range(3)] == [False, True, False]
    assert not _held(region, 1)


SEEN = {
    "all": ({}, (0, 1, 2)),
    "by number": ({"CUDA_VISIBLE_DEVICES": "2,0"}, (2, 0)),
    "one": ({"CUDA_VISIBLE_DEVICES": "1"}, (1,)),
    "by place": ({"CUDA_VISIBLE_DEVICES": "1,2", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, (1, 2)),
    "by uuid": ({"CUDA_VISIBLE_DEVICES": f"{uuid_of(2)},{uuid_of(1)}"}, (2, 1)),
    "by a piece of it": ({"CUDA_VISIBLE_DEVICES": uuid_of(2)[:12]}, (2,)),
}


@pytest.mark.parametrize(("env", "order"), SEEN.values(), ids=SEEN.keys())
def test_a_device_keeps_its_limit_whatever_its_number(
    starts: Starts, gpus: SimulatedGpus, tmp_path: Path, env: dict[str, str], order: tuple[int, ...]
) -> None:
    slice_ = Slice(tmp_path / "slice", 100 * MIB, 200 * MIB, 300 * MIB)
    with starts(**slice_.env(), **env) as program:
        for ordinal, gpu in enumerate(order):
            assert _fits(_current(program, ordinal), 100 * (gpu + 1))
            assert gpus.held("a", gpu).peak == 100 * (gpu + 1) * MIB


def test_of_a_device_that_is_not_in_the_slice_nothing_is_given(
    starts: Starts, gpus: SimulatedGpus, tmp_path: Path
) -> None:
    slice_ = Slice(tmp_path / "slice", 100 * MIB)
    with starts(**slice_.env()) as program:
        program.call("retain", 1, "P")
        program.call("current", "P")
        assert program.call("alloc", "a", MIB) != SUCCESS
        assert gpus.held("a", 1).peak == 0
        assert _fits(_current(program), 100)


def _only_a_region(folder: Path) -> None:
    (folder / "usage").write_bytes(empty_region())


def _not_a_page(folder: Path) -> None:
    _only_a_region(folder)
    (folder / "limits").write_bytes(bytes(1 << 16))


def _no_region(folder: Path) -> None:
    Slice(folder / "other", 100 * MIB)
    (folder / "other" / "limits").rename(folder / "limits")


@pytest.mark.parametrize("mount", [lambda _: None, _only_a_region, _not_a_page, _no_region])
def test_a_slice_that_cannot_be_read_gives_nothing(
    starts: Starts,
    gpus: SimulatedGpus,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    mount: Callable[[Path], None],
) -> None:
    folder = tmp_path / "slice"
    folder.mkdir()
    mount(folder)
    limit = {"CUDA_DEVICE_MEMORY_LIMIT": "1g"}
    for level in ("", "1"):
        log = {"LIBCUDA_LOG_LEVEL": level}
        with starts(HAMI_SLICE_DIR=str(folder), **limit, **log) as program:
            program.call("retain", 0, "P")
            program.call("current", "P")
            assert program.call("alloc", "a", 1) != SUCCESS
        said = capfd.readouterr().err
        assert ("every request for device memory is refused" in said) == bool(level)
        assert bool(said) == bool(level)
    assert gpus.held("a").peak == 0
    assert not (tmp_path / "cache.usage").exists()


def test_an_id_without_a_mount_gives_nothing(starts: Starts, gpus: SimulatedGpus) -> None:
    with starts(HAMI_SLICE_ID="slice-1", CUDA_DEVICE_MEMORY_LIMIT="1g") as program:
        program.call("retain", 0, "P")
        program.call("current", "P")
        assert program.call("alloc", "a", 1) != SUCCESS
    assert gpus.held("a").peak == 0


# ---- HAMi's environment


def test_without_a_limit_nothing_is_limited_and_nothing_made(
    starts: Starts, tmp_path: Path
) -> None:
    with starts(CUDA_DEVICE_MEMORY_LIMIT="0m", CUDA_DEVICE_SM_LIMIT="100") as program:
        assert _current(program).call("alloc", "a", 30_000 * MIB) == SUCCESS
    assert not list(tmp_path.glob("cache*"))


BY_INDEX = {"CUDA_DEVICE_MEMORY_LIMIT_0": "100m", "CUDA_DEVICE_MEMORY_LIMIT_1": "200m",
            "CUDA_DEVICE_MEMORY_LIMIT": "300M"}  # fmt: skip


@pytest.mark.parametrize(("env", "order"), SEEN.values(), ids=SEEN.keys())
def test_limits_of_the_environment_go_by_place(
    starts: Starts, gpus: SimulatedGpus, env: dict[str, str], order: tuple[int, ...]
) -> None:
    with starts(**BY_INDEX, **env) as program:
        for ordinal, gpu in enumerate(order):
            assert _fits(_current(program, ordinal), 100 * (gpu + 1))
            assert gpus.held("a", gpu).peak == 100 * (gpu + 1) * MIB


def test_or_in_the_order_in_which_the_container_lists_them(
    starts: Starts, gpus: SimulatedGpus
) -> None:
    listed = {"NVIDIA_VISIBLE_DEVICES": f"{uuid_of(2)},{uuid_of(0)},{uuid_of(1)}"}
    with starts(**BY_INDEX, **listed, CUDA_VISIBLE_DEVICES="1,2") as program:
        assert _fits(_current(program, 0), 300)
        assert _fits(_current(program, 1), 100)
    assert gpus.held("a", 1).peak == 300 * MIB


def test_processes_of_one_container_share_a_limit_of_the_environment(
    starts: Starts, gpus: SimulatedGpus, tmp_path: Path
) -> None:
    limit = {"CUDA_DEVICE_MEMORY_LIMIT": "100m"}
    # Each sees the same card under another number.
    with starts(**limit) as one, starts(**limit, CUDA_VISIBLE_DEVICES="2,1") as other:
        _current(one, 1)
        _current(other, 1)
        assert one.call("alloc", "a", 60 * MIB) == SUCCESS
        assert other.call("alloc", "a", 60 * MIB) == OUT_OF_MEMORY
        assert other.call("alloc", "a", 40 * MIB) == SUCCESS
        assert one.call("alloc", "b", MIB) == OUT_OF_MEMORY
        region = tmp_path / "cache.usage"
        assert region.stat().st_mode & 0o777 == 0o666
        assert sum(slot.charged[1] for slot in _usage(region).slots) == 100 * MIB
    assert gpus.held("a", 1).peak == 100 * MIB
    assert [path.name for path in tmp_path.glob("cache*")] == ["cache.usage"]


UNREADABLE = {
    "CUDA_DEVICE_MEMORY_LIMIT": ("-1g", "20000000000g", "1.5g", "", "unlimited", "0x10m"),
    "CUDA_DEVICE_MEMORY_LIMIT_5": ("-1g",),
    "CUDA_DEVICE_SM_LIMIT": ("-1", "150", "half"),
}


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name, texts in UNREADABLE.items() for text in texts]
)
def test_a_limit_that_cannot_be_read_gives_nothing(
    starts: Starts,
    gpus: SimulatedGpus,
    capfd: pytest.CaptureFixture[str],
    name: str,
    text: str,
) -> None:
    with starts(**{name: text}, LIBCUDA_LOG_LEVEL="1") as program:
        program.call("retain", 0, "P")
        program.call("current", "P")
        assert program.call("alloc", "a", 1) != SUCCESS
    assert f"{name} is not a limit that can be read" in capfd.readouterr().err
    assert gpus.held("a").peak == 0


# ---- What a program starts inherits nothing

_EXEC = """
import ctypes, os
cuda = ctypes.CDLL("libcuda.so.1")
assert cuda.cuInit(0) == 0
assert any("/usage" in os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
           if os.path.exists(f"/proc/self/fd/{fd}"))
os.execv("/bin/ls", ["ls", "-l", "/proc/self/fd"])
"""


def test_a_program_started_in_its_place_has_neither_descriptor_nor_slot(
    shim: Build, gpus: SimulatedGpus, tmp_path: Path
) -> None:
    slice_ = Slice(tmp_path / "slice", 100 * MIB)
    done = subprocess.run(
        [sys.executable, "-c", _EXEC],
        check=True,
        capture_output=True,
        text=True,
        env={**gpus.env("a"), **slice_.env(), "LD_PRELOAD": str(shim.library)},
    )
    assert "/dev/null" in done.stdout or "pipe:" in done.stdout
    assert "usage" not in done.stdout
