"""What a container gets of MIG: the device, and nothing that would limit it a second time."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Event

import pytest
from hami_nvidia.devices.places import NoPlace, places
from hami_nvidia.handover.enforce import NotEnforced
from hami_nvidia.handover.limits import ContextReserves
from hami_nvidia.mig.instances import InstanceRefused, Instances
from hami_nvidia.mig.made_instances import MadeInstances
from hami_nvidia.node_side import enforce, reconcile, release, static_edits
from hami_nvidia.schedule.mig_annotation import MIG_ANNOTATION, decode_mig_allocations
from hami_nvidia.simulation.nvml import SimulatedNvml
from hami_nvidia.simulation.spec import read_simulation

from hami.domain.slices import ContainerEdits

from ..node_builders import (
    a_grant,
    a_node,
    a_slice,
    an_instance,
    gpu_ids,
    reported,
    with_files,
    with_node_spec,
)

CUT = ({"model": "a100-40g", "count": 2, "mig": True},)


def mig_node(tmp_path, gpus=CUT, **settings):
    return a_node(tmp_path, gpus, **({"mode": "mig", "library": None} | settings))


def instances_of(node, gpu):
    return [(i.span.start, i.span.size) for i in node.nvml.instances(gpu)]


def the_uuid(node, gpu):
    (device,) = node.nvml.mig_devices(gpu)
    return device.uuid


# Dynamic MIG.


def test_without_a_spec_the_files_of_gpu_and_instance_are_handed_over(tmp_path):
    node = mig_node(tmp_path)
    gpu = gpu_ids(node)[1]
    capabilities = [f"/dev/nvidia-caps/nvidia-cap{n}" for n in range(1000)]
    with_files(node, "/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl", *capabilities)
    edits = enforce(a_slice(node, an_instance(gpu, "1g.5gb", 6, 1)), node)
    (instance,) = node.nvml.instances(gpu)
    # mig_minors_text: 3 files before, 15 instances a GPU, each with its own and 8 compute files
    minor = 3 + 15 * 9 + 9 * instance.id
    assert [n.container_path for n in edits.device_nodes] == [
        "/dev/nvidiactl",
        "/dev/nvidia1",
        f"/dev/nvidia-caps/nvidia-cap{minor}",
        f"/dev/nvidia-caps/nvidia-cap{minor + 1 + instance.compute_ids[0]}",
    ]
    assert edits.env == {"NVIDIA_VISIBLE_DEVICES": the_uuid(node, gpu)}
    assert edits.mounts == ()


def test_with_the_nodes_spec_one_of_ours_brings_driver_and_files(tmp_path):
    node = mig_node(tmp_path)
    gpu = gpu_ids(node)[0]
    with_node_spec(node, {"0": "/dev/nvidia0", gpu: "/dev/nvidia0"})
    edits = enforce(a_slice(node, an_instance(gpu, "2g.10gb", 0, 2)), node)
    uuid = the_uuid(node, gpu)
    assert edits == ContainerEdits(cdi_devices=(f"k8s.device-plugin.nvidia.com/gpu={uuid}",))
    path = node.settings.cdi_dir / "k8s.device-plugin.nvidia.com-gpu.json"
    spec = json.loads(path.read_text())
    assert spec["containerEdits"]["mounts"], "the driver's libraries"
    (files,) = [
        [n["path"] for n in device["containerEdits"]["deviceNodes"]]
        for device in spec["devices"]
        if device["name"] == uuid
    ]
    assert files[0] == "/dev/nvidia0"
    assert len(files) == 3
    assert all(path.startswith("/dev/nvidia-caps/nvidia-cap") for path in files[1:])


def test_the_same_slice_has_the_same_instance_after_an_agent_was_killed(tmp_path):
    node = mig_node(tmp_path, identity="lock")
    gpu = gpu_ids(node)[0]
    slice = a_slice(node, an_instance(gpu, "3g.20gb", 4, 4))
    before = enforce(slice, node)
    assert enforce(slice, node) == before
    later = restarted(node)
    reconcile([slice], later)
    assert enforce(slice, later) == before
    assert instances_of(node, gpu) == [(4, 4)]


def restarted(node):
    nvml = SimulatedNvml(read_simulation(node.settings.simulated_nvml, "worker-1"))
    return replace(
        node,
        nvml=nvml,
        instances=Instances(nvml),
        made=MadeInstances(),
        contexts=ContextReserves(nvml),
    )


def test_a_released_slice_leaves_no_instance(tmp_path):
    node = mig_node(tmp_path)
    gpu = gpu_ids(node)[0]
    mine = a_slice(node, an_instance(gpu, "1g.5gb", 6, 1))
    other = a_slice(node, an_instance(gpu, "1g.5gb", 5, 1), number=2)
    enforce(mine, node)
    enforce(other, node)
    release(mine, restarted(node))
    release(mine, node)
    release(a_slice(node, an_instance(gpu, "1g.5gb", 4, 1), number=3), node)
    assert instances_of(node, gpu) == [(5, 1)]


def test_an_instance_in_use_is_not_destroyed(tmp_path):
    node = mig_node(tmp_path)
    gpu = gpu_ids(node)[0]
    slice = a_slice(node, an_instance(gpu, "1g.5gb", 6, 1))
    enforce(slice, node)
    with node.nvml.state.changing() as state:
        state.busy.append(the_uuid(node, gpu))
    with pytest.raises(InstanceRefused, match="a process still uses"):
        release(slice, node)
    assert instances_of(node, gpu) == [(6, 1)]


# The pod's annotation.


def annotated(*entries):
    return {
        MIG_ANNOTATION: json.dumps(
            [
                {
                    "containerIndex": container,
                    "deviceIndex": 0,
                    "gpuUUID": gpu,
                    "profile": "1g.5gb",
                    "placement": {"start": start, "size": 1},
                }
                for container, gpu, start in entries
            ]
        )
    }


def known(edits):
    """The MIG UUID of each container, as the annotation says."""
    entries = decode_mig_allocations(edits.pod_annotations[MIG_ANNOTATION])
    return {entry.container_index: entry.mig_uuid for entry in entries}


def test_the_annotation_is_completed_with_the_instance_that_was_made(tmp_path):
    node = mig_node(tmp_path)
    gpu = gpu_ids(node)[0]
    pod = annotated((0, gpu, 6))
    edits = enforce(a_slice(node, an_instance(gpu, "1g.5gb", 6, 1), pod_annotations=pod), node)
    (instance,) = node.nvml.instances(gpu)
    assert json.loads(edits.pod_annotations[MIG_ANNOTATION]) == [
        {
            "containerIndex": 0,
            "deviceIndex": 0,
            "gpuUUID": gpu,
            "profile": "1g.5gb",
            "placement": {"start": 6, "size": 1},
            "migUUID": the_uuid(node, gpu),
            "gpuInstanceID": instance.id,
            "computeInstanceID": instance.compute_ids[0],
        }
    ]


def test_the_second_container_keeps_what_the_first_wrote(tmp_path):
    """Although the pod was not seen again in between."""
    node = mig_node(tmp_path)
    gpu = gpu_ids(node)[0]
    pod = annotated((0, gpu, 6), (1, gpu, 5))
    shared = {"pod_uid": "uid-1", "pod_annotations": pod}
    first = a_slice(node, an_instance(gpu, "1g.5gb", 6, 1), **shared)
    second = a_slice(node, an_instance(gpu, "1g.5gb", 5, 1), number=2, **shared)
    assert known(enforce(first, node))[1] is None
    both = known(enforce(second, node))
    assert None not in both.values()
    assert both[0] != both[1]


def test_containers_that_share_an_instance_are_both_completed(tmp_path):
    """An init container and a later one."""
    node = mig_node(tmp_path)
    gpu = gpu_ids(node)[0]
    pod = annotated((0, gpu, 6), (1, gpu, 6))
    edits = enforce(a_slice(node, an_instance(gpu, "1g.5gb", 6, 1), pod_annotations=pod), node)
    assert set(known(edits).values()) == {the_uuid(node, gpu)}


@pytest.mark.parametrize("text", ["", "[]", "not JSON"])
def test_an_annotation_that_says_nothing_is_left_alone(tmp_path, text):
    node = mig_node(tmp_path)
    grant = an_instance(gpu_ids(node)[0], "1g.5gb", 6, 1)
    slice = a_slice(node, grant, pod_annotations={MIG_ANNOTATION: text})
    assert enforce(slice, node).pod_annotations == {}


# What is refused.


@pytest.mark.parametrize("identity", ["kubelet", "lock"])
def test_a_whole_gpu_is_not_to_be_had_in_mode_mig(tmp_path, identity):
    node = mig_node(tmp_path, identity=identity)
    with pytest.raises(NotEnforced, match="this node is in mode mig"):
        enforce(a_slice(node, a_grant(gpu_ids(node)[0])), node)


def test_an_instance_is_not_to_be_had_in_another_mode(tmp_path):
    node = mig_node(tmp_path, mode="hami-core")
    with pytest.raises(NotEnforced, match="this node is not in mode mig"):
        enforce(a_slice(node, an_instance(gpu_ids(node)[0], "1g.5gb", 6, 1)), node)


def test_a_container_that_had_its_instance_keeps_it_when_the_mode_changes(tmp_path):
    node = mig_node(tmp_path)
    slice = a_slice(node, an_instance(gpu_ids(node)[0], "1g.5gb", 6, 1))
    before = enforce(slice, node)
    changed = replace(node, settings=replace(node.settings, mode="hami-core"))
    assert enforce(slice, changed) == before
    release(slice, changed)
    assert instances_of(node, gpu_ids(node)[0]) == []


def test_reservations_that_are_too_few_are_refused(tmp_path):
    node = mig_node(tmp_path)
    gpu = gpu_ids(node)[0]
    with pytest.raises(NotEnforced, match="has 1 MIG reservations, requested 2 devices"):
        enforce(a_slice(node, an_instance(gpu, "1g.5gb", 6, 1), a_grant(gpu)), node)
    assert instances_of(node, gpu) == []


# Static MIG.


def cut_by_hand(node):
    """A MIG device that somebody else made on the first GPU."""
    gpu = gpu_ids(node)[0]
    profile = next(p for p in node.nvml.instance_profiles(gpu) if p.name == "1g.5gb")
    made = node.nvml.create_instance(gpu, profile, profile.spans[0])
    node.nvml.create_compute(gpu, made)
    return the_uuid(node, gpu)


@pytest.mark.parametrize("identity", ["kubelet", "lock"])
def test_a_mig_device_that_was_granted_has_no_limit(tmp_path, identity):
    node = mig_node(tmp_path, mode="hami-core", mig_strategy="single", identity=identity)
    uuid = cut_by_hand(node)
    slice = a_slice(node, a_grant(uuid, 4864, 100))
    assert enforce(slice, node) == ContainerEdits(env={"NVIDIA_VISIBLE_DEVICES": uuid})
    release(slice, node)
    assert the_uuid(node, gpu_ids(node)[0]) == uuid, "it is not ours to destroy"


def test_devices_that_kubelet_chose_are_named_by_cdi_where_it_can_be(tmp_path):
    """And NVIDIA's runtime, if it reads the answer too, shows nothing else."""
    node = mig_node(tmp_path, mode="hami-core", mig_strategy="mixed")
    uuid = cut_by_hand(node)
    with_node_spec(node, {uuid: "/dev/nvidia0"})
    assert static_edits([uuid], node) == ContainerEdits(
        env={"NVIDIA_VISIBLE_DEVICES": "void"}, cdi_devices=(f"nvidia.com/gpu={uuid}",)
    )


