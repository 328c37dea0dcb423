"""The card that is checked, and programs on it with the library or without."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any, Self

from .slices import Slice

SHIM = Path(__file__).parents[1]
BUILD = SHIM / "build"
LIBRARY = BUILD / "test" / "libvgpu.so"
"""The library's flavour that takes its slice from HAMI_SLICE_DIR; else as shipped."""
SIMULATOR = BUILD / "simgpu"
SECONDS = 120.0
"""Seconds within which a program that measures nothing must end."""


Command = Sequence[str | Path]


class Broken(Exception):
    """A program failed; the message is what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    status: int
    lines: tuple[str, ...]
    errors: str


class Program:
    """A running program, which goes on at each line of input."""

    def __init__(self, command: Command, environment: Mapping[str, str]) -> None:
        self._name = Path(command[0]).name
        self._process = subprocess.Popen(
            [str(word) for word in command],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._limit = threading.Timer(SECONDS, self._process.kill)
        self._limit.daemon = True
        self._limit.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def until(self, said: str) -> list[str]:
        """The program's lines before that one."""
        assert self._process.stdout is not None
        lines: list[str] = []
        for line in self._process.stdout:
            if line.rstrip("\n") == said:
                return lines
            lines.append(line.rstrip("\n"))
        ended = self.end()
        raise Broken(f"{self._name} ended with {ended.status}: {ended.errors.strip() or lines}")

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def end(self) -> Ended:
        """Close the program's input; everything else that it says."""
        output, errors = self._process.communicate()
        self._limit.cancel()
        return Ended(
            status=self._process.returncode, lines=tuple(output.splitlines()), errors=errors
        )

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self.end()


class Machine:
    """A card and its environment; ``simulated`` is the folder of a running simgpud."""

    def __init__(
        self, folder: Path, *, library: Path = LIBRARY, simulated: Path | None = None
    ) -> None:
        self.folder = folder
        self._library = library
        self.simulated = simulated is not None
        self._environment = {
            key: value
            for key, value in os.environ.items()
            if key not in ("LD_PRELOAD", "CUDA_DEVICE_ORDER")
            and not key.startswith(("HAMI_", "CUDA_DEVICE_MEMORY", "CUDA_DEVICE_SM", "LIBCUDA_"))
        }
        if simulated:
            self._environment["HAMI_SIM_DIR"] = str(simulated)
            self._environment["LD_LIBRARY_PATH"] = str(SIMULATOR)
        facts = self.run([sys.executable, SHIM / "gpu" / "nvml.py", "card"])
        if facts.status != 0:
            raise Broken(facts.errors.strip() or "NVML does not answer")
        self.facts: dict[str, str] = json.loads(facts.lines[0])
        # NVML's first card need not be CUDA's first.
        self._environment["CUDA_VISIBLE_DEVICES"] = self.facts["uuid"]
        self._slices = 0

    def under(self, slice_: Slice | None) -> dict[str, str]:
        """The environment of a process; without a slice the process runs without the library."""
        environment = dict(self._environment)
        if slice_:
            environment["LD_PRELOAD"] = str(self._library)
            environment["HAMI_SLICE_DIR"] = str(slice_.folder)
        return environment

    def slice(self, memory: int, *, cores: int = 0, reserve: int = 0) -> Slice:
        """A new slice of this card; it always enforces its share."""
        self._slices += 1
        folder = self.folder / f"slice-{self._slices}"
        uuid = self.facts["uuid"]
        return Slice(folder, uuid=uuid, memory=memory, cores=cores, reserve=reserve)

    def program(self, name: str) -> Path:
        return BUILD / "gpu" / name

    def start(self, command: Command, slice_: Slice | None = None) -> Program:
        return Program(command, self.under(slice_))

    def run(
        self,
        command: Command,
        slice_: Slice | None = None,
        *,
        seconds: float = SECONDS,
    ) -> Ended:
        done = subprocess.run(
            [str(word) for word in command],
            env=self.under(slice_),
            check=False,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=seconds,
        )
        return Ended(
            status=done.returncode, lines=tuple(done.stdout.splitlines()), errors=done.stderr
        )

    def says(self, command: Command, slice_: Slice | None = None) -> tuple[str, ...]:
        """The lines of a program that must succeed."""
        ended = self.run(command, slice_)
        if ended.status != 0:
            name = Path(command[0]).name
            raise Broken(f"{name} ended with {ended.status}: {ended.errors.strip()[-300:]}")
        return ended.lines

    @contextmanager
    def watched(self) -> Iterator[Watch]:
        """A context in which NVML's readings are collected."""
        nvml = SHIM / "gpu" / "nvml.py"
        command: Command = [sys.executable, nvml, "watch", self.facts["uuid"]]
        with Watch(command, self._environment) as watch:
            yield watch


class Watch:
    """Reads nvml.py's lines in a thread; times are those of ``time.monotonic``."""

    def __init__(self, command: Command, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [str(word) for word in command],
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._seen: list[dict[str, Any]] = []
        self._came = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(SECONDS)
        self._reader.join(SECONDS)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._came:
                self._seen.append(json.loads(line))
                self._came.notify_all()

    def next(self, count: int = 2) -> dict[str, Any]:
        """A reading that began after this call: the last of ``count`` more."""
        with self._came:
            wanted = len(self._seen) + count
            if not self._came.wait_for(lambda: len(self._seen) >= wanted, SECONDS):
                raise Broken("NVML no longer answers")
            return self._seen[-1]

    def wait_for_used(self, bytes_: int, seconds: float = 2.0) -> None:
        """Wait until at most ``bytes_`` are in use, for at most ``seconds``."""
        until = monotonic() + seconds
        while int(self.next(1)["used"]) > bytes_ and monotonic() < until:
            pass

    def since(self, time: float) -> list[dict[str, Any]]:
        with self._came:
            return [look for look in self._seen if look["time"] >= time]


@contextmanager
def simulated_card(folder: Path) -> Iterator[Path]:
    """A simgpud with one card, which ends with this process."""
    folder.mkdir()
    environment = {**os.environ, "LD_LIBRARY_PATH": str(SIMULATOR)}
    with subprocess.Popen(
        [str(SIMULATOR / "simgpud"), str(folder), "--gpus", "1", "--until-eof"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as daemon:
        assert daemon.stdout is not None
        assert daemon.stdin is not None
        if "ready" not in daemon.stdout.readline():
            raise Broken("simgpud did not start")
        try:
            yield folder
        finally:
            daemon.stdin.close()
