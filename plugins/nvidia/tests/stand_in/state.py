"""What changes about simulated GPUs, in a file: it outlives processes, as hardware does.

An agent that was killed finds its MIG instances again, and a test in another process can take a
GPU away. Every change is made under a lock and replaces the file whole.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from hami_nvidia.nvml.interface import Recovery, Span

from hami.domain.units import DeviceId


class SimulatedCompute(msgspec.Struct, rename="camel"):
    """A compute instance, which is a MIG device."""

    id: int
    uuid: DeviceId


class SimulatedInstance(msgspec.Struct, rename="camel"):
    """A GPU instance."""

    id: int
    profile_id: int
    start: int
    size: int
    compute: list[SimulatedCompute] = []

    @property
    def span(self) -> Span:
        return Span(start=self.start, size=self.size)


class SimulatedGpuState(msgspec.Struct, rename="camel"):
    """One GPU. ``lost`` says why it does not answer; ``mig`` of None is as the file says.

    ``resets_late``: a change of the MIG mode waits for a reset. ``ended_links`` are the places of
    NVLinks that are down.
    """

    lost: str = ""
    recovery: Recovery = Recovery.NONE
    mig: bool | None = None
    mig_pending: bool | None = None
    resets_late: bool = False
    ended_links: list[int] = []
    instances: list[SimulatedInstance] = []


class SimulatedXid(msgspec.Struct, rename="camel"):
    """A critical error; ``number`` counts all of them, so that a watch sees each once."""

    number: int
    xid: int
    uuid: DeviceId | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None


class SimulatedState(msgspec.Struct, rename="camel"):
    """Everything that changes. ``failing``: requests by name, with what NVML says to them.

    ``away`` says why there is no driver; ``busy`` holds the UUIDs of GPUs and MIG devices on which
    a process runs, ``held_open`` those of GPUs that a program has open which computes nothing.
    """

    away: str = ""
    gpus: dict[DeviceId, SimulatedGpuState] = {}
    failing: dict[str, str] = {}
    busy: list[DeviceId] = []
    held_open: list[DeviceId] = []
    events: list[SimulatedXid] = []
    event_count: int = 0

    def gpu(self, uuid: DeviceId) -> SimulatedGpuState:
        """What is known of a GPU; to change it, change what this returns."""
        return self.gpus.setdefault(uuid, SimulatedGpuState())


_MOST_EVENTS = 100


class StateFile:
    """Reads and changes the file, in any process and thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._decoder = msgspec.json.Decoder(SimulatedState)

    def read(self) -> SimulatedState:
        try:
            return self._decoder.decode(self._path.read_bytes())
        except FileNotFoundError:
            return SimulatedState()

    @contextmanager
    def changing(self) -> Iterator[SimulatedState]:
        """The state; what is changed in it is written at the end, unless an exception ends it."""
        with self._locked():
            state = self.read()
            yield state
            new = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
            new.write_bytes(msgspec.json.format(msgspec.json.encode(state)))
            new.replace(self._path)

    def add_event(
        self,
        xid: int,
        uuid: DeviceId | None = None,
        *,
        gpu_instance: int | None = None,
        compute_instance: int | None = None,
    ) -> None:
        with self.changing() as state:
            state.event_count += 1
            event = SimulatedXid(state.event_count, xid, uuid, gpu_instance, compute_instance)
            state.events = [*state.events, event][-_MOST_EVENTS:]

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.with_name(f"{self._path.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