def test_a_mig_device_without_its_files_is_refused_on_real_hardware(tmp_path):
    node = mig_node(tmp_path, mode="hami-core", mig_strategy="single")
    uuid = cut_by_hand(node)
    (tmp_path / "proc/driver/nvidia-caps/mig-minors").write_text("config 1\nmonitor 2\n")
    real = replace(node, settings=replace(node.settings, simulated_nvml=None))
    with pytest.raises(Exception, match=f"MIG device {uuid}: .*mig-minors names no capability"):
        enforce(a_slice(node, a_grant(uuid)), real)


# The agent's start.


def test_reconcile_turns_mig_on_and_needs_no_library(tmp_path):
    node = mig_node(tmp_path, "a100-40gx2")
    reconcile([], node)
    assert [node.nvml.mig_mode(gpu).enabled for gpu in gpu_ids(node)] == [True, True]
    assert not (tmp_path / "usr-local").exists()


def test_reconcile_destroys_what_no_slice_has(tmp_path):
    node = mig_node(tmp_path)
    gpu = gpu_ids(node)[0]
    kept = a_slice(node, an_instance(gpu, "1g.5gb", 6, 1))
    enforce(kept, node)
    enforce(a_slice(node, an_instance(gpu, "1g.5gb", 5, 1), number=2), node)
    reconcile([kept], restarted(node))
    assert instances_of(node, gpu) == [(6, 1)]


