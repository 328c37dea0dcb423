"""The slices of one vendor on the node's disk: ``<root>/<vendor>/<slice id>/``.

::

    meta.json   0600  whose it is (:mod:`hami.slices.record`)
    limits      0444  what the container maps read-only (:mod:`hami.slices.limits_page`)
    usage       0666  what the container writes (:mod:`hami.slices.usage_region`); with a tmpfs a
                      symbolic link to region/usage, dangling where the mount is not seen: then the
                      container does not start, instead of starting with a file that could fill the
                      disk
    region/     0711  the mount point of that tmpfs
    ...               whatever else the vendor keeps there

A slice's directory is made under another name and renamed, and renamed again before it is removed:
it is there whole or not at all. Names that begin with a dot are ours, half made or half removed.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import structlog

from hami.domain.errors import shortened
from hami.domain.units import VendorKey
from hami.node.disk.selinux import label_for_containers, selinux_is_on
from hami.node.disk.tmpfs import mount_tmpfs, mounts_below, unmount
from hami.slices import limits_page as page
from hami.slices.files import (
    MalformedFile,
    StoreFailed,
    link_whole,
    make_folder,
    opened_folder,
    read_bounded,
    remove_leftovers,
    store_failures,
    write_whole,
)
from hami.slices.open_pages import PageFiles
from hami.slices.record import RecordedGrant, SliceRecord, decode_record, encode_record
from hami.slices.usage_region import REGION_SIZE, empty_region

__all__ = ["Damaged", "OthersSlice", "RecordedGrant", "SliceRecord", "SliceStore", "StoreFailed"]

SLICE_ID = re.compile(r"[0-9a-z]{1,63}")
"""No dot, dash or slash: it is a directory's name, part of a file's name, and a CDI device's."""
_VENDOR = re.compile(r"[0-9a-z][0-9a-z._-]{0,62}")
_META, _LIMITS, _USAGE, _REGION = "meta.json", "limits", "usage", "region"
_LONGEST_META = 2 << 20
"""Bytes; the API server takes no object that is larger."""
_NO_RECORD = frozenset({errno.ENOENT, errno.EFBIG, errno.EINVAL, errno.ELOOP})
"""There is none, or something that is no file of ours; any other error says nothing about it."""
_TMPFS_SIZE = 64 << 10
"""Bytes: the region, and whole pages on machines whose pages have 64 KiB."""
_TMPFS_INODES = 2
"""The root and the region."""
_NEW, _GONE = ".new-", ".gone-"


@dataclass(frozen=True, slots=True)
class Damaged:
    """A slice whose record cannot be read: whose it was is unknown, what it holds is kept."""

    slice_id: str
    problem: str


class OthersSlice(StoreFailed):
    """A slice id belongs to one container for ever, and this is another container."""


