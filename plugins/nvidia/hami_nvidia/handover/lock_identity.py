"""The answer to kubelet's Allocate with identity ``lock``: HAMi's device plugin, field by field."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from hami.domain.errors import HamiError
from hami.domain.slices import ContainerEdits, Mount, Slice
from hami_nvidia.handover.device_list import stable_uuid
from hami_nvidia.handover.files import remove_tree
from hami_nvidia.handover.library import NAME, Library
from hami_nvidia.handover.limits import control_disabled, limits_environment
from hami_nvidia.schedule.profile import PRELOADED_AT
from hami_nvidia.settings.node_settings import NodeSettings

_SHARED_WITH_ALL = 0o777
"""HAMi's library writes as the container's user, whoever that is."""

_LOCKS_SEEN_AT = "/tmp/vgpulock"  # noqa: S108 HAMi's library looks there
_LICENSE = "license"
_LICENSED = (
    (_LICENSE, "/tmp/license"),  # noqa: S108 HAMi's
    ("vgpuvalidator", "/usr/bin/vgpuvalidator"),
)


class SharedDirectoryFailed(HamiError):
    """A directory that HAMi's library needs cannot be made."""


def with_limits(
    base: ContainerEdits, slice: Slice, settings: NodeSettings, library: Library
) -> ContainerEdits:
    """HAMi's answer for a shared GPU: ``base``, and what its library needs to hold the limits."""
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
        OSError: something of it cannot be removed.
    """
    if directory.parent == settings.library_dir / "containers" and "_" in directory.name:
        remove_tree(directory)
