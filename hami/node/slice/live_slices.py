"""The slices that live on this node, of one vendor: what they hold, and who works on them now.

Whether one more slice fits onto its devices is asked here too, as the last look: the scheduler has
decided already, and this finds what it cannot know: a pod that was force-deleted and runs on, a
second scheduler, a device that is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from msgspec.structs import replace

from hami.domain.allocations import ContainerAllocation
from hami.domain.devices import UNUSED, Device, Grant, Usage
from hami.domain.profile import ModeRules
from hami.domain.slices import ContainerEdits
from hami.domain.units import DeviceId, PodUid, VendorKey
from hami.node.pod.pods import Granted, NotGranted
from hami.policy.usage import device_usage
from hami.slices.record import SliceRecord

T = TypeVar("T")

_USUAL_RULES = ModeRules()


@dataclass(frozen=True, slots=True)
class LiveSlice:
    """A slice and what it was made from."""

    record: SliceRecord
    granted: Granted

    @property
    def id(self) -> str:
        return self.record.slice_id

    @property
    def pod_uid(self) -> PodUid:
        return self.record.pod.uid

    @property
    def grants(self) -> tuple[Grant, ...]:
        return self.granted.grants


@dataclass(frozen=True, slots=True)
class Prepared:
    """The container may start; ``edits`` is None when it was prepared before, as it is.

    ``last``: every container of its pod that has something of this vendor has been prepared.
    """

    granted: Granted
    edits: ContainerEdits | None
    last: bool = False


Outcome = Prepared | NotGranted


@dataclass(frozen=True, slots=True, kw_only=True)
class Overfull:
    """A device has not enough left; ``pods`` are those that hold it, by UID and name."""

    device: DeviceId
    problem: str
    pods: Mapping[PodUid, str]


class LiveSlices:
    """The table of slices, by id and by pod. Owned by the agent's loop.

    Nothing is done with two slices of one pod at the same time, nor twice with one slice:
    whoever changes a slice does so in :meth:`in_turn`. ``changed`` is set when one was made or has
    gone.
    """

    def __init__(self) -> None:
        self.changed = asyncio.Event()
        self._by_id: dict[str, LiveSlice] = {}
        self._by_pod: dict[PodUid, dict[str, LiveSlice]] = {}
        self._last: dict[tuple[str, str], asyncio.Task[Any]] = {}

    def __iter__(self) -> Iterator[LiveSlice]:
        return iter(list(self._by_id.values()))

    def __len__(self) -> int:
        return len(self._by_id)

    def get(self, slice_id: str) -> LiveSlice | None:
        return self._by_id.get(slice_id)

    def put(self, live: LiveSlice) -> None:
        """Add it, or replace the one with this id."""
        self._by_id[live.id] = live
        self._by_pod.setdefault(live.pod_uid, {})[live.id] = live

    def drop(self, slice_id: str) -> None:
        live = self._by_id.pop(slice_id, None)
        if live is None:
            return
        of_pod = self._by_pod[live.pod_uid]
        del of_pod[slice_id]
        if not of_pod:
            del self._by_pod[live.pod_uid]

    def of_pod(self, uid: PodUid) -> list[LiveSlice]:
        return list(self._by_pod.get(uid, {}).values())

    @property
    def pods(self) -> list[PodUid]:
        return list(self._by_pod)

    def complete(self, granted: Granted, vendor: VendorKey) -> bool:
        """Whether every container of the pod that has something of this vendor is prepared."""
        wanted = {
            container.name
            for container in granted.allocation.containers
            if any(grant.vendor == vendor for grant in container.grants)
        }
        made = {
            live.record.container
            for live in self.of_pod(granted.pod.uid)
            if live.record.state == "enforced"
        }
        return wanted <= made

    # Room on the devices.

    def overfull(
        self,
        granted: Granted,
        devices: Mapping[DeviceId, Device],
        modes: Mapping[str, ModeRules],
    ) -> Overfull | None:
        """The first device of this container that has no room for it; None if all have."""
        uid = granted.pod.uid
        wanted = _together([*(live.granted for live in self.of_pod(uid)), granted])
        others = [
            _together([live.granted for live in slices.values()])
            for pod, slices in self._by_pod.items()
            if pod != uid
        ]
        return overfull(wanted, others, devices, modes)

    # Turns.

    def in_turn(
        self, pod: PodUid, slice_id: str, work: Callable[[], Awaitable[T]]
    ) -> asyncio.Task[T]:
        """Do ``work`` after whatever is under way for the same pod, and for the same slice.

        ``slice_id`` may be empty: it is about no slice of ours.
        """
        self._last = {one: task for one, task in self._last.items() if not task.done()}
        whose = [("pod", pod), *([("slice", slice_id)] if slice_id else [])]
        before = {self._last[one] for one in whose if one in self._last}
        task = asyncio.create_task(_after(before, work))
        self._last |= dict.fromkeys(whose, task)
        return task

    def busy(self, slice_id: str) -> bool:
        """Whether somebody works on this slice now."""
        last = self._last.get(("slice", slice_id))
        return last is not None and not last.done()

    async def close(self) -> None:
        """Give up what is under way."""
        tasks = list(self._last.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _after(before: Collection[asyncio.Task[Any]], work: Callable[[], Awaitable[T]]) -> T:
    if before:
        await asyncio.wait(before)
    return await work()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSlices:
    """What one pod has here, of one vendor: the containers with a slice, in spec order."""

    uid: PodUid
    name: str
    containers: tuple[ContainerAllocation, ...]

    def usage(self) -> Mapping[DeviceId, Usage]:
        return {device: usage for (_, device), usage in device_usage(self.containers).items()}


def overfull(
    wanted: PodSlices,
    others: Iterable[PodSlices],
    devices: Mapping[DeviceId, Device],
    modes: Mapping[str, ModeRules],
) -> Overfull | None:
    """The first device of ``wanted`` that has no room for it; ``others`` are other pods'.

    ``modes`` are the vendor's rules by device mode; a mode that is not among them has the usual.
    """
    usages = [(pod, pod.usage()) for pod in others]
    for id, asked in wanted.usage().items():
        device = devices.get(id)
        if device is None:
            return Overfull(device=id, problem="is not on this node any more", pods={})
        holders = [(pod, usage[id]) for pod, usage in usages if id in usage]
        used = sum((usage for _, usage in holders), start=UNUSED)
        problem = _problem(device, used, asked, modes.get(device.mode, _USUAL_RULES))
        if problem:
            pods = {pod.uid: pod.name for pod, _ in holders}
            return Overfull(device=id, problem=problem, pods=pods)
    return None


def _together(granted: list[Granted]) -> PodSlices:
    """The containers in spec order, each with its own vendor's grants, the newest granted last."""
    newest = granted[-1]
    held = {one.container: one.grants for one in granted}
    containers: list[ContainerAllocation] = [
        replace(container, grants=held[container.name])
        for container in newest.allocation.containers
        if container.name in held
    ]
    return PodSlices(uid=newest.pod.uid, name=newest.pod.full_name, containers=tuple(containers))


def _problem(device: Device, used: Usage, asked: Usage, rules: ModeRules) -> str:
    """Placements prove their own room: seven slices of 15 % are 105 % and fit."""
    limits = [("slots", device.slots, used.slots, asked.slots, "")]
    limits.append(("memory", device.memory_mib, used.memory_mib, asked.memory_mib, " MiB"))
    if not rules.placements:
        limits.append(("cores", device.cores, used.cores, asked.cores, " %"))
    for what, most, taken, more, unit in limits:
        if taken + more > most:
            return f"has {most}{unit} of {what}, {taken} are in use, {more} more are granted"
    return ""
