"""``hami scheduler`` as a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlencode

from .client import Client, Object
from .processes import Processes
from .recount import Amount, Key


class Service:
    """The service's process. ``flags`` are command-line flags, ``_`` for ``-``; True is a flag
    without a value.
    """

    def __init__(self, name: str, folder: Path, **flags: object) -> None:
        self.name = name
        self.processes = Processes(folder)
        self._addresses = folder / f"{name}.addresses"
        self._flags = flags
        self.url = self.webhook = self.plain = ""
        self._client: Client | None = None

    def start(self) -> None:
        """Start the service, and wait until it is ready."""
        self.launch()
        self.ready()

    def launch(self) -> None:
        """Start on new ports, so that no client reaches a predecessor's; does not wait."""
        self._addresses.unlink(missing_ok=True)
        flags = {
            "extender-bind": "127.0.0.1:0",
            "public-bind": "127.0.0.1:0",
            "metrics-bind-address": "127.0.0.1:0",
            "address-file": self._addresses,
            **{name.replace("_", "-"): value for name, value in self._flags.items()},
        }
        words = [
            word
            for name, value in flags.items()
            for word in ([f"--{name}"] if value is True else [f"--{name}", value])
        ]
        self.processes.start(self.name, sys.executable, "-m", "hami", "scheduler", *words)

    def ready(self, seconds: float = 30) -> None:
        """Wait until the service is ready, and learn its addresses."""
        self.processes.wait(self.name, "it listens", self._addresses.exists, seconds)
        addresses = json.loads(self._addresses.read_text())
        self.url = addresses["extender"]
        self.webhook = addresses["public"] + "/webhook"
        self.plain = addresses["metrics"]
        self._client = Client(self.plain)
        self.processes.wait(self.name, "/readyz answers 200", self._ready, seconds)

    @property
    def process(self) -> subprocess.Popen[bytes]:
        return self.processes[self.name]

    def kill(self) -> None:
        """Kill the service, as the kernel or a power cut would."""
        self._close()
        self.processes.stop(self.name, signal.SIGKILL)

    def stop(self) -> int:
        """Stop the service as kubelet does; the exit code."""
        self._close()
        return self.processes.stop(self.name, signal.SIGTERM)

    def end(self) -> None:
        self._close()
        self.processes.stop_all()

    def get(self, path: str) -> Object:
        assert self._client
        return self._client.get(path)

    def text(self, path: str) -> str:
        assert self._client
        return self._client.text(path)

    def used(self) -> dict[Key, Amount]:
        """The service's usage of each NVIDIA device, read page by page."""
        found: dict[Key, Amount] = {}
        more = ""
        while True:
            query = urlencode({"vendor": "NVIDIA", "limit": 50, "continue": more})
            page = self.get(f"/api/v1/devices?{query}")
            for device in page["items"]:
                found[device["node"], device["id"]] = Amount(
                    device["usedSlots"], device["usedMemoryMiB"], device["usedCores"]
                )
            more = page["continue"]
            if not more:
                return found

    def log(self) -> list[Object]:
        """The service's log lines that are JSON."""
        lines = self.processes.log(self.name).read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def _ready(self) -> bool:
        assert self._client
        return self._client.send("GET", "/readyz")[0] == 200

    def _close(self) -> None:
        if self._client:
            self._client.close()
