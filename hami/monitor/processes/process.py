"""One process, as the kernel describes it: when it began, its numbers, and its container."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from hami.slices.cgroups import CgroupPlace, place_of

_LONGEST = 1 << 16
"""Bytes of a file of ``/proc`` that are read; the ones that we need are far shorter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A process and no other: no two with one ``pid`` have the same ``start_time``.

    ``start_time`` is in clock ticks since the machine started. ``inner_pid`` is its number in the
    innermost of its pid namespaces, whose inode is ``pid_namespace`` (0: not to be read).
    ``own_clock``: it counts the time since the start otherwise than we do, as in a time namespace.
    ``place`` is None for a process in no pod.
    """

    pid: int
    start_time: int
    inner_pid: int
    pid_namespace: int
    own_clock: bool
    place: CgroupPlace | None


def read_process(folder: int, pid: int) -> ProcessIdentity:
    """The process whose ``/proc/<pid>`` ``folder`` is opened.

    The descriptor stands for this process: when it ends there is nothing more to be read by it,
    whoever has the number then.

    Raises:
        OSError: it has ended, or may not be looked at.
    """
    return ProcessIdentity(
        pid=pid,
        start_time=_start_time(_read(folder, "stat")),
        inner_pid=_inner_pid(_read(folder, "status"), pid),
        pid_namespace=_inode(folder, "ns/pid"),
        own_clock=_inode(folder, "ns/time") != _own_clock(),
        place=place_of(_read(folder, "cgroup").decode(errors="replace")),
    )


def _read(folder: int, name: str) -> bytes:
    fd = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    try:
        return os.read(fd, _LONGEST)
    finally:
        os.close(fd)


def _start_time(stat: bytes) -> int:
    """Field 22; the second field, a name in parentheses, may hold anything (proc_pid_stat(5))."""
    return int(stat.rpartition(b")")[2].split()[19])


def _inner_pid(status: bytes, pid: int) -> int:
    _, _, rest = status.partition(b"\nNSpid:")
    numbers = rest.partition(b"\n")[0].split()
    return int(numbers[-1]) if numbers else pid


def _inode(folder: int, name: str) -> int:
    try:
        return os.stat(name, dir_fd=folder).st_ino
    except (PermissionError, FileNotFoundError):
        return 0


def _own_clock() -> int:
    try:
        return Path("/proc/self/ns/time").stat().st_ino
    except OSError:
        return 0
