"""Whether a container that runs has its slice: read from its own view of the file system.

A runtime that does not read CDI specs starts a container without one and says nothing. And a pod
may hide what it was given: with a volume of its own at that place or above it, at its start or by
a file that another container of the pod puts there later.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

_ESCAPED = re.compile(r"\\([0-7]{3})")
_LONGEST = 16 << 20
"""Bytes of a mount table that are read: the tenant of a privileged container can make it grow."""
_ENDED = frozenset({errno.ENOENT, errno.ESRCH})


@dataclass(frozen=True, slots=True)
class Mounted:
    """The container sees the slice, and no other."""


@dataclass(frozen=True, slots=True)
class Missing:
    """It does not; ``problem`` says what it sees instead.

    ``beside``: where, at the place or above it, something else is mounted; empty if nothing is.
    ``link``: a symbolic link leads elsewhere.
    """

    problem: str
    beside: str = ""
    link: bool = False


@dataclass(frozen=True, slots=True)
class MountUnclear:
    """Nobody can say: the process has ended, or may not be looked at."""

    problem: str


def slice_mount(
    pid: int, target: PurePosixPath, expected: Path, *, proc: Path = Path("/proc")
) -> Mounted | Missing | MountUnclear:
    """Whether the process sees the file ``expected`` of ours, mounted at its path ``target``."""
    try:
        mounted = mounts_on(_table(pid, proc), target)
    except OSError as error:
        return _unknown(pid, error)
    root = mounted.get(str(target))
    beside = max((point for point in mounted if point != "/"), key=len, default="")
    if root is None:
        return Missing(f"process {pid} has nothing mounted at {target}", beside)
    ends = "/".join(expected.parts[-3:])
    if not f"{root}/".endswith(f"/{ends}/"):
        return Missing(f"process {pid} has {root} at {target} instead of .../{ends}", beside)
    try:
        ours = expected.stat()
    except OSError as error:
        return MountUnclear(f"cannot read {expected}: {error.strerror}")
    try:
        folder = os.open(f"{proc}/{pid}/root", os.O_PATH | os.O_DIRECTORY)
    except OSError as error:
        return _unknown(pid, error)
    try:
        theirs = _without_links(folder, target, os.stat)
    except FileNotFoundError:
        # Mounted, and yet not there: below something that was mounted over it later.
        return Missing(f"process {pid} finds nothing at {target}", beside)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            text = f"process {pid} has a symbolic link on the way to {target}"
            return Missing(text, beside, link=True)
        return _unknown(pid, error)
    if (theirs.st_dev, theirs.st_ino) != (ours.st_dev, ours.st_ino):
        return Missing(f"process {pid} has another file than {expected} at {target}", beside)
    return Mounted()


def mounted_slice(
    pid: int, target: PurePosixPath, vendor: str, *, proc: Path = Path("/proc")
) -> bool | MountUnclear:
    """Whether it has any slice of the vendor's at ``target``, by its mount table alone."""
    try:
        root = mounts_on(_table(pid, proc), target).get(str(target), "")
    except OSError as error:
        return _unknown(pid, error)
    return re.search(rf"/{re.escape(vendor)}/[0-9a-z]+/{target.name}$", root) is not None


def mounting(
    pids: Iterable[int], folders: Collection[str], *, proc: Path = Path("/proc")
) -> set[str]:
    """Those of ``folders`` of which one of the processes has something mounted, wherever.

    Each is a part of a path. Of a process that may not be looked at, it may be any of them.
    """
    found: set[str] = set()
    for pid in pids:
        try:
            table = _table(pid, proc)
        except OSError as error:
            if error.errno in _ENDED:
                continue
            return set(folders)
        found.update(folder for folder in folders if f"/{folder}/" in table)
    return found


def mounts_on(table: str, target: PurePosixPath) -> dict[str, str]:
    """What of its file system is mounted at ``target`` and at what that lies in, by mount point.

    ``table`` is a text like ``/proc/<pid>/mountinfo``. Of several mounts at one place the last
    hides the others (proc(5)).
    """
    whole = str(target)
    way = {whole, "/", *(whole[:at] for at, letter in enumerate(whole) if letter == "/" and at)}
    found = {}
    for line in table.split("\n"):
        fields = line.split(" ", 5)
        if len(fields) == 6 and (point := _unescaped(fields[4])) in way:
            found[point] = _unescaped(fields[3])
    return found


def _table(pid: int, proc: Path) -> str:
    with open(f"{proc}/{pid}/mountinfo", "rb") as table:  # noqa: PTH123 -- twice as fast
        return table.read(_LONGEST).decode(errors="surrogateescape")


def _unescaped(text: str) -> str:
    """Blanks, tabs, line ends and backslashes are written in octal."""
    return text if "\\" not in text else _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)


def _without_links(
    folder: int, target: PurePosixPath, read: Callable[[int], os.stat_result]
) -> os.stat_result:
    """``target`` below ``folder``, no link followed: a tenant's could lead into our own files.

    ``folder`` is closed.
    """
    try:
        for part in target.parts[1:]:
            inner = os.open(part, os.O_PATH | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        return read(folder)
    finally:
        os.close(folder)


def _unknown(pid: int, error: OSError) -> MountUnclear:
    if error.errno in _ENDED:
        return MountUnclear(f"process {pid} has ended")
    advice = "; allow the agent SYS_PTRACE" if isinstance(error, PermissionError) else ""
    return MountUnclear(f"cannot look at process {pid}: {error.strerror}{advice}")
