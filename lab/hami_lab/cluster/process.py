"""One of our commands as a process of its own, that ends when its parent does."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, Process
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from hami.domain.errors import shortened
from hami_lab.cluster.problems import ServiceDied

STOPPED = 15.0
"""Seconds that a process may take to end after SIGTERM."""
_LAST_LINES = 20
_LONGEST_LINE = 1000


class HamiProcess:
    """``hami ARGUMENT...``, started any number of times; ``log`` gets what it writes.

    ``name`` says in messages what it is. Variables whose names begin with one of ``foreign``
    configure some other process and are kept from it.
    """

    def __init__(self, name: str, *, log: Path, folder: Path, foreign: Sequence[str]) -> None:
        self.name = name
        self.log = log
        self._folder = folder
        self._foreign = tuple(foreign)
        self._process: Process | None = None

    @property
    def pid(self) -> int | None:
        """None when it does not run."""
        return self._process.pid if self._process else None

    async def launch_with(self, arguments: Sequence[str]) -> None:
        """Start it without waiting for anything."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith(self._foreign)}
        # What a killed process leaves behind goes with our folder.
        environment["TMPDIR"] = str(self._folder)
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "hami_lab.child",
                str(os.getpid()),
                *arguments,
                stdin=DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,  # A Ctrl-C of the terminal is ours to pass on, in order.
            )

    def check_alive(self) -> None:
        """Raises ServiceDied when it has ended."""
        if self._process is not None and self._process.returncode is not None:
            raise self._death(self._process.returncode)

    async def until_death(self) -> ServiceDied:
        """Waits until the process ends; for whoever did not end it."""
        process = self._process
        if process is None:
            return ServiceDied(f"{self.name} was not started")
        return self._death(await process.wait())

    def _death(self, code: int) -> ServiceDied:
        how = f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
        return ServiceDied(f"{self.name} ended with {how}; its last lines:\n{self.last_lines()}")

    async def kill(self) -> None:
        """SIGKILL: nothing is finished, nothing is tidied up."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL when that does not help."""
        await self._end(signal.SIGTERM)

    async def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        process.send_signal(how)
        try:
            async with asyncio.timeout(STOPPED):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    def last_lines(self) -> str:
        """The end of its log."""
        if not self.log.exists():
            return ""
        with self.log.open(encoding="utf-8", errors="replace") as log:
            return "\n".join(
                shortened(line.rstrip(), _LONGEST_LINE) for line in deque(log, _LAST_LINES)
            )
