"""What a pod's containers use together at the worst moment.

Plain init containers run one after the other, each with the sidecars before it; then the apps and
the sidecars run together. So in every dimension a pod uses ``max( max over init containers of (init
+ sidecars before it), apps + sidecars )``. The same formula gives the pod's use of each device and
its charge against quota.
https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/#resource-sharing-within-containers
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from hami.domain.allocations import ContainerAllocation, ContainerKind, PodAllocation
from hami.domain.devices import UNUSED, Device, Grant, Usage
from hami.domain.profile import VendorProfile
from hami.domain.requests import ContainerRequest, DeviceRequest
from hami.domain.units import WHOLE_DEVICE, CorePercent, DeviceId, MemoryMiB, VendorKey
from hami.policy.profile.defaults import asked_memory

DeviceKey = tuple[VendorKey, DeviceId]
"""A device within its node: ids are unique per vendor only."""


class UnknownUsage(NamedTuple):
    """A device, or with None every device of a vendor, on which a pod's usage cannot be read.

    The pod uses at most what its spec ``asks`` of each; None: up to everything.
    """

    vendor: VendorKey
    device: DeviceId | None
    asks: tuple[ContainerRequest, ...] | None = None

    def concerns(self, device: Device) -> bool:
        return self.vendor == device.vendor and self.device in (None, device.id)

    def most(self, device: Device) -> Usage | None:
        """The most that the pod may use of this device; ``UNUSED`` where it does not fit there."""
        if self.asks is None:
            return None
        held = tuple(
            ContainerAllocation(
                name=c.container.name,
                kind=c.kind,
                grants=tuple(
                    most_granted(r, device) for r in c.requests if r.vendor == self.vendor
                ),
            )
            for c in self.asks
        )
        usage = device_usage(held).get((device.vendor, device.id), UNUSED)
        return usage if usage.memory_mib <= device.memory_mib else UNUSED


def most_granted(request: DeviceRequest, device: Device) -> Grant:
    """What one slice of the request takes of this device, if no vendor says otherwise."""
    memory = device.memory_mib if request.exclusive else asked_memory(request, device)
    cores = device.cores if request.exclusive else CorePercent(min(request.cores, WHOLE_DEVICE))
    return Grant(device_id=device.id, vendor=device.vendor, memory_mib=memory, cores=cores)


def key_of(grant: Grant) -> DeviceKey:
    return grant.vendor, grant.device_id


def device_usage(containers: Iterable[ContainerAllocation]) -> dict[DeviceKey, Usage]:
    """Each device's peak usage by these containers of one pod, in spec order."""
    running: dict[DeviceKey, Usage] = {}
    peak: dict[DeviceKey, Usage] = {}
    for container in containers:
        now = running if container.kind is not ContainerKind.INIT else dict(running)
        for grant in container.grants:
            key = key_of(grant)
            before = now.get(key)
            now[key] = grant.usage if before is None else before + grant.usage
        for key in {key_of(grant) for grant in container.grants}:
            before = peak.get(key)
            peak[key] = now[key] if before is None else before.peak(now[key])
    return peak


