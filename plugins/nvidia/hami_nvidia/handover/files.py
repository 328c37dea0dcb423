"""Files that others read while they are replaced."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

UNFINISHED = re.compile(r"^\..+\.\d+\.[0-9a-f]{8}\.unfinished$")
"""The name of a file that is being written, or whose writer was killed."""


def write_whole(path: Path, content: bytes, mode: int) -> None:
    """Whole or not at all, and safe from a loss of power: beside its place, then renamed into it.

    Raises:
        OSError: it cannot be written; the former file stays.
    """
    with _unfinished(path) as (descriptor, name):
        os.fchmod(descriptor, mode)
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(content)
        os.fsync(descriptor)
        name.rename(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def remove_tree(directory: Path) -> None:
    """Remove a directory with all that others put into it; nothing if it is not there.

    However deep it is: a tenant can nest directories deeper than ``shutil.rmtree`` recurses and
    than a path is long. So what lies deeper is moved up before it is removed. No link is followed.

    Raises:
        OSError: something of it cannot be removed.
    """
    with suppress(FileNotFoundError):
        top = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            while names := _names(top):
                for name in names:
                    _remove_or_flatten(name, top)
        finally:
            os.close(top)
        directory.rmdir()


def _remove_or_flatten(name: str, top: int) -> None:
    try:
        os.unlink(name, dir_fd=top)
        return
    except IsADirectoryError:
        inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=top)
    try:
        for child in _names(inner):
            os.rename(child, os.urandom(16).hex(), src_dir_fd=inner, dst_dir_fd=top)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=top)


def _names(directory: int) -> list[str]:
    with os.scandir(directory) as entries:
        return [entry.name for entry in entries]


@contextmanager
def _unfinished(path: Path) -> Iterator[tuple[int, Path]]:
    """A new file beside ``path``, gone in the end unless it was renamed."""
    name = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}.unfinished")
    descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        yield descriptor, name
    finally:
        os.close(descriptor)
        name.unlink(missing_ok=True)
