"""Whose the measured processes are: figures by slice, and what belongs to none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from hami.domain.measurements import MeasuredProcess
from hami.domain.units import DeviceId, VendorKey
from hami.monitor.files.held_slice import HeldSlice
from hami.monitor.files.slices_on_disk import SlicesOnDisk
from hami.monitor.measuring.vendor_measuring import VendorAnswer
from hami.monitor.processes.owners import NameOf, Owners
from hami.monitor.processes.process import ProcessIdentity
from hami.monitor.processes.process_table import Identified, ProcessTable
from hami.slices.cgroups import CgroupPlace

NOT_ATTRIBUTED = -1


class ProcessUse(msgspec.Struct):
    """One process of a slice; bytes and percent by the device's place in the slice."""

    identity: ProcessIdentity
    bytes: dict[int, int | None] = {}
    percents: dict[int, float | None] = {}


class SliceUse(msgspec.Struct):
    """What is measured of one slice; by its devices' places. A missing percent is not known.

    ``counted``: what the hardware itself counts of it.
    """

    processes: dict[int, ProcessUse] = {}
    percents: dict[int, float] = {}
    counted: dict[int, int | None] = {}
    covered: bool = False


class StrangeProcess(msgspec.Struct, frozen=True, gc=False):
    """A process on a device that belongs to no slice there."""

    device_id: DeviceId
    pid: int
    memory_bytes: int | None
    place: CgroupPlace | None


class Attributed(msgspec.Struct, frozen=True, kw_only=True):
    """One answer of a vendor, by slice id.

    ``counted``: devices of which the hardware itself counts slices. ``strangers`` were there at two
    looks in a row: who was only passing is none.
    """

    uses: Mapping[str, SliceUse] = {}
    strangers: Sequence[StrangeProcess] = ()
    counted: frozenset[DeviceId] = frozenset()


class Attribution:
    """Of one vendor. Blocks; one caller at a time."""

    def __init__(self, vendor: VendorKey, disk: SlicesOnDisk, proc: Path, name_of: NameOf) -> None:
        self._vendor = vendor
        self._disk = disk
        self._table = ProcessTable(proc)
        self._owners = Owners(proc, name_of)
        self._seen_before: frozenset[tuple[DeviceId, int]] = frozenset()

    def attributed(self, answer: VendorAnswer, now: float) -> Attributed:
        """``now`` in seconds of a clock that is never set."""
        measured = answer.measurement
        known = self._table.identified({p.pid for p in measured.processes}, answer.asked_at)
        uses: dict[str, SliceUse] = {}
        strangers: list[StrangeProcess] = []
        for process in measured.processes:
            who = known.get(process.pid)
            if who is None:
                continue
            owner = self._owner(who, now)
            place = NOT_ATTRIBUTED if owner is None else place_of_device(owner, process.device_id)
            if owner is None or place == NOT_ATTRIBUTED:
                identity = who.identity
                strangers.append(
                    StrangeProcess(
                        process.device_id, process.pid, process.memory_bytes, identity.place
                    )
                )
                continue
            self._add(uses.setdefault(owner.id, SliceUse()), place, process, who)
        self._add_counted(uses, answer)
        self._owners.keep(
            {(self._vendor, who.identity.place) for who in known.values() if who.identity.place}
        )
        seen = frozenset((one.device_id, one.pid) for one in strangers)
        lasting = [one for one in strangers if (one.device_id, one.pid) in self._seen_before]
        self._seen_before = seen
        return Attributed(
            uses=uses,
            strangers=lasting,
            counted=frozenset(part.device_id for part in measured.slices),
        )

    def close(self) -> None:
        self._table.close()

    def _owner(self, who: Identified, now: float) -> HeldSlice | None:
        place = who.identity.place
        if place is None:
            return None
        of_pod = self._disk.of_pod(self._vendor, place.pod_uid)
        return self._owners.owner(self._vendor, who.identity, of_pod, now) if of_pod else None

    def _add(self, use: SliceUse, place: int, process: MeasuredProcess, who: Identified) -> None:
        identity = who.identity
        one = use.processes.setdefault(process.pid, ProcessUse(identity))
        one.bytes[place] = process.memory_bytes
        # Of a number that changed hands nobody can say whose the time was.
        percent = None if who.began else process.utilisation
        one.percents[place] = percent
        if percent is not None:
            use.percents[place] = min(100.0, use.percents.get(place, 0.0) + percent)
        if identity.place is not None:
            use.covered = use.covered or self._owners.covered(self._vendor, identity.place)

    def _add_counted(self, uses: dict[str, SliceUse], answer: VendorAnswer) -> None:
        """What the hardware counts of a slice is right, whoever its processes are."""
        if not answer.measurement.slices:
            return
        held = {one.id: one for one in self._disk.of(self._vendor)}
        for part in answer.measurement.slices:
            owner = held.get(part.slice_id)
            if owner is None or (place := place_of_device(owner, part.device_id)) < 0:
                continue
            use = uses.setdefault(owner.id, SliceUse())
            use.counted[place] = part.memory_bytes
            if part.utilisation is not None:
                use.percents[place] = part.utilisation


def place_of_device(held: HeldSlice, device: DeviceId) -> int:
    """The device's place in the slice's page, -1 for one that the slice does not have."""
    if held.limits is None:
        return NOT_ATTRIBUTED
    for place, limit in enumerate(held.limits.devices):
        if limit.uuid == device:
            return place
    return NOT_ATTRIBUTED
