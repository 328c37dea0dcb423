"""NVML's functions, one by one: event sets, processes, figures, sessions."""

from __future__ import annotations

import re
import subprocess

import pynvml
import pytest

from ..builds import SHIM
from ..simulated import MIB, SimulatedGpus
from .driver_calls import (
    ask,
    code,
    codes,
    error_texts,
    exported,
    forked,
    freed_while_waited_for,
    initialise,
    next_event,
    overrun,
    running_v1,
    shut_down,
    told,
    use_memory,
    watch_events,
)
from .driver_process import DriverProcess

UNINITIALIZED = 1
INVALID = 2
NOT_SUPPORTED = 3
NOT_FOUND = 6
TOO_SMALL = 7
NOT_LOADED = 9
TIMEOUT = 10
OTHER_VERSION = 25
XID = 0x8
MIG_CHANGED = 0x100
NOBODY = 0xFFFF_FFFF


# Event sets.


def test_event_sets_deliver_what_was_registered(cut_node):
    process, (one, other) = cut_node.agent, cut_node.uuids
    process.run(initialise)
    assert process.run(watch_events, XID, one) == [0]
    cut_node.gpus.command("xid", 1, 13)
    cut_node.cut("1g.5gb", 0)
    cut_node.gpus.command("xid", 0, 14)
    assert process.run(next_event, 20_000) == (XID, 14, NOBODY, NOBODY, one)
    assert process.run(next_event, 0) == TIMEOUT
    assert process.run(watch_events, MIG_CHANGED, one, other) == [0, 0]
    cut_node.cut("1g.5gb", 5, card=1)
    found = process.run(next_event, 20_000)
    assert (found[0], found[4]) == (MIG_CHANGED, other)


def test_the_first_wait_knows_nothing_of_instances(cut_node):
    process, (one, _) = cut_node.agent, cut_node.uuids
    process.run(initialise)
    process.run(watch_events, XID, one)
    cut_node.gpus.command("xid", 0, 43, 1, 0)
    assert process.run(next_event, 20_000, 1) == (XID, 43, 77, 77, one)


def test_no_event_before_registering_is_delivered(node):
    node.gpus.command("xid", 0, 79)
    node.agent.run(initialise)
    node.agent.run(watch_events, XID, node.uuids[0])
    assert node.agent.run(next_event, 0) == TIMEOUT


def test_more_events_than_there_is_room_for_lose_the_oldest(node):
    node.agent.run(initialise)
    node.agent.run(watch_events, XID, node.uuids[0])
    for number in range(100):
        node.gpus.command("xid", 0, number)
    seen = []
    while (found := node.agent.run(next_event, 0)) != TIMEOUT:
        seen.append(found[1])
    assert seen == list(range(36, 100))


def test_types_that_a_card_does_not_know_are_refused(node_with):
    node = node_with("t4")
    node.agent.run(initialise)
    assert node.agent.run(watch_events, MIG_CHANGED, node.uuids[0]) == [NOT_SUPPORTED]
    assert node.agent.run(ask, "nvmlDeviceGetSupportedEventTypes", node.uuids[0]) & XID


def test_a_set_may_be_freed_while_somebody_waits(node):
    node.agent.run(initialise)
    assert node.agent.run(freed_while_waited_for, node.uuids[0]) == [INVALID, INVALID]


# Processes and figures.


def test_processes_are_listed_with_what_the_ledger_says(node):
    pids = [node.process(tenant).run(use_memory, size) for tenant, size in (("a", 64), ("b", 128))]
    held = [node.gpus.held(tenant).bytes for tenant in ("a", "b")]
    wanted = dict(zip(pids, held, strict=True))
    node.agent.run(initialise)
    gpu = node.uuids[0]
    for version in (2, 3):
        name = f"nvmlDeviceGetComputeRunningProcesses_v{version}"
        found = node.agent.run(ask, name, gpu)
        assert {each["pid"]: each["usedGpuMemory"] for each in found} == wanted
        assert {each["gpuInstanceId"] for each in found} == {NOBODY}
    first = node.agent.run(running_v1, "nvmlDeviceGetComputeRunningProcesses", gpu, 8)
    assert dict(first) == wanted
    for room in (0, 1):
        short = node.agent.run(running_v1, "nvmlDeviceGetComputeRunningProcesses", gpu, room)
        assert short == (TOO_SMALL, 2)
    details = node.agent.run(
        ask, "nvmlDeviceGetRunningProcessDetailList", gpu, pynvml.nvmlProcessDetailList_v1, 0
    )
    assert {each["pid"] for each in details} == set(pids)
    for kind in ("Graphics", "MPSCompute"):
        assert node.agent.run(ask, f"nvmlDeviceGet{kind}RunningProcesses_v3", gpu) == []
    assert node.agent.run(ask, "nvmlDeviceGetComputeRunningProcesses_v3", node.uuids[1]) == []


