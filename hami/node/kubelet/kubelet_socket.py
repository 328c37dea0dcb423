"""kubelet's registration socket: which one is there now, and when another one is.

kubelet deletes everything beside it when it starts, then makes it anew; a plugin that registers
later than about a second after that costs pods their place (04-node-agent.md). So it is watched
with inotify; looking at it now and then covers what inotify does not tell, or a node that has no
inotify instance left.
"""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from asyncinotify import Inotify, Mask

LOOK = 1.0
"""Seconds between looks beside inotify."""
LOOK_ALONE = 0.05
"""Seconds between looks without inotify: one costs some microseconds."""

EVENTS = (
    Mask.CREATE | Mask.MOVED_TO | Mask.MOVED_FROM | Mask.DELETE | Mask.DELETE_SELF | Mask.MOVE_SELF
)


@dataclass(frozen=True, slots=True)
class Identity:
    """Tells one socket file from another. With its time, because inode numbers are used again."""

    device: int
    inode: int
    modified_ns: int


class KubeletSocket:
    """Follows the socket at ``path``, which may not be there, while ``run`` runs."""

    def __init__(self, path: Path, on_problem: Callable[[str], None]) -> None:
        self.path = path
        self._on_problem = on_problem
        self._told = ""
        self._current: Identity | None = None
        self._changed = asyncio.Event()

    async def other_than(self, known: Identity | None) -> Identity:
        """Wait until a socket is there, and another one than ``known``."""
        self.look()
        while self._current is None or self._current == known:
            await self._changed.wait()
        return self._current

    def look(self) -> None:
        """Look now, and wake who waits for a change."""
        found = identity_of(self.path)
        if found != self._current:
            self._current = found
            self._changed.set()
            self._changed = asyncio.Event()

    async def run(self) -> NoReturn:
        """Until cancelled."""
        while True:
            try:
                with Inotify() as inotify:
                    await self._follow(inotify)
            except FileNotFoundError:
                # kubelet makes the folder when it starts for the first time.
                pass
            except OSError as error:
                self._tell(
                    f"inotify does not work for {self.path.parent}: {error.strerror}; looking "
                    f"every {LOOK_ALONE:g} s instead; is fs.inotify.max_user_instances too low?"
                )
            self.look()
            await asyncio.sleep(LOOK_ALONE)

    async def _follow(self, inotify: Inotify) -> None:
        """Follow the folder until it is gone."""
        folder = self.path.parent
        watched = _folder_of(folder)
        inotify.add_watch(folder, EVENTS)
        # From the folder that is watched now, not from one that was there just before.
        while _folder_of(folder) == watched:
            self.look()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK):
                    await inotify.get()

    def _tell(self, problem: str) -> None:
        if problem != self._told:
            self._told = problem
            self._on_problem(problem)


def identity_of(path: Path) -> Identity | None:
    """The identity of the socket at a path; None where there is no socket."""
    try:
        found = path.lstat()
    except OSError:
        return None
    if not stat.S_ISSOCK(found.st_mode):
        return None
    return Identity(found.st_dev, found.st_ino, found.st_mtime_ns)


def _folder_of(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino
