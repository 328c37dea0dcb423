"""Files that are there whole or not at all, whatever happens to the process or the disk.

Everything here takes a directory's descriptor, so that nobody can exchange a directory between two
steps, and follows no symbolic link in the last component.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from hami.domain.errors import HamiError, Malformed, shortened

TEMPORARY = ".tmp"
"""What the name of a file that is being written ends in."""

_REMEDIES = MappingProxyType(
    {
        errno.ENOSPC: "free space or inodes there",
        errno.EDQUOT: "free space there or raise the quota",
        errno.EROFS: "the file system is mounted read-only; remount it or look for disk errors",
        errno.EACCES: "the agent must run as root and may need an SELinux or AppArmor rule",
        errno.EPERM: "the agent needs to run as root, with CAP_SYS_ADMIN where it mounts",
        errno.EIO: "the disk is failing; look into the kernel's log",
        errno.ELOOP: "a symbolic link is where a file or directory should be; remove it",
        errno.ENOTDIR: "something else is where a directory should be; remove it",
        errno.EISDIR: "a directory is where a file should be; remove it",
    }
)
_KERNELS = (("sys",), ("proc",))
"""What the kernel itself shows as files."""


class StoreFailed(HamiError):
    """The disk did not do what it should; the node's administrator must act."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MalformedFile(Malformed):
    """A file that does not hold what it should; ``annotation`` names the file."""

    def __str__(self) -> str:
        where = f", {self.position}" if self.position else ""
        text = f": {shortened(self.text)!r}" if self.text else ""
        return f"{self.annotation}{where}: {self.problem}{text}"


@contextmanager
def store_failures(doing: str, path: Path) -> Iterator[None]:
    """An OSError inside becomes a StoreFailed that names the path, the cause and the remedy."""
    try:
        yield
    except OSError as error:
        cause = error.strerror or str(error)
        remedy = _REMEDIES.get(error.errno or 0, "look at the node's disk and mounts")
        if path.parts[1:2] in _KERNELS:
            remedy = f"no files can be made below /{path.parts[1]}; name another directory"
        raise StoreFailed(f"{path}: cannot {doing}: {cause}; {remedy}") from error


@contextmanager
def opened_folder(path: Path, *, within: int | None = None) -> Iterator[int]:
    """A descriptor of a directory; not through a symbolic link.

    Raises:
        OSError: there is none, or it is something else.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, dir_fd=within)
    try:
        yield fd
    finally:
        os.close(fd)


def write_whole(
    folder: int, name: str, data: bytes, mode: int, *, prepare: Callable[[int], None] | None = None
) -> None:
    """Make or replace one file: afterwards it is there with ``data`` and ``mode``, on the disk too.

    ``prepare`` gets the descriptor before anybody can see the file by its name.

    Raises:
        OSError: nothing changed, or everything did and only the directory could not be synced.
    """
    temporary = f".{name}.{secrets.token_hex(6)}{TEMPORARY}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(temporary, flags, 0o600, dir_fd=folder)
    try:
        try:
            write_all(fd, data)
            # Not by the mode of open(): the umask takes bits away from that.
            os.fchmod(fd, mode)
            if prepare is not None:
                prepare(fd)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)


def link_whole(folder: int, name: str, target: str) -> None:
    """Make or replace one symbolic link.

    Raises:
        OSError: nothing changed, or everything did and only the directory could not be synced.
    """
    temporary = f".{name}.{secrets.token_hex(6)}{TEMPORARY}"
    os.symlink(target, temporary, dir_fd=folder)
    try:
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
    os.fsync(folder)


def write_all(fd: int, data: bytes) -> None:
    """All of ``data`` at the descriptor's position; write(2) may take less at a time."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]


def read_bounded(folder: int, name: str, limit: int) -> bytes:
    """A regular file of at most ``limit`` bytes.

    Raises:
        OSError: there is none, it is no regular file, or it is larger (``EFBIG``).
    """
    # O_NONBLOCK: a fifo in its place must not stop us.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(name, flags, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise OSError(errno.EINVAL, "it is no regular file", name)
        data = read_at_most(fd, limit + 1)
    finally:
        os.close(fd)
    if len(data) > limit:
        raise OSError(errno.EFBIG, f"it is larger than {limit} bytes", name)
    return data


def read_at_most(fd: int, limit: int) -> bytes:
    """From the beginning, as many bytes as there are, ``limit`` at most."""
    parts: list[bytes] = []
    position = 0
    while position < limit:
        part = os.pread(fd, limit - position, position)
        if not part:
            break
        parts.append(part)
        position += len(part)
    return b"".join(parts)


def make_folder(path: Path, mode: int) -> None:
    """``path`` and what it lies in, each new one with ``mode``; one that is there stays as it is.

    Raises:
        OSError: one cannot be made, or something else has its name.
    """
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError), opened_folder(folder.parent) as parent:
            os.mkdir(folder.name, mode, dir_fd=parent)
            with opened_folder(Path(folder.name), within=parent) as fd:
                os.fchmod(fd, mode)
            os.fsync(parent)


def leftovers(folder: int) -> list[str]:
    """Names of files and links that a killed process was making here."""
    with os.scandir(folder) as entries:
        return sorted(
            entry.name
            for entry in entries
            if entry.name.startswith(".")
            and entry.name.endswith(TEMPORARY)
            and not entry.is_dir(follow_symlinks=False)
        )


def remove_leftovers(folder: int) -> None:
    """Remove what a killed process left.

    Raises:
        OSError: one cannot be removed.
    """
    for name in leftovers(folder):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=folder)
