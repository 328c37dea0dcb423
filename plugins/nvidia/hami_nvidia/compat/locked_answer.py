"""The answer to kubelet's Allocate with identity ``lock``: HAMi's device plugin, field by field.

HAMi's plugin has the fields of NVIDIA's. Which of them there are is the node's choice
(``--device-list-strategy`` and others); the container's runtime must be set up for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from hami.domain.errors import HamiError
from hami.domain.slices import ContainerEdits, Mount, Slice
from hami.domain.units import DeviceId
from hami_nvidia.compat.locked_cdi import write_specs
from hami_nvidia.devices.places import Places, place_of
from hami_nvidia.handover.device_files import (
    GPU_KIND,
    VENDOR,
    VISIBLE_DEVICES,
    device_files,
    enabled_modes,
    mode_environment,
    present_channels,
    stable_uuid,
)
from hami_nvidia.handover.files import remove_tree
from hami_nvidia.handover.hardware import Hardware
from hami_nvidia.handover.library import NAME, Library
from hami_nvidia.handover.limits import control_disabled, limits_environment
from hami_nvidia.schedule.profile import MOUNTED, PRELOADED_AT
from hami_nvidia.settings.node_settings import NodeSettings

_CDI = frozenset({"cdi-annotations", "cdi-cri"})
_SHARED_WITH_ALL = 0o777
"""HAMi's library writes as the container's user, whoever that is."""

_LOCKS_SEEN_AT = "/tmp/vgpulock"  # noqa: S108 HAMi's library looks there
_LICENSE = "license"
_LICENSED = (
    (_LICENSE, "/tmp/license"),  # noqa: S108 HAMi's
    ("vgpuvalidator", "/usr/bin/vgpuvalidator"),
)


class SharedDirectoryFailed(HamiError):
    """A directory that HAMi's library needs cannot be made or removed."""


class LockedAnswer:
    """HAMi's form of an answer (:class:`hami_nvidia.handover.enforce.Answer`)."""

    def devices(self, ids: Sequence[DeviceId], hardware: Hardware, owner: str) -> ContainerEdits:
        self.keep(hardware, ids)
        return base_edits(ids, hardware.places, hardware.settings, owner)

    def static_devices(self, ids: Sequence[DeviceId], hardware: Hardware) -> ContainerEdits:
        return self.devices(ids, hardware, ",".join(sorted(ids)))

    def shared_directory(self, slice: Slice, settings: NodeSettings) -> str:
        make_shared_directories(slice, settings)
        return str(shared_directory(slice, settings))

    def with_limits(
        self, base: ContainerEdits, slice: Slice, hardware: Hardware, library: Library
    ) -> ContainerEdits:
        return with_limits(base, slice, hardware.settings, library)

    def keep(self, hardware: Hardware, needed: Sequence[DeviceId] = ()) -> None:
        """The CDI specs, where kubelet's answers name devices of HAMi's kinds."""
        settings = hardware.settings
        if settings.identity == "lock" and _CDI & set(settings.list_strategies):
            write_specs(needed, hardware)


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


def with_limits(
    base: ContainerEdits, slice: Slice, settings: NodeSettings, library: Library
) -> ContainerEdits:
    """``base``, and what HAMi's library needs to hold the limits of a shared GPU."""
    directory = settings.library_dir
    env = limits_environment(slice, settings)
    env["CUDA_DEVICE_MEMORY_SHARED_CACHE"] = f"{directory}/{stable_uuid(slice.id)}.cache"
    mounts = [
        Mount(host_path=str(library.path), container_path=str(directory / NAME)),
        Mount(
            host_path=str(shared_directory(slice, settings)),
            container_path=str(directory),
            read_only=False,
        ),
        Mount(host_path=str(settings.lock_dir), container_path=_LOCKS_SEEN_AT, read_only=False),
    ]
    if not control_disabled(slice):
        mounts.append(Mount(host_path=str(library.preload), container_path=PRELOADED_AT))
    if (directory / _LICENSE).exists():
        for name, seen_at in _LICENSED:
            mounts.append(Mount(host_path=str(directory / name), container_path=seen_at))
    return replace(base, env={**base.env, **env}, mounts=(*base.mounts, *mounts))


def shared_directory(slice: Slice, settings: NodeSettings) -> Path:
    """Where the container's cache file lies on the node."""
    return settings.library_dir / "containers" / f"{slice.pod_uid}_{slice.container}"


def make_shared_directories(slice: Slice, settings: NodeSettings) -> None:
    """HAMi empties the first one each time; a container that runs still has its cache there.

    Raises:
        SharedDirectoryFailed: one cannot be made.
    """
    for directory in (shared_directory(slice, settings), settings.lock_dir):
        try:
            directory.mkdir(parents=True, exist_ok=True)
            _open_to_all(directory)
        except OSError as error:
            raise SharedDirectoryFailed(
                f"{directory} cannot be made: {error.strerror}; HAMi's library in the container "
                f"needs it as a directory: remove what is there, make its parent writable"
            ) from error


def _open_to_all(directory: Path) -> None:
    """Not through a link: anybody on the node can put one into /tmp."""
    opened = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fchmod(opened, _SHARED_WITH_ALL)
    finally:
        os.close(opened)


def remove_shared_directory(directory: Path, settings: NodeSettings) -> None:
    """Only what lies where :func:`shared_directory` puts it; it is the tenant's content.

    Raises:
        SharedDirectoryFailed: something of it cannot be removed.
    """
    if directory.parent == settings.library_dir / "containers" and "_" in directory.name:
        try:
            remove_tree(directory)
        except OSError as error:
            raise SharedDirectoryFailed(
                f"{error.filename or directory} cannot be removed: {error.strerror}"
            ) from error
