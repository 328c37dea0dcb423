"""The simulated libnvidia-ml.so.1: the plugin sees on it what it sees on its stand-in for NVML, and
the rest of the functions behave as NVML's do."""

from __future__ import annotations

import random
import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pynvml
import pytest
from hami_nvidia.claims import Claim, Owner
from hami_nvidia.discovery import discover
from hami_nvidia.health import HealthWatch
from hami_nvidia.instances import InstanceRefused, Instances
from hami_nvidia.mig import MigInstance, MigPlacement
from hami_nvidia.nvml import GpuLost, MigMode, NvmlAway, NvmlFailed, Recovery, Span, XidEvent
from hami_nvidia.simulated_nvml import SimulatedNvml
from hami_nvidia.simulated_spec import builtin_models

from .builds import SHIM, Build
from .driver_calls import (
    ask,
    code,
    codes,
    cuda_devices,
    error_texts,
    exported,
    forked,
    freed_while_waited_for,
    initialise,
    left,
    next_event,
    of_pair,
    overrun,
    parts,
    running_v1,
    shut_down,
    told,
    use_memory,
    watch_events,
)
from .driver_process import DriverProcess
from .nvml_cards import settings_for, standing_in
from .simulated import MIB, SimulatedGpus

UNINITIALIZED, INVALID, NOT_SUPPORTED, NOT_FOUND, TOO_SMALL = 1, 2, 3, 6, 7
NOT_LOADED, TIMEOUT, LOST, IN_USE, NO_ROOM, OTHER_VERSION = 9, 10, 15, 19, 23, 25
XID, MIG_CHANGED = 0x8, 0x100
NOBODY = 0xFFFF_FFFF


class Node:
    """A daemon with cards, the stand-in with the same ones, and processes with the driver."""

    def __init__(self, folder: Path, build: Build, gpus: Any, stack: ExitStack) -> None:
        self.stand_in, configuration = standing_in(folder, gpus)
        self.gpus = stack.enter_context(SimulatedGpus(folder, build=build, config=configuration))
        self.folder = folder
        self._stack = stack
        self._agent: DriverProcess | None = None

    def process(self, tenant: str = "", visible: str | None = None, **knobs: object) -> DriverProcess:
        env = self.gpus.env(tenant, **knobs)
        if visible is not None:
            env["CUDA_VISIBLE_DEVICES"] = visible
        return self._stack.enter_context(DriverProcess(env))

    @property
    def agent(self) -> DriverProcess:
        """The one process that is the same in every call."""
        if self._agent is None:
            self._agent = self.process("agent")
        return self._agent

    @property
    def nvml(self) -> Any:
        return self.agent.nvml

    @property
    def uuids(self) -> list[str]:
        return [gpu.uuid for gpu in self.stand_in.gpus()]

    def cut(self, profile: str, start: int, card: int = 0) -> Any:
        """A MIG device made through NVML."""
        gpu = self.uuids[card]
        kind = next(k for k in self.nvml.instance_profiles(gpu) if k.name == profile)
        made = self.nvml.create_instance(gpu, kind, Span(start=start, size=kind.spans[0].size))
        self.nvml.create_compute(gpu, made)
        return next(d for d in self.nvml.mig_devices(gpu) if d.gpu_instance == made)


NodeWith = Callable[[Any], Node]


@pytest.fixture
def node_with(shim: Build, tmp_path: Path) -> Iterator[NodeWith]:
    """``node_with("a100-40gx2")``."""
    with ExitStack() as stack:
        yield lambda gpus: Node(tmp_path, shim, gpus, stack)


@pytest.fixture
def cut_node(node_with: NodeWith) -> Node:
    """Two A100s in MIG mode."""
    return node_with([{"model": "a100-40g", "count": 2, "mig": True}])


@pytest.fixture
def node(node_with: NodeWith) -> Node:
    """Two H100s, linked by a switch."""
    return node_with("h100-80gx2")


# The plugin sees the same.


@pytest.mark.parametrize(
    "gpus",
    [
        pytest.param("t4x2, l4", id="small ones"),
        pytest.param("v100-32gx4", id="linked with each other"),
        pytest.param("h100-80gx8", id="linked by a switch"),
        pytest.param([{"model": "a100-80g", "count": 2, "mig": True}], id="cut"),
        pytest.param([{"model": "t4"}, {"model": "h200", "count": 3}], id="mixed"),
    ],
)
def test_cards_links_and_devices_are_those_of_the_stand_in(node_with, gpus):
    node = node_with(gpus)
    settings = settings_for(node.folder, node.stand_in)
    known = {gpu.uuid: gpu for gpu in node.stand_in.gpus()}
    told_of = node.nvml.gpus()
    assert [without_numa(gpu) for gpu in told_of] == [without_numa(gpu) for gpu in known.values()]
    for one in known:
        assert node.nvml.links(one) == list(node.stand_in.links(one))
        for other in known:
            if one != other:
                assert node.nvml.ancestor(one, other) == node.stand_in.ancestor(one, other)
    assert discover(node.nvml, settings) == discover(node.stand_in, settings)


