"""Where a GPU or MIG device is on this node: its index and its device files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hami.domain.errors import HamiError
from hami.domain.units import DeviceId
from hami_nvidia.nvml.interface import Gpu, MigDevice, Nvml, NvmlAway, NvmlFailed
from hami_nvidia.settings.node_settings import NodeSettings

_MINORS = "driver/nvidia-caps/mig-minors"
_LINE = re.compile(r"^gpu(\d+)/gi(\d+)(?:/ci(\d+))?/access (\d+)$", re.MULTILINE)


class NoPlace(HamiError):
    """A device that was granted is not on this node, or not all of its files are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePlace:
    """``index`` is ``0`` for a GPU, ``0:1`` for a MIG device; ``paths`` below the dev root.

    ``problem`` says why the paths are not all there; whoever needs them must refuse.
    """

    id: DeviceId
    index: str
    paths: tuple[str, ...]
    problem: str = ""


Places = Mapping[DeviceId, DevicePlace]

Minors = Mapping[tuple[int, int, int | None], int]
"""The minor of a capability file by GPU minor, GPU instance and compute instance (or None)."""


def places(nvml: Nvml, settings: NodeSettings) -> Places:
    """Every GPU that answers and every MIG device on it; one that fails does not hide the others.

    Raises:
        NvmlAway: there is no driver to ask.
    """
    found: dict[DeviceId, DevicePlace] = {}
    minors: Minors | None = None
    for gpu in nvml.gpus():
        if not isinstance(gpu, Gpu):
            continue
        path = f"/dev/nvidia{gpu.minor}"
        found[gpu.uuid] = DevicePlace(id=gpu.uuid, index=str(gpu.index), paths=(path,))
        for number, device in enumerate(_mig_devices(nvml, gpu)):
            if minors is None:
                minors = capability_minors(settings)
            files, problem = _capability_files(minors, gpu.minor, device, settings)
            found[device.uuid] = DevicePlace(
                id=device.uuid,
                index=f"{gpu.index}:{number}",
                paths=(path, *files),
                problem=problem,
            )
    return found


def place_of(id: DeviceId, found: Places) -> DevicePlace:
    """Where a device is that a container needs.

    Raises:
        NoPlace: it is not there, or not all of its files are known.
    """
    place = found.get(id)
    if place is None:
        raise NoPlace(
            f"device {id} was granted, and the driver does not name it any more; it is lost or was "
            f"cut anew: delete the pod, so that it is scheduled again"
        )
    if place.problem:
        raise NoPlace(place.problem)
    return place


def _mig_devices(nvml: Nvml, gpu: Gpu) -> Sequence[MigDevice]:
    if gpu.mig is None or not gpu.mig.enabled:
        return ()
    try:
        return nvml.mig_devices(gpu.uuid)
    except NvmlAway:
        raise
    except NvmlFailed:
        return ()  # a device of this GPU is then missed where it is needed


def capability_minors(settings: NodeSettings) -> Minors:
    """What the driver says of its capability files; nothing where it says nothing."""
    try:
        text = (settings.proc_root / _MINORS).read_text("ascii", errors="replace")
    except OSError:
        return {}
    return {
        (int(gpu), int(instance), int(compute) if compute else None): int(minor)
        for gpu, instance, compute, minor in _LINE.findall(text)
    }


def _capability_files(
    minors: Minors, gpu_minor: int, device: MigDevice, settings: NodeSettings
) -> tuple[tuple[str, ...], str]:
    """The files as far as they are known, and what is wrong if that is not all."""
    keys = (
        (gpu_minor, device.gpu_instance, None),
        (gpu_minor, device.gpu_instance, device.compute_instance),
    )
    files = tuple(f"/dev/nvidia-caps/nvidia-cap{minors[key]}" for key in keys if key in minors)
    if len(files) == len(keys):
        return files, ""
    return files, (
        f"MIG device {device.uuid}: {settings.proc_root / _MINORS} names no capability file for "
        f"GPU instance {device.gpu_instance} of the GPU with minor {gpu_minor}; let the agent see "
        f"the node's /proc/driver (run it privileged)"
    )
