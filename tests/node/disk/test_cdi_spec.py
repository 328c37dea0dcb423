"""The CDI spec of a slice, and what others' specs add to it."""

from __future__ import annotations

import itertools
import json

import msgspec
import pytest

from hami.domain.slices import ContainerEdits, DeviceNode, Mount
from hami.node.disk.cdi_spec import slice_spec

KIND = "nvidia.hami.io/slice"
ID = "4f3a90c1d2e5f60718293a4b"

OURS = ContainerEdits(
    env={"HAMI_SLICE_ID": ID, "CUDA_DEVICE_MEMORY_LIMIT_0": "4000m"},
    mounts=(
        Mount(host_path="/var/lib/hami/limits", container_path="/run/hami/nvidia/limits"),
        Mount(host_path="/usage", container_path="/run/hami/nvidia/usage", read_only=False),
    ),
    device_nodes=(
        DeviceNode(host_path="/run/nvidia/driver/dev/nvidia0", container_path="/dev/nvidia0"),
    ),
)


def edits_in(spec: bytes) -> dict:
    [device] = json.loads(spec)["devices"]
    return device["containerEdits"]


def test_a_spec_golden():
    """Runtimes read it."""
    assert slice_spec(KIND, ID, OURS, []).decode() == (
        """{
 "cdiVersion": "0.6.0",
 "kind": "nvidia.hami.io/slice",
 "devices": [
  {
   "name": "4f3a90c1d2e5f60718293a4b",
   "containerEdits": {
    "env": [
     "CUDA_DEVICE_MEMORY_LIMIT_0=4000m",
     "HAMI_SLICE_ID=4f3a90c1d2e5f60718293a4b"
    ],
    "deviceNodes": [
     {
      "path": "/dev/nvidia0",
      "hostPath": "/run/nvidia/driver/dev/nvidia0",
      "permissions": "rw"
     }
    ],
    "mounts": [
     {
      "hostPath": "/var/lib/hami/limits",
      "containerPath": "/run/hami/nvidia/limits",
      "options": [
       "ro",
       "nosuid",
       "nodev",
       "rbind",
       "rprivate"
      ]
     },
     {
      "hostPath": "/usage",
      "containerPath": "/run/hami/nvidia/usage",
      "options": [
       "rw",
       "nosuid",
       "nodev",
       "rbind",
       "rprivate"
      ]
     }
    ]
   }
  }
 ]
}
"""
    )


THEIRS = {
    "env": ["NVIDIA_VISIBLE_DEVICES=void", "HAMI_SLICE_ID=theirs"],
    "deviceNodes": [
        {"path": "/dev/nvidiactl", "major": 195, "minor": 255, "type": "c", "fileMode": 438},
        {"path": "/dev//nvidia0", "permissions": "rwm"},
    ],
    "mounts": [
        {"hostPath": "/lib/libcuda.so.1", "containerPath": "/lib/libcuda.so.1", "options": ["ro"]},
        {"hostPath": "/theirs", "containerPath": "/run/hami/nvidia/limits"},
    ],
    "hooks": [
        {"hookName": "createContainer", "path": "/nvidia-ctk", "args": ["b"], "timeout": 5},
        {"hookName": "createContainer", "path": "/nvidia-ctk", "args": ["a"], "env": ["X=1"]},
    ],
}


def test_edits_of_the_vendors_own_spec_are_taken_over():
    edits = edits_in(slice_spec(KIND, ID, OURS, [THEIRS]))
    assert "NVIDIA_VISIBLE_DEVICES=void" in edits["env"]
    assert THEIRS["deviceNodes"][0] in edits["deviceNodes"]
    assert THEIRS["mounts"][0] in edits["mounts"]
    assert edits["hooks"] == THEIRS["hooks"]


def test_where_both_say_something_ours_counts():
    edits = edits_in(slice_spec(KIND, ID, OURS, [THEIRS]))
    assert [v for v in edits["env"] if v.startswith("HAMI_SLICE_ID=")] == [f"HAMI_SLICE_ID={ID}"]
    assert [n["hostPath"] for n in edits["deviceNodes"] if n["path"].endswith("nvidia0")] == [
        "/run/nvidia/driver/dev/nvidia0"
    ]
    assert [m["hostPath"] for m in edits["mounts"] if m["containerPath"].endswith("limits")] == [
        "/var/lib/hami/limits"
    ]


def test_two_cards_with_the_same_libraries_and_hooks_name_them_once():
    edits = edits_in(slice_spec(KIND, ID, OURS, [THEIRS, THEIRS]))
    assert edits == edits_in(slice_spec(KIND, ID, OURS, [THEIRS]))


def test_the_same_arguments_in_another_order_give_the_same_bytes():
    parts = {"env": [f"A{i}={i}" for i in range(3)]}
    specs = {
        slice_spec(KIND, ID, ContainerEdits(env=dict(env), mounts=mounts), [{"env": list(theirs)}])
        for env in itertools.permutations(OURS.env.items())
        for mounts in itertools.permutations(OURS.mounts)
        for theirs in itertools.permutations(parts["env"])
    }
    assert len(specs) == 1


def test_groups_need_the_version_that_knows_them():
    spec = slice_spec(KIND, ID, OURS, [{"additionalGids": [44, 0, 7]}, {"additionalGids": [44]}])
    assert json.loads(spec)["cdiVersion"] == "0.7.0"
    assert edits_in(spec)["additionalGids"] == [7, 44]


def test_what_a_runtime_does_not_know_or_we_do_not_pass_on_is_left_out():
    theirs = {
        "intelRdt": {"closID": "x"},
        "netDevices": [{"name": "eth0"}],
        "future": 1,
        "env": None,
    }
    assert slice_spec(KIND, ID, OURS, [theirs]) == slice_spec(KIND, ID, OURS, [])


@pytest.mark.parametrize(
    "theirs",
    [
        pytest.param({"env": ["NAME"]}, id="a variable without a value"),
        pytest.param({"env": ["=value"]}, id="a variable without a name"),
        pytest.param({"deviceNodes": [{"path": ""}]}, id="a device without a path"),
        pytest.param({"deviceNodes": [{"path": "/dev/x", "permissions": "x"}]}, id="a permission that is none"),
        pytest.param({"deviceNodes": [{"path": "/dev/x", "major": -1}]}, id="a negative number"),
        pytest.param({"mounts": [{"hostPath": "/x"}]}, id="a mount without a target"),
        pytest.param({"hooks": [{"hookName": "sometime", "path": "/x"}]}, id="a hook that nobody runs"),
        pytest.param({"env": "A=1"}, id="a text for a list"),
    ],
)  # fmt: skip
def test_edits_that_a_runtime_would_refuse_are_not_passed_on(theirs):
    with pytest.raises(msgspec.ValidationError):
        slice_spec(KIND, ID, OURS, [theirs])