class ChargeMeter:
    """Adds up what a pod is charged per resource name, container by container in spec order.

    Amounts are slices, MiB (the vendor's factor applied) and percent. The cost of asking about one
    more container does not grow with the number of containers.
    """

    def __init__(self, profiles: Mapping[VendorKey, VendorProfile]) -> None:
        self._profiles = profiles
        self._running: dict[str, int] = {}
        self._peak: dict[str, int] = {}

    def after(self, kind: ContainerKind, grants: Iterable[Grant]) -> dict[str, int]:
        """The charge if a container with these grants came next; changes nothing."""
        return self._added(kind, self._amounts(grants))[1]

    def add(self, kind: ContainerKind, grants: Iterable[Grant]) -> None:
        self._running, self._peak = self._added(kind, self._amounts(grants))

    def add_request(self, kind: ContainerKind, requests: Iterable[DeviceRequest]) -> None:
        """The least that a container's requests will be charged.

        The MiB of a percentage or of a whole device are not known yet and count as 0, and so does
        the percent of a whole device. The cores of a vendor whose placements decide about them
        count as 0 too.
        """
        amounts: dict[str, int] = {}
        for request in requests:
            profile = self._profiles[request.vendor]
            placed = any(rules.placements for rules in profile.modes.values())
            cores = 0 if placed or request.exclusive else min(request.cores, WHOLE_DEVICE)
            memory = 0 if request.exclusive else request.memory_mib or 0
            for name, amount in zip(_names(profile), (1, memory, cores), strict=True):
                amounts[name] = amounts.get(name, 0) + request.count * amount
        self._running, self._peak = self._added(kind, amounts)

    @property
    def charge(self) -> Mapping[str, int]:
        """The charge so far, without resources whose amount is 0."""
        return {name: amount for name, amount in self._peak.items() if name and amount}

    def _amounts(self, grants: Iterable[Grant]) -> dict[str, int]:
        return _amounts(grants, self._profiles)

    def _added(
        self, kind: ContainerKind, amounts: Mapping[str, int]
    ) -> tuple[dict[str, int], dict[str, int]]:
        """What goes on running after this container, and the peak up to now."""
        peak = dict(self._peak)
        now = {name: self._running.get(name, 0) + amount for name, amount in amounts.items()}
        for name, amount in now.items():
            peak[name] = max(peak.get(name, 0), amount)
        running = self._running if kind is ContainerKind.INIT else self._running | now
        return running, peak


def _names(profile: VendorProfile) -> tuple[str, str, str]:
    names = profile.resources
    return names.count, names.memory, names.cores


def _amounts(
    grants: Iterable[Grant], profiles: Mapping[VendorKey, VendorProfile]
) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for grant in grants:
        names = profiles[grant.vendor].resources
        for name, amount in (
            (names.count, 1),
            (names.memory, grant.memory_mib),
            (names.cores, grant.cores),
        ):
            amounts[name] = amounts.get(name, 0) + amount
    return amounts


def quota_charge(
    containers: Iterable[ContainerAllocation], profiles: Mapping[VendorKey, VendorProfile]
) -> Mapping[str, int]:
    """What one pod is charged per resource name; see :class:`ChargeMeter`."""
    granted = [container for container in containers if container.grants]
    if len(granted) == 1:  # So are nearly all pods: its own amounts are the peak.
        amounts = _amounts(granted[0].grants, profiles)
        return {name: amount for name, amount in amounts.items() if name and amount}
    meter = ChargeMeter(profiles)
    for container in granted:
        meter.add(container.kind, container.grants)
    return meter.charge


def asked_at_least(
    containers: Iterable[ContainerRequest], profiles: Mapping[VendorKey, VendorProfile]
) -> Mapping[str, int]:
    """The least that these requests will be charged; see :meth:`ChargeMeter.add_request`."""
    meter = ChargeMeter(profiles)
    for container in containers:
        meter.add_request(container.kind, container.requests)
    return meter.charge


def at_least(one: PodAllocation, other: PodAllocation) -> PodAllocation:
    """Every grant of both allocations of one pod; where both have a device, the larger amounts.

    The node is the first one's.
    """
    containers = tuple(
        _at_least(old, new) for old, new in zip(one.containers, other.containers, strict=True)
    )
    return replace(one, containers=containers)


def _at_least(old: ContainerAllocation, new: ContainerAllocation) -> ContainerAllocation:
    left = list(new.grants)
    grants: list[Grant] = []
    for grant in old.grants:
        place = next((i for i, g in enumerate(left) if key_of(g) == key_of(grant)), None)
        grants.append(grant if place is None else _larger(grant, left.pop(place)))
    return replace(old, grants=(*grants, *left))


def _larger(old: Grant, new: Grant) -> Grant:
    memory = MemoryMiB(max(old.memory_mib, new.memory_mib))
    return replace(old, memory_mib=memory, cores=CorePercent(max(old.cores, new.cores)))
