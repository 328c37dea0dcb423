"""``shim/simgpu/tests/sim_client.c`` as objects: processes whose steps a test makes one by one."""

from __future__ import annotations

import signal
import subprocess
from contextlib import ExitStack
from typing import Self

from ..simulated import SimulatedGpus

OUT_OF_MEMORY, NOT_INITIALIZED, UNAVAILABLE, NO_DEVICE = 2, 3, 46, 100
NOT_READY = 600
DATA, CONTEXT, CODE, POOL, INTERNAL = range(5)


class Refused(Exception):
    """The call returned this CUresult."""

    def __init__(self, code: int) -> None:
        super().__init__(f"CUresult {code}")
        self.code = code


class Client:
    """A process that talks to the simulated cards."""

    def __init__(self, program: str, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Where a test fails it may still be at work: what it answers then is heard to the end.
        self.process.communicate(timeout=20)
        status = self.process.returncode
        assert status in (0, -signal.SIGKILL), f"sim_client ended with {status}"

    def tell(self, *words: object) -> None:
        """Send a command without waiting for the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(" ".join(str(word) for word in words) + "\n")
        self.process.stdin.flush()

    def answer(self) -> list[str]:
        assert self.process.stdout is not None
        words = self.process.stdout.readline().split()
        assert words, f"sim_client is gone: {self.process.poll()}"
        if words[0] != "0":
            raise Refused(int(words[0]))
        return words[1:]

    def code(self) -> int:
        """Make a call; its result alone."""
        try:
            self.answer()
        except Refused as refused:
            return refused.code
        return 0

    def ask(self, *words: object) -> int:
        """Make a call; the first part of its answer."""
        self.tell(*words)
        return int(self.answer()[0])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(20)


class Clients:
    """Starts clients of one daemon and ends them all."""

    def __init__(self, gpus: SimulatedGpus, program: str) -> None:
        self._gpus = gpus
        self._program = program
        self._started: list[Client] = []

    def __call__(
        self, tenant: str = "a", *, connected: bool = True, env: dict[str, str] | None = None,
        **knobs: object,
    ) -> Client:  # fmt: skip
        client = Client(self._program, {**self._gpus.env(tenant, **knobs), **(env or {})})
        self._started.append(client)
        if connected:
            client.ask("connect")
        return client

    def end(self) -> None:
        with ExitStack() as ends:
            for client in self._started:
                ends.enter_context(client)
