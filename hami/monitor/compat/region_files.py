"""Where the regions of HAMi's library are, and how one is read and answered. Blocks.

HAMi's device plugin makes a folder ``<hook path>/containers/<pod UID>_<container>`` for each
container and mounts it writable: what lies in it is the container's. No link is followed, nothing
but a regular file is opened, and only as much is read as the largest known region has.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from hami.domain.units import PodUid
from hami.monitor.compat.feedback import Feedback
from hami.monitor.compat.region import Region, read_region
from hami.monitor.compat.region_layout import RegionLayout, refused
from hami.slices.files import MalformedFile, opened_folder

CONTAINERS = "containers"
MOST_FILES = 64
"""Names read of one container's folder; the library makes one or two."""

_RECENT_KERNEL, _UTILIZATION_SWITCH = 8, 4
"""Where the two words stand after ``RegionLayout.tail``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegionPlace:
    """One container's folder, by its name."""

    folder: str
    pod_uid: PodUid
    container: str


class RegionFolder:
    """The regions below ``hook_path`` on the host; in HAMi's chart that is ``/usr/local/vgpu``."""

    def __init__(self, hook_path: Path) -> None:
        self._containers = hook_path / CONTAINERS

    def places(self) -> list[RegionPlace]:
        """Every container that HAMi's device plugin made a folder for, sorted; none without HAMi.

        Raises:
            OSError: the folder is there and cannot be read.
        """
        try:
            with os.scandir(self._containers) as entries:
                names = [each.name for each in entries if each.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []
        return [place for name in sorted(names) if (place := _place(name))]

    def read(self, place: RegionPlace) -> Region | MalformedFile | None:
        """The region; None while no process has made one, or the container is gone."""
        try:
            with self._opened(place, os.O_RDONLY) as fd:
                return read_region(os.fstat(fd).st_size, lambda size, at: os.pread(fd, size, at))
        except FileNotFoundError:
            return None
        except OSError as error:
            return refused(error.strerror or str(error))

    def answer(self, place: RegionPlace, region: Region, words: Feedback) -> MalformedFile | None:
        """Write those of ``words`` that differ from what ``region`` said; what stopped it, or None.

        ``region`` was read of this place. A launch between that and now may lose its mark, and
        sets it anew at the next launch.
        """
        wanted = (
            (_RECENT_KERNEL, region.recent_kernel, words.recent_kernel),
            (_UTILIZATION_SWITCH, region.utilization_switch, words.utilization_switch),
        )
        changes = [(at, word) for at, former, word in wanted if former != word]
        if not changes:
            return None
        try:
            with self._opened(place, os.O_RDWR) as fd:
                return _write(fd, region.layout, changes)
        except FileNotFoundError:
            return None
        except OSError as error:
            return refused(error.strerror or str(error))

    @contextmanager
    def _opened(self, place: RegionPlace, mode: int) -> Iterator[int]:
        with opened_folder(self._containers / place.folder) as folder:
            # O_NONBLOCK: a fifo in its place must not stop us.
            flags = mode | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            fd = os.open(_region_name(folder), flags, dir_fd=folder)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise OSError(errno.EINVAL, "it is no regular file")
            yield fd
        finally:
            os.close(fd)


def _place(name: str) -> RegionPlace | None:
    uid, _, container = name.partition("_")
    if not uid or not container or not name.isascii():
        return None
    return RegionPlace(folder=name, pod_uid=PodUid(uid), container=container)


def _region_name(folder: int) -> str:
    with os.scandir(folder) as entries:
        names = [entry.name for entry in islice(entries, MOST_FILES + 1)]
    if len(names) > MOST_FILES:
        raise OSError(errno.E2BIG, f"more than {MOST_FILES} files beside the region")
    regions = [name for name in names if name.endswith(".cache") and "libvgpu.so" not in name]
    if not regions:
        raise FileNotFoundError(errno.ENOENT, "no region yet")
    return min(regions)


def _write(fd: int, layout: RegionLayout, changes: list[tuple[int, int]]) -> MalformedFile | None:
    if os.fstat(fd).st_size not in (layout.size, layout.size + 1):
        return refused("its length has changed since it was read")
    for at, word in changes:
        os.pwrite(fd, struct.pack("<i", word), layout.tail + at)
    return None
