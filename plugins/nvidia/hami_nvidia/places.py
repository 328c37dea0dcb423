"""Where a GPU or MIG device is on this node: its index and its device files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from hami.domain.errors import HamiError
from hami.domain.units import DeviceId
from hami_nvidia.node_config import NodeSettings
from hami_nvidia.nvml import Gpu, MigDevice, Nvml

_MINORS = "driver/nvidia-caps/mig-minors"
_LINE = re.compile(r"^gpu(\d+)/gi(\d+)(?:/ci(\d+))?/access (\d+)$", re.MULTILINE)


class NoPlace(HamiError):
    """A device that was granted is not on this node any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePlace:
    """``index`` is ``0`` for a GPU, ``0:1`` for a MIG device; ``paths`` below the dev root."""

    id: DeviceId
    index: str
    paths: tuple[str, ...]


Minors = Mapping[tuple[int, int, int | None], int]
"""The minor of a capability file by GPU minor, GPU instance and compute instance (or None)."""


def places(nvml: Nvml, settings: NodeSettings) -> Mapping[DeviceId, DevicePlace]:
    """Every GPU that answers and every MIG device on it.

    Raises:
        NvmlFailed: NVML cannot be asked.
        NoPlace: a MIG device has no capability files.
    """
    found: dict[DeviceId, DevicePlace] = {}
    minors: Minors | None = None
    for gpu in nvml.gpus():
        if not isinstance(gpu, Gpu):
            continue
        path = f"/dev/nvidia{gpu.minor}"
        found[gpu.uuid] = DevicePlace(id=gpu.uuid, index=str(gpu.index), paths=(path,))
        if gpu.mig is None or not gpu.mig.enabled:
            continue
        for number, device in enumerate(nvml.mig_devices(gpu.uuid)):
            if minors is None:
                minors = capability_minors(settings)
            files = _capability_files(minors, gpu.minor, device, settings)
            found[device.uuid] = DevicePlace(
                id=device.uuid, index=f"{gpu.index}:{number}", paths=(path, *files)
            )
    return found


def capability_minors(settings: NodeSettings) -> Minors:
    """What the driver says of its capability files; nothing where it says nothing."""
    path = settings.proc_root / _MINORS
    try:
        text = path.read_text("ascii", errors="replace")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise NoPlace(
            f"{path} cannot be read: {error.strerror}; MIG devices need it: mount the node's /proc "
            f"or run the agent privileged"
        ) from error
    return {
        (int(gpu), int(instance), int(compute) if compute else None): int(minor)
        for gpu, instance, compute, minor in _LINE.findall(text)
    }


def _capability_files(
    minors: Minors, gpu_minor: int, device: MigDevice, settings: NodeSettings
) -> tuple[str, ...]:
    keys = (
        (gpu_minor, device.gpu_instance, None),
        (gpu_minor, device.gpu_instance, device.compute_instance),
    )
    missing = [key for key in keys if key not in minors]
    if missing and settings.simulated_nvml is None:
        raise NoPlace(
            f"MIG device {device.uuid}: {settings.proc_root / _MINORS} names no capability file "
            f"for GPU instance {device.gpu_instance} of the GPU with minor {gpu_minor}; the driver "
            f"of the node and of the agent must be the same"
        )
    return tuple(f"/dev/nvidia-caps/nvidia-cap{minors[key]}" for key in keys if key in minors)
