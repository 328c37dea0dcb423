"""What a container gets through the CDI spec of its slice, with identity ``kubelet``."""

from __future__ import annotations

import json
import re

import pytest
from hami_nvidia.devices.places import NoPlace
from hami_nvidia.handover.library import LibraryMissing
from hami_nvidia.node_side import enforce

from hami.domain.slices import Mount, PageSettings

from ..node_builders import (
    a_grant,
    a_node,
    a_slice,
    gpu_ids,
    reported,
    with_files,
    with_node_spec,
)


def cdi_node(tmp_path, **settings):
    """A node whose own spec names its GPUs by UUID."""
    node = a_node(tmp_path, **settings)
    with_node_spec(node, {gpu: f"/dev/nvidia{n}" for n, gpu in enumerate(gpu_ids(node))})
    return node


def test_the_whole_of_a_shared_gpu(tmp_path):
    node = cdi_node(tmp_path)
    gpu = gpu_ids(node)[0]
    edits = enforce(a_slice(node, a_grant(gpu, 3000, 30)), node)
    directory = tmp_path / "usr-local/vgpu"
    (library,) = directory.glob("libvgpu.so.*")
    assert dict(edits.env) == {
        "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
        "CUDA_DEVICE_SM_LIMIT": "30",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": edits.env["CUDA_DEVICE_MEMORY_SHARED_CACHE"],
        "CUDA_REDIRECT": f"{directory}/libvgpu.so",
        "LIBCUDA_LOG_LEVEL": "1",
    }
    assert edits.mounts == (
        Mount(host_path=str(library), container_path=f"{directory}/libvgpu.so"),
        Mount(host_path=f"{directory}/ld.so.preload", container_path="/etc/ld.so.preload"),
    )
    assert edits.cdi_devices == (f"nvidia.com/gpu={gpu}",)
    assert edits.device_nodes == ()
    assert edits.page == PageSettings(context_reserve_mib={gpu: 442})
    assert (edits.annotations, edits.pod_annotations) == ({}, {})
    assert reported(node) == []


@pytest.mark.parametrize("name", ["nvidia.yaml", "nvidia.json"])
def test_the_nodes_spec_may_be_yaml_or_json(tmp_path, name):
    node = a_node(tmp_path)
    gpu = gpu_ids(node)[0]
    with_node_spec(node, {gpu: "/dev/nvidia0"}, name=name)
    assert enforce(a_slice(node), node).cdi_devices == (f"nvidia.com/gpu={gpu}",)


def test_a_spec_by_index_serves_through_one_of_ours(tmp_path):
    """Which GPU a number was is told by its file, not by its place."""
    node = a_node(tmp_path)
    first, second = gpu_ids(node)
    with_node_spec(node, {"0": "/dev/nvidia1", "1": "/dev/nvidia0", "all": "/dev/nvidia7"})
    edits = enforce(a_slice(node, a_grant(second)), node)
    assert edits.cdi_devices == (f"k8s.device-plugin.nvidia.com/gpu={second}",)
    path = node.settings.cdi_dir / "k8s.device-plugin.nvidia.com-gpu.json"
    devices = {d["name"]: d["containerEdits"] for d in json.loads(path.read_text())["devices"]}
    assert devices == {
        first: {"deviceNodes": [{"path": "/dev/nvidia0"}]},
        second: {"deviceNodes": [{"path": "/dev/nvidia1"}]},
    }


def test_several_gpus_have_a_limit_of_compute_each(tmp_path):
    node = cdi_node(tmp_path)
    first, second = gpu_ids(node)
    edits = enforce(a_slice(node, a_grant(first, 1000, 20), a_grant(second, 2000, 70)), node)
    assert {name: value for name, value in edits.env.items() if "LIMIT" in name} == {
        "CUDA_DEVICE_MEMORY_LIMIT_0": "1000m",
        "CUDA_DEVICE_MEMORY_LIMIT_1": "2000m",
        "CUDA_DEVICE_SM_LIMIT": "20",
        "CUDA_DEVICE_SM_LIMIT_0": "20",
        "CUDA_DEVICE_SM_LIMIT_1": "70",
    }
    assert edits.cdi_devices == (f"nvidia.com/gpu={first}", f"nvidia.com/gpu={second}")


