"""A node without hardware: settings below a temporary directory, slices, a library."""

from __future__ import annotations

import json
import platform
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from hami_nvidia.handover.hardware import Hardware
from hami_nvidia.handover.limits import ContextReserves
from hami_nvidia.mig.instances import Instances
from hami_nvidia.mig.made_instances import MadeInstances
from hami_nvidia.schedule.mig_placement import MIG_INSTANCE, MigInstance, MigPlacement
from hami_nvidia.settings.node_settings import NodeSettings
from hami_nvidia.simulation.nvml import SimulatedNvml
from hami_nvidia.simulation.spec import mig_minors_text, read_simulation

from hami.domain.allocations import ContainerKind
from hami.domain.devices import Grant
from hami.domain.extra import NO_EXTRA
from hami.domain.slices import Slice


def a_library(directory: Path, content: bytes = b"current") -> Path:
    """A file that has the head of a shared library for this machine."""
    machine = {"x86_64": 62, "aarch64": 183}[platform.machine()]
    path = directory / f"libvgpu-{content[:20].decode()}.so"
    path.write_bytes(struct.pack("<4sBB10xHH", b"\x7fELF", 2, 1, 3, machine) + bytes(44) + content)
    return path


def a_node(directory: Path, gpus: Any = "a100-40gx2", **settings: Any) -> Hardware:
    """A node with simulated GPUs, a library, and nothing of the machine that the test runs on."""
    spec = directory / "gpus.yaml"
    listed = gpus if isinstance(gpus, str) else list(gpus)
    spec.write_text(yaml.safe_dump({"gpus": listed, "node": "worker-1", "waitSeconds": 0}))
    proc = directory / "proc/driver/nvidia-caps"
    proc.mkdir(parents=True, exist_ok=True)
    (proc / "mig-minors").write_text(mig_minors_text(8))
    defaults = {
        "node_name": "worker-1",
        "simulated_nvml": spec,
        "hook_path": directory / "usr-local",
        "library": a_library(directory),
        "lock_dir": directory / "vgpulock",
        "agent_root": directory / "agent",
        "container_driver_root": directory / "driver-root",
        "proc_root": directory / "proc",
        "sys_root": directory / "sys",
        "cdi_dirs": (directory / "etc-cdi", directory / "run-cdi"),
        "cdi_dir": directory / "run-cdi",
    }
    found = NodeSettings(**(defaults | settings))
    reports: list[str] = []
    nvml = SimulatedNvml(read_simulation(spec, "worker-1"))
    return Hardware(
        settings=found,
        nvml=nvml,
        instances=Instances(nvml),
        made=MadeInstances(),
        contexts=ContextReserves(nvml),
        report=reports.append,
    )


def reported(node: Hardware) -> list[str]:
    return node.report.__self__


def gpu_ids(node: Hardware) -> list[str]:
    return [gpu.uuid for gpu in node.nvml.gpus()]


def with_files(node: Hardware, *paths: str) -> None:
    """Device files as the agent sees them."""
    for path in paths:
        file = node.settings.agent_root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def a_grant(id: str, memory: int = 3000, cores: int = 30, **rest: Any) -> Grant:
    return Grant(device_id=id, vendor="NVIDIA", memory_mib=memory, cores=cores, **rest)


def an_instance(id: str, profile: str, start: int, size: int) -> Grant:
    """The grant of a MIG instance."""
    instance = MigInstance(profile=profile, placement=MigPlacement(start=start, size=size))
    return a_grant(id, 4864, 15, extra=NO_EXTRA.with_(MIG_INSTANCE, instance))


def a_slice(node: Hardware, *grants: Grant, number: int = 1, **rest: Any) -> Slice:
    """Of container ``main``; without grants, one on the first GPU."""
    state_dir = node.settings.hook_path.parent / f"slices/{number:024x}"
    state_dir.mkdir(parents=True, exist_ok=True)
    defaults: dict[str, Any] = {
        "id": f"{number:024x}",
        "vendor": "NVIDIA",
        "pod_uid": f"pod-uid-{number}",
        "namespace": "default",
        "pod": f"pod-{number}",
        "container": "main",
        "kind": ContainerKind.APP,
        "grants": grants or (a_grant(gpu_ids(node)[0]),),
        "state_dir": state_dir,
        "identity": node.settings.identity,
    }
    return Slice(**(defaults | rest))


def with_node_spec(
    node: Hardware, devices: Mapping[str, str], *, name: str = "nvidia.yaml"
) -> None:
    """The node's own CDI spec, as nvidia-ctk writes it; ``devices``: the GPU's file by name."""
    spec = {
        "cdiVersion": "0.6.0",
        "kind": "nvidia.com/gpu",
        "devices": [
            {"name": device, "containerEdits": {"deviceNodes": [{"path": path}]}}
            for device, path in devices.items()
        ],
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [{"path": "/dev/nvidiactl"}],
            "mounts": [{"hostPath": "/usr/lib/libcuda.so.1", "containerPath": "/usr/lib/libcuda.so.1"}],
            "hooks": [{"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook", "args": ["x"]}],
        },
    }  # fmt: skip
    folder = node.settings.cdi_dir
    folder.mkdir(parents=True, exist_ok=True)
    text = yaml.safe_dump(spec) if name.endswith("yaml") else json.dumps(spec)
    (folder / name).write_text(text)


def node_of(node: Hardware) -> dict[str, Any]:
    """What the agent says of such a node."""
    found = node.settings
    return {
        "name": found.node_name,
        "labels": {},
        "identity": found.identity,
        "cdi_dir": str(found.cdi_dir),
        "cdi_read_dirs": [str(path) for path in found.cdi_dirs],
    }


def section_of(node: Hardware) -> dict[str, Any]:
    """The section ``nvidia:`` that gives a node these simulated GPUs and folders."""
    found = node.settings
    return {
        "simulatedNVML": str(found.simulated_nvml),
        "hookPath": str(found.hook_path),
        "library": str(found.library),
        "lockDir": str(found.lock_dir),
        "agentRoot": str(found.agent_root),
        "containerDriverRoot": str(found.container_driver_root),
        "procRoot": str(found.proc_root),
        "sysRoot": str(found.sys_root),
    }
