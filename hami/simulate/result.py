"""What a simulation found, as values, and as the JSON object that ``--json`` prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hami.domain.allocations import ContainerAllocation, ContainerKind, PodAllocation
from hami.domain.devices import DeviceState, Grant, Usage
from hami.domain.kubernetes.objects import Pod


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedPod:
    pod: Pod
    allocation: PodAllocation


@dataclass(frozen=True, slots=True, kw_only=True)
class UnplacedPod:
    """A pod that no node takes now.

    ``reasons`` is text by node; ``message`` sums up as kube-scheduler does.
    """

    pod: Pod
    reasons: Mapping[str, str]
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeniedPod:
    """A pod that admission refuses to create."""

    pod: Pod
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDevice:
    """A device after every pod was placed; ``capacity`` is its total, in the usage's units."""

    node: str
    state: DeviceState

    @property
    def capacity(self) -> Usage:
        device = self.state.device
        return Usage(device.slots, device.memory_mib, device.cores)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """The outcome.

    ``placed`` is in scheduling order; ``running`` were there before; ``devices`` are by node.
    ``without_devices`` counts pods that ask for no device; the simulation does not place those.
    """

    placed: tuple[PlacedPod, ...]
    pending: tuple[UnplacedPod, ...]
    denied: tuple[DeniedPod, ...]
    devices: tuple[NodeDevice, ...]
    running: tuple[PlacedPod, ...] = ()
    without_devices: int = 0
    warnings: tuple[str, ...] = ()

    @property
    def everything_placed(self) -> bool:
        return not self.pending and not self.denied

    def as_json(self) -> dict[str, Any]:
        """The JSON object that docs/simulate.md describes, in plain JSON types."""
        return {
            "placements": [
                {
                    "pod": p.pod.full_name,
                    "node": p.allocation.node,
                    "containers": [_container(c) for c in p.allocation.containers],
                }
                for p in self.placed
            ],
            "pending": [
                {"pod": p.pod.full_name, "reasons": dict(p.reasons), "message": p.message}
                for p in self.pending
            ],
            "denied": [{"pod": p.pod.full_name, "message": p.message} for p in self.denied],
            "devices": [_device(d) for d in self.devices],
        }


def _container(container: ContainerAllocation) -> dict[str, Any]:
    return {
        "name": container.name,
        "init": container.kind is not ContainerKind.APP,
        "devices": [_grant(grant) for grant in container.grants],
    }


def _grant(grant: Grant) -> dict[str, Any]:
    return {
        "id": grant.device_id,
        "vendor": grant.vendor,
        "memoryMiB": grant.memory_mib,
        "cores": grant.cores,
        "extra": dict(grant.extra.encode()),
    }


def _device(one: NodeDevice) -> dict[str, Any]:
    device, usage = one.state.device, one.state.usage
    return {
        "node": one.node,
        "id": device.id,
        "vendor": device.vendor,
        "model": device.model,
        "memoryMiB": device.memory_mib,
        "usedMemoryMiB": usage.memory_mib,
        "cores": device.cores,
        "usedCores": usage.cores,
        "slots": device.slots,
        "usedSlots": usage.slots,
    }