def test_the_devices_of_modes_and_channels_are_named(tmp_path):
    """CDI brings what NVIDIA's runtime would add for a variable."""
    node = cdi_node(tmp_path, gds=True, mofed=True, gdrcopy=True, imex_channels=(0,))
    files = [
        "/dev/gdrdrv",
        "/dev/nvidia-fs0",
        "/dev/infiniband/rdma_cm",
        "/dev/infiniband/uverbs0",
        "/dev/nvidia-caps-imex-channels/channel0",
    ]
    with_files(node, *files, "/etc/cufile.json", "/run/udev")
    edits = enforce(a_slice(node), node)
    assert sorted(n.container_path for n in edits.device_nodes) == sorted(files)
    assert {"/etc/cufile.json", "/run/udev"} <= {m.container_path for m in edits.mounts}
    assert "NVIDIA_GDS" not in edits.env


# A node without a CDI spec.


def test_without_a_spec_the_files_are_handed_over_and_somebody_is_told(tmp_path):
    node = a_node(tmp_path, mofed=True)
    with_files(node, "/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/infiniband/uverbs0")
    edits = enforce(a_slice(node), node)
    assert [n.container_path for n in edits.device_nodes] == [
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
        "/dev/nvidia0",
        "/dev/infiniband/uverbs0",
    ]
    assert edits.cdi_devices == ()
    assert edits.env["NVIDIA_VISIBLE_DEVICES"] == gpu_ids(node)[0]
    assert edits.env["NVIDIA_MOFED"] == "enabled"
    assert edits.env["CUDA_DEVICE_MEMORY_LIMIT_0"] == "3000m"
    (told,) = reported(node)
    assert "no CDI spec of kind nvidia.com/gpu" in told
    assert "nvidia-ctk cdi generate" in told


def test_without_a_spec_a_gpu_that_is_gone_is_refused(tmp_path):
    node = a_node(tmp_path)
    with pytest.raises(NoPlace, match="GPU-gone"):
        enforce(a_slice(node, a_grant("GPU-gone")), node)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("a.yaml", "kind: [nvidia.com/gpu", id="broken YAML"),
        pytest.param("a.json", '{"kind": "nvidia.com/gpu"', id="broken JSON"),
        pytest.param("a.json", '["nvidia.com/gpu"]', id="no object"),
        pytest.param("a.yaml", "kind: other.com/gpu # nvidia.com/gpu", id="another kind"),
        pytest.param("a.txt", '{"kind": "nvidia.com/gpu"}', id="another ending"),
        pytest.param("a.json", '{"kind": "nvidia.com/gpu", "x": "' + "x" * (4 << 20) + '"}', id="a huge file"),
        pytest.param("a.json", '{"kind": "nvidia.com/gpu", "devices": 5}', id="devices that are none"),
        pytest.param("a.json", '{"kind": "nvidia.com/gpu", "devices": [1, {"name": "0"}]}', id="a device that is none"),
        pytest.param("a.yaml", "{kind: nvidia.com/gpu, devices: [{name: '1', containerEdits: 3}]}", id="edits that are none"),
        pytest.param("a.yaml", "kind: !!python/object/apply:os.system [nvidia.com/gpu]", id="YAML that wants to run"),
    ],
)  # fmt: skip
def test_what_is_no_spec_of_the_kind_does_not_disturb(tmp_path, name, text):
    node = a_node(tmp_path)
    folder = node.settings.cdi_dirs[0]
    folder.mkdir()
    (folder / name).write_text(text)
    assert enforce(a_slice(node), node).cdi_devices == ()
    with_node_spec(node, {gpu_ids(node)[0]: "/dev/nvidia0"})
    assert enforce(a_slice(node), node).cdi_devices != ()


