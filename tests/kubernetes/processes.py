"""The processes of a cluster: their logs in one folder, and none left at the end."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


# util-linux: a test run that is killed leaves no cluster behind.
DYING_WITH_US = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()


class NotReady(Exception):
    """A thing was not ready in time; the text says what, and what was seen last."""


class Processes:
    """Processes by name; each writes to ``<name>.log``."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self, name: str, *command: object, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        assert name not in self._running, f"{name} runs already"
        with self.log(name).open("ab") as log:
            process = subprocess.Popen(
                [*DYING_WITH_US, *map(str, command)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **(env or {})},
            )
        self._running[name] = process
        return process

    def stop(self, name: str, how: signal.Signals = signal.SIGKILL) -> int:
        """Stop a process; by SIGKILL, since kube-apiserver would wait a minute for its watchers."""
        process = self._running.pop(name)
        process.send_signal(how)
        return process.wait(timeout=60)

    def stop_all(self) -> None:
        for name in reversed(list(self._running)):
            self.stop(name)

    def running(self, name: str) -> bool:
        return name in self._running

    def __getitem__(self, name: str) -> subprocess.Popen[bytes]:
        return self._running[name]

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def tail(self, name: str, lines: int = 25) -> str:
        try:
            text = self.log(name).read_text(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def wait(self, name: str, what: str, ready: Callable[[], T | None], seconds: float = 60) -> T:
        """``until``, but fails at once when the process ends."""

        def looked() -> T | None:
            process = self._running[name]
            if process.poll() is not None:
                raise NotReady(
                    f"{name} ended with {process.returncode} before {what}:\n{self.tail(name)}"
                )
            return ready()

        try:
            return until(what, looked, seconds=seconds, passing=(OSError, KeyError))
        except TimeoutError as error:
            raise NotReady(f"{error}; {self.log(name)} ends:\n{self.tail(name)}") from error


def until(
    what: str,
    look: Callable[[], T | None],
    *,
    seconds: float = 30,
    passing: tuple[type[Exception], ...] = (),
    every: float = 0.05,
    seen: Callable[[], object] = lambda: "",
) -> T:
    """The first answer of ``look`` that is true.

    Raises:
        TimeoutError: with ``what`` was waited for, what ``passing`` error came last, and ``seen``.
    """
    deadline = time.monotonic() + seconds
    last: object = ""
    while True:
        try:
            found = look()
        except passing as error:
            last = repr(error)
        else:
            if found:
                return found
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not happen in {seconds:g} s {last} {seen()}".rstrip())
        time.sleep(every)


def free_port() -> int:
    """A port that was free a moment ago, for servers that cannot tell us the port they chose."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