def test_an_instance_is_kept_for_a_slice_of_which_our_record_alone_is_whole(tmp_path):
    """Its container may run, though nobody can read with what."""
    node = mig_node(tmp_path)
    gpu = gpu_ids(node)[0]
    slice = a_slice(node, an_instance(gpu, "1g.5gb", 6, 1))
    enforce(slice, node)
    reconcile([replace(slice, grants=(), pod_uid="", namespace="", pod="")], restarted(node))
    assert instances_of(node, gpu) == [(6, 1)]


def test_a_restarted_agent_knows_what_it_made_for_the_pods_other_container(tmp_path):
    """It was killed before that was written on the pod."""
    node = mig_node(tmp_path)
    gpu = gpu_ids(node)[0]
    shared = {"pod_uid": "uid-1", "pod_annotations": annotated((0, gpu, 6), (1, gpu, 5))}
    first = a_slice(node, an_instance(gpu, "1g.5gb", 6, 1), **shared)
    second = a_slice(node, an_instance(gpu, "1g.5gb", 5, 1), number=2, **shared)
    enforce(first, node)
    later = restarted(node)
    reconcile([first], later)
    assert None not in known(enforce(second, later)).values()


def test_containers_at_once_are_all_in_our_spec(tmp_path, monkeypatch):
    """Who looked for the devices first must not write last, without those that came since."""
    node = mig_node(tmp_path)
    gpu = gpu_ids(node)[0]
    with_node_spec(node, {gpu: "/dev/nvidia0"})
    looked, second_is_done = Event(), Event()

    def slow(*args):
        found = places(*args)
        if not looked.is_set():
            looked.set()
            second_is_done.wait(0.2)  # it never is, while the first one holds the lock
        return found

    monkeypatch.setattr("hami_nvidia.handover.hardware.places", slow)
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(enforce, a_slice(node, an_instance(gpu, "1g.5gb", 0, 1)), node)
        assert looked.wait(20)
        slice = a_slice(node, an_instance(gpu, "1g.5gb", 1, 1), number=2)
        second = threads.submit(enforce, slice, node)
        second.add_done_callback(lambda _: second_is_done.set())
        made = [first.result(), second.result()]
    spec = json.loads((node.settings.cdi_dir / "k8s.device-plugin.nvidia.com-gpu.json").read_text())
    named = {f"{spec['kind']}={device['name']}" for device in spec["devices"]}
    assert {name for edits in made for name in edits.cdi_devices} <= named


