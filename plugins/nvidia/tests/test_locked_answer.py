"""The answer to Allocate with identity ``lock``: HAMi's fields, for every choice a node has."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hami_nvidia.enforce import enforce, release, static_edits
from hami_nvidia.handed import ChannelMissing
from hami_nvidia.library import LibraryMissing
from hami_nvidia.locked import SharedDirectoryFailed
from hami_nvidia.node_specs import SpecFailed
from hami_nvidia.places import NoPlace
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.slices import ContainerEdits, DeviceNode, Mount

from .node_builders import a_grant, a_node, a_slice, gpu_ids, with_files, with_node_spec

CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")


def locked(tmp_path, **settings):
    return a_node(tmp_path, identity="lock", **settings)


def test_the_whole_answer_of_a_shared_gpu(tmp_path):
    """The golden: HAMi's variables and mounts in HAMi's order, nothing else."""
    node = locked(tmp_path)
    gpu = gpu_ids(node)[0]
    slice = a_slice(node, a_grant(gpu, 3000, 50), pod_uid="0f0e", container="main")
    edits = enforce(slice, node)
    directory = tmp_path / "usr-local/vgpu"
    cache = edits.env["CUDA_DEVICE_MEMORY_SHARED_CACHE"]
    assert dict(edits.env) == {
        "NVIDIA_VISIBLE_DEVICES": gpu,
        "CUDA_DEVICE_MEMORY_LIMIT_0": "3000m",
        "CUDA_DEVICE_SM_LIMIT": "50",
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": cache,
        "LIBCUDA_LOG_LEVEL": "1",
    }
    uuid4 = r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}"
    assert re.fullmatch(rf"{directory}/{uuid4}\.cache", cache)
    (library,) = directory.glob("libvgpu.so.*")
    assert edits.mounts == (
        Mount(host_path=str(library), container_path=f"{directory}/libvgpu.so"),
        Mount(host_path=f"{directory}/containers/0f0e_main", container_path=str(directory), read_only=False),
        Mount(host_path=f"{tmp_path}/vgpulock", container_path="/tmp/vgpulock", read_only=False),
        Mount(host_path=f"{directory}/ld.so.preload", container_path="/etc/ld.so.preload"),
    )  # fmt: skip
    assert (edits.device_nodes, edits.cdi_devices, edits.annotations) == ((), (), {})
    assert edits.pod_annotations == {}


def environment(tmp_path, slice_env=None, grants=None, **settings):
    node = locked(tmp_path, **settings)
    made = [
        a_grant(gpu, *size)
        for gpu, size in zip(gpu_ids(node), grants or [(3000, 30)], strict=False)
    ]
    edits = enforce(a_slice(node, *made, container_env=slice_env or {}), node)
    return edits.env


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param({}, {"CUDA_OVERSUBSCRIBE": None, "GPU_CORE_UTILIZATION_POLICY": None}, id="nothing more by default"),
        pytest.param({"memory_scaling": 1.5}, {"CUDA_OVERSUBSCRIBE": "true"}, id="oversubscribed memory"),
        pytest.param({"memory_scaling": 0.5}, {"CUDA_OVERSUBSCRIBE": None}, id="memory scaled down"),
        pytest.param({"log_level": ""}, {"LIBCUDA_LOG_LEVEL": None}, id="no log level"),
        pytest.param({"log_level": "4"}, {"LIBCUDA_LOG_LEVEL": "4"}, id="a log level"),
        pytest.param({"disable_core_limit": True}, {"GPU_CORE_UTILIZATION_POLICY": "disable"}, id="compute is never limited"),
        pytest.param({"core_policy": "force"}, {"GPU_CORE_UTILIZATION_POLICY": None}, id="the policy is the webhook's to set"),
        pytest.param({"gds": True, "mofed": True, "gdrcopy": True}, {"NVIDIA_GDS": "enabled", "NVIDIA_MOFED": "enabled", "NVIDIA_GDRCOPY": "enabled"}, id="every mode"),
    ],
)  # fmt: skip
def test_settings_become_variables(tmp_path, settings, expected):
    env = environment(tmp_path, **settings)
    assert {name: env.get(name) for name in expected} == expected


@pytest.mark.parametrize(
    ("grants", "expected"),
    [
        pytest.param([(3000, 50)], {"CUDA_DEVICE_MEMORY_LIMIT_0": "3000m", "CUDA_DEVICE_SM_LIMIT": "50"}, id="8.6: the first container"),
        pytest.param([(4000, 60)], {"CUDA_DEVICE_MEMORY_LIMIT_0": "4000m", "CUDA_DEVICE_SM_LIMIT": "60"}, id="8.6: the second container"),
        pytest.param([(3000, 50), (2000, 70)], {"CUDA_DEVICE_MEMORY_LIMIT_0": "3000m", "CUDA_DEVICE_MEMORY_LIMIT_1": "2000m", "CUDA_DEVICE_SM_LIMIT": "50", "CUDA_DEVICE_SM_LIMIT_0": None}, id="two GPUs: compute is the first one's"),
        pytest.param([(3000, 0)], {"CUDA_DEVICE_SM_LIMIT": "0"}, id="no limit of compute"),
    ],
)  # fmt: skip
def test_grants_become_variables(tmp_path, grants, expected):
    env = environment(tmp_path, grants=grants)
    assert {name: env.get(name) for name in expected} == expected


@pytest.mark.parametrize("word", ["1", "t", "T", "TRUE", "true", "True"])
def test_8_6_a_container_without_control_lacks_the_preload_file_alone(tmp_path, word):
    node = locked(tmp_path)
    free = enforce(a_slice(node, container_env={"CUDA_DISABLE_CONTROL": word}), node)
    bound = enforce(a_slice(node), node)
    assert free.env == bound.env
    assert {m.container_path for m in bound.mounts} - {m.container_path for m in free.mounts} == {
        "/etc/ld.so.preload"
    }


@pytest.mark.parametrize("word", ["", "0", "yes", "tRUE", "false", "on"])
def test_other_words_do_not_disable_control(tmp_path, word):
    node = locked(tmp_path)
    edits = enforce(a_slice(node, container_env={"CUDA_DISABLE_CONTROL": word}), node)
    assert "/etc/ld.so.preload" in {mount.container_path for mount in edits.mounts}


def test_a_license_is_mounted_with_its_validator(tmp_path):
    node = locked(tmp_path)
    directory = tmp_path / "usr-local/vgpu"
    directory.mkdir(parents=True)
    (directory / "license").touch()
    assert enforce(a_slice(node), node).mounts[-2:] == (
        Mount(host_path=f"{directory}/license", container_path="/tmp/license"),
        Mount(host_path=f"{directory}/vgpuvalidator", container_path="/usr/bin/vgpuvalidator"),
    )


# How the container is told its devices.


@pytest.mark.parametrize(
    ("strategies", "visible"),
    [
        pytest.param(("envvar",), "GPU", id="by variable"),
        pytest.param(("volume-mounts",), "/var/run/nvidia-container-devices", id="by mounts"),
        pytest.param(("envvar", "volume-mounts"), "/var/run/nvidia-container-devices", id="mounts go first"),
        pytest.param(("envvar", "cdi-cri"), "GPU", id="by variable beside CDI"),
        pytest.param(("cdi-cri",), None, id="by CDI alone"),
        pytest.param(("cdi-annotations", "cdi-cri"), None, id="by CDI in both ways"),
    ],
)  # fmt: skip
def test_the_strategy_decides_what_is_visible(tmp_path, strategies, visible):
    node = locked(tmp_path, list_strategies=strategies, gds=True)
    gpu = gpu_ids(node)[0]
    with_node_spec(node, {gpu: "/dev/nvidia0"})
    edits = enforce(a_slice(node), node)
    assert edits.env.get("NVIDIA_VISIBLE_DEVICES") == (gpu if visible == "GPU" else visible)
    assert ("NVIDIA_GDS" in edits.env) == (visible is not None), "CDI alone stops before the modes"
    nulls = [mount for mount in edits.mounts if mount.host_path == "/dev/null"]
    expected = f"/var/run/nvidia-container-devices/{gpu}"
    assert [m.container_path for m in nulls] == [expected] * ("volume-mounts" in strategies)
    names = (f"k8s.device-plugin.nvidia.com/gpu={gpu}", "k8s.device-plugin.nvidia.com/gds=all")
    assert edits.cdi_devices == (names if "cdi-cri" in strategies else ())
    assert list(edits.annotations.values()) == [",".join(names)] * ("cdi-annotations" in strategies)
    assert "CUDA_DEVICE_SM_LIMIT" in edits.env, "limits do not depend on the strategy"


@pytest.mark.parametrize("prefix", ["cdi.k8s.io/", "custom.cdi.k8s.io/"])
def test_8_6_cdi_annotations_have_a_key_of_their_own(tmp_path, prefix):
    node = locked(
        tmp_path, list_strategies=("cdi-annotations",), cdi_annotation_prefix=prefix,
        id_strategy="index", gds=True, mofed=True, gdrcopy=True, imex_channels=(0,),
    )  # fmt: skip
    with_node_spec(node, {"0": "/dev/nvidia0"})
    with_files(node, "/dev/nvidia-caps-imex-channels/channel0")
    first, second = (enforce(a_slice(node, number=n), node).annotations for n in (1, 2))
    ((key, value),) = first.items()
    uuid = r"[0-9a-f-]{36}"
    assert re.fullmatch(rf"{re.escape(prefix)}nvidia-device-plugin_{uuid}", key)
    own = "k8s.device-plugin.nvidia.com"
    assert value == ",".join(
        [f"{own}/gpu=0", f"{own}/imex-channel=0", f"{own}/gdrcopy=all", f"{own}/gds=all", f"{own}/mofed=all"]
    )  # fmt: skip
    assert first.keys().isdisjoint(second), "two containers do not share a key"


def test_8_6_no_devices_is_an_empty_answer(tmp_path):
    node = locked(tmp_path, list_strategies=("cdi-annotations",), gds=True)
    with_node_spec(node, {"0": "/dev/nvidia0"})
    assert static_edits([], node) == ContainerEdits()


def test_index_strategy_names_gpus_by_number(tmp_path):
    node = locked(tmp_path, id_strategy="index", list_strategies=("envvar", "volume-mounts"))
    second, first = reversed(gpu_ids(node))
    edits = enforce(a_slice(node, a_grant(first), a_grant(second)), node)
    nulls = [m.container_path for m in edits.mounts if m.host_path == "/dev/null"]
    assert sorted(nulls) == [f"/var/run/nvidia-container-devices/{n}" for n in "01"]


def test_device_specs_are_the_files_that_the_node_has(tmp_path):
    node = locked(tmp_path, pass_device_specs=True, imex_channels=(0,))
    present = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia0", "/dev/nvidia1")
    with_files(node, *present, "/dev/nvidia-caps-imex-channels/channel0")
    edits = enforce(a_slice(node), node)
    paths = [n.container_path for n in edits.device_nodes]
    assert sorted(paths) == sorted(
        ["/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-caps-imex-channels/channel0"]
    )  # fmt: skip
    assert all(
        n.host_path == n.container_path and n.permissions == "rw" for n in edits.device_nodes
    )


@pytest.mark.parametrize(
    ("settings", "has_dev", "host_path"),
    [
        pytest.param({}, False, "/dev/nvidia0", id="the node's own /dev"),
        pytest.param({"driver_root": Path("/run/nvidia/driver")}, True, "/run/nvidia/driver/dev/nvidia0", id="a driver in a container has its own"),
        pytest.param({"driver_root": Path("/run/nvidia/driver")}, False, "/dev/nvidia0", id="unless it has none"),
        pytest.param({"configured_dev_root": Path("/other")}, True, "/other/dev/nvidia0", id="a root that was given"),
    ],
)  # fmt: skip
def test_device_files_lie_below_the_dev_root(tmp_path, settings, has_dev, host_path):
    node = locked(tmp_path, pass_device_specs=True, **settings)
    with_files(node, "/dev/nvidia0")
    if has_dev:
        (tmp_path / "driver-root/dev").mkdir(parents=True)
    (found,) = enforce(a_slice(node), node).device_nodes
    assert found == DeviceNode(host_path=host_path, container_path="/dev/nvidia0")


def test_imex_channels_are_told_by_variable_and_mount(tmp_path):
    node = locked(tmp_path, imex_channels=(0,), list_strategies=("envvar", "volume-mounts"))
    with_files(node, "/dev/nvidia-caps-imex-channels/channel0")
    edits = enforce(a_slice(node), node)
    assert edits.env["NVIDIA_IMEX_CHANNELS"] == "0"
    assert "/var/run/nvidia-container-devices/imex/0" in {m.container_path for m in edits.mounts}


def test_a_channel_that_is_missing_is_left_out_or_refused(tmp_path):
    node = locked(tmp_path, imex_channels=(0,))
    assert "NVIDIA_IMEX_CHANNELS" not in enforce(a_slice(node), node).env
    required = replace(node, settings=replace(node.settings, imex_required=True))
    with pytest.raises(ChannelMissing, match="channel0 does not exist on this node"):
        enforce(a_slice(required), required)


def test_a_gpu_that_is_gone_is_refused_where_its_number_is_needed(tmp_path):
    node = locked(tmp_path, id_strategy="index")
    with pytest.raises(NoPlace, match="GPU-gone"):
        enforce(a_slice(node, a_grant("GPU-gone")), node)


def test_without_a_driver_the_answer_by_uuid_is_the_same(tmp_path):
    node = locked(tmp_path)
    slice = a_slice(node)
    before = enforce(slice, node)
    with node.nvml.state.changing() as state:
        state.away = "no driver"
    assert enforce(slice, node) == before


# CDI specs of HAMi's kinds.


def spec_of(node, name):
    path = node.settings.cdi_dir / f"k8s.device-plugin.nvidia.com-{name}.json"
    return json.loads(path.read_text())


@pytest.mark.parametrize(
    "names",
    [
        pytest.param("uuid", id="a spec by UUID"),
        pytest.param("index", id="a spec by index"),
    ],
)
def test_cdi_strategies_write_specs_from_the_nodes_own(tmp_path, names):
    node = locked(
        tmp_path,
        list_strategies=("cdi-cri",),
        gds=True,
        imex_channels=(0,),
        cdi_hook=Path("/opt/hook"),
    )
    ids = gpu_ids(node)
    keys = ids if names == "uuid" else ["0", "1"]
    with_node_spec(node, {keys[0]: "/dev/nvidia0", keys[1]: "/dev/nvidia1"})
    with_files(node, "/dev/nvidia-fs0", "/dev/nvidia-fs1", "/etc/cufile.json", "/dev/nvidia-caps-imex-channels/channel0")  # fmt: skip
    enforce(a_slice(node), node)
    gpus = spec_of(node, "gpu")
    assert gpus["kind"] == "k8s.device-plugin.nvidia.com/gpu"
    assert [(d["name"], d["containerEdits"]["deviceNodes"]) for d in gpus["devices"]] == [
        (ids[0], [{"path": "/dev/nvidia0"}]),
        (ids[1], [{"path": "/dev/nvidia1"}]),
    ]
    common = gpus["containerEdits"]
    assert common["mounts"][0]["hostPath"] == "/usr/lib/libcuda.so.1"
    assert common["hooks"] == [{"hookName": "createContainer", "path": "/opt/hook", "args": ["x"]}]
    (gds,) = spec_of(node, "gds")["devices"]
    assert gds["name"] == "all"
    assert [n["path"] for n in gds["containerEdits"]["deviceNodes"]] == ["/dev/nvidia-fs0", "/dev/nvidia-fs1"]  # fmt: skip
    assert [m["containerPath"] for m in gds["containerEdits"]["mounts"]] == ["/etc/cufile.json"]
    (channel,) = spec_of(node, "imex-channel")["devices"]
    assert channel["name"] == "0"


def test_an_unchanged_spec_is_not_written_again(tmp_path):
    node = locked(tmp_path, list_strategies=("cdi-cri",))
    with_node_spec(node, {"0": "/dev/nvidia0", "1": "/dev/nvidia1"})
    enforce(a_slice(node), node)
    path = node.settings.cdi_dir / "k8s.device-plugin.nvidia.com-gpu.json"
    before = path.stat().st_ino
    enforce(a_slice(node, number=2), node)
    assert path.stat().st_ino == before


def test_cdi_strategies_without_the_nodes_spec_are_refused(tmp_path):
    node = locked(tmp_path, list_strategies=("cdi-cri",))
    with pytest.raises(SpecFailed) as error:
        enforce(a_slice(node), node)
    assert "nvidia-ctk cdi generate" in str(error.value)
    assert "--device-list-strategy=cdi-cri" in str(error.value)


# What is left on the node.


def test_the_containers_directory_is_everybodys_and_goes_with_the_slice(tmp_path):
    node = locked(tmp_path)
    slice = a_slice(node, pod_uid="0f0e")
    enforce(slice, node)
    directory = tmp_path / "usr-local/vgpu/containers/0f0e_main"
    assert directory.stat().st_mode & 0o777 == 0o777
    assert (tmp_path / "vgpulock").stat().st_mode & 0o777 == 0o777
    (directory / "a.cache").write_text("of the tenant")
    (directory / "elsewhere").symlink_to(tmp_path)
    enforce(slice, node)
    assert (directory / "a.cache").exists(), "a container that runs keeps its cache"
    release(replace(slice, identity="kubelet"), node)
    assert not directory.exists()
    assert (tmp_path / "vgpulock").exists()
    release(slice, node)


def test_a_link_in_place_of_the_lock_directory_is_not_followed(tmp_path):
    node = locked(tmp_path)
    victim = tmp_path / "etc"
    victim.mkdir(mode=0o755)
    (tmp_path / "vgpulock").symlink_to(victim)
    with pytest.raises(SharedDirectoryFailed, match="vgpulock cannot be made"):
        enforce(a_slice(node), node)
    assert victim.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    "recorded", ["{node}/victim_1", "{node}/usr-local/vgpu/containers/..", "victim_1", ""]
)
def test_nothing_is_removed_but_a_containers_own_directory(tmp_path, recorded):
    node = locked(tmp_path)
    slice = a_slice(node)
    (tmp_path / "victim_1").mkdir()
    (tmp_path / "usr-local/vgpu/containers").mkdir(parents=True)
    record = json.dumps({"shared": recorded.format(node=tmp_path)})
    (slice.state_dir / "nvidia.json").write_text(record)
    release(slice, node)
    assert (tmp_path / "victim_1").exists()
    assert (tmp_path / "usr-local/vgpu/containers").exists()


@pytest.mark.parametrize("content", ["", "not JSON", "[]", '{"library": 7}'])
def test_a_damaged_record_costs_the_version_and_nothing_else(tmp_path, content):
    node = locked(tmp_path)
    slice = a_slice(node)
    before = enforce(slice, node)
    (slice.state_dir / "nvidia.json").write_text(content)
    assert enforce(slice, node) == before
    release(slice, node)


def test_without_a_library_nothing_starts(tmp_path):
    node = locked(tmp_path, library=None)
    with pytest.raises(LibraryMissing) as error:
        enforce(a_slice(node), node)
    assert str(tmp_path / "usr-local/vgpu") in str(error.value)
    assert "--library" in str(error.value)


def test_a_container_keeps_the_version_it_started_with(tmp_path):
    node = locked(tmp_path)
    slice = a_slice(node)
    before = enforce(slice, node)
    node.settings.library.write_bytes(node.settings.library.read_bytes() + b"newer")
    assert enforce(slice, node) == before
    newer = enforce(a_slice(node, number=2), node)
    assert newer.mounts[0].host_path != before.mounts[0].host_path
    Path(before.mounts[0].host_path).unlink()
    assert enforce(slice, node).mounts[0] == newer.mounts[0], "a version that is gone is replaced"


GRANTS = st.lists(st.tuples(st.integers(0, 1 << 24), st.integers(0, 100)), min_size=1, max_size=2)
CHOICES = st.fixed_dictionaries(
    {
        "list_strategies": st.lists(st.sampled_from(["envvar", "volume-mounts"]), min_size=1, max_size=2, unique=True).map(tuple),
        "id_strategy": st.sampled_from(["uuid", "index"]),
        "pass_device_specs": st.booleans(),
        "memory_scaling": st.sampled_from([0.5, 1.0, 1.8]),
        "gds": st.booleans(),
        "disable_core_limit": st.booleans(),
    }
)  # fmt: skip


@given(grants=GRANTS, choices=CHOICES, number=st.integers(1, 99))
def test_any_answer_is_the_same_twice_and_holds_every_limit(
    tmp_path_factory, grants, choices, number
):
    node = locked(tmp_path_factory.mktemp("node"), **choices)
    made = [a_grant(gpu, *size) for gpu, size in zip(gpu_ids(node), grants, strict=False)]
    slice = a_slice(node, *made, number=number)
    edits = enforce(slice, node)
    assert enforce(slice, node) == edits
    limits = [edits.env[f"CUDA_DEVICE_MEMORY_LIMIT_{n}"] for n in range(len(made))]
    assert limits == [f"{grant.memory_mib}m" for grant in made]
    assert edits.env["CUDA_DEVICE_SM_LIMIT"] == str(made[0].cores)
    writable = {
        m.container_path for m in edits.mounts if not m.read_only and m.host_path != "/dev/null"
    }
    assert writable == {str(node.settings.library_dir), "/tmp/vgpulock"}
    assert "/etc/ld.so.preload" in {m.container_path for m in edits.mounts}
