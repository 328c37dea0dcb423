"""Every node's devices and what each pod uses of them; answers who may take one more.

One owner (the scheduler's loop, or a simulation) changes the table: nodes come and go, pods are
charged and released, in any order. Everything in it follows from the nodes and the charges, so a
restart rebuilds the table from those.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from hami.domain.allocations import PodAllocation
from hami.domain.devices import Device, DeviceState, Grant, Usage
from hami.domain.errors import Malformed
from hami.domain.kubernetes.objects import Node
from hami.domain.profile import VendorProfile
from hami.domain.units import CorePercent, DeviceId, MemoryMiB, PodUid, VendorKey
from hami.policy.fit.exact import NodeDevices
from hami.policy.fit.rank import node_score
from hami.policy.fit.selection import cordoned_ids
from hami.policy.ports import VendorCalls, VendorRegistry
from hami.policy.tables.device_table import Ask, DeviceTable, Scan, Segment
from hami.policy.tables.node_names import NameIndex
from hami.policy.tables.records import Charged, DeviceRecord
from hami.policy.usage import UnknownUsage


def always_alive(_profile: VendorProfile, _node: Node) -> bool:
    """Every node's devices count as present."""
    return True


class ClusterTable:
    """Nodes, devices, charges; and the columns that the prefilter reads."""

    def __init__(
        self,
        vendors: VendorRegistry,
        alive: Callable[[VendorProfile, Node], bool] = always_alive,
    ) -> None:
        self.vendors = vendors
        self._alive = alive
        self._tables = {key: DeviceTable(vendors[key].rules) for key in vendors}
        self._nodes: dict[str, _NodeEntry] = {}
        self._next_number = 0
        self._free_numbers: list[int] = []
        self._numbers: dict[str, int] = {}  # of the nodes that have devices
        self._index: NameIndex | None = None
        self._scores: NDArray[np.float64] = np.zeros(64)
        self._unscored: dict[str, None] = {}  # nodes that changed since
        self._name_ranks: NDArray[np.int64] | None = None
        self._in_order: list[str] = []  # their names, as of then
        self._charges: dict[PodUid, Charged] = {}
        self._on_node: dict[str, dict[PodUid, None]] = {}

    # Nodes.

    def set_node(self, node: Node) -> tuple[Malformed, ...]:
        """Add a node or take over a changed one; its cordon and liveness are read again.

        Returns what could not be read; the devices of such a vendor stay as they were.
        """
        entry = self._nodes.get(node.name) or self._new_entry(node)
        entry.node = node
        before = dict(entry.shelves)
        problems = [
            problem
            for key in self.vendors
            if (problem := self._set_shelf(entry, self.vendors[key])) is not None
        ]
        if entry.shelves != before:  # Else labels have changed, or a heartbeat.
            self._number(entry)
            self._changed(entry)
        return tuple(problems)

    def remove_node(self, name: str) -> None:
        """Forget a node; charges on it stay, for its return, until their pods are released."""
        entry = self._nodes.pop(name, None)
        if entry is None:
            return
        for key, shelf in entry.shelves.items():
            self._tables[key].remove(shelf.segment)
            self._compact(key)
        if self._numbers.pop(name, None) is not None:
            self._index = None
        self._free_numbers.append(entry.number)
        self._name_ranks = None

    @property
    def node_names(self) -> Iterable[str]:
        return self._nodes.keys()

    def devices(self, name: str, without: Collection[PodUid] = ()) -> NodeDevices:
        """A node's devices as they are now, for the exact fit.

        ``without``: the devices as they would be without these pods; pods that are not charged on
        this node change nothing.

        Raises:
            KeyError: there is no such node.
        """
        entry = self._nodes[name]
        here = self._on_node.get(name, {})
        gone = {uid: self._charges[uid] for uid in without if uid in here}
        return NodeDevices(
            entry.node,
            {
                k: [r.state_without(gone) for r in shelf.records]
                for k, shelf in entry.shelves.items()
            },
        )

    def device_states(self, name: str, vendor: VendorKey) -> Sequence[DeviceState]:
        """For people: the usage that is known; a device may have more where ``known`` is False."""
        entry = self._nodes.get(name)
        shelf = entry.shelves.get(vendor) if entry else None
        return [record.shown() for record in shelf.records] if shelf else ()

    def inventory(self, name: str) -> Sequence[tuple[Device, Usage]]:
        """A node's devices with their usage, all immutable; empty for an unknown node.

        Returns the same object as the last time while nothing about the devices has changed.
        """
        entry = self._nodes.get(name)
        if entry is None:
            return ()
        if entry.inventory is None:
            records = (r for shelf in entry.shelves.values() for r in shelf.records)
            entry.inventory = tuple((r.device, r.usage) for r in records)
        return entry.inventory

    def device_of(self, node: str, grant: Grant) -> Device | None:
        """The granted device; None while its node does not have it."""
        entry = self._nodes.get(node)
        shelf = entry.shelves.get(grant.vendor) if entry else None
        record = shelf.by_id.get(grant.device_id) if shelf else None
        return record.device if record else None

    def model_of(self, node: str, grant: Grant) -> str | None:
        """The granted device's model; None while its node does not have the device."""
        device = self.device_of(node, grant)
        return device.model if device else None

    def overfull(self, uid: PodUid) -> Sequence[DeviceState]:
        """The devices that a pod is charged on and that have less than is in use."""
        charge = self._charges.get(uid)
        entry = self._nodes.get(charge.node) if charge else None
        if charge is None or entry is None:
            return ()
        return [
            record.shown()
            for vendor, device in charge.usage
            if (shelf := entry.shelves.get(vendor))
            and (record := shelf.by_id.get(device))
            and record.overfull
        ]

    # Pods.

    def charge(
        self,
        uid: PodUid,
        allocation: PodAllocation,
        unknown: Iterable[UnknownUsage] = (),
        *,
        init_ended: bool = False,
    ) -> None:
        """Charge a pod with its allocation, in place of its earlier charge.

        ``init_ended``: the devices of plain init containers are free again. Only their placements
        stay, because a node keeps an instance until its pod is gone.
        """
        unread = tuple(UnknownUsage(*one) for one in unknown)
        known = self._charges.get(uid)
        if known is not None and known.says(allocation, unread, init_ended=init_ended):
            return  # As for nearly every pod, when the watch shows what was bound.
        self.release(uid)
        charge = Charged.of(allocation, unread, init_ended=init_ended)
        self._charges[uid] = charge
        self._on_node.setdefault(allocation.node, {})[uid] = None
        if entry := self._nodes.get(allocation.node):
            self._apply(entry, uid, charge)

    def release(self, uid: PodUid) -> None:
        """Take back exactly what a pod was charged. Idempotent."""
        charge = self._charges.pop(uid, None)
        if charge is None:
            return
        node = charge.node
        del self._on_node[node][uid]
        if not self._on_node[node]:
            del self._on_node[node]
        if entry := self._nodes.get(node):
            for record in self._records(entry, charge):
                record.release(uid, charge)
                self._written(record)
            self._changed(entry)

    def charged_on(self, name: str) -> Sequence[PodUid]:
        """The pods that are charged on a node, whether the node exists or not."""
        return tuple(self._on_node.get(name, ()))

    # What the filter reads.

    def scan(self, ask: Ask) -> Scan:
        """The vectorised pass over the devices of the request's vendor."""
        return self._tables[ask.request.vendor].scan(ask)

    def numbers(self, names: Sequence[str]) -> NDArray[np.int64]:
        """The numbers of these nodes, -1 for one that is unknown or has no devices."""
        if self._index is None:
            self._index = NameIndex(self._numbers)
        return self._index.find(names)

    @property
    def capacity(self) -> int:
        """Node numbers are below this."""
        return self._next_number

    def scores(self) -> NDArray[np.float64]:
        """For each node number, 10 x the used shares of slots, cores and memory; 0 to 30."""
        for name in self._unscored:
            if entry := self._nodes.get(name):
                self._rescore(entry)
        self._unscored.clear()
        return self._scores

    def name_ranks(self) -> NDArray[np.int64]:
        """For each node number, the place of the node's name among all names, to decide ties."""
        if self._name_ranks is None:
            ranks = np.zeros(self.capacity + 1, np.int64)
            self._in_order = sorted(self._nodes)
            for rank, name in enumerate(self._in_order):
                ranks[self._nodes[name].number] = rank
            self._name_ranks = ranks
        return self._name_ranks

    def name_of(self, number: int) -> str:
        """The name of the node with this number. Only for numbers that a node has."""
        return self._in_order[int(self.name_ranks()[number])]

    # How it is kept.

    def _new_entry(self, node: Node) -> _NodeEntry:
        if self._free_numbers:
            number = self._free_numbers.pop()
        else:
            number = self._next_number
            self._next_number += 1
            if self._next_number >= len(self._scores):
                self._scores = np.concatenate([self._scores, np.zeros_like(self._scores)])
        entry = _NodeEntry(node, number)
        self._nodes[node.name] = entry
        self._name_ranks = None
        return entry

    def _number(self, entry: _NodeEntry) -> None:
        """Let the node be found by name, if it has devices."""
        name, number = entry.node.name, entry.number if entry.shelves else None
        if self._numbers.get(name) == number:
            return
        self._index = None
        if number is None:
            del self._numbers[name]
        else:
            self._numbers[name] = number

    def _set_shelf(self, entry: _NodeEntry, vendor: VendorCalls) -> Malformed | None:
        profile, node = vendor.profile, entry.node
        devices, problem = self._published(entry, vendor)
        table, shelf = self._tables[profile.key], entry.shelves.pop(profile.key, None)
        if shelf is None and not devices:
            return problem
        alive = self._alive(profile, node)
        cordoned = cordoned_ids(profile, node.annotations)
        if shelf is not None and shelf.says(devices, cordoned, alive=alive):
            entry.shelves[profile.key] = shelf
            return problem
        records = [
            DeviceRecord(d if alive else replace(d, healthy=False), vendor.rules(d.mode).placements)
            for d in devices
        ]
        for uid in self._on_node.get(node.name, ()):
            charge = self._charges[uid]
            for record in records:
                record.apply(uid, charge)
        states = [record.state() for record in records]
        if shelf is not None and shelf.segment.count == len(records):
            segment = shelf.segment
            table.write(segment, states, cordoned)
        else:
            if shelf is not None:
                table.remove(shelf.segment)
            if not records:
                self._compact(profile.key)
                return problem
            segment = table.add(entry.number, states, cordoned)
        for row, record in enumerate(records, start=segment.first):
            record.row = row
        entry.shelves[profile.key] = _Shelf(segment, devices, records, cordoned, alive)
        self._compact(profile.key)
        return problem

    def _published(
        self, entry: _NodeEntry, vendor: VendorCalls
    ) -> tuple[Sequence[Device], Malformed | None]:
        """The devices that the node publishes, by index; or the earlier ones, and why."""
        profile, shelf = vendor.profile, entry.shelves.get(vendor.profile.key)
        devices = vendor.node_devices(entry.node)
        if not devices:  # Of most vendors most nodes have nothing.
            return (), None
        if not isinstance(devices, Malformed):
            if len({device.id for device in devices}) == len(devices):
                return sorted(devices, key=lambda d: (d.index, d.id)), None
            devices = Malformed(
                annotation=profile.node_annotations.register,
                position=f"node {entry.node.name}",
                text=", ".join(device.id for device in devices),
                problem="two devices have the same id",
            )
        return shelf.devices if shelf else (), devices

    def _compact(self, key: VendorKey) -> None:
        if not self._tables[key].wasteful:
            return
        table = self._tables[key] = DeviceTable(self.vendors[key].rules)
        for entry in self._nodes.values():
            if shelf := entry.shelves.get(key):
                cordoned = cordoned_ids(self.vendors[key].profile, entry.node.annotations)
                states = [record.state() for record in shelf.records]
                shelf.segment = table.add(entry.number, states, cordoned)
                for row, record in enumerate(shelf.records, start=shelf.segment.first):
                    record.row = row

    def _apply(self, entry: _NodeEntry, uid: PodUid, charge: Charged) -> None:
        for record in self._records(entry, charge):
            record.apply(uid, charge)
            self._written(record)
        self._changed(entry)

    def _records(self, entry: _NodeEntry, charge: Charged) -> Iterable[DeviceRecord]:
        """The records that a charge concerns."""
        for vendor, device in charge.devices:
            if shelf := entry.shelves.get(vendor):
                if device is None:
                    yield from shelf.records
                elif (record := shelf.by_id.get(device)) is not None:
                    yield record

    def _written(self, record: DeviceRecord) -> None:
        usage, known = record.at_worst()
        self._tables[record.device.vendor].write_usage(
            record.row, record.device, usage, known=known
        )

    def _changed(self, entry: _NodeEntry) -> None:
        """Discard what was derived from the node's usage; it is made again on demand."""
        entry.inventory = None
        self._unscored[entry.node.name] = None

    def _rescore(self, entry: _NodeEntry) -> None:
        records = [r for shelf in entry.shelves.values() for r in shelf.records]
        used = Usage(
            sum(r.usage.slots for r in records),
            MemoryMiB(sum(r.usage.memory_mib for r in records)),
            CorePercent(sum(r.usage.cores for r in records)),
        )
        total = Usage(
            sum(r.device.slots for r in records),
            MemoryMiB(sum(r.device.memory_mib for r in records)),
            CorePercent(sum(r.device.cores for r in records)),
        )
        self._scores[entry.number] = node_score(used, total)


@dataclass(slots=True, eq=False)
class _Shelf:
    """One vendor's devices on one node, in the order of their indexes."""

    segment: Segment
    devices: Sequence[Device]
    records: list[DeviceRecord]
    cordoned: frozenset[str]
    alive: bool
    by_id: Mapping[DeviceId, DeviceRecord] = field(init=False)

    def __post_init__(self) -> None:
        self.by_id = {record.device.id: record for record in self.records}

    def says(self, devices: Sequence[Device], cordoned: frozenset[str], *, alive: bool) -> bool:
        """Whether the shelf was made from exactly these values."""
        return (self.alive, self.cordoned, self.devices) == (alive, cordoned, devices)


@dataclass(slots=True, eq=False)
class _NodeEntry:
    node: Node
    number: int
    shelves: dict[VendorKey, _Shelf] = field(default_factory=dict)
    inventory: tuple[tuple[Device, Usage], ...] | None = None