@pytest.mark.parametrize(
    "text",
    [
        pytest.param('{"kind": "nvidia.com/gpu"}', id="no devices"),
        pytest.param('{"kind": "nvidia.com/gpu", "devices": [{"name": "0", "containerEdits": {"deviceNodes": [7]}}], "containerEdits": {"hooks": 3}}', id="odd edits"),
        pytest.param('{"kind": "nvidia.com/gpu", "devices": [{"name": "0", "containerEdits": {"deviceNodes": 7}}]}', id="odder edits"),
    ],
)  # fmt: skip
def test_an_odd_spec_is_read_as_far_as_it_goes(tmp_path, text):
    node = a_node(tmp_path)
    node.settings.cdi_dirs[1].mkdir()
    (node.settings.cdi_dirs[1] / "a.json").write_text(text)
    (name,) = enforce(a_slice(node), node).cdi_devices
    assert name == f"k8s.device-plugin.nvidia.com/gpu={gpu_ids(node)[0]}"


# The limits page.


@pytest.mark.parametrize(
    ("settings", "env", "expected"),
    [
        pytest.param({}, {}, ("default", 1), id="nothing said"),
        pytest.param({}, {"CUDA_TASK_PRIORITY": "0"}, ("default", 0), id="a high priority"),
        pytest.param({}, {"CUDA_TASK_PRIORITY": "-1"}, ("default", 1), id="no priority below 0"),
        pytest.param({}, {"CUDA_TASK_PRIORITY": "²"}, ("default", 1), id="what is no number"),
        pytest.param({}, {"CUDA_TASK_PRIORITY": "9" * 30}, ("default", 2**31 - 1), id="a number beyond the page's"),
        pytest.param({}, {"GPU_CORE_UTILIZATION_POLICY": "force"}, ("force", 1), id="the container's word"),
        pytest.param({}, {"GPU_CORE_UTILIZATION_POLICY": "FORCE"}, ("default", 1), id="a word that nobody knows"),
        pytest.param({"core_policy": "force"}, {"GPU_CORE_UTILIZATION_POLICY": "disable"}, ("force", 1), id="the configuration goes before the container"),
        pytest.param({"core_policy": "default"}, {"GPU_CORE_UTILIZATION_POLICY": "disable"}, ("disable", 1), id="a configuration that says nothing"),
        pytest.param({"disable_core_limit": True, "core_policy": "force"}, {}, ("disable", 1), id="the node goes before the configuration"),
    ],
)  # fmt: skip
def test_the_page_says_when_compute_is_limited(tmp_path, settings, env, expected):
    node = cdi_node(tmp_path, **settings)
    page = enforce(a_slice(node, container_env=env), node).page
    assert (page.policy, page.priority) == expected


def test_a_container_without_control_has_no_preload_file(tmp_path):
    node = cdi_node(tmp_path)
    edits = enforce(a_slice(node, container_env={"CUDA_DISABLE_CONTROL": "true"}), node)
    assert "/etc/ld.so.preload" not in {mount.container_path for mount in edits.mounts}


def test_nothing_is_writable_and_nothing_shared(tmp_path):
    node = cdi_node(tmp_path)
    edits = enforce(a_slice(node), node)
    assert all(mount.read_only for mount in edits.mounts)
    assert not (tmp_path / "vgpulock").exists()
    assert not (tmp_path / "usr-local/vgpu/containers").exists()


def shared_file(node, *grants, **slice):
    """Where HAMi's library keeps what the processes of the container share."""
    return enforce(a_slice(node, *grants, **slice), node).env["CUDA_DEVICE_MEMORY_SHARED_CACHE"]


def test_the_file_of_hamis_library_is_the_containers_own(tmp_path):
    """With a volume at /tmp that two containers have, the first one's limits would be both's."""
    node = cdi_node(tmp_path)
    assert re.fullmatch(r"/tmp/hami-[0-9a-f-]{36}\.cache", shared_file(node))
    assert shared_file(node) == shared_file(node)
    assert shared_file(node) != shared_file(node, number=2, pod_uid="pod-uid-1")


def test_new_limits_are_a_new_file_of_hamis_library(tmp_path):
    """Whoever made the former one has fixed the limits in it."""
    node = cdi_node(tmp_path)
    gpu = gpu_ids(node)[0]
    assert shared_file(node, a_grant(gpu, 1000)) != shared_file(node, a_grant(gpu, 2000))


def test_without_a_library_nothing_starts(tmp_path):
    node = cdi_node(tmp_path, library=None)
    with pytest.raises(LibraryMissing, match="--library"):
        enforce(a_slice(node), node)
