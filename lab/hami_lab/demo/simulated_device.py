"""A simulated device that a program can be run on: its daemon, and the program's environment.

A simulated driver is named by an entry point of the group ``hami.simulated_drivers``, under the
vendor's key: hami-simgpu brings NVIDIA's.
"""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import metadata
from pathlib import Path
from typing import Protocol

import msgspec

from hami.domain.devices import Device
from hami.domain.units import VendorKey
from hami_lab.demo.run import StepFailed

ENTRY_POINT_GROUP = "hami.simulated_drivers"
_PATIENCE = 20.0
_TENANT = "demo"


class SimulatedDriver(Protocol):
    """``folder`` has the driver's libraries and simgpud; ``library`` limits programs on it."""

    @property
    def library(self) -> Path: ...

    @property
    def folder(self) -> Path: ...


def installed_driver(vendor: VendorKey) -> SimulatedDriver | None:
    """The one of this vendor; None when none is installed.

    Raises:
        FileNotFoundError: it would, and has not been built; says how that is done.
    """
    for point in metadata.entry_points(group=ENTRY_POINT_GROUP):
        if point.name == vendor:
            found: SimulatedDriver = point.load()()
            return found
    return None


class _Held(msgspec.Struct):
    tenant: str
    most: int


class _Ledger(msgspec.Struct):
    tenants: list[_Held]


class SimulatedDevice:
    """The daemon that simulates it is asked here, past driver and library."""

    def __init__(self, driver: SimulatedDriver, folder: Path) -> None:
        self._driver = driver
        self._folder = folder

    async def most_held(self) -> int:
        """Bytes that programs ever had at once, their contexts too, by the daemon's own ledger."""
        reader, writer = await asyncio.open_unix_connection(self._folder / "control")
        try:
            writer.write(b"ledger\n")
            line = await asyncio.wait_for(reader.readline(), _PATIENCE)
        finally:
            writer.close()
        ledger = msgspec.json.decode(line, type=_Ledger)
        return sum(held.most for held in ledger.tenants)

    def environment(self, given: Mapping[str, str], slice_folder: Path) -> dict[str, str]:
        """Of a program in a container to which ``given`` was given, and this slice."""
        libraries = [str(self._driver.folder), os.environ.get("LD_LIBRARY_PATH", "")]
        return {
            **given,
            "LD_PRELOAD": str(self._driver.library),
            "LD_LIBRARY_PATH": ":".join(filter(None, libraries)),  # Python itself may need some
            "HAMI_SLICE_DIR": str(slice_folder),
            "HAMI_SIM_DIR": str(self._folder),
            "HAMI_SIM_TENANT": _TENANT,
        }


@asynccontextmanager
async def simulated_device(
    driver: SimulatedDriver, device: Device, folder: Path
) -> AsyncIterator[SimulatedDevice]:
    """One like ``device``, with its id and memory, until the block ends.

    Raises:
        StepFailed: the daemon does not start.
    """
    folder.mkdir()
    config = folder / "devices.conf"
    config.write_text(
        f'gpu name="{device.model}" memory={device.memory_mib} uuid={device.id}\n', encoding="utf-8"
    )
    command = [str(driver.folder / "simgpud"), str(folder), f"--config={config}", "--until-eof"]
    async with _running(command, os.environ) as daemon:
        if b"ready" not in await answer_of(daemon, "simgpud"):
            raise StepFailed(f"simgpud did not start: {await _said(daemon)}")
        yield SimulatedDevice(driver, folder)


@asynccontextmanager
async def script(path: Path, environment: Mapping[str, str]) -> AsyncIterator[Process]:
    """A Python script with this environment and no other; ended with the block."""
    async with _running([sys.executable, "-I", "-S", str(path)], environment) as process:
        yield process


async def answer_of(process: Process, name: str, line: bytes = b"") -> bytes:
    """The next line that it prints, once it was sent ``line``.

    Raises:
        StepFailed: it says nothing.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line)
    try:
        answer = await asyncio.wait_for(process.stdout.readline(), _PATIENCE)
    except TimeoutError as error:
        raise StepFailed(f"{name} has said nothing for {_PATIENCE:.0f} s") from error
    if not answer:
        raise StepFailed(f"{name} ended: {await _said(process)}")
    return answer


async def _said(process: Process) -> str:
    """The last line of its standard error."""
    assert process.stderr is not None
    lines = (await process.stderr.read()).decode(errors="replace").splitlines()
    return lines[-1] if lines else f"exit code {await process.wait()}"


@asynccontextmanager
async def _running(
    command: Sequence[str], environment: Mapping[str, str]
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
