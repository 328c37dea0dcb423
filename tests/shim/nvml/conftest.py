"""A node with simulated cards, and processes that have its driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hami_nvidia.nvml.interface import Span

from ..builds import Build
from ..simulated import SimulatedGpus
from .cards import standing_in
from .driver_process import DriverProcess


class Node:
    """A daemon with cards, the stand-in with the same ones, and processes with the driver."""

    def __init__(self, folder: Path, build: Build, gpus: Any, stack: ExitStack) -> None:
        self.stand_in, configuration = standing_in(folder, gpus)
        self.gpus = stack.enter_context(SimulatedGpus(folder, build=build, config=configuration))
        self.folder = folder
        self._stack = stack
        self._agent: DriverProcess | None = None

    def process(
        self, tenant: str = "", visible: str | None = None, **knobs: object
    ) -> DriverProcess:
        env = self.gpus.env(tenant, **knobs)
        if visible is not None:
            env["CUDA_VISIBLE_DEVICES"] = visible
        return self._stack.enter_context(DriverProcess(env))

    @property
    def agent(self) -> DriverProcess:
        """The one process that is the same in every call."""
        if self._agent is None:
            self._agent = self.process("agent")
        return self._agent

    @property
    def nvml(self) -> Any:
        return self.agent.nvml

    @property
    def uuids(self) -> list[str]:
        return [gpu.uuid for gpu in self.stand_in.gpus()]

    def cut(self, profile: str, start: int, card: int = 0) -> Any:
        """Make a MIG device through NVML."""
        gpu = self.uuids[card]
        kind = next(k for k in self.nvml.instance_profiles(gpu) if k.name == profile)
        made = self.nvml.create_instance(gpu, kind, Span(start=start, size=kind.spans[0].size))
        self.nvml.create_compute(gpu, made)
        return next(d for d in self.nvml.mig_devices(gpu) if d.gpu_instance == made)


NodeWith = Callable[[Any], Node]


@pytest.fixture
def node_with(shim: Build, tmp_path: Path) -> Iterator[NodeWith]:
    """``node_with("a100-40gx2")``."""
    with ExitStack() as stack:
        yield lambda gpus: Node(tmp_path, shim, gpus, stack)


@pytest.fixture
def cut_node(node_with: NodeWith) -> Node:
    """Two A100s in MIG mode."""
    return node_with([{"model": "a100-40g", "count": 2, "mig": True}])


@pytest.fixture
def node(node_with: NodeWith) -> Node:
    """Two H100s, linked by a switch."""
    return node_with("h100-80gx2")
