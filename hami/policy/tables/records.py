"""The records of a device (what each pod uses of it) and of a charge (by device)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import field
from msgspec.structs import replace

from hami.domain.allocations import ContainerKind, PodAllocation
from hami.domain.devices import UNUSED, Device, DeviceState, Grant, Usage
from hami.domain.units import DeviceId, PodUid, VendorKey
from hami.policy.usage import DeviceKey, UnknownUsage, device_usage, key_of


class Charged(msgspec.Struct, eq=False, gc=False):
    """What one pod is charged, by device.

    ``ended`` are the grants of init containers that have ended.
    """

    allocation: PodAllocation
    init_ended: bool
    usage: Mapping[DeviceKey, Usage]
    grants: Mapping[DeviceKey, tuple[Grant, ...]]
    ended: Mapping[DeviceKey, tuple[Grant, ...]]
    unknown: tuple[UnknownUsage, ...]

    @classmethod
    def of(
        cls, allocation: PodAllocation, unknown: tuple[UnknownUsage, ...], *, init_ended: bool
    ) -> Charged:
        init = [c for c in allocation.containers if c.kind is ContainerKind.INIT]
        running = allocation.after_init() if init_ended else allocation
        return cls(
            allocation=allocation,
            init_ended=init_ended,
            usage=device_usage(running.containers),
            grants=_by_device(running.grants),
            ended=_by_device(g for c in init for g in c.grants) if init_ended else {},
            unknown=unknown,
        )

    @property
    def node(self) -> str:
        return self.allocation.node

    def says(
        self, allocation: PodAllocation, unknown: tuple[UnknownUsage, ...], *, init_ended: bool
    ) -> bool:
        """Whether :meth:`of` would make the same of these."""
        return (self.allocation, self.unknown, self.init_ended) == (
            allocation,
            unknown,
            init_ended,
        )

    @property
    def devices(self) -> Iterable[tuple[VendorKey, DeviceId | None]]:
        """Each device once; a None stands for every device of a vendor."""
        read = dict.fromkeys((*self.usage, *self.ended))
        if not self.unknown:
            return read
        whole = {one.vendor for one in self.unknown if one.device is None}
        named = dict.fromkeys((*read, *((one.vendor, one.device) for one in self.unknown)))
        return [
            *((vendor, None) for vendor in whole),
            *(key for key in named if key[0] not in whole),
        ]


def _by_device(grants: Iterable[Grant]) -> Mapping[DeviceKey, tuple[Grant, ...]]:
    found: dict[DeviceKey, tuple[Grant, ...]] = {}
    for grant in grants:
        key = key_of(grant)
        found[key] = (*found.get(key, ()), grant)
    return found


class DeviceRecord(msgspec.Struct, eq=False, gc=False):
    """One device with what each pod uses of it; ``row`` is its place in the vendor's table.

    ``placements``: the grants are places on the device, which stay taken until their pod is gone.
    ``claims``: the most that pods with unreadable allocations may use of the device. For the pods
    in ``unknown`` nobody can say how much that is.
    """

    device: Device
    placements: bool
    row: int = -1
    usage: Usage = UNUSED
    grants: dict[PodUid, tuple[Grant, ...]] = field(default_factory=dict)
    unknown: set[PodUid] = field(default_factory=set)
    claims: dict[PodUid, Usage] = field(default_factory=dict)
    _state: DeviceState | None = None

    @property
    def overfull(self) -> bool:
        """More is in use than the device has.

        Compute of placements may exceed the device a little: 7 times 15 percent.
        """
        used, device = self.usage, self.device
        return (
            used.memory_mib > device.memory_mib
            or used.slots > device.slots
            or (used.cores > device.cores and not self.placements)
        )

    def apply(self, uid: PodUid, charge: Charged) -> None:
        self._state = None
        key = (self.device.vendor, self.device.id)
        if (usage := charge.usage.get(key)) is not None:
            self.usage = self.usage + usage
        held = charge.grants.get(key, ())
        if self.placements:
            held += charge.ended.get(key, ())
        if held:
            self.grants[uid] = held
        for one in charge.unknown:
            if one.concerns(self.device):
                self._may_use(uid, one)

    def _may_use(self, uid: PodUid, unknown: UnknownUsage) -> None:
        # Where on the device its place would be, no number says.
        most = None if self.placements else unknown.most(self.device)
        if most is None:
            self.unknown.add(uid)
        else:
            self.claims[uid] = self.claims.get(uid, UNUSED).peak(most)

    def release(self, uid: PodUid, charge: Charged) -> None:
        self._state = None
        key = (self.device.vendor, self.device.id)
        if (usage := charge.usage.get(key)) is not None:
            self.usage = self.usage - usage
        self.grants.pop(uid, None)
        self.unknown.discard(uid)
        self.claims.pop(uid, None)

    def at_worst(self) -> tuple[Usage, bool]:
        """The usage with all claims, and whether more cannot be in use."""
        if not self.claims:
            return self.usage, not self.unknown
        usage = sum(self.claims.values(), self.usage)
        device = self.device
        closed = usage.memory_mib >= device.memory_mib or usage.slots >= device.slots
        return usage, not (self.unknown or closed)

    def state(self) -> DeviceState:
        """The device with all claims counted; the same object while nothing has changed."""
        if self._state is None:
            grants = tuple(grant for held in self.grants.values() for grant in held)
            usage, known = self.at_worst()
            self._state = DeviceState(self.device, usage, grants, known=known)
        return self._state

    def shown(self) -> DeviceState:
        """The device with only the usage that could be read."""
        state = self.state()
        return replace(state, usage=self.usage, known=False) if self.claims else state

    def state_without(self, gone: Mapping[PodUid, Charged]) -> DeviceState:
        """The device as it would be after these pods' release; releases nothing."""
        if not gone:
            return self.state()
        left = replace(
            self, grants=dict(self.grants), unknown=set(self.unknown), claims=dict(self.claims)
        )
        for uid, charge in gone.items():
            left.release(uid, charge)
        return left.state()
