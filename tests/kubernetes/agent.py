"""``hami device-plugin`` as a process of its own."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from .client import Object
from .processes import Processes


class Agent:
    """The agent's process. ``flags`` are command-line flags, ``_`` for ``-``.

    ``heard`` counts what kubelet has heard: it grows when an agent has told of its devices.
    """

    def __init__(
        self, name: str, folder: Path, *, heard: Callable[[], int], **flags: object
    ) -> None:
        self.name = name
        self.processes = Processes(folder)
        self._heard = heard
        self._words = [
            str(word)
            for key, value in flags.items()
            for word in (f"--{key.replace('_', '-')}", value)
        ]

    def start(self) -> None:
        """Start the agent; when this returns, kubelet can hand out its devices."""
        before = self._heard()
        self.processes.start(self.name, sys.executable, "-m", "hami", "device-plugin", *self._words)
        self.processes.wait(
            self.name, "kubelet hears of its devices", lambda: self._heard() > before, 60
        )

    @property
    def pid(self) -> int:
        return self.processes[self.name].pid

    def kill(self) -> None:
        """Kill the agent, as the kernel or a power cut would."""
        self.processes.stop(self.name, signal.SIGKILL)

    def stop(self) -> int:
        """Stop the agent as kubelet does; the exit code."""
        return self.processes.stop(self.name, signal.SIGTERM)

    def end(self) -> None:
        self.processes.stop_all()

    def log(self) -> list[Object]:
        """The agent's log lines that are JSON."""
        lines = self.processes.log(self.name).read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]
