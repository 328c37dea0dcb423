"""What tools of users and NCCL ask of NVML, and nothing of this project does: each answer follows
from what the simulator was told.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pynvml
import pytest

from .driver_calls import ask, initialise, told

INVALID = 2
NOT_SUPPORTED = 3
NOT_FOUND = 6
GIB = 1 << 30
IDLE_WATTS = 70
LINKS = 18
"""Of an H100, all of them to a switch."""


def test_of_the_system_versions_and_processes(node):
    newest, older = node.process("a"), node.process("b", DRIVER_VERSION=12020)
    for process, version in ((newest, 13050), (older, 12020)):
        process.run(initialise)
        for name in ("nvmlSystemGetCudaDriverVersion", "nvmlSystemGetCudaDriverVersion_v2"):
            assert process.run(told, name) == version
    driver = newest.run(told, "nvmlSystemGetDriverVersion")
    assert newest.run(told, "nvmlSystemGetNVMLVersion") == f"13.{driver}"
    pid = newest.run(os.getpid)
    program = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0]
    assert newest.run(told, "nvmlSystemGetProcessName", pid) == program
    assert newest.run(told, "nvmlSystemGetProcessName", 1 << 30) == NOT_FOUND


@pytest.mark.parametrize(
    ("gpus", "brand", "links"),
    [
        pytest.param("h100-80gx2", pynvml.NVML_BRAND_NVIDIA, LINKS, id="a card with links"),
        pytest.param("t4", pynvml.NVML_BRAND_TESLA, 0, id="an old one without"),
    ],
)
def test_of_a_card_what_it_is(node_with, gpus, brand, links):
    node = node_with(gpus)
    process, gpu = node.agent, node.uuids[-1]
    process.run(initialise)
    for name, wanted in (
        ("nvmlDeviceGetBrand", brand),
        ("nvmlDeviceGetComputeMode", pynvml.NVML_COMPUTEMODE_DEFAULT),
        ("nvmlDeviceGetEccMode", [1, 1]),
        ("nvmlDeviceGetVirtualizationMode", pynvml.NVML_GPU_VIRTUALIZATION_MODE_NONE),
    ):
        assert process.run(ask, name, gpu) == wanted, name
    for link in (0, links - 1) if links else ():
        assert process.run(ask, "nvmlDeviceGetNvLinkVersion", gpu, link) == 4
        for capability in range(pynvml.NVML_NVLINK_CAP_COUNT):
            has = int(capability != pynvml.NVML_NVLINK_CAP_SLI_BRIDGE)
            assert process.run(ask, "nvmlDeviceGetNvLinkCapability", gpu, link, capability) == has
    for name, *more in (("nvmlDeviceGetNvLinkVersion",), ("nvmlDeviceGetNvLinkCapability", 0)):
        assert process.run(ask, name, gpu, 99, *more) == INVALID
        if not links:
            assert process.run(ask, name, gpu, 0, *more) == NOT_SUPPORTED


def test_of_a_card_its_figures(node):
    process, gpu = node.agent, node.uuids[1]
    process.run(initialise)
    node.gpus.command("set", "sample_ms", 20)
    for name in ("nvmlDeviceGetEncoderUtilization", "nvmlDeviceGetDecoderUtilization"):
        # The period is that of the sample that is shown, of which there is none at first.
        node.gpus.eventually(lambda name=name: process.run(ask, name, gpu) == [0, 20_000])
    bar1 = process.run(ask, "nvmlDeviceGetBAR1MemoryInfo", gpu)
    assert bar1["bar1Total"] == bar1["bar1Free"] + bar1["bar1Used"] == 128 * GIB
    for kind, mhz in enumerate((1980, 1980, 2619, 1545)):
        assert process.run(ask, "nvmlDeviceGetMaxClockInfo", gpu, kind) == mhz
    limit = process.run(ask, "nvmlDeviceGetPowerManagementLimit", gpu)
    assert limit == process.run(ask, "nvmlDeviceGetEnforcedPowerLimit", gpu) == 700_000
    before = time.monotonic()
    millijoules = process.run(ask, "nvmlDeviceGetTotalEnergyConsumption", gpu)
    assert before - 0.001 <= millijoules / 1000 / IDLE_WATTS <= time.monotonic()


def test_of_a_mig_device_that_it_is_one(cut_node):
    device = cut_node.cut("1g.5gb", 3)
    card, process = cut_node.uuids[0], cut_node.agent
    process.run(initialise)
    assert process.run(ask, "nvmlDeviceIsMigDeviceHandle", device.uuid) == 1
    assert process.run(ask, "nvmlDeviceIsMigDeviceHandle", card) == 0
    for name in (
        "nvmlDeviceGetBAR1MemoryInfo",
        "nvmlDeviceGetPowerManagementLimit",
        "nvmlDeviceGetTotalEnergyConsumption",
    ):
        assert process.run(ask, name, device.uuid) == NOT_SUPPORTED, name
        assert process.run(ask, name, card) != NOT_SUPPORTED, name
    for name in ("nvmlDeviceGetEncoderUtilization", "nvmlDeviceGetDecoderUtilization"):
        assert process.run(ask, name, card) == NOT_SUPPORTED, name
