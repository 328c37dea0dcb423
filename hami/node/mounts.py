"""Whether a container that runs has its slice: read from its own view of the file system.

A runtime that does not read CDI specs starts a container without one and says nothing.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
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
    """It does not; ``problem`` says what it sees instead."""

    problem: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nobody can say: the process has ended, or may not be looked at."""

    problem: str


def slice_mount(
    pid: int, target: PurePosixPath, expected: Path, *, proc: Path = Path("/proc")
) -> Mounted | Missing | Unknown:
    """Whether the process sees the file ``expected`` of ours, mounted at its path ``target``."""
    try:
        with (proc / str(pid) / "mountinfo").open("rb") as table:
            text = table.read(_LONGEST).decode(errors="surrogateescape")
    except OSError as error:
        return _unknown(pid, error)
    root = mounted_root(text, str(target))
    if root is None:
        return Missing(f"process {pid} has nothing mounted at {target}")
    ends = "/".join(expected.parts[-3:])
    if not f"{root}/".endswith(f"/{ends}/"):
        return Missing(f"process {pid} has {root} at {target} instead of .../{ends}")
    try:
        ours = expected.stat()
    except OSError as error:
        return Unknown(f"cannot read {expected}: {error.strerror}")
    try:
        theirs = _without_links(proc / str(pid) / "root", target, os.stat)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            return Missing(f"process {pid} has a symbolic link on the way to {target}")
        return _unknown(pid, error)
    if (theirs.st_dev, theirs.st_ino) != (ours.st_dev, ours.st_ino):
        return Missing(f"process {pid} has another file than {expected} at {target}")
    return Mounted()


def mounted_root(table: str, target: str) -> str | None:
    """What of its file system is mounted at ``target``, by a text like ``/proc/<pid>/mountinfo``.

    Of several mounts at one place the last hides the others (proc(5)). None: nothing is.
    """
    found = None
    for line in table.split("\n"):
        fields = line.split(" ", 5)
        if len(fields) == 6 and _unescaped(fields[4]) == target:
            found = _unescaped(fields[3])
    return found


def _unescaped(text: str) -> str:
    """Blanks, tabs, line ends and backslashes are written in octal."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)


def _without_links(
    root: Path, target: PurePosixPath, read: Callable[[int], os.stat_result]
) -> os.stat_result:
    """``target`` below ``root``, no link followed: a tenant's could lead into our own files."""
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY)
    try:
        for part in target.parts[1:]:
            inner = os.open(part, os.O_PATH | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        return read(folder)
    finally:
        os.close(folder)


def _unknown(pid: int, error: OSError) -> Unknown:
    if error.errno in _ENDED:
        return Unknown(f"process {pid} has ended")
    advice = "; allow the agent SYS_PTRACE" if isinstance(error, PermissionError) else ""
    return Unknown(f"cannot look at process {pid}: {error.strerror}{advice}")
