"""``hami scheduler`` as a process of its own: started, killed, paused, asked."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp

from ...kubernetes.recount import Amount, Key

PATIENCE = 60.0
"""Seconds that anything may take on a busy machine."""
_FOREIGN = ("HAMI_", "POD_NAME", "POD_NAMESPACE", "NODE_NAME", "KUBECONFIG")
"""Variables of our environment that would configure the service."""


class Forge:
    """Makes processes of ``hami`` fast (see ``world_forge``); they end with it."""

    def __init__(self) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(_FOREIGN)}
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("forge.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        if self._answer() != "ready":
            self.close()
            raise AssertionError(
                "the service's modules cannot be imported; standard error says why"
            )

    def _answer(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def start(self, arguments: Sequence[str], *, log: Path, ending: Path) -> int:
        """The new process's id."""
        assert self._process.stdin
        wanted = {"arguments": list(arguments), "log": str(log), "exit": str(ending)}
        self._process.stdin.write(json.dumps(wanted) + "\n")
        self._process.stdin.flush()
        return int(self._answer())

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(PATIENCE)


class Service:
    """One replica, on new ports at each start, so that no client reaches a predecessor's.

    ``flags`` are command-line flags, ``_`` for ``-``; True is a flag without a value.
    """

    def __init__(
        self, forge: Forge, session: aiohttp.ClientSession, folder: Path, name: str, **flags: object
    ) -> None:
        self.name = name
        self.flags = flags
        self.log = folder / f"{name}.log"
        self.extender = self.public = self.plain = ""
        self.process = 0
        self._forge = forge
        self._session = session
        self._addresses = folder / f"{name}.addresses"
        self._exit = folder / f"{name}.exit"

    # Its life.

    async def start(self) -> None:
        """Start the service, and wait until it is ready."""
        await self.launch()
        await self.ready()

    async def launch(self) -> None:
        """Start the service; it listens when this returns, and may not be ready."""
        self._addresses.unlink(missing_ok=True)
        self._exit.unlink(missing_ok=True)
        flags = {
            "extender_bind": "127.0.0.1:0",
            "public_bind": "127.0.0.1:0",
            "metrics_bind_address": "127.0.0.1:0",
            "address_file": self._addresses,
            **self.flags,
        }
        words = [
            f"--{name.replace('_', '-')}" + ("" if value is True else f"={value}")
            for name, value in flags.items()
        ]
        self.process = self._forge.start(["scheduler", *words], log=self.log, ending=self._exit)
        await self.until("it listens", self._addresses.exists)
        addresses = json.loads(self._addresses.read_text())
        self.extender, self.public = addresses["extender"], addresses["public"]
        self.plain = addresses["metrics"]

    async def ready(self) -> None:
        async def is_ready() -> bool:
            return (await self.text("/readyz"))[0] == 200

        await self.until("/readyz answers 200", is_ready)

    def signal(self, which: signal.Signals) -> None:
        os.kill(self.process, which)

    async def kill(self) -> None:
        """Kill the service, as the kernel or a power cut would."""
        await self._end(signal.SIGKILL)

    async def stop(self) -> int:
        """Stop the service as kubelet does; the exit code."""
        return await self._end(signal.SIGTERM)

    async def _end(self, how: signal.Signals) -> int:
        with suppress(ProcessLookupError):  # It may have ended by itself.
            self.signal(how)
        async with asyncio.timeout(PATIENCE):
            while (code := self._code()) is None:
                await asyncio.sleep(0.005)
        self.process = 0
        return code

    def _code(self) -> int | None:
        text = self._exit.read_text() if self._exit.exists() else ""
        return int(text) if text else None

    # What it says.

    async def text(self, path: str) -> tuple[int, str]:
        async with self._session.get(f"{self.plain}{path}") as answer:
            return answer.status, await answer.text()

    async def get(self, path: str, **query: object) -> Any:
        """An answer of the read-only API."""
        status, text = await self.text(f"/api/v1/{path}?{urlencode(query)}")
        assert status == 200, (path, status, text)
        return json.loads(text)

    async def post(self, path: str, body: Any, token: str = "") -> tuple[int, Any]:
        """Ask the API for a change, as whoever has this token."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"{self.plain}/api/v1/{path}"
        async with self._session.post(url, data=json.dumps(body), headers=headers) as answer:
            return answer.status, await answer.json()

    async def each(self, what: str) -> list[Any]:
        """The items of all pages."""
        found, more = [], ""
        while True:
            page = await self.get(what, limit=200, **{"continue": more} if more else {})
            found += page["items"]
            if not (more := page["continue"]):
                return found

    async def used(self) -> dict[Key, Amount]:
        """The service's usage of each device."""
        return {
            (d["node"], d["id"]): Amount(d["usedSlots"], d["usedMemoryMiB"], d["usedCores"])
            for d in await self.each("devices")
        }

    async def summary(self) -> Any:
        return await self.get("summary")

    async def why(self, name: str, namespace: str = "default") -> str:
        return (await self.get(f"pods/{namespace}/{name}/why"))["message"]

    def logged(self) -> list[Any]:
        """The service's log lines that are JSON."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line[:1] == "{"]

    def complaints(self) -> list[str]:
        """Log lines that no outside trouble excuses: a bug's traceback, a handler that failed."""
        *lines, _ = [*self.log.read_text().split("\n"), ""] if self.log.exists() else [""]
        return [line for line in filter(None, lines) if _is_a_bug(line)]

    def last_lines(self, count: int = 25) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join([f"last lines of {self.name}:", *text.splitlines()[-count:]])

    async def until(self, what: str, holds: Any) -> None:
        """Wait until the condition holds; fails when the process ends or time is up."""

        def alive() -> None:
            code = self._code()
            assert code is None, f"{self.name} ended ({code}) before {what}\n{self.last_lines()}"

        await until(f"{self.name}: {what}", holds, also=alive, story=self.last_lines)


def _is_a_bug(line: str) -> bool:
    if not line.startswith("{"):
        return True
    try:
        said = json.loads(line)
    except ValueError:
        return False  # It was killed while it wrote.
    return said["level"] in ("error", "critical") or " failed for " in said.get("problem", "")


async def until(what: str, holds: Any, *, also: Any = None, story: Any = str) -> Any:
    """The first true answer of ``holds``, a function or a coroutine function."""
    loop = asyncio.get_running_loop()
    end = loop.time() + PATIENCE
    pause = 0.005
    while True:
        found = holds()
        if asyncio.iscoroutine(found):
            found = await found
        if found:
            return found
        if also is not None:
            also()
        assert loop.time() < end, f"not in time: {what}\n{story()}"
        # Soon at first, and not all the time later: both cores have other things to do.
        await asyncio.sleep(pause)
        pause = min(0.1, pause * 1.3)
