"""Whether one more slice fits onto its devices beside those that live: the last look.

The scheduler has decided already. This finds what it cannot know: a pod that was force-deleted and
runs on, a second scheduler, a device that is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from hami.domain.allocations import ContainerAllocation
from hami.domain.devices import UNUSED, Device, Usage
from hami.domain.profile import ModeRules
from hami.domain.units import DeviceId, PodUid
from hami.policy.usage import device_usage


@dataclass(frozen=True, slots=True, kw_only=True)
class PodSlices:
    """What one pod has here, of one vendor: the containers with a slice, in spec order."""

    uid: PodUid
    name: str
    containers: tuple[ContainerAllocation, ...]

    def usage(self) -> Mapping[DeviceId, Usage]:
        return {device: usage for (_, device), usage in device_usage(self.containers).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Overfull:
    """A device has not enough left; ``pods`` are those that hold it, by UID and name."""

    device: DeviceId
    problem: str
    pods: Mapping[PodUid, str]


def overfull(
    wanted: PodSlices,
    others: Iterable[PodSlices],
    devices: Mapping[DeviceId, Device],
    rules: Callable[[str], ModeRules],
) -> Overfull | None:
    """The first device of ``wanted`` that cannot bear it; ``others`` are other pods'."""
    usages = [(pod, pod.usage()) for pod in others]
    for id, asked in wanted.usage().items():
        device = devices.get(id)
        if device is None:
            return Overfull(device=id, problem="is not on this node any more", pods={})
        holders = [(pod, usage[id]) for pod, usage in usages if id in usage]
        used = sum((usage for _, usage in holders), start=UNUSED)
        problem = _problem(device, used, asked, rules(device.mode))
        if problem:
            pods = {pod.uid: pod.name for pod, _ in holders}
            return Overfull(device=id, problem=problem, pods=pods)
    return None


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