def test_under_mps_figures_of_processes_are_not_known(node):
    pid = node.process("a").run(use_memory, 64)
    process = node.process("agent", NVML_MPS=1)
    process.run(initialise)
    gpu = node.uuids[0]
    for kind in ("Compute", "MPSCompute"):
        (found,) = process.run(ask, f"nvmlDeviceGet{kind}RunningProcesses_v3", gpu)
        assert (found["pid"], found["usedGpuMemory"]) == (pid, None)
    assert process.run(ask, "nvmlDeviceGetProcessUtilization", gpu, 0) == NOT_SUPPORTED


def test_memory_has_a_second_structure(node):
    process = node.process("a", NVML_RESERVED=500 * MIB)
    process.run(use_memory, 100)
    process.run(initialise)
    gpu, total = node.uuids[0], 81559 * MIB
    used = node.gpus.used(0)
    second = process.run(ask, "nvmlDeviceGetMemoryInfo", gpu, pynvml.nvmlMemory_v2)
    assert {k: second[k] for k in ("total", "reserved", "used", "free")} == {
        "total": total, "reserved": 500 * MIB, "used": used, "free": total - used - 500 * MIB
    }  # fmt: skip
    first = process.run(ask, "nvmlDeviceGetMemoryInfo", gpu)
    assert (first["used"], first["free"]) == (used + 500 * MIB, second["free"])
    for version in (0, 1, pynvml.nvmlMemory_v2 + 8):
        if version:
            found = process.run(ask, "nvmlDeviceGetMemoryInfo", gpu, version)
            assert found == OTHER_VERSION


@pytest.mark.parametrize(
    ("name", "size", "args"),
    [
        pytest.param("nvmlDeviceGetPciInfo", 52, (), id="the first PCI structure"),
        pytest.param("nvmlDeviceGetPciInfo_v2", 52, (), id="the second"),
        pytest.param("nvmlDeviceGetPciInfo_v3", 68, (), id="the third"),
        pytest.param("nvmlDeviceGetNvLinkRemotePciInfo", 52, (0,), id="a link's end, as it was"),
        pytest.param("nvmlDeviceGetNvLinkRemotePciInfo_v2", 68, (0,), id="a link's end"),
        pytest.param("nvmlDeviceGetMemoryInfo", 24, (), id="memory"),
    ],
)
def test_nothing_is_written_behind_a_structure(node, name, size, args):
    node.agent.run(initialise)
    assert node.agent.run(overrun, name, node.uuids[0], size, *args) == 0


ONCE_FOR_ALL = [
    ("nvmlDeviceGetIndex", 1),
    ("nvmlDeviceGetMinorNumber", 1),
    ("nvmlDeviceGetArchitecture", 9),
    ("nvmlDeviceGetCudaComputeCapability", (9, 0)),
    ("nvmlDeviceGetNumGpuCores", 16896),
    ("nvmlDeviceGetNumaNodeId", NOT_SUPPORTED),
    ("nvmlDeviceGetMaxMigDeviceCount", 0),
    ("nvmlDeviceGetUtilizationRates", {"gpu": 0, "memory": 0}),
    ("nvmlDeviceGetEnforcedPowerLimit", 700_000),
    ("nvmlDeviceGetPersistenceMode", 1),
    ("nvmlDeviceGetPerformanceState", 0),
]


def test_the_rest_is_told_too(node):
    node.agent.run(initialise)
    gpu = node.uuids[1]
    for name, wanted in ONCE_FOR_ALL:
        found = node.agent.run(ask, name, gpu)
        assert (tuple(found) if isinstance(found, list) else found) == wanted, name
    assert node.agent.run(ask, "nvmlDeviceGetClockInfo", gpu, 2) == 2619
    assert node.agent.run(ask, "nvmlDeviceGetTemperature", gpu, 0) == 30
    assert node.agent.run(ask, "nvmlDeviceGetPowerUsage", gpu) == 70_000
    serial = node.agent.run(ask, "nvmlDeviceGetSerial", gpu)
    bus = node.agent.run(ask, "nvmlDeviceGetPciInfo", gpu)["busId"]
    for found in (
        node.agent.run(told, "nvmlDeviceGetHandleBySerial", serial),
        node.agent.run(told, "nvmlDeviceGetHandleByPciBusId", bus),
        node.agent.run(told, "nvmlDeviceGetHandleByPciBusId", bus[4:].lower()),
        node.agent.run(told, "nvmlDeviceGetHandleByIndex", 1),
    ):
        assert found == gpu
    assert node.agent.run(told, "nvmlDeviceGetHandleByIndex", 2) == INVALID
    assert node.agent.run(told, "nvmlDeviceGetHandleByPciBusId", "0000:ff:00.0") == NOT_FOUND


