"""``shim/tests/programs/memory_console.c`` as objects: programs whose calls a test makes one by
one.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from .builds import Build
from .simulated import SimulatedGpus
from .slices import Slice

SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED = 0, 1, 2, 3
INVALID_DEVICE, INVALID_CONTEXT = 101, 201


class Program:
    """A CUDA program under the library, or without it where ``library`` is None."""

    def __init__(self, program: Path, env: Mapping[str, str], library: Path | None) -> None:
        preload = {"LD_PRELOAD": str(library)} if library else {}
        self.process = subprocess.Popen(
            [program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**env, **preload},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.returncode is None:
            # Where a test fails it may still be at work: what it answers then is heard to the end.
            self.process.communicate(timeout=60)
        status = self.process.returncode
        assert status in (0, -signal.SIGKILL), f"memory_console ended with {status}"

    def _close(self) -> None:
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def tell(self, *words: object) -> None:
        """Send a command without waiting for the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()

    def answer(self) -> list[int]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"memory_console is gone: {self.process.wait(60)}"
        return [int(word) for word in line.split()]

    def call(self, *words: object) -> int:
        """Make a call; its CUresult."""
        return self.ask(*words)[0]

    def ask(self, *words: object) -> list[int]:
        """Make a call; its CUresult and the rest of the answer."""
        self.tell(*words)
        return self.answer()

    def does(self, *words: object) -> None:
        assert self.call(*words) == SUCCESS, words

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(60)
        self._close()


class Tenant:
    """Programs in one container, with its slice, on the simulated cards."""

    def __init__(self, name: str, build: Build, gpus: SimulatedGpus, slice_: Slice) -> None:
        self.name = name
        self.slice = slice_
        self._build = build
        self._gpus = gpus

    def starts(self, *, library: bool = True, **knobs: object) -> Program:
        """Start a program that has done nothing yet."""
        return Program(
            self._build.program("memory_console"),
            {**self._gpus.env(self.name, **knobs), **self.slice.env()},
            self._build.library if library else None,
        )

    def runs(self, gpu: int = 0, **knobs: object) -> Program:
        """Start a program with the primary context of a card, named P."""
        program = self.starts(**knobs)
        program.does("init")
        program.does("retain", gpu, "P")
        program.does("current", "P")
        return program

    def runs_bare(self, gpu: int = 0, **knobs: object) -> Program:
        """Start the same program without the library."""
        program = self.starts(library=False, **knobs)
        program.does("init")
        program.does("retain", gpu, "P")
        program.does("current", "P")
        return program

    def granted(self, gpu: int = 0) -> int:
        """The bytes that it asked for and has, by the cards' ledger."""
        held = self._gpus.held(self.name, gpu)
        return held.data + held.pool

    def holds(self, gpu: int = 0) -> int:
        return self._gpus.held(self.name, gpu).bytes

    def peak(self, gpu: int = 0) -> int:
        return self._gpus.held(self.name, gpu).peak

    def most(self, gpu: int = 0) -> int:
        """The most bytes, with those that the driver took by itself."""
        return self._gpus.held(self.name, gpu).most
