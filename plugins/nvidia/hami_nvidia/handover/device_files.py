"""The device files of a node: those of its GPUs, of its IMEX channels, and what GPUDirect needs.

GPUDirect here is GDRCopy, GPUDirect Storage and MOFED, as HAMi and NVIDIA's device plugin name
them. Nothing is opened; it is only asked which files the agent sees.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from uuid import UUID

from hami.domain.errors import HamiError
from hami.domain.slices import DeviceNode, Mount
from hami.domain.units import DeviceId
from hami_nvidia.devices.places import Places, place_of
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

_FILES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "gdrcopy": ("/dev/gdrdrv",),
        "gds": ("/dev/nvidia-fs*",),
        "mofed": ("/dev/infiniband/uverbs*", "/dev/infiniband/rdma_cm"),
    }
)
_MOUNTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"gds": ("/run/udev", "/etc/cufile.json")}
)


class ChannelMissing(HamiError):
    """An IMEX channel that containers must get is not on this node."""


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


# GPUDirect: NVIDIA's container runtime adds it when it is told to by variable; a CDI spec must name
# the files.


def extra_files(settings: NodeSettings) -> Iterator[DeviceNode]:
    """The device files of every enabled mode that the node has."""
    for mode in enabled_modes(settings):
        yield from mode_files(mode, settings)


def extra_mounts(settings: NodeSettings) -> Iterator[Mount]:
    for mode in enabled_modes(settings):
        yield from mode_mounts(mode, settings)


def mode_files(mode: str, settings: NodeSettings) -> Iterator[DeviceNode]:
    root = dev_root(settings)
    for pattern in _FILES.get(mode, ()):
        for path in _matching(pattern, settings):
            yield _node(path, root)


def mode_mounts(mode: str, settings: NodeSettings) -> Iterator[Mount]:
    for path in _MOUNTS.get(mode, ()):
        if seen(path, settings):
            yield Mount(host_path=path, container_path=path)


def _matching(pattern: str, settings: NodeSettings) -> list[str]:
    """The node's files, as seen in the agent's own /dev and below the driver's root."""
    found = set()
    for root in (settings.agent_root, settings.container_driver_root):
        for path in root.glob(pattern.lstrip("/")):
            found.add(f"/{path.relative_to(root)}")
    return sorted(found)
