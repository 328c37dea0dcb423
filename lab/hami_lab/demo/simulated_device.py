"""A simulated device that a program can be run on, and the program's environment."""

from __future__ import annotations

import os
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec

from hami.domain.devices import Device
from hami_lab import simgpu
from hami_lab.demo.run import StepFailed
from hami_lab.simgpu import NotAnswering, SimulatedDriver, SimulatedGpus, running, simulated_gpus

_TENANT = "demo"


class _Held(msgspec.Struct):
    tenant: str
    most: int


class _Ledger(msgspec.Struct):
    tenants: list[_Held]


class SimulatedDevice:
    """The daemon that simulates it is asked here, past driver and library."""

    def __init__(self, driver: SimulatedDriver, gpus: SimulatedGpus) -> None:
        self._driver = driver
        self._gpus = gpus

    async def most_held(self) -> int:
        """Bytes that programs ever had at once, their contexts too, by the daemon's own ledger."""
        ledger = msgspec.json.decode(await self._gpus.command("ledger"), type=_Ledger)
        return sum(held.most for held in ledger.tenants)

    def environment(self, given: Mapping[str, str], slice_folder: Path) -> dict[str, str]:
        """Of a program in a container to which ``given`` was given, and this slice."""
        libraries = [str(self._driver.folder), os.environ.get("LD_LIBRARY_PATH", "")]
        return {
            **given,
            "LD_PRELOAD": str(self._driver.library),
            "LD_LIBRARY_PATH": ":".join(filter(None, libraries)),  # Python itself may need some
            "HAMI_SLICE_DIR": str(slice_folder),
            **self._gpus.environment,
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
    line = f'gpu name="{device.model}" memory={device.memory_mib} uuid={device.id}\n'
    with _failing_the_step():
        async with simulated_gpus(driver, line, folder) as gpus:
            yield SimulatedDevice(driver, gpus)


@asynccontextmanager
async def script(path: Path, environment: Mapping[str, str]) -> AsyncIterator[Process]:
    """A Python script with this environment and no other; ended with the block."""
    async with running([sys.executable, "-I", "-S", str(path)], environment) as process:
        yield process


async def answer_of(process: Process, name: str, line: bytes = b"") -> bytes:
    """The next line that it prints, once it was sent ``line``.

    Raises:
        StepFailed: it says nothing.
    """
    with _failing_the_step():
        return await simgpu.answer_of(process, name, line)


@contextmanager
def _failing_the_step() -> Iterator[None]:
    try:
        yield
    except NotAnswering as error:
        raise StepFailed(str(error)) from error
