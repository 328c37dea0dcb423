"""The file that describes GPUs which are not there, for tests, CI and demonstrations.

node: worker-1          # its name is in the UUIDs; the agent's node if it is not said
gpus: a100-40gx4,t4     # <model>[x<count>], or a list: [{model: t4, count: 2, memoryMiB: 8192}]
state: state.json       # what changes (see state.py), beside this file
waitSeconds: 0.5        # the longest wait for an error
models: {}              # further models, as in hami_simgpu/gpus.yaml
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from hami_nvidia.nvml.interface import Capability, Gpu, InstanceProfile, MigMode, NvLink, Span
from hami_simgpu import gpus as simulated_gpus
from hami_simgpu.gpus import peers, simulated_uuid
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, StrictStr, ValidationError
from pydantic.alias_generators import to_camel

from hami.domain.errors import ConfigError, shortened
from hami.domain.units import MIB, DeviceId, MemoryMiB

_ITEM = re.compile(r"(?P<model>[A-Za-z0-9._-]+?)(?:x(?P<count>\d{1,3}))?")
_MOST = 64


class _Written(BaseModel):
    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        populate_by_name=True,
        alias_generator=lambda name: to_camel(name).replace("Mib", "MiB"),
    )


class SimulatedProfile(_Written):
    """A MIG profile; ``starts`` and ``size`` in memory slices."""

    name: StrictStr
    number: int
    id: int
    slices: PositiveInt
    memory_mib: PositiveInt
    multiprocessors: PositiveInt
    count: PositiveInt
    starts: tuple[int, ...]
    size: PositiveInt

    def as_profile(self) -> InstanceProfile:
        return InstanceProfile(
            number=self.number,
            id=self.id,
            name=self.name,
            slices=self.slices,
            memory_mib=MemoryMiB(self.memory_mib),
            multiprocessors=self.multiprocessors,
            count=self.count,
            spans=tuple(Span(start=start, size=self.size) for start in self.starts),
        )


class SimulatedModel(_Written):
    """A product; ``memory_mib`` of None stands for a GPU that shares the host's memory.

    ``cores`` and ``capability`` of None: its driver does not say.
    """

    name: StrictStr
    memory_mib: PositiveInt | None
    cores: PositiveInt | None = None
    capability: Annotated[str, Field(pattern=r"^\d{1,2}\.\d$")] | None = None
    nvlinks: Annotated[int, Field(ge=0, le=18)] = 0
    linked_to: Literal["peers", "switch"] = "peers"
    mig: tuple[SimulatedProfile, ...] = ()


class SimulatedItem(_Written):
    """Some GPUs of one model; GPUs of one item are on one board and linked with each other.

    ``mig``: they are cut into instances from the start. What is None is as the model says.
    """

    model: StrictStr
    count: Annotated[int, Field(ge=1, le=_MOST)] = 1
    name: StrictStr | None = None
    memory_mib: PositiveInt | None = None
    shares_host_memory: bool = False
    mig: bool = False


class SimulatedFile(_Written):
    """The file as written."""

    node: StrictStr = ""
    gpus: str | tuple[SimulatedItem, ...]
    state: Path | None = None
    wait_seconds: Annotated[float, Field(ge=0, le=5)] = 0.5
    models: Mapping[StrictStr, SimulatedModel] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedGpu:
    """A GPU as its driver would report it at first, and what it can be cut into."""

    gpu: Gpu
    profiles: tuple[InstanceProfile, ...]
    links: tuple[NvLink, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlSimulation:
    """Everything that the file describes; ``state`` is where what changes is kept."""

    gpus: tuple[SimulatedGpu, ...]
    state: Path
    wait_seconds: float


def read_simulation(path: Path, node_name: str) -> NvmlSimulation:
    """The file's GPUs; half of them are on each of two NUMA nodes.

    Raises:
        ConfigError: it cannot be read, or a value in it makes no sense; names file and key.
    """
    try:
        written = SimulatedFile.model_validate(_loaded(path.read_text("utf-8")))
    except (OSError, UnicodeError, yaml.YAMLError) as error:
        raise ConfigError(f"simulated GPUs: {path} cannot be read: {error}; correct it") from error
    except ValidationError as error:
        detail = error.errors()[0]
        key = ".".join(str(part) for part in detail["loc"])
        raise ConfigError(
            f"simulated GPUs: {path}: {key} is {shortened(repr(detail['input']))}: "
            f"{detail['msg']}; correct it"
        ) from error
    models = {**builtin_models(), **written.models}
    items = _items(written.gpus, path)
    node = written.node or node_name or "node"
    state = written.state or Path(f"{path.name}.state.json")
    return NvmlSimulation(
        gpus=_gpus(items, models, node, path),
        state=path.parent / state,
        wait_seconds=written.wait_seconds,
    )


def builtin_models() -> Mapping[str, SimulatedModel]:
    """The models of the simulated driver."""
    written = simulated_gpus.builtin_models()
    return {name: SimulatedModel.model_validate(model) for name, model in written.items()}


def _loaded(text: str) -> Any:
    """With libyaml where there is one: it is five times as fast, and as safe."""
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _items(written: str | tuple[SimulatedItem, ...], path: Path) -> tuple[SimulatedItem, ...]:
    if not isinstance(written, str):
        return written
    items = []
    for text in filter(None, (part.strip() for part in written.split(","))):
        match = _ITEM.fullmatch(text)
        count = int(match["count"] or 1) if match else 0
        if match is None or not 1 <= count <= _MOST:
            raise ConfigError(
                f"simulated GPUs: {path}: gpus: {shortened(text)!r} is not <model>[x<count>] with "
                f"1 to {_MOST} GPUs, for example a100-40gx2"
            )
        items.append(SimulatedItem(model=match["model"], count=count))
    return tuple(items)


def _gpus(
    items: tuple[SimulatedItem, ...], models: Mapping[str, SimulatedModel], node: str, path: Path
) -> tuple[SimulatedGpu, ...]:
    total = sum(item.count for item in items)
    gpus: list[SimulatedGpu] = []
    for item in items:
        model = models.get(item.model)
        if model is None:
            raise ConfigError(
                f"simulated GPUs: {path}: there is no model {shortened(item.model)!r}; known are "
                f"{', '.join(sorted(models))}, and 'models' in the file can add some"
            )
        first = len(gpus)
        board = [_gpu(item, model, node, first + n, total) for n in range(item.count)]
        gpus += _linked(board, model)
    return tuple(gpus)


def _gpu(
    item: SimulatedItem, model: SimulatedModel, node: str, index: int, total: int
) -> SimulatedGpu:
    memory = None if item.shares_host_memory else item.memory_mib or model.memory_mib
    return SimulatedGpu(
        gpu=Gpu(
            uuid=DeviceId(simulated_uuid("GPU", node, index)),
            index=index,
            minor=index,
            name=item.name or model.name,
            pci_bus_id=f"00000000:{index + 7:02X}:00.0",
            memory_bytes=None if memory is None else memory * MIB,
            mig=MigMode(enabled=item.mig, pending=item.mig) if model.mig else None,
            numa=int(2 * index >= total),
            cores=model.cores,
            capability=_capability(model.capability),
        ),
        profiles=tuple(profile.as_profile() for profile in model.mig),
    )


def _capability(text: str | None) -> Capability | None:
    return None if text is None else Capability(*map(int, text.split(".")))


def _linked(board: list[SimulatedGpu], model: SimulatedModel) -> list[SimulatedGpu]:
    """Each with its NVLinks: all to a switch, or as many to each peer as can be."""
    if len(board) < 2 or not model.nvlinks:
        return board
    if model.linked_to == "switch":
        links = [NvLink(remote_bus_id=f"00000000:{0xC0 + n:02X}:00.0", switch=True)
                 for n in range(model.nvlinks)]  # fmt: skip
        return [replace(gpu, links=tuple(links)) for gpu in board]
    return [
        replace(
            gpu,
            links=tuple(
                NvLink(remote_bus_id=board[peer].gpu.pci_bus_id)
                for peer in peers(place, len(board), model.nvlinks)
            ),
        )
        for place, gpu in enumerate(board)
    ]
