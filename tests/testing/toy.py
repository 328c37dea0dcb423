"""A small vendor that follows the contract in everything; the tests break one thing at a time.

Its devices have seats: each slice takes one, by number, and the number rides in the grant's extra
and in an annotation of the vendor's own. A device in mode ``seats`` gives seats and nothing else,
so that memory and cores are not compared there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from hami.domain import reasons
from hami.domain.allocations import Corrupt, PodAllocation
from hami.domain.devices import Device
from hami.domain.extra import ExtraKey
from hami.domain.measurements import MeasuredDevice, MeasuredSlice, Measurement
from hami.domain.profile import (
    ALL_COLUMNS,
    ModeRules,
    NodeAnnotations,
    PodAnnotations,
    ResourceNames,
    VendorProfile,
)
from hami.domain.reasons import Rejected
from hami.domain.slices import ContainerEdits, DeviceNode, HealthChange, Mount
from hami.hookspecs import hookimpl
from hami.policy.profile import defaults
from hami.testing import node_publishing


@dataclass(frozen=True)
class Seat:
    number: int


SEAT = ExtraKey("toy.seat", Seat)
SEATS_KEY = "toy.example.com/seats"

TOY = VendorProfile(
    key="TOY",
    resources=ResourceNames(
        count="toy.example.com/device",
        memory="toy.example.com/memory",
        memory_percentage="toy.example.com/memory-percentage",
        cores="toy.example.com/cores",
    ),
    node_annotations=NodeAnnotations(
        register="toy.example.com/register", handshake="toy.example.com/handshake"
    ),
    pod_annotations=PodAnnotations(
        to_allocate="toy.example.com/to-allocate",
        allocated="toy.example.com/allocated",
        also_written=(SEATS_KEY,),
        use_type=("toy.example.com/use-type",),
    ),
    default_count=1,
    modes={
        "": ModeRules(prefilter=ALL_COLUMNS),
        "seats": ModeRules(several_slices_per_device=True, placements=True),
    },
)


def a_toy(index: int, **rest: Any) -> Device:
    shape = {"slots": 3, "memory_mib": 4096, "model": "Toy One", "numa": index // 2}
    own = {"id": f"TOY-{index}", "vendor": "TOY", "index": index}
    return Device(**(own | shape | rest))


DEVICES = (a_toy(0), a_toy(1), a_toy(2, memory_mib=8192), a_toy(3, mode="seats", slots=2))
CONFIG = {"toy": {"devices": 2}}


class ToyVendor:
    HAMI_API = 1
    profile = TOY

    def __init__(self):
        self.told = set()

    @hookimpl
    def hami_vendors(self, config):
        return (self.profile,)

    @hookimpl
    def hami_charge(self, profile, request, state, ctx):
        taken = {grant.extra.get(SEAT) for grant in state.grants}
        free = [n for n in range(state.device.slots) if Seat(n) not in taken]
        if not free:
            return reasons.NO_SLOT
        grant = defaults.charge(profile, request, state, ctx)
        return replace(grant, extra=grant.extra.with_(SEAT, Seat(free[0])))

    @hookimpl
    def hami_choose(self, profile, request, candidates, ctx):
        if not ctx.policy.device.topology_aware:
            return None
        by_id = {}
        for _, grant in candidates:
            if ctx.allowed([*by_id.values(), grant]):
                by_id.setdefault(grant.device_id, grant)
            if len(by_id) == request.count:
                return tuple(by_id.values())
        return Rejected.of(reasons.TOO_FEW)

    @hookimpl
    def hami_score(self, placement):
        return -len({grant.device_id for grant in placement.grants})

    @hookimpl
    def hami_allocation_annotations(self, allocation):
        seats = [
            [g.extra.get(SEAT).number for g in container.grants if g.vendor == "TOY"]
            for container in allocation.containers
        ]
        return {SEATS_KEY: json.dumps(seats)}

    @hookimpl
    def hami_restore(self, pod, allocation):
        ids = tuple(g.device_id for g in allocation.grants if g.vendor == "TOY")
        try:
            seats = json.loads(pod.annotations[SEATS_KEY])
            return map_grants(
                allocation,
                lambda g, c, n: replace(g, extra=g.extra.with_(SEAT, Seat(seats[c][n]))),
            )
        except (KeyError, IndexError, TypeError, ValueError) as error:
            return Corrupt(ids, f"{SEATS_KEY}: {error!r}")

    @hookimpl
    def hami_discover(self, config):
        return tuple(a_toy(index) for index in range(config["toy"]["devices"]))

    @hookimpl
    def hami_enforce(self, slice, config):
        (slice.state_dir / "limits").write_text(str(slice.grants[0].memory_mib))
        return edits(slice)

    @hookimpl
    def hami_release(self, slice):
        (slice.state_dir / "limits").unlink(missing_ok=True)

    @hookimpl
    def hami_reconcile(self, live_slices):
        return None

    @hookimpl
    def hami_check_health(self, devices):
        new = [device.id for device in devices if device.id not in self.told]
        self.told.update(new)
        return [HealthChange(device_id, healthy=True) for device_id in new]

    @hookimpl
    def hami_measure(self, devices, slices):
        return Measurement(
            devices=tuple(MeasuredDevice(id=device.id, utilisation=0.0) for device in devices),
            slices=tuple(
                MeasuredSlice(device_id=grant.device_id, slice_id=slice.id, memory_bytes=1)
                for slice in slices
                for grant in slice.grants
            ),
        )


def map_grants(allocation: PodAllocation, change: Callable[..., Any]) -> PodAllocation:
    """``change(grant, container's index, index among its TOY grants)`` on every TOY grant."""
    containers = []
    for number, container in enumerate(allocation.containers):
        grants, position = [], 0
        for grant in container.grants:
            if grant.vendor == "TOY":
                grants.append(change(grant, number, position))
                position += 1
            else:
                grants.append(grant)
        containers.append(replace(container, grants=tuple(grants)))
    return replace(allocation, containers=tuple(containers))


def edits(slice: Any, **changes: Any) -> ContainerEdits:
    """What the toy gives a container."""
    state: Path = slice.state_dir
    given = {
        "env": {"TOY_DEVICE": slice.grants[0].device_id},
        "mounts": (
            Mount(host_path=str(state / "limits"), container_path="/run/hami/toy/limits"),
            Mount(
                host_path=str(state / "usage"),
                container_path="/run/hami/toy/usage",
                read_only=False,
            ),
        ),
        "device_nodes": (DeviceNode(host_path="/dev/toy0", container_path="/dev/toy0"),),
        "cdi_devices": ("toy.example.com/device=TOY-0",),
    }
    return ContainerEdits(**(given | changes))


def broken(**members: Any) -> object:
    """A ToyVendor with these hooks or attributes in place of its own."""
    made = {
        name: hookimpl(member) if name.startswith("hami_") else member
        for name, member in members.items()
    }
    return type("BrokenVendor", (ToyVendor,), made)()


def toy_node() -> Any:
    return node_publishing(ToyVendor(), DEVICES)
