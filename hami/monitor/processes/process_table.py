"""The processes that have a device open, each known for as long as it lives.

A number says little: when its process has ended another may get it. So each is held by a descriptor
of its ``/proc/<pid>``, which the kernel never gives to another process.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from hami.monitor.processes.process import ProcessIdentity, read_process

CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


class Identified(msgspec.Struct, frozen=True, gc=False):
    """``began``: it was not there when the former figures were taken, but perhaps a predecessor of
    its number was: what is counted over time may be of either.
    """

    identity: ProcessIdentity
    began: bool


@dataclass(slots=True)
class _Held:
    identity: ProcessIdentity
    folder: int


class ProcessTable:
    """Looks below ``proc``. Blocks; one caller at a time."""

    def __init__(self, proc: Path) -> None:
        self._proc = proc
        self._held: dict[int, _Held] = {}

    def identified(self, pids: Collection[int], at: float) -> Mapping[int, Identified]:
        """Who had each of these numbers at the moment ``at``, in seconds of ``CLOCK_BOOTTIME``.

        Who is left out has ended before it was ever seen. All others are let go of.
        """
        for pid in self._held.keys() - pids:
            self._let_go(pid)
        found = {}
        for pid in pids:
            if (known := self._identified(pid, at)) is not None:
                found[pid] = known
        return found

    def close(self) -> None:
        for pid in list(self._held):
            self._let_go(pid)

    def _identified(self, pid: int, at: float) -> Identified | None:
        held = self._held.get(pid)
        if held is not None and _lives(held.folder):
            return Identified(held.identity, began=False)
        if held is not None:
            self._let_go(pid)
        new = self._opened(pid)
        if new is not None and new.start_time <= at * CLOCK_TICKS:
            return Identified(new, began=held is not None)
        # Its figures were taken before it ended, and before another got its number.
        return None if held is None else Identified(held.identity, began=False)

    def _opened(self, pid: int) -> ProcessIdentity | None:
        try:
            flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
            folder = os.open(self._proc / str(pid), flags)
        except OSError:
            return None
        try:
            identity = read_process(folder, pid)
        except (OSError, ValueError, IndexError):
            os.close(folder)
            return None
        self._held[pid] = _Held(identity, folder)
        return identity

    def _let_go(self, pid: int) -> None:
        os.close(self._held.pop(pid).folder)


def _lives(folder: int) -> bool:
    try:
        os.stat("stat", dir_fd=folder)
    except OSError:
        return False
    return True
