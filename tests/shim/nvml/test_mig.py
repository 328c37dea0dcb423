"""MIG of the simulated driver: modes, parts of instances, and what runs on them."""

from __future__ import annotations

import pytest
from hami_nvidia.nvml.interface import InUse, MigMode, NvmlFailed

from ..simulated import MIB, SimulatedGpus
from .driver_calls import (
    ask,
    cuda_devices,
    left,
    parts,
    told,
    use_memory,
)
from .driver_process import DriverProcess

INVALID = 2
NOT_SUPPORTED = 3
NOT_FOUND = 6
NO_ROOM = 23


def test_turning_mig_on_waits_for_what_runs(node):
    gpu = node.uuids[0]
    busy = node.process("busy")
    busy.run(use_memory, 10)
    with pytest.raises(InUse):
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
