"""MIG: which instance a slice becomes on a device in mode ``mig``.

A device publishes profiles, each with the placements it may start at. A slice gets the smallest
profile that holds the memory it asks for and has a free placement; two instances never overlap.
Which placement is tried first is HAMi's rule, so that big profiles stay possible for longest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec

from hami.domain import reasons
from hami.domain.allocations import ContainerAllocation
from hami.domain.devices import DeviceState, Grant
from hami.domain.extra import NO_EXTRA, ExtraKey
from hami.domain.reasons import Reason
from hami.domain.requests import DeviceRequest, FitContext
from hami.domain.units import WHOLE_DEVICE, CorePercent, DeviceId, MemoryMiB
from hami.policy.profile.defaults import asked_memory

MIG_MODE = "mig"

_Slot = Annotated[int, msgspec.Meta(ge=0, le=2**32 - 1)]
_Name = Annotated[str, msgspec.Meta(min_length=1)]


class MigPlacement(msgspec.Struct, frozen=True, kw_only=True):
    """Memory slices ``start`` to ``start + size - 1`` of a device."""

    start: _Slot
    size: Annotated[int, msgspec.Meta(ge=1, le=2**32 - 1)]

    def overlaps(self, other: MigPlacement) -> bool:
        return self.start < other.start + other.size and other.start < self.start + self.size


class MigProfile(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    rename={"memory_mib": "memoryMB", "cores": "core", "slices": "sliceCount"},
):
    """A kind of instance that a device offers; its JSON names are those of HAMi's annotation.

    ``memory_mib`` in MiB (the wire says MB), ``cores`` in percent of the device.
    """

    name: _Name
    memory_mib: Annotated[MemoryMiB, msgspec.Meta(ge=0)]
    cores: Annotated[CorePercent, msgspec.Meta(ge=0)]
    slices: Annotated[int, msgspec.Meta(ge=0)]
    placements: tuple[MigPlacement, ...]

    def by_preference(self) -> Sequence[MigPlacement]:
        """``1g`` and ``3g`` from the highest start down, all others from the lowest up."""
        downwards = self.name.startswith(("1g.", "3g."))
        return sorted(self.placements, key=lambda p: -p.start if downwards else p.start)


class MigInstance(msgspec.Struct, frozen=True, kw_only=True):
    """What a slice is on a device in mode ``mig``."""

    profile: _Name
    placement: MigPlacement


MIG_PROFILES = ExtraKey("nvidia.mig-profiles", tuple[MigProfile, ...])
"""On a device: what it offers."""

MIG_INSTANCE = ExtraKey("nvidia.mig", MigInstance)
"""On a grant: the instance that was chosen for it."""


def charge_instance(request: DeviceRequest, state: DeviceState, ctx: FitContext) -> Grant | Reason:
    """The instance that one slice of the request becomes on this device, charged as its profile.

    A request for all of the memory takes the largest profile: MIG itself keeps a part of the
    memory, so no profile is as large as the device.
    """
    device = state.device
    live: list[MigPlacement] = []
    for grant in state.grants:
        instance = grant.extra.get(MIG_INSTANCE)
        if instance is None:
            return reasons.UNKNOWN_USAGE
        live.append(instance.placement)

    asked = asked_memory(request, device)
    profiles = device.extra.get(MIG_PROFILES) or ()
    if request.memory_percent == 100:
        asked = max((profile.memory_mib for profile in profiles), default=asked)
    ended = _instances_of(ctx.granted, device.id)
    for profile, placement in _candidates(profiles, asked):
        instance = MigInstance(profile=profile.name, placement=placement)
        # HAMi's device plugin keeps the instance of an init container until its pod is gone, and
        # gives it to a later container of that pod only if it is the very same.
        if any(placement.overlaps(other) for other in live) or any(
            placement.overlaps(former.placement) and instance != former for former in ended
        ):
            continue
        return Grant(
            device_id=device.id,
            vendor=request.vendor,
            memory_mib=profile.memory_mib,
            cores=profile.cores,
            extra=NO_EXTRA.with_(MIG_INSTANCE, instance),
        )
    short = device.memory_mib - state.usage.memory_mib < asked_memory(request, device)
    return reasons.NO_MEMORY if short else reasons.MIG_INFEASIBLE


def refuse_cores(
    request: DeviceRequest, state: DeviceState, chosen: Sequence[Grant]
) -> Reason | None:
    """HAMi's rule on compute: what is asked must be free of the usage before this request.

    An instance has its profile's compute whatever was asked, so the slices of one request do not
    stand in each other's way.
    """
    before = state.usage
    for grant in chosen:
        if grant.device_id == state.device.id:
            before = before - grant.usage
    cores = min(request.cores, WHOLE_DEVICE)
    if state.device.cores - before.cores < cores:
        return reasons.NO_CORES
    return reasons.EXCLUSIVE_CONFLICT if cores == WHOLE_DEVICE and before.slots else None


def _candidates(
    profiles: Sequence[MigProfile], asked: MemoryMiB
) -> Iterator[tuple[MigProfile, MigPlacement]]:
    """Every instance with room for ``asked``, the smallest profile first."""
    for profile in sorted(profiles, key=lambda p: (p.memory_mib, p.slices)):
        if profile.memory_mib >= asked:
            for placement in profile.by_preference():
                yield profile, placement


def _instances_of(granted: Sequence[ContainerAllocation], device: DeviceId) -> list[MigInstance]:
    """The instances on this device that the pod's earlier containers have."""
    return [
        instance
        for container in granted
        for grant in container.grants
        if grant.device_id == device and (instance := grant.extra.get(MIG_INSTANCE)) is not None
    ]
