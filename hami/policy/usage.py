"""What a pod's containers use together at the worst moment.

Plain init containers run one after the other, each with the sidecars before it; then the apps
and the sidecars run together. So in every dimension a pod uses
``max( max over init containers of (init + sidecars before it), apps + sidecars )``.
The same formula gives its use of each device and its charge against quota.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hami.domain.allocations import ContainerAllocation, ContainerKind
from hami.domain.devices import UNUSED, Grant, Usage
from hami.domain.profile import VendorProfile
from hami.domain.requests import ContainerRequest
from hami.domain.units import WHOLE_DEVICE, DeviceId, VendorKey

DeviceKey = tuple[VendorKey, DeviceId]
"""A device within its node: ids are unique per vendor only."""


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
            now[key] = now.get(key, UNUSED) + grant.usage
        for key in {key_of(grant) for grant in container.grants}:
            peak[key] = peak.get(key, UNUSED).peak(now[key])
    return peak


def quota_charge(
    containers: Iterable[ContainerAllocation], profiles: Mapping[VendorKey, VendorProfile]
) -> dict[str, int]:
    """What one pod is charged per resource name: slices, MiB (factor applied), percent."""
    return _peak(
        (
            container.kind,
            [
                (profiles[grant.vendor], 1, grant.memory_mib, grant.cores)
                for grant in container.grants
            ],
        )
        for container in containers
    )


def asked_at_least(
    containers: Iterable[ContainerRequest], profiles: Mapping[VendorKey, VendorProfile]
) -> dict[str, int]:
    """The least that these requests will be charged.

    What a percentage or a whole device comes to is not known yet: 0 MiB, and of whole devices 0
    percent.
    """
    return _peak(
        (
            container.kind,
            [
                (
                    profiles[request.vendor],
                    request.count,
                    request.count * (request.memory_mib or 0),
                    0 if request.exclusive else request.count * min(request.cores, WHOLE_DEVICE),
                )
                for request in container.requests
            ],
        )
        for container in containers
    )


_Amounts = tuple[VendorProfile, int, int, int]
"""Slices, MiB and percent under a vendor's resource names."""


def _peak(containers: Iterable[tuple[ContainerKind, Sequence[_Amounts]]]) -> dict[str, int]:
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    for kind, charges in containers:
        now = running if kind is not ContainerKind.INIT else dict(running)
        for profile, count, memory, cores in charges:
            names = profile.resources
            for name, amount in (
                (names.count, count),
                (names.memory, memory),
                (names.cores, cores),
            ):
                if name and amount:
                    now[name] = now.get(name, 0) + amount
        for name, amount in now.items():
            peak[name] = max(peak.get(name, 0), amount)
    return peak
