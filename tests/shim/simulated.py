"""Simulated GPUs for a test: a daemon in its own folder, and what its ledger says."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from .builds import Build

READY_SECONDS = 20.0
MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What one tenant has of one unit (a card, or a MIG instance), by the daemon's ledger."""

    tenant: str
    unit: int
    data: int
    context: int
    code: int
    pool: int
    internal: int
    bytes: int
    peak: int
    """The most bytes that data and pool ever had together."""
    most: int
    """The most bytes that all kinds ever had together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Busy:
    """The time that one tenant ran on one unit: by the clock, and weighted by the part it used."""

    tenant: str
    unit: int
    wall_ns: int
    sm_ns: int


class SimulatedGpus:
    """``with SimulatedGpus(tmp_path, build=shim, gpus=2) as gpus:`` starts and ends the daemon.

    ``config`` is the text of its configuration (``gpu memory=...`` a line); without it there are
    ``gpus`` equal cards. The daemon ends with this process too, however that ends.
    """

    def __init__(
        self, path: Path, *, build: Build, gpus: int = 1, config: str | None = None
    ) -> None:
        self.folder = path / "gpus"
        self._build = build
        self._arguments = ["--gpus", str(gpus)]
        if config is not None:
            file = path / "gpus.conf"
            file.write_text(config)
            self._arguments = ["--config", str(file)]
        self._process: subprocess.Popen[str] | None = None
        self._control: socket.socket | None = None
        self._answers: Any = None

    def __enter__(self) -> Self:
        self.folder.mkdir(exist_ok=True)
        daemon = str(self._build.simulator / "simgpud")
        with (self.folder / "log").open("w") as log:
            self._process = subprocess.Popen(
                [daemon, str(self.folder), *self._arguments, "--until-eof"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._build.environment(),
                text=True,
            )
        assert self._process.stdout is not None
        ready = self._process.stdout.readline()
        assert "ready" in ready, f"simgpud did not start: {self.log}"
        self._control = self._connected()
        self._answers = self._control.makefile("r", encoding="utf-8", newline="\n")
        return self

    def __exit__(self, *_: object) -> None:
        if self._control is not None:
            self._answers.close()
            self._control.close()
        assert self._process is not None
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        if self._process.poll() is None:
            self._process.terminate()
        status = self._process.wait(READY_SECONDS)
        assert status in (0, -signal.SIGKILL), f"simgpud ended with {status}: {self.log}"

    def _connected(self) -> socket.socket:
        # Through a descriptor: the path of a test's folder may be longer than a socket's may be.
        folder = os.open(self.folder, os.O_PATH | os.O_DIRECTORY)
        control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        control.settimeout(READY_SECONDS)
        try:
            control.connect(f"/proc/self/fd/{folder}/control")
        finally:
            os.close(folder)
        return control

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def log(self) -> str:
        """What the daemon wrote to its standard error."""
        return (self.folder / "log").read_text()

    def kill(self) -> None:
        """Kill the daemon, as if the driver were gone."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(READY_SECONDS)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Give the daemon no processor meanwhile, as on an overloaded machine."""
        os.kill(self.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.pid, signal.SIGCONT)

    def env(self, tenant: str = "", **knobs: object) -> dict[str, str]:
        """A client's environment: ``env("a", LAUNCH_NS=2000)`` also sets ``HAMI_SIM_LAUNCH_NS``."""
        return {
            **self._build.environment(),
            "HAMI_SIM_DIR": str(self.folder),
            "HAMI_SIM_TENANT": tenant,
            **{f"HAMI_SIM_{name}": str(value) for name, value in knobs.items()},
        }

    def command(self, *words: object) -> str:
        """Send a command; the answer's line. ``AssertionError`` where the daemon refuses."""
        assert self._control is not None
        self._control.sendall((" ".join(str(word) for word in words) + "\n").encode())
        answer: str = self._answers.readline().rstrip("\n")
        assert answer, f"simgpud is gone: {self.log}"
        assert not answer.startswith("error"), f"{words}: {answer}"
        return answer

    def ledger(self) -> Sequence[Held]:
        return [Held(**row) for row in json.loads(self.command("ledger"))["tenants"]]

    def held(self, tenant: str, unit: int = 0) -> Held:
        """What a tenant has; zeroes where it never had anything."""
        for row in self.ledger():
            if (row.tenant, row.unit) == (tenant, unit):
                return row
        return Held(tenant=tenant, unit=unit, data=0, context=0, code=0, pool=0, internal=0,
                    bytes=0, peak=0, most=0)  # fmt: skip

    def used(self, unit: int = 0) -> int:
        """Bytes of the unit in use, by all tenants."""
        units = json.loads(self.command("ledger"))["units"]
        return next(int(row["used"]) for row in units if row["unit"] == unit)

    def busy(self) -> Sequence[Busy]:
        return [Busy(**row) for row in json.loads(self.command("busy"))["tenants"]]

    def busy_of(self, tenant: str, unit: int = 0) -> Busy:
        for row in self.busy():
            if (row.tenant, row.unit) == (tenant, unit):
                return row
        return Busy(tenant=tenant, unit=unit, wall_ns=0, sm_ns=0)

    def board(self) -> dict[str, Any]:
        """What NVML shows: utilisation of units, and of processes in ``rows``."""
        found: dict[str, Any] = json.loads(self.command("board"))
        return found

    def clients(self) -> Sequence[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.command("clients"))
        return found

    def eventually(self, holds: Callable[[], bool], seconds: float = READY_SECONDS) -> None:
        """Wait until the condition holds; the daemon frees a little late, as a driver does."""
        until = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < until, f"still not so: {self.command('ledger')}"
            time.sleep(0.002)
