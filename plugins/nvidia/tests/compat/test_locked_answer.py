"""The answer to Allocate with identity ``lock``, beyond the goldens: words, roots, refusals, files."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hami_nvidia.compat.locked_answer import SharedDirectoryFailed
from hami_nvidia.devices.places import NoPlace
from hami_nvidia.handover.agent_cdi import SpecFailed
from hami_nvidia.handover.device_files import ChannelMissing
from hami_nvidia.handover.library import LibraryMissing
from hami_nvidia.node_side import enforce, release, static_edits
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.slices import ContainerEdits, DeviceNode

from ..handover.test_files import DEEP, nested
from ..node_builders import a_grant, a_node, a_slice, gpu_ids, with_files, with_node_spec


def locked(tmp_path, **settings):
    return a_node(tmp_path, identity="lock", **settings)


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


# How the container is told its devices.


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


def test_a_tenant_cannot_keep_its_slice_with_directories_too_deep_to_remove(tmp_path):
    node = locked(tmp_path)
    slice = a_slice(node, pod_uid="0f0e")
    enforce(slice, node)
    directory = tmp_path / "usr-local/vgpu/containers/0f0e_main"
    nested(directory / "deep", DEEP)
    release(slice, node)
    assert not directory.exists()


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
