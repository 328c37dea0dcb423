"""The demo's program in a slice: held by the library, and found out where nothing holds it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import pytest
from hami_lab.demo import enforced
from hami_lab.demo.enforced import PROGRAM, Enforced
from hami_lab.demo.run import Skipped, StepFailed
from hami_lab.demo.simulated_device import answer_of, script, simulated_device
from hami_lab.simgpu import installed_driver

from hami.domain.devices import Device
from hami.domain.errors import ConfigError
from hami.domain.units import DeviceId, MemoryMiB, VendorKey
from tests.shim.builds import build
from tests.shim.slices import Slice, uuid_of

MIB = 1 << 20
NVIDIA = VendorKey("NVIDIA")
DEVICE = Device(
    id=DeviceId(uuid_of(0)), vendor=NVIDIA, model="NVIDIA A100", memory_mib=MemoryMiB(16384)
)


CONTEXT = 442 * MIB
"""What a context takes on such a device, simulated or not."""


@dataclass(frozen=True)
class Driver:
    library: Path
    folder: Path


@pytest.fixture
def driver() -> Driver:
    made = build("")
    return Driver(library=made.library, folder=made.simulator)


@pytest.fixture
def slice_(tmp_path) -> Slice:
    return Slice(tmp_path / "slice", 4096 * MIB, reserve=CONTEXT)


async def taken(driver: Driver, slice_: Slice, folder: Path, *sizes: int):
    """The program's answers, and what the driver gave at most: at first and after each resize."""
    found = []
    async with (
        simulated_device(driver, DEVICE, folder) as simulated,
        script(PROGRAM, simulated.environment({}, slice_.folder)) as process,
    ):
        for size in (None, *sizes):
            if size:
                slice_.resize(size * MIB)
            line = await answer_of(process, "it", b"\n")
            answer = msgspec.json.decode(line, type=enforced._Answer)
            found.append((answer, await simulated.most_held()))
    return found


async def test_it_is_held_to_its_slice_and_to_a_larger_one(driver, slice_, tmp_path):
    (first, given), (second, given_then) = await taken(driver, slice_, tmp_path / "d", 6144)
    assert enforced._reserve(slice_.folder) == CONTEXT
    assert enforced._held(first, CONTEXT, 4096, DEVICE) == [
        "its program holds 442 MiB, its CUDA context included",
        "cuMemGetInfo says 3654 of 4096 MiB are free on the 16384 MiB of NVIDIA A100",
        "cuMemAlloc gives 3654 MiB in blocks, then CUDA_ERROR_OUT_OF_MEMORY",
    ]
    held = enforced._held(second, 4096 * MIB, 6144, DEVICE)
    assert held[2].startswith("cuMemAlloc gives 2048 MiB")
    assert (given, given_then) == (4096 * MIB, 6144 * MIB)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        pytest.param({"taken": 3652 * MIB}, "took 3652 MiB", id="less than there was"),
        pytest.param({"taken": 3656 * MIB}, "took 3656 MiB", id="more than there was"),
        pytest.param(
            {"before": (4096 * MIB, 4096 * MIB)}, "saw 4096", id="its context for nothing"
        ),
        pytest.param({"before": (3654 * MIB, 8192 * MIB)}, "of 8192 MiB", id="another size"),
        pytest.param({"refused": "CUDA_ERROR_UNKNOWN"}, "CUDA_ERROR_UNKNOWN", id="another error"),
    ],
)
def test_what_is_not_exact_makes_the_step_fail(change, why):
    good = enforced._Answer(
        before=(3654 * MIB, 4096 * MIB),
        taken=3654 * MIB,
        refused="CUDA_ERROR_OUT_OF_MEMORY",
        after=(0, 4096 * MIB),
    )
    assert enforced._held(good, CONTEXT, 4096, DEVICE)
    with pytest.raises(StepFailed, match=why):
        enforced._held(msgspec.structs.replace(good, **change), CONTEXT, 4096, DEVICE)


async def test_a_smaller_slice_takes_nothing_away_and_gives_nothing(driver, slice_, tmp_path):
    _, (second, given) = await taken(driver, slice_, tmp_path / "d", 2048)
    assert (second.before, second.taken) == ((0, 2048 * MIB), 0)
    assert given == 4096 * MIB


async def test_a_program_that_nothing_holds_makes_the_step_fail(driver, slice_, tmp_path):
    """The driver's NVML library stands in for the one that limits, and limits nothing."""
    unlimited = replace(driver, library=driver.folder / "libnvidia-ml.so.1")
    [(answer, given)] = await taken(unlimited, slice_, tmp_path / "d")
    with pytest.raises(StepFailed, match=r"saw 15942 of 16384 MiB free, took 15942 MiB"):
        enforced._held(answer, CONTEXT, 4096, DEVICE)

    class Ledger:
        async def most_held(self):
            return given

    with pytest.raises(StepFailed, match=r"the driver gave 1[67][0-9]+ bytes to a program"):
        await enforced._by_the_ledger(Ledger(), 4096)


async def test_a_slice_that_cannot_be_read_gives_nothing(driver, slice_, tmp_path):
    (slice_.folder / "limits").write_bytes(b"")
    with pytest.raises(StepFailed, match=r"it ended: .*: CUDA_ERROR_OUT_OF_MEMORY"):
        await taken(driver, slice_, tmp_path / "d")


async def test_a_program_that_ends_says_why(driver, slice_, tmp_path):
    """There is no daemon where it looks for one."""
    async with simulated_device(driver, DEVICE, tmp_path / "d") as simulated:
        environment = simulated.environment({}, slice_.folder) | {"HAMI_SIM_DIR": "/nowhere"}
        async with script(PROGRAM, environment) as process:
            with pytest.raises(StepFailed, match="it ended: cuInit: CUDA_ERROR_NO_DEVICE"):
                await answer_of(process, "it", b"\n")


async def test_a_daemon_that_cannot_start_says_why(driver, tmp_path):
    broken = msgspec.structs.replace(DEVICE, memory_mib=MemoryMiB(-1))
    with pytest.raises(StepFailed, match="simgpud"):
        async with simulated_device(driver, broken, tmp_path / "d"):
            raise AssertionError("it started")


async def test_nothing_is_left_running(driver, slice_, tmp_path):
    await taken(driver, slice_, tmp_path / "d")
    folder = str(tmp_path).encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            assert folder not in path.read_bytes(), path
        except OSError:
            await asyncio.sleep(0)  # it ended while we looked


def none(_):
    return None


def unbuilt(_):
    raise ConfigError("there is none; make one")


@pytest.mark.parametrize(
    ("find", "why"),
    [
        pytest.param(none, "no simulated driver for NVIDIA is installed", id="none brought"),
        pytest.param(unbuilt, "there is none; make one", id="not built"),
    ],
)
async def test_without_a_library_the_step_is_skipped_and_says_why(find, why):
    assert await Enforced(cluster=None, find=find).run(None, None) == Skipped(why=why)


def test_what_no_plugin_brings_is_none():
    assert installed_driver(VendorKey("ACME")) is None
