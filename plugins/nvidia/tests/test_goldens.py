"""kubelet's answers in identity ``lock``, whole: what HAMi's device plugin would say.

Each case has a file in ``goldens``: the ContainerAllocateResponse as JSON, with the paths of a real
node. The core adds one annotation, which names the slice. To change an answer on purpose, remove
its file, run the test, and read what it wrote.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from google.protobuf.json_format import MessageToDict
from hami_nvidia.node_side import enforce, static_edits

from hami.domain.allocations import ContainerKind
from hami.node.kubelet.responses import encode

from .node_builders import (
    a_grant,
    a_node,
    a_slice,
    an_instance,
    gpu_ids,
    with_files,
    with_node_spec,
)

GOLDENS = Path(__file__).parent / "goldens"
UID = "6f0a43c1-8a6f-4f6c-9d0f-000000000001"
CONTROL = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
CHANNEL = "/dev/nvidia-caps-imex-channels/channel0"
MODES = {"gdrcopy": True, "gds": True, "mofed": True}
CUT = [{"model": "a100-40g", "mig": True}]
DYNAMIC = {"mode": "mig", "library": None, "gpus": CUT}


class LockNode:
    """A node in identity ``lock`` with two GPUs, unless ``gpus`` says otherwise."""

    def __init__(self, folder, *, gpus="a100-40gx2", files=(), **settings):
        self.folder = folder
        self.node = a_node(folder, gpus, identity="lock", **settings)
        self.gpus = gpu_ids(self.node)
        with_node_spec(self.node, {id: f"/dev/nvidia{n}" for n, id in enumerate(self.gpus)})
        with_files(self.node, *files)

    def shared(self, *sizes, **slice):
        """A container with this memory and compute of the first GPU, the second..."""
        pairs = zip(self.gpus, sizes or [(3000, 30)], strict=False)
        return self.enforced(*(a_grant(gpu, *size) for gpu, size in pairs), **slice)

    def dynamic(self, *places):
        """A container with MIG instances, which are made for it."""
        return self.enforced(*(an_instance(self.gpus[0], *place) for place in places))

    def cut_by_hand(self, name="1g.5gb"):
        nvml, gpu = self.node.nvml, self.gpus[0]
        profile = next(p for p in nvml.instance_profiles(gpu) if p.name == name)
        nvml.create_compute(gpu, nvml.create_instance(gpu, profile, profile.spans[0]))
        return nvml.mig_devices(gpu)[0].uuid

    def single(self):
        """A container with a MIG device that the scheduler gave it."""
        return self.enforced(a_grant(self.cut_by_hand(), 4864, 100))

    def mixed(self):
        """A container with a MIG device that kubelet chose."""
        return static_edits([self.cut_by_hand()], self.node)

    def enforced(self, *grants, **slice):
        return enforce(a_slice(self.node, *grants, pod_uid=UID, **slice), self.node)

    def on_the_node(self, *names):
        folder = self.node.settings.library_dir
        folder.mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder / name).touch()
        return self

    def written(self, edits):
        """Readable, and with the paths of a real node."""
        answer = MessageToDict(encode(edits), preserving_proto_field_name=True)
        text = json.dumps(answer, indent=2, sort_keys=True) + "\n"
        for seen, really in (("usr-local", "/usr/local"), ("vgpulock", "/tmp/vgpulock")):
            text = text.replace(str(self.folder / seen), really)
        return re.sub(r"(libvgpu\.so)\.[0-9a-f]{12}", r"\1.<version>", text)


def case(name, settings=None, make=LockNode.shared):
    return pytest.param(name, settings or {}, make, id=name)


@pytest.mark.parametrize(
    ("name", "settings", "make"),
    [
        # Limits.
        case("shared"),
        case("first-of-two-containers", {}, lambda n: n.shared((3000, 50))),
        case("second-of-two-containers", {}, lambda n: n.shared((4000, 60), number=2, container="side")),
        case("init-container", {}, lambda n: n.shared(container="init", kind=ContainerKind.INIT)),
        case("two-gpus", {}, lambda n: n.shared((3000, 50), (2000, 70))),
        case("whole-gpu", {}, lambda n: n.shared((40960, 100))),
        case("without-compute-limit", {}, lambda n: n.shared((3000, 0))),
        case("memory-oversubscribed", {"memory_scaling": 1.5}),
        case("memory-scaled-down", {"memory_scaling": 0.5}),
        case("core-limit-disabled", {"disable_core_limit": True}),
        case("policy-is-the-webhooks", {"core_policy": "force"}),
        case("log-level-4", {"log_level": "4"}),
        case("no-log-level", {"log_level": ""}),
        case("control-disabled", {}, lambda n: n.shared(container_env={"CUDA_DISABLE_CONTROL": "true"})),
        # The library.
        case("with-license", {}, lambda n: n.on_the_node("license", "vgpuvalidator").shared()),
        case("library-of-hamis-image", {"library": None}, lambda n: n.on_the_node("libvgpu.so").shared()),
        # How devices are named.
        case("volume-mounts", {"list_strategies": ("volume-mounts",)}),
        case("envvar-and-volume-mounts", {"list_strategies": ("envvar", "volume-mounts")}),
        case("cdi-annotations", {"list_strategies": ("cdi-annotations",)}),
        case("cdi-annotations-own-prefix", {"list_strategies": ("cdi-annotations",), "cdi_annotation_prefix": "custom.cdi.k8s.io/"}),
        case("cdi-cri", {"list_strategies": ("cdi-cri",)}),
        case("cdi-both", {"list_strategies": ("cdi-annotations", "cdi-cri")}),
        case("envvar-and-cdi-cri", {"list_strategies": ("envvar", "cdi-cri")}),
        case("index", {"id_strategy": "index"}, lambda n: n.shared((3000, 30), (3000, 30))),
        case("index-volume-mounts", {"id_strategy": "index", "list_strategies": ("volume-mounts",)}),
        case("index-cdi-cri", {"id_strategy": "index", "list_strategies": ("cdi-cri",)}),
        case("device-specs", {"pass_device_specs": True, "files": CONTROL}, lambda n: n.shared((3000, 50), (2000, 70))) ,
        case("device-specs-driver-in-a-container", {"pass_device_specs": True, "configured_dev_root": Path("/run/nvidia/driver"), "files": CONTROL[:2]}),
        case("device-specs-and-imex", {"pass_device_specs": True, "imex_channels": (0,), "files": (*CONTROL, CHANNEL)}),
        # Modes and channels.
        case("modes", MODES),
        case("modes-cdi", {**MODES, "list_strategies": ("cdi-annotations", "cdi-cri"), "imex_channels": (0,), "files": (CHANNEL,)}),
        case("imex", {"imex_channels": (0,), "files": (CHANNEL,)}),
        case("imex-volume-mounts", {"imex_channels": (0,), "files": (CHANNEL,), "list_strategies": ("volume-mounts",)}),
        case("imex-that-is-not-there", {"imex_channels": (0,)}),
        # MIG: the base alone, no variable of CUDA and nothing of the library.
        case("mig-dynamic", DYNAMIC, lambda n: n.dynamic(("1g.5gb", 6, 1))),
        case("mig-dynamic-two", DYNAMIC, lambda n: n.dynamic(("1g.5gb", 6, 1), ("3g.20gb", 0, 4))),
        case("mig-dynamic-volume-mounts", {**DYNAMIC, "list_strategies": ("volume-mounts",)}, lambda n: n.dynamic(("1g.5gb", 6, 1))),
        case("mig-dynamic-cdi", {**DYNAMIC, "list_strategies": ("cdi-annotations", "cdi-cri")}, lambda n: n.dynamic(("1g.5gb", 6, 1))),
        case("mig-dynamic-settings-of-sharing", {**DYNAMIC, "memory_scaling": 2.0, "disable_core_limit": True}, lambda n: n.dynamic(("7g.40gb", 0, 8))),
        case("mig-single", {"gpus": CUT, "mig_strategy": "single"}, LockNode.single),
        case("mig-single-index", {"gpus": CUT, "mig_strategy": "single", "id_strategy": "index"}, LockNode.single),
        case("mig-single-device-specs", {"gpus": CUT, "mig_strategy": "single", "pass_device_specs": True, "files": (*CONTROL, "/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap66", "/dev/nvidia-caps/nvidia-cap67")}, LockNode.single),
        case("mig-mixed", {"gpus": CUT, "mig_strategy": "mixed", **MODES}, LockNode.mixed),
        case("mig-mixed-cdi", {"gpus": CUT, "mig_strategy": "mixed", "list_strategies": ("cdi-cri",)}, LockNode.mixed),
    ],
)  # fmt: skip
def test_the_answer_is_the_golden_one(tmp_path, name, settings, make):
    node = LockNode(tmp_path, **settings)
    if settings.get("pass_device_specs"):
        with_files(node.node, "/dev/nvidia0", "/dev/nvidia1")
    answer = node.written(make(node))
    golden = GOLDENS / f"{name}.json"
    if not golden.exists():
        GOLDENS.mkdir(exist_ok=True)
        golden.write_text(answer)
        pytest.fail(f"{golden} is new: read it, and run again")
    assert answer == golden.read_text()


def test_every_golden_is_a_case():
    marks = test_the_answer_is_the_golden_one.pytestmark
    names = {found.values[0] for mark in marks for found in mark.args[1]}
    assert {path.stem for path in GOLDENS.iterdir()} == names


@pytest.mark.parametrize("golden", sorted(GOLDENS.glob("mig-*.json")), ids=lambda path: path.stem)
def test_a_container_with_mig_gets_nothing_of_cuda(golden):
    answer = json.loads(golden.read_text())
    assert answer.get("envs", {}).keys() <= {"NVIDIA_VISIBLE_DEVICES", "NVIDIA_GDRCOPY", "NVIDIA_GDS", "NVIDIA_MOFED"}  # fmt: skip
    assert not any("vgpu" in mount["host_path"] for mount in answer.get("mounts", ()))
