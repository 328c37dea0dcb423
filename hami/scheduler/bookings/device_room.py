"""What a node's devices have room for: tells a change that may help somebody from any other.

A heartbeat, a handshake or a lock on a node changes nothing that a waiting pod waits for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hami.domain.kubernetes.objects import Node
from hami.domain.units import DeviceId, VendorKey
from hami.policy.fit.exact import NodeDevices
from hami.policy.fit.selection import cordoned_ids
from hami.policy.ports import VendorRegistry


@dataclass(frozen=True, slots=True)
class _DeviceRoom:
    """``facts`` are what a pod may choose by."""

    facts: tuple[object, ...]
    free: tuple[int, int, int]
    usable: bool

    def helps(self, before: _DeviceRoom | None) -> bool:
        """Something may fit now that did not fit before."""
        if before is None or not self.usable:
            return self.usable
        if not before.usable or self.facts != before.facts:
            return True
        return any(now > then for now, then in zip(self.free, before.free, strict=True))


Room = Mapping[tuple[VendorKey, DeviceId], _DeviceRoom]


def room_on(devices: NodeDevices, vendors: VendorRegistry) -> Room:
    """By vendor and device."""
    node = devices.node
    labels = tuple(sorted(node.labels.items()))
    room = {}
    for key, states in devices.states.items():
        cordoned = cordoned_ids(vendors[key].profile, node.annotations)
        for state in states:
            device, usage = state.device, state.usage
            facts = (device.model, device.mode, device.numa, device.index, device.extra, labels)
            free = (
                device.slots - usage.slots,
                device.memory_mib - usage.memory_mib,
                device.cores - usage.cores,
            )
            usable = device.healthy and state.known and device.id not in cordoned
            room[key, device.id] = _DeviceRoom(facts, free, usable)
    return room


def grew(before: Room, after: Room) -> bool:
    """Some device has more to give, or another character, than before."""
    return any(device.helps(before.get(key)) for key, device in after.items())


def alike(one: Node, other: Node) -> bool:
    """Nothing differs that devices, their usage or a vendor's rules could depend on."""
    return (
        one.annotations == other.annotations
        and one.labels == other.labels
        and one.allocatable == other.allocatable
    )