@pytest.mark.parametrize("model", [name for name, model in builtin_models().items() if model.mig])
def test_profiles_are_those_of_the_stand_in(node_with, model):
    node = node_with([{"model": model, "mig": True}])
    (gpu,) = node.uuids
    assert node.nvml.instance_profiles(gpu) == list(node.stand_in.instance_profiles(gpu))
    settings = settings_for(node.folder, node.stand_in, entry={"operatingmode": "mig"})
    assert discover(node.nvml, settings) == discover(node.stand_in, settings)


def without_numa(gpu):
    """NVML does not know it; sysfs does."""
    return {field: getattr(gpu, field) for field in gpu.__dataclass_fields__ if field != "numa"}


def outcome(nvml, name, *args):
    """What a request comes to, without the UUIDs of MIG devices, which each makes up itself."""
    try:
        found = getattr(nvml, name)(*args)
    except NvmlFailed as error:
        kinds = ("Insufficient Resources", "Invalid Argument", "Not Found", "Not Supported", "In use")
        return next((kind for kind in kinds if kind in str(error)), str(error))
    if name == "mig_devices":
        return [(d.gpu_instance, d.compute_instance, d.profile, d.memory_mib) for d in found]
    return found


@pytest.mark.parametrize("seed", range(3))
def test_instances_come_and_go_as_with_the_stand_in(cut_node, seed):
    dice = random.Random(seed)
    gpu = cut_node.uuids[seed % 2]
    kinds = cut_node.stand_in.instance_profiles(gpu)
    for step in range(60):
        existing = cut_node.stand_in.instances(gpu)
        some = dice.choice([*(each.id for each in existing), 3])
        kind = dice.choice(kinds)
        # Not every span is one of the profile's.
        span = dice.choice([*kind.spans, Span(start=1, size=kind.spans[0].size)])
        request = dice.choice(
            [
                ("create_instance", gpu, kind, span),
                ("create_instance", gpu, kind, span),
                ("create_compute", gpu, some),
                ("destroy_compute", gpu, some, 0),
                ("destroy_instance", gpu, some),
            ]
        )
        wanted = outcome(cut_node.stand_in, *request)
        assert outcome(cut_node.nvml, *request) == wanted, (step, request)
    for name in ("instances", "mig_devices"):
        assert outcome(cut_node.nvml, name, gpu) == list(outcome(cut_node.stand_in, name, gpu))


def a_claim(gpu, profile, start, size):
    return Claim(
        gpu=gpu,
        instance=MigInstance(profile=profile, placement=MigPlacement(start=start, size=size)),
        owner=Owner(slice_id="a", pod_uid="pod-a", name="ns/pod, container c"),
    )


def test_the_plugin_makes_finds_and_destroys_instances(cut_node):
    gpu = cut_node.uuids[0]
    instances, claim = Instances(cut_node.nvml), a_claim(gpu, "3g.20gb", 4, 4)
    made = instances.ensure(claim)
    assert instances.ensure(claim) == made
    assert Instances(cut_node.process("restarted").nvml).ensure(claim) == made
    assert [d.uuid for d in cut_node.nvml.mig_devices(gpu)] == [made.mig_uuid]
    with pytest.raises(InstanceRefused):
        instances.ensure(a_claim(gpu, "2g.10gb", 4, 2))
    instances.release(claim, made)
    assert cut_node.nvml.mig_devices(gpu) == []
    assert instances.ensure(claim) == made


# MIG.


def test_turning_mig_on_waits_for_what_runs(node):
    gpu = node.uuids[0]
    busy = node.process("busy")
    busy.run(use_memory, 10)
    with pytest.raises(NvmlFailed, match="In use"):
        node.nvml.set_mig(gpu, enabled=True)
    assert node.nvml.mig_mode(gpu) == MigMode(enabled=False, pending=True)
    busy.__exit__()
    node.gpus.eventually(lambda: node.gpus.used(0) == 0)
    node.nvml.set_mig(gpu, enabled=True)
    assert node.nvml.mig_mode(gpu) == MigMode(enabled=True, pending=True)
    assert node.nvml.links(gpu) == []


def test_turning_mig_off_destroys_all(cut_node):
    cut_node.cut("1g.5gb", 3)
    cut_node.nvml.set_mig(cut_node.uuids[0], enabled=False)
    assert cut_node.nvml.mig_mode(cut_node.uuids[0]) == MigMode(enabled=False, pending=False)
    cut_node.nvml.set_mig(cut_node.uuids[0], enabled=True)
    assert cut_node.nvml.instances(cut_node.uuids[0]) == []


