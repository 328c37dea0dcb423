"""How a container is told its devices: by variable, by mounts, by CDI, by device files.

The fields are those of HAMi's device plugin, which has them of NVIDIA's. Which of them there are
is the node's choice (``--device-list-strategy`` and others); the container's runtime must be set
up for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from uuid import UUID

from hami.domain.errors import HamiError
from hami.domain.slices import ContainerEdits, DeviceNode, Mount
from hami.domain.units import DeviceId
from hami_nvidia.devices.places import Places, place_of
from hami_nvidia.schedule.profile import MOUNTED
from hami_nvidia.settings.node_settings import NodeSettings

VENDOR = "k8s.device-plugin.nvidia.com"
GPU_KIND = f"{VENDOR}/gpu"
"""Of our CDI specs, as HAMi's plugin names them."""

VISIBLE_DEVICES = "NVIDIA_VISIBLE_DEVICES"

CONTROL_FILES = (
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia-modeset",
)
"""What every program needs beside its GPU's file, as far as the node has it."""

_CDI = frozenset({"cdi-annotations", "cdi-cri"})


class ChannelMissing(HamiError):
    """An IMEX channel that containers must get is not on this node."""


Find = Callable[[], Places]
"""Asks NVML where the devices are. Most answers need not know: they work without a driver too."""


def base_edits(
    ids: Sequence[DeviceId], find: Find, settings: NodeSettings, owner: str
) -> ContainerEdits:
    """HAMi's answer for these devices, without any limit. ``owner`` makes its names unique.

    Raises:
        NoPlace: a device is needed by index or file, and is not on this node.
        ChannelMissing: an IMEX channel is required, and is not on this node.
    """
    strategies = frozenset(settings.list_strategies)
    names: Sequence[str] = ids
    if settings.id_strategy == "index":
        places = find()
        names = [place_of(id, places).index for id in ids]
    channels = present_channels(settings)
    cdi = _cdi_names(names, channels, settings) if names else []
    annotations = {}
    if "cdi-annotations" in strategies and cdi:
        key = f"{settings.cdi_annotation_prefix}nvidia-device-plugin_{stable_uuid(owner)}"
        annotations[key] = ",".join(cdi)
    cdi_devices = tuple(cdi) if "cdi-cri" in strategies else ()
    if strategies <= _CDI:
        return ContainerEdits(annotations=annotations, cdi_devices=cdi_devices)
    return ContainerEdits(
        env=_environment(names, channels, settings),
        mounts=tuple(_null_mounts(names, channels)) if "volume-mounts" in strategies else (),
        device_nodes=tuple(device_files(ids, find(), settings))
        if settings.pass_device_specs
        else (),
        cdi_devices=cdi_devices,
        annotations=annotations,
    )


def device_files(
    ids: Sequence[DeviceId], places: Places, settings: NodeSettings
) -> Iterator[DeviceNode]:
    """The files that go with any GPU, those of these devices, and the IMEX channels'."""
    root = dev_root(settings)
    for path in CONTROL_FILES:
        if seen(path, settings):
            yield _node(path, root)
    for path in dict.fromkeys(path for id in ids for path in place_of(id, places).paths):
        yield _node(path, root)
    yield from channel_files(settings).values()


def channel_files(settings: NodeSettings) -> Mapping[int, DeviceNode]:
    """The files of the configured IMEX channels that the node has."""
    root = dev_root(settings)
    return {channel: _node(channel_path(channel), root) for channel in present_channels(settings)}


def dev_root(settings: NodeSettings) -> Path:
    """Below which directory of the node its device files are."""
    if settings.configured_dev_root is not None:
        return settings.configured_dev_root
    has_dev = (settings.container_driver_root / "dev").is_dir()
    return settings.driver_root if has_dev else Path("/")


def seen(path: str, settings: NodeSettings) -> bool:
    """Whether the agent sees this file of the node, in its own /dev or below the driver's root."""
    roots = (settings.agent_root, settings.container_driver_root)
    return any(below(root, path).exists() for root in roots)


def below(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def channel_path(channel: int) -> str:
    return f"/dev/nvidia-caps-imex-channels/channel{channel}"


def present_channels(settings: NodeSettings) -> tuple[int, ...]:
    """The configured IMEX channels that the node has."""
    missing = [c for c in settings.imex_channels if not seen(channel_path(c), settings)]
    if missing and settings.imex_required:
        raise ChannelMissing(
            f"IMEX channel {channel_path(missing[0])} does not exist on this node and is required; "
            f"start the IMEX service, or turn --imex-required off"
        )
    return tuple(c for c in settings.imex_channels if c not in missing)


def enabled_modes(settings: NodeSettings) -> tuple[str, ...]:
    """HAMi's order."""
    modes = (("gdrcopy", settings.gdrcopy), ("gds", settings.gds), ("mofed", settings.mofed))
    return tuple(mode for mode, enabled in modes if enabled)


def mode_environment(settings: NodeSettings) -> dict[str, str]:
    """How NVIDIA's runtime is told to add the modes' devices."""
    return {f"NVIDIA_{mode.upper()}": "enabled" for mode in enabled_modes(settings)}


def stable_uuid(owner: str) -> UUID:
    """A random-looking UUID that is the same each time: an answer may be asked for twice."""
    return UUID(bytes=hashlib.sha256(owner.encode()).digest()[:16], version=4)


def _node(path: str, root: Path) -> DeviceNode:
    return DeviceNode(host_path=str(below(root, path)), container_path=path)


def _cdi_names(names: Sequence[str], channels: Sequence[int], settings: NodeSettings) -> list[str]:
    return [
        *(f"{GPU_KIND}={name}" for name in names),
        *(f"{VENDOR}/imex-channel={channel}" for channel in channels),
        *(f"{VENDOR}/{mode}=all" for mode in enabled_modes(settings)),
    ]


def _environment(
    names: Sequence[str], channels: Sequence[int], settings: NodeSettings
) -> dict[str, str]:
    env = {}
    if "envvar" in settings.list_strategies:
        env[VISIBLE_DEVICES] = ",".join(names)
        if channels:
            env["NVIDIA_IMEX_CHANNELS"] = ",".join(map(str, channels))
    if "volume-mounts" in settings.list_strategies:
        env[VISIBLE_DEVICES] = MOUNTED
    return env | mode_environment(settings)


def _null_mounts(names: Sequence[str], channels: Sequence[int]) -> Iterator[Mount]:
    for name in (*names, *(f"imex/{channel}" for channel in channels)):
        yield Mount(host_path="/dev/null", container_path=f"{MOUNTED}/{name}", read_only=False)
