"""The simulator by itself: its daemon and the client half, plain and under AddressSanitizer."""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from ..builds import SHIM, Build
from ..simulated import SimulatedGpus
from .clients import Clients

GpusWith = Callable[..., SimulatedGpus]
ClientsOf = Callable[[SimulatedGpus], AbstractContextManager[Clients]]


def make(*goals: Path) -> None:
    """Build only what is tested here, so that nothing else needs to compile."""
    wanted = [str(goal.relative_to(SHIM)) for goal in goals]
    (SHIM / "build").mkdir(exist_ok=True)
    with (SHIM / "build" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            done = subprocess.run(
                ["make", "-C", str(SHIM), *wanted], check=False, capture_output=True, text=True
            )
        except FileNotFoundError:
            pytest.skip("there is no make to build the simulator with")
    if done.returncode != 0 and "cannot find -l" in done.stderr:
        pytest.skip(f"cc cannot link the sanitizer: {done.stderr[-200:]}")
    assert done.returncode == 0, done.stderr[-4000:]


def made(flavour: str) -> Build:
    folder = SHIM / "build" / flavour if flavour else SHIM / "build"
    make(folder / "simgpu" / "simgpud", folder / "units" / "sim_client")
    return Build(folder=folder, flavour=flavour)


@pytest.fixture(scope="session", params=["", "asan"], ids=["plain", "asan"])
def built(request) -> Build:
    return made(request.param)


@pytest.fixture(scope="session")
def plain() -> Build:
    """The plain build, for tests of speed."""
    return made("")


@pytest.fixture(scope="session")
def threaded() -> Build:
    """The build under ThreadSanitizer."""
    return made("tsan")


@pytest.fixture(scope="session")
def nvml(plain) -> str:
    """The folder with the simulated libnvidia-ml.so.1."""
    make(plain.folder / "simgpu" / "libnvidia-ml.so.1")
    return str(plain.simulator)


@pytest.fixture
def simgpud(built) -> str:
    return str(built.simulator / "simgpud")


@pytest.fixture
def gpus_with(built, tmp_path) -> GpusWith:
    """``with gpus_with("gpu memory=100") as gpus:``; one H100 without arguments."""
    return lambda config=None: SimulatedGpus(tmp_path, build=built, config=config)


@contextmanager
def clients_in(gpus: SimulatedGpus, build: Build) -> Iterator[Clients]:
    clients = Clients(gpus, str(build.folder / "units" / "sim_client"))
    try:
        yield clients
    finally:
        clients.end()


@pytest.fixture
def clients_of(built) -> ClientsOf:
    """``with clients_of(gpus) as client: client("a").ask("take", ...)``."""
    return lambda gpus: clients_in(gpus, built)


@pytest.fixture
def plain_gpus(plain, tmp_path) -> Iterator[SimulatedGpus]:
    with SimulatedGpus(tmp_path, build=plain) as gpus:
        yield gpus


@pytest.fixture
def plain_client(plain, plain_gpus) -> Iterator[Clients]:
    with clients_in(plain_gpus, plain) as clients:
        yield clients
