"""What a container asks of a vendor, and the context in which the request is fitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from hami.domain.allocations import ContainerAllocation, ContainerKind
from hami.domain.devices import Grant
from hami.domain.extra import NO_EXTRA, Extra
from hami.domain.kubernetes.objects import Container, Node, Pod
from hami.domain.reasons import Rejected
from hami.domain.scheduling import SchedulingPolicy
from hami.domain.units import CorePercent, MemoryMiB, VendorKey


class DeviceRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """``count`` slices, each with the same memory and compute.

    One of ``memory_mib`` and ``memory_percent`` is set: a percentage is resolved on each candidate
    device. ``cores`` may exceed 100 and is then clamped when charged. ``exclusive`` asks for whole
    devices that no other pod uses.
    """

    vendor: VendorKey
    count: int
    memory_mib: MemoryMiB | None = None
    memory_percent: int | None = None
    cores: CorePercent = CorePercent(0)
    exclusive: bool = False
    extra: Extra = NO_EXTRA


@dataclass(frozen=True, slots=True)
class Invalid:
    """A request that cannot be understood; the text names the container, the key and the value."""

    text: str

    def __str__(self) -> str:
        return self.text


class ContainerRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Everything one container asks for: at most one request per vendor, sorted by vendor key.

    ``cores_limit`` as in :class:`~hami.domain.allocations.ContainerAllocation`.
    """

    container: Container
    kind: ContainerKind
    requests: tuple[DeviceRequest, ...] = ()
    cores_limit: CorePercent = CorePercent(0)


class PodRequest(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A pod parsed once: every container in spec order (init first), and the pod's policy."""

    pod: Pod
    containers: tuple[ContainerRequest, ...]
    policy: SchedulingPolicy = SchedulingPolicy()

    @property
    def vendors(self) -> tuple[VendorKey, ...]:
        """The vendors that the pod asks, sorted; empty for a pod that asks for no device."""
        return tuple(sorted({r.vendor for c in self.containers for r in c.requests}))

    @property
    def distinct(self) -> Sequence[DeviceRequest]:
        """Each different request once, in order; containers of one pod often ask for the same."""
        found: list[DeviceRequest] = []
        for wanted in (r for c in self.containers for r in c.requests):
            if wanted not in found:
                found.append(wanted)
        return found


class Placement(msgspec.Struct, frozen=True, gc=False):
    """The grants for one request of one container on one node."""

    grants: tuple[Grant, ...]


def _anything(_: Sequence[Grant]) -> bool:
    return True


class FitContext(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request is being fitted.

    ``granted`` is what this pod has so far: every earlier container with all its vendors, and this
    container with the vendors that come before this one. ``allowed(grants)`` says whether quota
    admits these grants of this container on top of ``granted``.
    """

    pod: Pod
    node: Node
    container: Container
    kind: ContainerKind = ContainerKind.APP
    granted: tuple[ContainerAllocation, ...] = ()
    policy: SchedulingPolicy = SchedulingPolicy()
    allowed: Callable[[Sequence[Grant]], bool] = _anything


FitResult = Placement | Rejected