class SliceStore:
    """Reads and writes the slices of one vendor. Blocks; one caller at a time for each slice.

    With ``tmpfs`` each slice gets a mount of its own.
    """

    def __init__(
        self, root: Path, vendor: VendorKey, *, tmpfs: bool, selinux: bool | None = None
    ) -> None:
        if not _VENDOR.fullmatch(vendor.lower()):
            raise StoreFailed(f"vendor {vendor!r} cannot name a directory below {root}; rename it")
        self._vendor = vendor
        self._folder = root / vendor.lower()
        self._tmpfs = tmpfs
        self._pages = PageFiles(_LIMITS)
        self._selinux = selinux_is_on() if selinux is None else selinux
        self._log = structlog.get_logger("hami.store")

    def recover(self) -> tuple[list[SliceRecord], list[Damaged]]:
        """Read every slice, and remove what a killed agent left half made or half removed.

        Raises:
            StoreFailed: the directory is there and cannot be listed.
        """
        records: list[SliceRecord] = []
        damaged: list[Damaged] = []
        for name in self._names():
            if name.startswith((_NEW, _GONE)):
                self._clear(name)
                continue
            path = self._folder / name
            if not SLICE_ID.fullmatch(name) or path.is_symlink() or not path.is_dir():
                self._log.warning("no slice of ours is left alone", path=str(path))
                continue
            match self._recovered(name):
                case SliceRecord() as record:
                    records.append(record)
                case Damaged() as broken:
                    damaged.append(broken)
        return records, damaged

    def create(self, record: SliceRecord) -> Path:
        """Make the slice, or complete it; its record becomes ``record``.

        Raises:
            StoreFailed: it could not be made, or is another container's.
        """
        path = self.state_dir(record.slice_id)
        with store_failures("make this slice", path):
            make_folder(self._folder, 0o711)
            if path.is_dir() and not path.is_symlink():
                self._keep_owner(path, record)
                self.save(record)
            else:
                self._make(path, record)
            self._ensure_usage(path)
        return path

    def save(self, record: SliceRecord) -> None:
        """Write the record.

        Raises:
            StoreFailed: the former record stands, or the slice is not there.
        """
        path = self.state_dir(record.slice_id)
        data = encode_record(record)
        with store_failures("save", path / _META), opened_folder(path) as folder:
            with contextlib.suppress(OSError):
                if read_bounded(folder, _META, _LONGEST_META) == data:
                    return
            write_whole(folder, _META, data, 0o600)

    def write_limits(
        self, slice_id: str, limits: page.PageLimits
    ) -> Literal["new", "same", "updated", "replaced"]:
        """Make the page say ``limits``; in place, so that what runs with it sees them at once.

        ``replaced``: there was a file that is no page; a container that mapped it keeps it until
        its next start.

        Raises:
            StoreFailed: the page says what it said before, or the limits do not fit into one.
        """
        path = self.state_dir(slice_id) / _LIMITS
        with _unfit(path), store_failures("write", path), opened_folder(path.parent) as folder:
            try:
                outcome = page.update(self._pages.opened(slice_id, folder), limits)
            except FileNotFoundError:
                self._write_page(slice_id, folder, limits)
                return "new"
            if not isinstance(outcome, MalformedFile):
                return outcome
            self._log.warning("a limits page is replaced", path=str(path), problem=str(outcome))
            self._write_page(slice_id, folder, limits)
            return "replaced"

    def hold_page(self, slice_id: str) -> None:
        """Have its limits page open; it may take as long as a lease on that is broken.

        Raises:
            StoreFailed: it is there and cannot be opened.
        """
        path = self.state_dir(slice_id)
        with (
            store_failures("open", path / _LIMITS),
            contextlib.suppress(FileNotFoundError),
            opened_folder(path) as folder,
        ):
            self._pages.opened(slice_id, folder)

    def close(self) -> None:
        """Close the pages; nothing more is written."""
        self._pages.close_all()

    def state_dir(self, slice_id: str) -> Path:
        """Where the slice lies.

        Raises:
            StoreFailed: this is no id of a slice.
        """
        if not SLICE_ID.fullmatch(slice_id):
            raise StoreFailed(
                f"{shortened(slice_id)!r} is no slice id: 1 to 63 small letters and digits"
            )
        return self._folder / slice_id

    def remove(self, slice_id: str) -> None:
        """Unmount and remove it, whatever it holds; nothing there: done.

        Raises:
            StoreFailed: something of it is left; :meth:`recover` or another call tries again.
        """
        path = self.state_dir(slice_id)
        gone = f"{_GONE}{slice_id}-{secrets.token_hex(6)}"
        self._pages.close(slice_id)
        with store_failures("remove", path):
            try:
                with opened_folder(self._folder) as folder:
                    os.rename(slice_id, gone, src_dir_fd=folder, dst_dir_fd=folder)
            except FileNotFoundError:
                gone = ""
            for name in self._names():
                if name == gone or name.startswith(f"{_GONE}{slice_id}-"):
                    _remove_tree(self._folder / name)

    # Reading.

    def _names(self) -> list[str]:
        with store_failures("list", self._folder):
            try:
                return sorted(path.name for path in self._folder.iterdir())
            except FileNotFoundError:
                return []

    def _recovered(self, slice_id: str) -> SliceRecord | Damaged:
        path = self._folder / slice_id
        try:
            with opened_folder(path) as folder:
                found = self._read_meta(folder, slice_id)
                self._remove_leftovers(folder, path)
        except OSError as error:
            return Damaged(slice_id, f"{path}: {_META}: {error.strerror}")
        if isinstance(found, MalformedFile):
            return Damaged(slice_id, f"{path}: {found}")
        return found

    def _remove_leftovers(self, folder: int, path: Path) -> None:
        try:
            remove_leftovers(folder)
        except OSError as error:
            self._log.warning("leftovers cannot be removed", path=str(path), error=str(error))

    def _read_meta(self, folder: int, slice_id: str) -> SliceRecord | MalformedFile:
        data = read_bounded(folder, _META, _LONGEST_META)
        return decode_record(data, slice_id, self._vendor)

    def _keep_owner(self, path: Path, record: SliceRecord) -> None:
        """Refuse a slice that another container owns; a record that cannot be read names nobody."""
        try:
            with opened_folder(path) as folder:
                found = self._read_meta(folder, record.slice_id)
        except OSError as error:
            if error.errno not in _NO_RECORD:
                raise
            return
        if isinstance(found, SliceRecord) and not found.same_owner(record):
            raise OthersSlice(
                f"slice {record.slice_id} belongs to {found.owner}, not to {record.owner}"
            )

    def _clear(self, name: str) -> None:
        try:
            _remove_tree(self._folder / name)
        except OSError as error:
            path = str(self._folder / name)
            self._log.warning("a leftover cannot be removed", path=path, error=str(error))

    # Making.

    def _make(self, path: Path, record: SliceRecord) -> None:
        new = self._folder / f"{_NEW}{record.slice_id}-{secrets.token_hex(6)}"
        new.mkdir(0o700)
        try:
            with opened_folder(new) as folder:
                self._label(folder)
                write_whole(folder, _META, encode_record(record), 0o600)
                os.fchmod(folder, 0o711)
            with opened_folder(self._folder) as parent:
                os.rename(new.name, path.name, src_dir_fd=parent, dst_dir_fd=parent)
                os.fsync(parent)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise

    def _ensure_usage(self, path: Path) -> None:
        """Make the usage region, unless there is one that makes sense: that keeps its charges."""
        with opened_folder(path) as folder:
            if _is_sound(path / _USAGE):
                return
            if not self._tmpfs:
                write_whole(folder, _USAGE, empty_region(), 0o666, prepare=self._label)
                return
            with contextlib.suppress(FileExistsError):
                os.mkdir(_REGION, 0o711, dir_fd=folder)
            region = path / _REGION
            unmount(region)
            mount_tmpfs(region, size=_TMPFS_SIZE, inodes=_TMPFS_INODES)
            with opened_folder(region) as inner:
                self._label(inner)
                write_whole(inner, _USAGE, empty_region(), 0o666, prepare=self._label)
            link_whole(folder, _USAGE, f"{_REGION}/{_USAGE}")

    def _write_page(self, slice_id: str, folder: int, limits: page.PageLimits) -> None:
        write_whole(folder, _LIMITS, page.encode(limits), 0o444, prepare=self._label)
        self._pages.opened(slice_id, folder)

    def _label(self, fd: int) -> None:
        if self._selinux and (problem := label_for_containers(fd)):
            path = Path(f"/proc/self/fd/{fd}").readlink()
            self._log.warning("containers may be kept from a file", path=str(path), error=problem)


@contextmanager
def _unfit(path: Path) -> Iterator[None]:
    try:
        yield
    except page.LimitsUnfit as error:
        raise StoreFailed(f"{path}: {error}") from error


def _is_sound(path: Path) -> bool:
    """A regular file of the right size with the header that it was made with.

    The container may have done anything to it; the next start then gets a new one.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        status = os.fstat(fd)
        expected = empty_region()[:64]
        return (
            stat.S_ISREG(status.st_mode)
            and stat.S_IMODE(status.st_mode) == 0o666
            and status.st_size == REGION_SIZE
            and os.pread(fd, len(expected), 0) == expected
        )
    except OSError:
        return False
    finally:
        os.close(fd)


def _remove_tree(path: Path) -> None:
    """Without following a link or reaching into a file system that is mounted there.

    Raises:
        OSError: something is left.
    """
    if not path.is_dir() or path.is_symlink():
        path.unlink(missing_ok=True)
        return
    for point in mounts_below(path):
        unmount(point)
    if still := mounts_below(path):
        raise OSError(None, f"{still[0]} is still mounted")
    shutil.rmtree(path)
    with opened_folder(path.parent) as parent:
        os.fsync(parent)
