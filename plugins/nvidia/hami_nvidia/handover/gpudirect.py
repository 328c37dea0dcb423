"""What GDRCopy, GPUDirect Storage and MOFED need in a container.

NVIDIA's container runtime adds it when it is told to by variable; a CDI spec must name the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from hami.domain.slices import DeviceNode, Mount
from hami_nvidia.handover.device_list import below, dev_root, enabled_modes, seen
from hami_nvidia.settings.node_settings import NodeSettings

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
            yield DeviceNode(host_path=str(below(root, path)), container_path=path)


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
