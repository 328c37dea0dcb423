"""What a program that asks NVML is shown of its slice: under the library, with the real pynvml."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pynvml
import pytest

from hami.slices.limits_page import DeviceLimit, PageLimits, encode
from hami.slices.usage_region import empty_region

from ..builds import Build
from ..simulated import MIB, SimulatedGpus
from ..slices import Slice, uuid_of
from .driver_calls import (
    ask,
    code,
    codes,
    cuda,
    cuda_devices,
    initialise,
    running_v1,
    told,
    use_memory,
)
from .driver_process import DriverProcess

UNINITIALIZED, INVALID, NOT_FOUND, TOO_SMALL, LACKING = 1, 2, 6, 7, 13
OUT_OF_MEMORY = 2
WHOLE = 81559 * MIB
A100 = 'gpu name="NVIDIA A100-SXM4-40GB" memory=40960 mig=1\n'
LISTS = [
    f"nvmlDeviceGet{kind}RunningProcesses_v{version}"
    for kind in ("Compute", "Graphics", "MPSCompute")
    for version in (2, 3)
]


DETAILS = "nvmlDeviceGetRunningProcessDetailList"


class Containers:
    """Processes under the library, each in the container of a slice."""

    def __init__(self, gpus: SimulatedGpus, build: Build, stack: ExitStack) -> None:
        self.gpus = gpus
        self._build = build
        self._stack = stack

    def process(self, slice_: Slice | Path | None, **more: str) -> DriverProcess:
        env = {**self.gpus.env(), "LD_PRELOAD": str(self._build.library), **more}
        if slice_ is not None:
            folder = slice_.folder if isinstance(slice_, Slice) else slice_
            env["HAMI_SLICE_DIR"] = str(folder)
        return self._stack.enter_context(DriverProcess(env))

    def asking(self, slice_: Slice | Path | None, **more: str) -> DriverProcess:
        """One that has initialised NVML, and nothing else."""
        process = self.process(slice_, **more)
        process.run(initialise)
        return process


ContainersOn = Callable[..., Containers]


@pytest.fixture
def containers_on(shim: Build, tmp_path: Path) -> Iterator[ContainersOn]:
    """``containers_on(gpus=2)`` starts the daemon."""
    with ExitStack() as stack:

        def start(**cards: object) -> Containers:
            gpus = stack.enter_context(SimulatedGpus(tmp_path, build=shim, **cards))  # type: ignore[arg-type]
            return Containers(gpus, shim, stack)

        yield start


@pytest.fixture
def containers(containers_on: ContainersOn) -> Containers:
    return containers_on(gpus=2)


def memory(process: DriverProcess, device: str) -> tuple[int, int, int]:
    """(total, free, used), which both structures must agree on."""
    first = process.run(ask, "nvmlDeviceGetMemoryInfo", device)
    second = process.run(ask, "nvmlDeviceGetMemoryInfo", device, pynvml.nvmlMemory_v2)
    found = first["total"], first["free"], first["used"]
    assert found == (second["total"], second["free"], second["used"] + second["reserved"])
    return found


def listed(process: DriverProcess, device: str, version: int = 3) -> dict[int, int]:
    """Bytes by pid."""
    name = f"nvmlDeviceGetComputeRunningProcesses_v{version}"
    return {each["pid"]: each["usedGpuMemory"] for each in process.run(ask, name, device)}


# Memory.


def test_the_slice_is_shown_as_the_device(containers, tmp_path):
    slice_ = Slice(tmp_path / "a", 1000 * MIB, 0)
    process = containers.asking(slice_)
    assert memory(process, uuid_of(0)) == (1000 * MIB, 1000 * MIB, 0)
    assert memory(process, uuid_of(1)) == (WHOLE, WHOLE, 0)
    assert slice_.usage().slots == ()


def test_what_the_container_is_charged_is_used(containers, tmp_path):
    slice_ = Slice(tmp_path / "a", 1000 * MIB, reserve=300 * MIB)
    asking, user = containers.asking(slice_), containers.asking(slice_)
    user.run(use_memory, 100)
    charged = slice_.charged()
    assert charged == 400 * MIB
    for process in (asking, user):
        assert memory(process, uuid_of(0)) == (1000 * MIB, 600 * MIB, charged)


def test_a_resize_is_seen_at_once(containers, tmp_path):
    slice_ = Slice(tmp_path / "a", 1000 * MIB)
    process, user = containers.asking(slice_), containers.process(slice_)
    user.run(use_memory, 500)
    slice_.resize(700 * MIB)
    assert memory(process, uuid_of(0)) == (700 * MIB, 200 * MIB, 500 * MIB)
    slice_.resize(200 * MIB)
    assert memory(process, uuid_of(0)) == (200 * MIB, 0, 500 * MIB)
    slice_.resize(2 * WHOLE)
    total, free, used = memory(process, uuid_of(0))
    assert (total, used) == (WHOLE, 500 * MIB)
    assert free == WHOLE - containers.gpus.used(0)


def test_no_more_is_free_than_the_device_has(containers, tmp_path):
    mine, others = (Slice(tmp_path / name, 60_000 * MIB) for name in ("a", "b"))
    containers.process(others).run(use_memory, 50_000)
    left = WHOLE - containers.gpus.used(0)
    assert left < 60_000 * MIB
    assert memory(containers.asking(mine), uuid_of(0)) == (60_000 * MIB, left, 0)


def test_a_device_that_the_slice_has_not_is_full(containers, tmp_path):
    process = containers.asking(Slice(tmp_path / "a", 1000 * MIB))
    assert memory(process, uuid_of(1)) == (WHOLE, 0, WHOLE)


def test_without_a_slice_the_device_is_shown(containers):
    user, process = containers.process(None), containers.asking(None)
    pid = user.run(use_memory, 100)
    used = containers.gpus.used(0)
    assert memory(process, uuid_of(0)) == (WHOLE, WHOLE - used, used)
    assert listed(process, uuid_of(0)) == {pid: used}


def test_a_slice_that_cannot_be_read_is_a_full_device(containers, tmp_path):
    process = containers.asking(None, HAMI_SLICE_DIR=str(tmp_path / "nothing"), HAMI_SLICE_ID="x")
    assert memory(process, uuid_of(0)) == (WHOLE, 0, WHOLE)
    containers.process(None).run(use_memory, 10)
    assert listed(process, uuid_of(0)) == {}
    assert process.run(cuda_devices)
    assert process.run(_take, 2 * MIB) == OUT_OF_MEMORY


def _take(size: int) -> int:
    """What cuMemAlloc says, or what making a context said before it."""
    context, address = ctypes.c_void_p(), ctypes.c_uint64()
    result = cuda("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    if result:
        return result
    cuda("cuCtxSetCurrent", context)
    return cuda("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))


def test_hamis_environment_is_a_slice_too(containers, tmp_path):
    env = {
        "CUDA_DEVICE_MEMORY_LIMIT_0": "1000m",
        "CUDA_DEVICE_MEMORY_LIMIT_1": "2g",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(tmp_path / "cache"),
    }
    user, process = containers.process(None, **env), containers.asking(None, **env)
    pid = user.run(use_memory, 100)
    total, free, used = memory(process, uuid_of(0))
    assert (total, free + used) == (1000 * MIB, 1000 * MIB)
    assert used >= 100 * MIB
    assert listed(process, uuid_of(0)) == {pid: used}
    assert memory(process, uuid_of(1)) == (2048 * MIB, 2048 * MIB, 0)


# Processes.


def test_figures_of_single_processes_are_the_containers_own(containers, tmp_path):
    one, other = Slice(tmp_path / "a", 1000 * MIB), Slice(tmp_path / "b", 1000 * MIB)
    users = [containers.process(slice_) for slice_ in (one, other, one)]
    pids = [user.run(use_memory, 100) for user in users]
    agent, gpu = containers.asking(None), uuid_of(0)
    containers.gpus.eventually(lambda: _single_figures(agent, gpu) == [set(pids)] * 3)
    for slice_, own in ((one, {pids[0], pids[2]}), (other, {pids[1]})):
        process = containers.asking(slice_)
        assert _single_figures(process, gpu) == [own] * 3
        stats = {
            pid: process.run(ask, "nvmlDeviceGetAccountingStats", gpu, pid) != NOT_FOUND
            for pid in pids
        }
        assert stats == {pid: pid in own for pid in pids}
    nobody = containers.asking(Slice(tmp_path / "c", 1000 * MIB))
    for name in ("nvmlDeviceGetProcessUtilization", "nvmlDeviceGetProcessesUtilizationInfo"):
        assert nobody.run(ask, name, gpu, 0) == NOT_FOUND
    assert nobody.run(ask, "nvmlDeviceGetAccountingPids", gpu) == []


def _single_figures(process: DriverProcess, gpu: str) -> list[set[int]]:
    names = ("nvmlDeviceGetProcessUtilization", "nvmlDeviceGetProcessesUtilizationInfo")
    sampled = [process.run(ask, name, gpu, 0) for name in names]
    return [
        *(set() if found == NOT_FOUND else {each["pid"] for each in found} for found in sampled),
        set(process.run(ask, "nvmlDeviceGetAccountingPids", gpu)),
    ]


def test_the_containers_own_processes_are_listed(containers, tmp_path):
    mine, others = (Slice(tmp_path / name, 10_000 * MIB, 10_000 * MIB) for name in ("a", "b"))
    users = [containers.asking(mine) for _ in range(2)]
    pids = [user.run(use_memory, size) for user, size in zip(users, (100, 200), strict=True)]
    containers.process(others).run(use_memory, 300)
    wanted = dict(zip(pids, (100 * MIB, 200 * MIB), strict=True))
    for process in (containers.asking(mine), *users):
        for version in (2, 3):
            assert listed(process, uuid_of(0), version) == wanted
        first = process.run(running_v1, "nvmlDeviceGetComputeRunningProcesses", uuid_of(0), 4)
        assert dict(first) == wanted
        short = process.run(running_v1, "nvmlDeviceGetComputeRunningProcesses", uuid_of(0), 1)
        assert short == (TOO_SMALL, 2)
        assert listed(process, uuid_of(1)) == {}


def test_the_list_with_details_is_the_containers_too(containers, tmp_path):
    mine, others = (Slice(tmp_path / name, 10_000 * MIB) for name in ("a", "b"))
    user = containers.asking(mine)
    pid = user.run(use_memory, 100)
    stranger = containers.process(others).run(use_memory, 300)
    found = {}
    for asking in (user, containers.asking(None)):
        for mode in range(3):
            details = asking.run(ask, DETAILS, uuid_of(0), pynvml.nvmlProcessDetailList_v1, mode)
            found[asking is user, mode] = {each["pid"]: each["usedGpuMemory"] for each in details}
    assert found[True, 0] == {pid: 100 * MIB}
    assert found[False, 0].keys() == {pid, stranger}
    assert found[True, 1] == found[True, 2] == {}


def test_who_has_ended_is_listed_no_more(containers, tmp_path):
    slice_ = Slice(tmp_path / "a", 10_000 * MIB)
    user, process = containers.process(slice_), containers.asking(slice_)
    pid = user.run(use_memory, 100)
    assert listed(process, uuid_of(0)) == {pid: 100 * MIB}
    user.__exit__()
    assert listed(process, uuid_of(0)) == {}


@pytest.mark.parametrize("name", [name for name in LISTS if "Compute" not in name or "MPS" in name])
def test_other_lists_are_empty_in_a_slice(containers, tmp_path, name):
    slice_ = Slice(tmp_path / "a", 10_000 * MIB)
    containers.process(None).run(use_memory, 10)
    under = containers.asking(slice_, HAMI_SIM_NVML_MPS="1")
    assert under.run(ask, name, uuid_of(0)) == []
    if "MPS" in name:
        assert len(containers.asking(None, HAMI_SIM_NVML_MPS="1").run(ask, name, uuid_of(0))) == 1


# MIG.


def a_slice_of(folder: Path, uuid: str, limit: int) -> Path:
    folder.mkdir()
    device = DeviceLimit(uuid=uuid, memory_bytes=limit, cores=0)
    (folder / "limits").write_bytes(encode(PageLimits(generation=1, devices=(device,))))
    (folder / "usage").write_bytes(empty_region())
    return folder


def test_a_mig_device_is_a_device_of_the_slice(containers_on, tmp_path):
    containers = containers_on(config=A100)
    agent = containers.asking(None)
    (gpu,) = agent.nvml.gpus()
    kind = next(k for k in agent.nvml.instance_profiles(gpu.uuid) if k.name == "3g.20gb")
    made = agent.nvml.create_instance(gpu.uuid, kind, kind.spans[1])
    agent.nvml.create_compute(gpu.uuid, made)
    (device,) = agent.nvml.mig_devices(gpu.uuid)
    slice_ = a_slice_of(tmp_path / "a", device.uuid, 1000 * MIB)
    user = containers.asking(slice_, CUDA_VISIBLE_DEVICES=device.uuid)
    pid = user.run(use_memory, 100)
    assert memory(user, device.uuid) == (1000 * MIB, 900 * MIB, 100 * MIB)
    # The card itself is nobody's slice: NVML sums up what is on it.
    used = sum(held.bytes for held in containers.gpus.ledger())
    assert memory(user, gpu.uuid) == (40960 * MIB, 40960 * MIB - used, used)
    for asked in (device.uuid, gpu.uuid):
        (found,) = user.run(ask, "nvmlDeviceGetComputeRunningProcesses_v3", asked)
        assert found == {
            "pid": pid,
            "usedGpuMemory": 100 * MIB,
            "gpuInstanceId": device.gpu_instance,
            "computeInstanceId": 0,
        }


# The guest.


def test_before_a_session_nvml_says_so_itself(containers, tmp_path):
    process = containers.process(Slice(tmp_path / "a", 1000 * MIB))
    calls = [("nvmlDeviceGetMemoryInfo", None, None)]
    calls += [(name, None, None, None) for name in LISTS]
    assert process.run(codes, *calls) == [UNINITIALIZED] * len(calls)
    process.run(initialise)
    assert process.run(codes, *calls) == [INVALID] * len(calls)


ASKS = """
#include <dlfcn.h>
#include <stdio.h>

