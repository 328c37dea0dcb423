"""Simulated GPUs: the daemon that has them, ``simgpud``, and who is told where it is.

A simulated driver is named by an entry point of the group ``hami.simulated_drivers``, under the
vendor's key: hami-simgpu brings NVIDIA's. shim/simgpu/README.md says what the daemon can do.
"""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

from hami.domain.errors import HamiError
from hami.domain.units import VendorKey

ENTRY_POINT_GROUP = "hami.simulated_drivers"
_PATIENCE = 20.0


class NotAnswering(HamiError):
    """A process says nothing, or ended; the message has its last words."""


class SimulatedDriver(Protocol):
    """``folder`` has the driver's libraries and simgpud; ``library`` limits programs on it."""

    @property
    def library(self) -> Path: ...

    @property
    def folder(self) -> Path: ...

    def prepare(self, gpus: str, node: str, folder: Path) -> tuple[str, Mapping[str, Any]]:
        """The files of a node with these GPUs, simgpud's configuration, the agent's section."""


def installed_driver(vendor: VendorKey) -> SimulatedDriver | None:
    """The one of this vendor; None when none is installed.

    Raises:
        HamiError: it is not built; says how that is done.
    """
    for point in metadata.entry_points(group=ENTRY_POINT_GROUP):
        if point.name == vendor:
            found: SimulatedDriver = point.load()()
            return found
    return None


class SimulatedGpus:
    """A daemon that runs. ``environment`` is what a process needs to find it."""

    def __init__(self, folder: Path) -> None:
        self.environment: Mapping[str, str] = {"HAMI_SIM_DIR": str(folder)}
        self._control = folder / "control"

    async def command(self, *words: object) -> str:
        """The daemon's answer, a line: ``await gpus.command("xid", 0, 79)``.

        Raises:
            NotAnswering: it refuses, or is gone.
        """
        text = " ".join(map(str, words))
        try:
            reader, writer = await asyncio.open_unix_connection(self._control)
            try:
                writer.write(f"{text}\n".encode())
                answer = await asyncio.wait_for(reader.readline(), _PATIENCE)
            finally:
                writer.close()
        except (OSError, TimeoutError) as error:
            raise NotAnswering(f"simgpud does not answer {text!r}: {error}") from error
        line = answer.decode().rstrip("\n")
        if not line or line.startswith("error"):
            raise NotAnswering(f"simgpud answers {text!r} with {line!r}")
        return line


@asynccontextmanager
async def simulated_gpus(
    driver: SimulatedDriver, configuration: str, folder: Path
) -> AsyncIterator[SimulatedGpus]:
    """The daemon, in a new folder, until the block ends; ``configuration`` has a line for each GPU.

    Raises:
        NotAnswering: the daemon does not start.
    """
    folder.mkdir()
    config = folder / "devices.conf"
    config.write_text(configuration, encoding="utf-8")
    command = [str(driver.folder / "simgpud"), str(folder), f"--config={config}", "--until-eof"]
    async with running(command) as daemon:
        if b"ready" not in await answer_of(daemon, "simgpud"):
            raise NotAnswering(f"simgpud did not start: {await _said(daemon)}")
        yield SimulatedGpus(folder)


async def answer_of(process: Process, name: str, line: bytes = b"") -> bytes:
    """The next line that it prints, once it was sent ``line``.

    Raises:
        NotAnswering: it says nothing.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line)
    try:
        answer = await asyncio.wait_for(process.stdout.readline(), _PATIENCE)
    except TimeoutError as error:
        raise NotAnswering(f"{name} has said nothing for {_PATIENCE:.0f} s") from error
    if not answer:
        raise NotAnswering(f"{name} ended: {await _said(process)}")
    return answer


@asynccontextmanager
async def running(
    command: Sequence[str], environment: Mapping[str, str] | None = None
) -> AsyncIterator[Process]:
    """It ends with its standard input, so also when we are killed."""
    # Only asked to end: a signal would make Popen wait for it behind asyncio's back.
    process = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment, start_new_session=True
    )
    try:
        yield process
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            await asyncio.wait_for(process.communicate(), _PATIENCE)
        except TimeoutError:
            process.kill()
            await process.wait()


async def _said(process: Process) -> str:
    """The last line of its standard error."""
    assert process.stderr is not None
    lines = (await process.stderr.read()).decode(errors="replace").splitlines()
    return lines[-1] if lines else f"exit code {await process.wait()}"