def test_reconcile_leaves_gpus_of_other_modes_alone(tmp_path):
    node = a_node(tmp_path, CUT, mig_strategy="single")
    uuid = cut_by_hand(node)
    reconcile([], node)
    assert the_uuid(node, gpu_ids(node)[0]) == uuid
    assert (tmp_path / "usr-local/vgpu/ld.so.preload").exists()


def test_reconcile_tells_everything_that_went_wrong(tmp_path):
    node = a_node(tmp_path, identity="lock", library=None, list_strategies=("cdi-cri",))
    with pytest.raises(NotEnforced) as error:
        reconcile([], node)
    assert "there is no libvgpu.so" in str(error.value)
    assert "needs a CDI spec" in str(error.value)


def test_what_cannot_be_done_yet_is_reported(tmp_path):
    node = mig_node(tmp_path, "a100-40g")
    with node.nvml.state.changing() as state:
        state.busy.append(gpu_ids(node)[0])
    reconcile([], node)
    assert any("MIG is turned on later" in text for text in reported(node))


def test_a_device_without_files_does_not_stand_in_the_way_of_others(tmp_path):
    node = mig_node(tmp_path, mode="hami-core", mig_strategy="mixed", identity="lock")
    uuid, whole = cut_by_hand(node), gpu_ids(node)[1]
    (tmp_path / "proc/driver/nvidia-caps/mig-minors").unlink()
    for strategy in ("uuid", "index"):
        settings = replace(
            node.settings, simulated_nvml=None, list_strategies=("cdi-cri",), id_strategy=strategy
        )
        real = replace(node, settings=settings)
        with_node_spec(node, {"0": "/dev/nvidia0", "1": "/dev/nvidia1"})
        name = whole if strategy == "uuid" else "1"
        assert static_edits([whole], real).cdi_devices == (
            f"k8s.device-plugin.nvidia.com/gpu={name}",
        )
        with pytest.raises(NoPlace, match="names no capability file"):
            static_edits([uuid], real)


def test_a_gpu_that_fails_does_not_hide_the_others(tmp_path):
    node = mig_node(tmp_path, mode="hami-core", mig_strategy="mixed")
    with node.nvml.state.changing() as state:
        state.failing["mig_devices"] = "Unknown Error"
    assert list(node.places()) == gpu_ids(node)