def test_a_change_of_the_mode_may_wait_for_a_reset(node):
    gpu = node.uuids[1]
    node.gpus.command("resets-late", 1, 1)
    with pytest.raises(GpuLost, match="NVML error 16"):
        node.nvml.set_mig(gpu, enabled=True)
    assert node.nvml.mig_mode(gpu) == MigMode(enabled=False, pending=True)
    node.gpus.command("reset", 1)
    assert node.nvml.mig_mode(gpu) == MigMode(enabled=True, pending=True)


def test_cuda_runs_on_a_mig_device_that_it_is_told_of(cut_node):
    device = cut_node.cut("3g.20gb", 4)
    user = cut_node.process("user", visible=device.uuid)
    raw = device.uuid.removeprefix("MIG-").replace("-", "")
    assert user.run(cuda_devices) == [
        (raw, "NVIDIA A100-SXM4-40GB MIG 3g.20gb", device.memory_mib * MIB)
    ]
    pid = user.run(use_memory, 100)
    gpu = cut_node.uuids[0]
    assert cut_node.nvml.busy(device.uuid)
    assert cut_node.nvml.busy(gpu)
    assert not cut_node.nvml.busy(cut_node.uuids[1])
    for asked in (device.uuid, gpu):
        (found,) = cut_node.agent.run(ask, "nvmlDeviceGetComputeRunningProcesses_v3", asked)
        assert (found["pid"], found["gpuInstanceId"], found["computeInstanceId"]) == (
            pid, device.gpu_instance, 0
        )  # fmt: skip
    used = sum(held.bytes for held in cut_node.gpus.ledger() if held.tenant == "user")
    for asked, total in ((device.uuid, device.memory_mib), (gpu, 40960)):
        memory = cut_node.agent.run(ask, "nvmlDeviceGetMemoryInfo", asked)
        assert (memory["total"], memory["used"]) == (total * MIB, used)
    with pytest.raises(NvmlFailed, match="In use"):
        cut_node.nvml.destroy_compute(gpu, device.gpu_instance, 0)
    user.__exit__()
    cut_node.gpus.eventually(lambda: not cut_node.nvml.busy(gpu))
    cut_node.nvml.destroy_compute(gpu, device.gpu_instance, 0)
    cut_node.nvml.destroy_instance(gpu, device.gpu_instance)
    assert cut_node.agent.run(told, "nvmlDeviceGetHandleByUUID", device.uuid.encode()) == NOT_FOUND


def test_a_gpu_instance_can_be_shared_by_several_devices(cut_node):
    gpu = cut_node.uuids[0]
    kind = next(k for k in cut_node.nvml.instance_profiles(gpu) if k.name == "4g.20gb")
    whole = cut_node.nvml.create_instance(gpu, kind, kind.spans[0])
    # Two slices, one, one; then there is no room. A part of three would waste one: there is none.
    made = cut_node.agent.run(parts, gpu, whole, [1, 0, 0, 0, 2])
    assert made == [0, 1, 2, -NO_ROOM, -INVALID]
    devices = cut_node.nvml.mig_devices(gpu)
    assert [d.profile for d in devices] == ["2c.4g.20gb", "1c.4g.20gb", "1c.4g.20gb"]
    assert len({d.uuid for d in devices}) == 3
    sms = [
        cut_node.agent.run(ask, "nvmlDeviceGetAttributes_v2", d.uuid)["multiprocessorCount"]
        for d in devices
    ]
    assert sms == [28, 14, 14]


def test_what_is_left_of_a_card_is_told(cut_node):
    gpu = cut_node.uuids[0]
    cut_node.cut("2g.10gb", 2)
    ids = {kind.name: kind.id for kind in cut_node.nvml.instance_profiles(gpu)}
    found = {name: cut_node.agent.run(left, gpu, id) for name, id in ids.items()}
    assert found == {
        "1g.5gb": 5, "2g.10gb": 2, "3g.20gb": 1, "4g.20gb": 0, "7g.40gb": 0, "1g.5gb+me": 1,
        "1g.10gb": 3,
    }  # fmt: skip


def test_a_card_that_is_cut_has_no_utilisation(cut_node):
    device = cut_node.cut("1g.5gb", 0)
    for asked in (cut_node.uuids[0], device.uuid):
        assert cut_node.agent.run(ask, "nvmlDeviceGetUtilizationRates", asked) == NOT_SUPPORTED
        found = cut_node.agent.run(ask, "nvmlDeviceGetProcessUtilization", asked, 0)
        assert found == NOT_SUPPORTED


