"""The simulator by itself: its daemon and the client half, plain and under AddressSanitizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from ..builds import SHIM, Build, flavoured, make
from ..simulated import SimulatedGpus
from .clients import Clients

GpusWith = Callable[..., SimulatedGpus]
ClientsOf = Callable[[SimulatedGpus], AbstractContextManager[Clients]]


def made(flavour: str) -> Build:
    """Only what is tested here, so that nothing else needs to compile."""
    build = flavoured(flavour)
    make(*(goal_of(build.folder / part) for part in ("simgpu/simgpud", "units/sim_client")))
    return build


def goal_of(path: Path) -> str:
    return str(path.relative_to(SHIM))


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
    make(goal_of(plain.folder / "simgpu" / "libnvidia-ml.so.1"))
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
