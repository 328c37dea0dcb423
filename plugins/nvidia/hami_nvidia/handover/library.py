"""The library that enforces limits, on its way from this package onto the node.

It lies in ``<hook path>/vgpu`` under a name that its content decides: a newer one never replaces
a file that a running container has mounted. Beside it lies ``ld.so.preload``, which names the
place where containers see the library. Everything is written beside its place and renamed into
it; agents that do so at once do not disturb each other.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import struct
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType

from hami.domain.errors import HamiError
from hami_nvidia.handover.files import UNFINISHED, write_whole
from hami_nvidia.settings.node_settings import NodeSettings

NAME = "libvgpu.so"
PRELOAD = "ld.so.preload"

_OURS = re.compile(rf"^{re.escape(NAME)}\.[0-9a-f]{{12}}$")
_UNUSED_FOR = 24 * 3600.0
"""How long a version that nobody names stays: another agent may be about to name it."""

_LARGEST = 64 << 20
_ELF = struct.Struct("<4sBB10xHH")
_MACHINES = MappingProxyType({"x86_64": 62, "aarch64": 183})
"""``e_machine`` of the ELF header."""


class LibraryMissing(HamiError):
    """There is no usable library; whoever installed the agent must act."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """The library as it lies on the node, and the preload file that names it in containers."""

    path: Path
    preload: Path


def install(settings: NodeSettings) -> Library:
    """Put the library onto the node unless it is there already.

    Raises:
        LibraryMissing: there is none to put there, or it cannot be put; the former one stays.
    """
    directory = settings.library_dir
    source = _source(settings)
    try:
        if source is None:
            path = _present(directory)
            if path is None:
                raise LibraryMissing(_nowhere(settings))
        else:
            path = _place(_read(source), directory)
        return Library(path=path, preload=_write_preload(directory))
    except OSError as error:
        raise LibraryMissing(
            f"{error.filename or directory}: {NAME} cannot be installed there: {error.strerror}; "
            f"make {directory} writable for the agent and free some space, or choose another "
            f"directory with --hook-path"
        ) from error


def remove_unused(settings: NodeSettings, used: Collection[Path]) -> None:
    """Remove versions of ours that neither a slice nor an agent has named for a day.

    And what an agent that was killed left unfinished.

    Raises:
        OSError: one cannot be removed.
    """
    library = _source(settings)
    current = settings.library_dir / _versioned(_read(library)) if library else None
    for path in sorted(settings.library_dir.glob("*")):
        ours = _OURS.match(path.name) or UNFINISHED.match(path.name)
        if not ours or path in used or path == current:
            continue
        with suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > _UNUSED_FOR:
                path.unlink()


def _source(settings: NodeSettings) -> Path | None:
    """The file that ``--library`` names, else the packaged one, else None."""
    if settings.library is not None:
        return settings.library
    packaged = Path(str(files("hami_nvidia"))) / "lib" / platform.machine() / NAME
    return packaged if packaged.is_file() else None


def _nowhere(settings: NodeSettings) -> str:
    return (
        f"there is no {NAME} to keep containers inside their limits: this package has none for "
        f"{platform.machine()}, --library is not given, and {settings.library_dir} has none; "
        f"install a wheel of hami-nvidia that carries it or name one with --library"
    )


def _present(directory: Path) -> Path | None:
    """What somebody else put there, as HAMi's image does: the plain name, else the newest."""
    plain = directory / NAME
    if plain.is_file():
        return plain
    found = [path for path in directory.glob(f"{NAME}.*") if path.is_file()]
    return max(found, key=lambda path: (path.stat().st_mtime_ns, path.name), default=None)


def _read(source: Path) -> bytes:
    """The library's bytes, checked: a wrong one makes every command in every container complain.

    Raises:
        LibraryMissing: it cannot be read, or is no shared library for this machine.
    """
    try:
        with source.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        raise LibraryMissing(
            f"{source}: {NAME} cannot be read: {error.strerror}; name another with --library"
        ) from error
    machine = _MACHINES.get(platform.machine())
    if len(content) >= _ELF.size and len(content) <= _LARGEST:
        magic, bits, order, kind, built_for = _ELF.unpack_from(content)
        shared = (magic, bits, order, kind) == (b"\x7fELF", 2, 1, 3)
        if shared and machine in (None, built_for):
            return content
    raise LibraryMissing(
        f"{source} is no shared library for {platform.machine()}; name one with --library"
    )


def _versioned(content: bytes) -> str:
    return f"{NAME}.{hashlib.sha256(content).hexdigest()[:12]}"


def _place(content: bytes, directory: Path) -> Path:
    path = directory / _versioned(content)
    directory.mkdir(parents=True, exist_ok=True)
    if path.is_file() and path.read_bytes() == content:
        with suppress(OSError):  # a directory that cannot be written has what is needed
            os.utime(path)  # named again today
    else:
        write_whole(path, content, 0o755)
    return path


def _write_preload(directory: Path) -> Path:
    path = directory / PRELOAD
    content = f"{directory / NAME}\n".encode()
    if not path.is_file() or path.read_bytes() != content:
        write_whole(path, content, 0o644)
    return path