def test_a_card_of_another_size_is_cut_in_proportion(shim, tmp_path):
    config = 'gpu name="NVIDIA A100-SXM4-40GB" memory=4096 mig=1\n'
    with (
        SimulatedGpus(tmp_path, build=shim, config=config) as gpus,
        DriverProcess(gpus.env()) as process,
    ):
        (gpu,) = process.nvml.gpus()
        profiles = process.nvml.instance_profiles(gpu.uuid)
        assert [p.memory_mib for p in profiles] == [486, 998, 2009, 2009, 4032, 486, 998]


# Errors and health.


def test_errors_reach_who_watches(node):
    watch = node.nvml.watch(node.uuids)
    assert watch.wait(0) is None
    node.gpus.command("xid", 1, 79)
    node.gpus.command("xid", 0, 31, 2, 0)
    assert watch.wait(20) == XidEvent(xid=79, uuid=node.uuids[1])
    assert watch.wait(20) == XidEvent(
        xid=31, uuid=node.uuids[0], gpu_instance=2, compute_instance=0
    )
    assert watch.wait(0) is None
    watch.close()


def test_the_plugin_sees_devices_fall_ill_and_recover(node):
    now = [0.0]
    settings = settings_for(node.folder, node.stand_in)
    devices = discover(node.nvml, settings).devices
    health = HealthWatch(node.nvml, wait_seconds=0, clock=lambda: now[0])
    changed = lambda: {c.device_id: c.healthy for c in health.check(devices, settings)}  # noqa: E731
    assert changed() == {}
    node.gpus.command("xid", 1, 79)
    assert changed() == {node.uuids[1]: False}
    node.gpus.command("lose", 0)
    assert changed() == {node.uuids[0]: False}
    now[0] += 10_000
    node.gpus.command("find", 0)
    node.gpus.command("recovery", 1, 1)
    assert node.nvml.probe(node.uuids[1]) is Recovery.RESET
    health.check(devices, settings)
    assert node.uuids[0] not in health.ailing()
    assert node.uuids[1] in health.ailing()
    health.close()


def test_a_lost_card_answers_nothing(node):
    lost, well = node.uuids
    watch = node.nvml.watch([lost])
    node.gpus.command("lose", 0)
    for request in (lambda: node.nvml.probe(lost), lambda: watch.wait(20)):
        with pytest.raises(GpuLost):
            request()
    unreadable, gpu = node.nvml.gpus()
    assert "GPU is lost" in unreadable.problem
    assert gpu.uuid == well
    assert lost in node.nvml.watch([lost, well]).refused
    node.gpus.command("find", 0)
    assert node.nvml.probe(lost) is Recovery.NONE


def test_without_a_driver_nothing_works(node):
    watch = node.nvml.watch(node.uuids)
    node.gpus.command("driver", "away")
    for request in (node.nvml.gpus, lambda: watch.wait(20)):
        with pytest.raises(NvmlAway):
            request()
    node.gpus.command("driver", "back")
    assert len(node.nvml.gpus()) == 2


def test_a_daemon_that_dies_is_a_driver_that_is_gone(node):
    assert len(node.nvml.gpus()) == 2
    watch = node.nvml.watch(node.uuids)
    node.gpus.kill()
    for request in (lambda: watch.wait(20), node.nvml.gpus):
        with pytest.raises(NvmlAway):
            request()


def test_links_go_down_and_up(node):
    gpu = node.uuids[0]
    node.gpus.command("link", 0, 3, "down")
    assert len(node.nvml.links(gpu)) == 17
    assert node.agent.run(of_pair, "nvmlDeviceGetP2PStatus", *node.uuids, 2) == 0
    for link in range(18):
        node.gpus.command("link", 0, link, "down")
    assert node.nvml.links(gpu) == []
    assert node.agent.run(of_pair, "nvmlDeviceGetP2PStatus", *node.uuids, 2) == 1
    node.gpus.command("link", 0, 3, "up")
    assert len(node.nvml.links(gpu)) == 1


@pytest.mark.parametrize(
    "words",
    [
        pytest.param("xid 2 79", id="no such card"),
        pytest.param("xid 0", id="no code"),
        pytest.param("xid 0 x", id="no number"),
        pytest.param("link 0 0 sideways", id="no way for a link to be"),
        pytest.param("recovery 0 8", id="no action"),
        pytest.param("driver somewhere", id="no place for a driver"),
    ],
)
def test_commands_that_make_no_sense_are_refused(node, words):
    with pytest.raises(AssertionError, match="error"):
        node.gpus.command(words)


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
    assert process.run(codes, ("nvmlShutdown",), ("nvmlDeviceGetCount_v2", None)) == [UNINITIALIZED] * 2
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


def test_the_stand_in_is_the_plugins(node):
    assert isinstance(node.stand_in, SimulatedNvml)
