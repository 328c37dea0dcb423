"""One tick's work on the node: read, attribute, divide, write, show. All of it blocks."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hami.domain.kubernetes.objects import Pod
from hami.domain.measurements import MeasuredDevice
from hami.domain.slices import Slice
from hami.domain.units import DeviceId, PodUid, VendorKey
from hami.monitor.compat.mig_instances import with_mig
from hami.monitor.files.held_slice import HeldSlice
from hami.monitor.files.observed_words import Observation, SlotBytes
from hami.monitor.files.slices_on_disk import SlicesOnDisk
from hami.monitor.measuring.vendor_measuring import VendorAnswer, boot_time
from hami.monitor.processes.owners import NameOf
from hami.monitor.table import DeviceFigures, NodeTable, SliceFigures, Stranger, VendorFigures
from hami.monitor.tick.attribution import Attributed, Attribution, SliceUse, StrangeProcess
from hami.monitor.tick.dividing import Dividing, Handed
from hami.monitor.tick.foreign import VENDOR, ForeignSlices
from hami.monitor.tick.showing import device_figures, slice_figures
from hami.policy.compute.shares import FLOOR
from hami.slices.usage_region import REGION_SIZE, SlotUsage

STALE_SECONDS = 10.0
"""How long a vendor's figures are good enough to be told to containers; as long as the library
trusts a heartbeat."""

_NOTHING = Attributed()


@dataclass(slots=True)
class _OfVendor:
    """What is remembered of one vendor from tick to tick."""

    attribution: Attribution
    dividing: Dividing
    asked_at: float = 0.0
    attributed: Attributed = _NOTHING
    figures: dict[DeviceId, MeasuredDevice] = field(default_factory=dict)
    figures_at: dict[DeviceId, float] = field(default_factory=dict)
    active_at: dict[tuple[str, int], float] = field(default_factory=dict)
    charged: dict[tuple[str, int], int] = field(default_factory=dict)


class NodeRound:
    """Owned by one thread at a time. ``name_of``: see :mod:`hami.monitor.processes.owners`;
    ``pod_of``: the pod with a UID, where it is known; ``floor``: see
    :class:`~hami.monitor.tick.dividing.Dividing`.
    """

    def __init__(
        self,
        node: str,
        vendors: Sequence[VendorKey],
        disk: SlicesOnDisk,
        proc: Path,
        name_of: NameOf,
        on_problem: Callable[[str], None],
        foreign: ForeignSlices | None = None,
        pod_of: Callable[[PodUid], Pod | None] = lambda _: None,
        *,
        floor: int = FLOOR,
    ) -> None:
        self._node = node
        self._foreign = foreign
        self._pod_of = pod_of
        self._disk = disk
        self._vendors = {
            key: _OfVendor(Attribution(key, disk, proc, name_of), Dividing(floor))
            for key in vendors
        }
        self._on_problem = on_problem
        self._told: set[str] = set()
        self._buffer = bytearray(REGION_SIZE)

    def look(self) -> Mapping[VendorKey, Sequence[Slice]]:
        """The slices that there are now, for the vendors to measure."""
        self._disk.look()
        return {key: [held.slice for held in self._disk.of(key)] for key in self._vendors}

    def finish(self, answers: Sequence[VendorAnswer], began: float) -> NodeTable:
        """Tell every slice what was seen of it, and everybody else by the table.

        ``began``: when the tick did, in seconds of ``time.monotonic``.
        """
        now, at = time.monotonic(), time.time()
        devices: list[DeviceFigures] = []
        slices: list[SliceFigures] = []
        strangers: list[Stranger] = []
        problems: set[str] = set()
        for answer in answers:
            mine = self._vendors[answer.vendor]
            held = self._disk.of(answer.vendor)
            for one in held:
                one.read(self._buffer)
            self._take_in(mine, answer, now)
            devices += device_figures(answer, mine.figures)
            slices += self._slices(held, mine, now, at, problems)
            strangers += [self._stranger(one, answer.vendor) for one in mine.attributed.strangers]
        if self._foreign is not None:
            slices += self._foreign.look(devices, slices, now)
            theirs = self._foreign.pods
            strangers = [s for s in strangers if s.vendor != VENDOR or s.pod_uid not in theirs]
        for problem in sorted(problems - self._told):
            self._on_problem(problem)
        self._told = problems
        return NodeTable(
            node=self._node,
            taken_at=at,
            tick_seconds=time.monotonic() - began,
            devices=tuple(devices),
            slices=tuple(slices),
            strangers=tuple(strangers),
            vendors=tuple(
                VendorFigures(vendor=a.vendor, measured_at=a.measured_at, stale=not a.fresh)
                for a in answers
            ),
        )

    def close(self) -> None:
        self._disk.close()
        for mine in self._vendors.values():
            mine.attribution.close()

    def _stranger(self, one: StrangeProcess, vendor: VendorKey) -> Stranger:
        uid = PodUid("") if one.place is None else one.place.pod_uid
        known = self._pod_of(uid) if uid else None
        return Stranger(
            vendor=vendor,
            device_id=one.device_id,
            pid=one.pid,
            used_bytes=one.memory_bytes,
            pod_uid=uid,
            namespace="" if known is None else known.namespace,
            pod="" if known is None else known.name,
        )

    def _take_in(self, mine: _OfVendor, answer: VendorAnswer, now: float) -> None:
        known = {device.id for device in answer.devices}
        mine.figures = {id: one for id, one in mine.figures.items() if id in known}
        if answer.asked_at == mine.asked_at:
            return  # the newest answer is held
        mine.asked_at = answer.asked_at
        for one in answer.measurement.devices:
            mine.figures[one.id] = one
            mine.figures_at[one.id] = answer.asked_at
        mine.attributed = mine.attribution.attributed(answer, now)

    def _slices(
        self,
        held: Sequence[HeldSlice],
        mine: _OfVendor,
        now: float,
        at: float,
        problems: set[str],
    ) -> list[SliceFigures]:
        uses = mine.attributed.uses
        handed: Mapping[str, Handed] = {}
        if mine.asked_at:
            # Not before its first answer: a time that nobody measured is not one without use.
            handed = mine.dividing.divided(held, uses, mine.attributed.counted, now)
        fresh = boot_time() - STALE_SECONDS
        shown = []
        for one in held:
            use = uses.get(one.id)
            slots = slots_by_pid(use, one) if use is not None else {}
            self._tell(one, use, handed.get(one.id), slots, mine, fresh, problems)
            self._notice_activity(one, use, mine, at)
            figures = slice_figures(
                one,
                use,
                handed.get(one.id),
                slots,
                one.live_slots(slots.values()),
                mine.active_at,
                mine.figures,
            )
            pod = self._pod_of(figures.pod_uid)
            shown.append(with_mig(figures, pod) if pod is not None else figures)
        ids = {one.id for one in held}
        mine.active_at = {key: then for key, then in mine.active_at.items() if key[0] in ids}
        mine.charged = {key: then for key, then in mine.charged.items() if key[0] in ids}
        return shown

    def _tell(
        self,
        held: HeldSlice,
        use: SliceUse | None,
        handed: Handed | None,
        slots: Mapping[int, SlotUsage],
        mine: _OfVendor,
        fresh: float,
        problems: set[str],
    ) -> None:
        if handed is None or held.limits is None:
            return
        devices = held.limits.devices
        for limit in devices:
            if mine.figures_at.get(DeviceId(limit.uuid), -1.0) < fresh:
                return  # no heartbeat: its programs find for themselves that nobody measures
        seen = Observation(
            utilisation=handed.utilisation,
            contention=handed.contention,
            shares=handed.shares,
            slots=_slot_bytes(use, slots, len(devices)) if use is not None else {},
        )
        try:
            held.write(seen)
        except OSError as error:
            problems.add(f"{held.page_path} cannot be written: {error.strerror}")

    def _notice_activity(
        self, held: HeldSlice, use: SliceUse | None, mine: _OfVendor, at: float
    ) -> None:
        for place in range(len(held.limits.devices) if held.limits else 0):
            key = (held.id, place)
            charged = held.region.buckets[place].charged_ns
            before = mine.charged.get(key, charged)
            mine.charged[key] = charged
            if charged > before or (use is not None and use.percents.get(place, 0.0) > 0):
                mine.active_at[key] = at


def slots_by_pid(use: SliceUse, held: HeldSlice) -> Mapping[int, SlotUsage]:
    """The slot of each measured process that has one, by its number on the node.

    A slot names its holder as the holder sees itself: number, pid namespace, and when it began.
    """
    inside: dict[tuple[int, int], list[SlotUsage]] = {}
    for slot in held.region.slots:
        inside.setdefault((slot.pid, slot.pid_namespace), []).append(slot)
    found = {}
    for pid, one in use.processes.items():
        identity = one.identity
        candidates = inside.get((identity.inner_pid, identity.pid_namespace), [])
        exact = [slot for slot in candidates if slot.start_time == identity.start_time]
        if not exact and identity.own_clock and len(candidates) == 1:
            exact = candidates
        if exact:
            found[pid] = max(exact, key=lambda slot: slot.generation)
    return found


def _slot_bytes(
    use: SliceUse, slots: Mapping[int, SlotUsage], devices: int
) -> Mapping[int, SlotBytes]:
    return {
        slot.slot: SlotBytes(
            slot.generation,
            tuple([use.processes[pid].bytes.get(place) or 0 for place in range(devices)]),
        )
        for pid, slot in slots.items()
    }