def test_what_a_container_is_not_given_it_does_not_see(node):
    process = node.process("a", VISIBLE=node.uuids[1])
    process.run(initialise)
    assert process.run(told, "nvmlDeviceGetCount") == 1
    assert process.run(told, "nvmlDeviceGetHandleByIndex", 0) == node.uuids[1]
    assert process.run(told, "nvmlDeviceGetHandleByUUID", node.uuids[0].encode()) == NOT_FOUND
    assert process.run(ask, "nvmlDeviceGetIndex", node.uuids[1]) == 0
    assert process.run(ask, "nvmlDeviceGetMinorNumber", node.uuids[1]) == 1


# Sessions.


def test_a_session_is_needed_and_counted(node):
    process = node.process("a")
    assert (
        process.run(codes, ("nvmlShutdown",), ("nvmlDeviceGetCount_v2", None))
        == [UNINITIALIZED] * 2
    )
    assert process.run(codes, ("nvmlInit",), ("nvmlInit_v2",), ("nvmlInitWithFlags", 1)) == [0] * 3
    assert process.run(codes, ("nvmlDeviceGetCount_v2", None)) == [INVALID]
    assert process.run(codes, *[("nvmlShutdown",)] * 4) == [0, 0, 0, UNINITIALIZED]
    assert process.run(codes, ("nvmlDeviceGetCount", None)) == [UNINITIALIZED]
    assert process.run(code, "nvmlInitWithFlags", 1 << 9) == INVALID


def test_the_sets_of_a_session_end_with_it(node):
    process = node.process("a")
    process.run(initialise)
    process.run(watch_events, XID, node.uuids[0])
    process.run(shut_down)
    process.run(initialise)
    assert process.run(next_event, 0) == INVALID


def test_errors_have_texts_that_the_plugin_knows(node):
    assert node.agent.run(error_texts, [0, 2, 3, 6, 15, 19, 23, 4321]) == [
        "Success", "Invalid Argument", "Not Supported", "Not Found", "GPU is lost",
        "In use by another client", "Insufficient Resources", "Unknown Error",
    ]  # fmt: skip


def test_a_forked_child_can_go_on(node):
    node.agent.run(initialise)
    assert node.agent.run(forked, node.uuids[0]) == 0
    assert isinstance(node.agent.run(ask, "nvmlDeviceGetMemoryInfo", node.uuids[0]), dict)


def test_without_a_daemon_there_is_no_driver(shim, tmp_path):
    for folder in ({}, {"HAMI_SIM_DIR": str(tmp_path)}):
        with DriverProcess({**shim.environment(), **folder}) as process:
            assert process.run(codes, ("nvmlInit_v2",), ("nvmlShutdown",)) == [
                NOT_LOADED, UNINITIALIZED
            ]  # fmt: skip


@pytest.mark.parametrize("flavour", ["shim", "shim_asan", "shim_tsan"])
def test_many_threads_may_ask_at_once(flavour, request, tmp_path):
    build = request.getfixturevalue(flavour)
    config = (
        'gpu name="NVIDIA A100-SXM4-40GB" mig=1 pci=00000000:07:00.0\n'
        "gpu pci=00000000:08:00.0 uuid=GPU-00000000-0000-0000-0000-000000000001\n"
    )
    with SimulatedGpus(tmp_path, build=build, config=config) as gpus:
        process = subprocess.Popen(
            [build.program("nvml_threads"), "500"],
            env=gpus.env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        for number in range(20):
            gpus.command("xid", 1, number)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, ""), out


def test_every_function_of_the_header_is_there(node):
    header = (SHIM / "include" / "hami_nvml.h").read_text()
    names = re.findall(r"^(?:nvmlReturn_t|const char \*) ?(nvml[A-Z]\w+)\(", header, re.MULTILINE)
    assert len(names) > 90
    assert node.agent.run(exported, names) == []