extern int nvmlDeviceGetMemoryInfo(void *, void *) __attribute__((weak));
extern int nvmlDeviceGetMPSComputeRunningProcesses(void *, unsigned *, void *) __attribute__((weak));

int main(void)
{
    unsigned count = 0;

    if (dlopen("libnvidia-ml.so.1", RTLD_NOW))
        return 77;
    printf("%d %d %d", nvmlDeviceGetMemoryInfo(0, 0),
           nvmlDeviceGetMPSComputeRunningProcesses(0, &count, 0),
           dlsym(RTLD_DEFAULT, "nvmlDeviceGetMemoryInfo") != 0);
    return 0;
}
"""


def test_where_there_is_no_nvml_its_functions_are_lacking(shim, tmp_path):
    """Linked they are there and say so; asked for by name there is none, as without the library."""
    source, program = tmp_path / "asks.c", tmp_path / "asks"
    source.write_text(ASKS)
    subprocess.run(["cc", str(source), "-o", str(program), "-ldl"], check=True)
    env = {**shim.environment(), "LD_PRELOAD": str(shim.library), "LD_LIBRARY_PATH": str(tmp_path)}
    done = subprocess.run([program], env=env, capture_output=True, text=True, check=False)
    if done.returncode == 77:
        pytest.skip("there is a driver on this machine")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{LACKING} {LACKING} 0", "")


@pytest.mark.parametrize("flavour", ["shim", "shim_asan", "shim_tsan"])
def test_many_threads_may_ask_at_once(flavour, request, tmp_path):
    """``nvml_threads`` expects the same answers as without the library."""
    build = request.getfixturevalue(flavour)
    config = f"{A100.strip()} pci=00000000:07:00.0\ngpu pci=00000000:08:00.0 uuid={uuid_of(0)}\n"
    config = config.replace("mig=1", f"mig=1 uuid={uuid_of(1)}")
    with SimulatedGpus(tmp_path, build=build, config=config) as gpus:
        slice_ = Slice(tmp_path / "a", 1000 * MIB, 1000 * MIB)
        env = {**gpus.env(), **slice_.env(), "LD_PRELOAD": str(build.library)}
        done = subprocess.run(
            [build.program("nvml_threads"), "500"],
            env=env, capture_output=True, text=True, check=False,
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_figures_that_are_measured_stay_the_devices(containers, tmp_path):
    under = containers.asking(Slice(tmp_path / "a", 1000 * MIB))
    bare = containers.asking(None)
    for name in ("nvmlDeviceGetUtilizationRates", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetName"):
        assert under.run(ask, name, uuid_of(0)) == bare.run(ask, name, uuid_of(0))
    assert under.run(told, "nvmlDeviceGetCount") == 2
    assert under.run(code, "nvmlDeviceGetCount_v2", None) == INVALID
