"""The two words that HAMi's library waits for and obeys, as its own monitor sets them.

``recent_kernel``: the library sets 2 at a launch, and launches wait while it is negative.
``utilization_switch``: 1 for "hold to the compute limit", 0 for "do not". A region whose policy is
``force`` or ``disable`` ignores the second. Pure: time comes in as the rounds of the caller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PERIOD_SECONDS = 5.0
"""How far two rounds are apart: the library's mark of a launch is spent after one or two."""

Active = Mapping[str, Mapping[int, int]]
"""By device and priority: how many slices compute there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelWords:
    """What one region says. ``devices`` are uuids; ``priority`` 0 goes before 1."""

    devices: tuple[str, ...]
    priority: int
    recent_kernel: int
    utilization_switch: int


@dataclass(frozen=True, slots=True)
class Feedback:
    """What its words shall be."""

    recent_kernel: int
    utilization_switch: int


def feedback(regions: Sequence[KernelWords], others: Active) -> list[Feedback]:
    """Each region's words for the next period, in order.

    ``others`` are the active slices that are none of these regions. A negative priority, which no
    container can be given, blocks nobody.
    """
    recent = [_spent(region.recent_kernel) for region in regions]
    active = {device: dict(counts) for device, counts in others.items()}
    for region, mark in zip(regions, recent, strict=True):
        if mark > 0 and region.priority >= 0:
            for device in set(region.devices):
                counts = active.setdefault(device, {})
                counts[region.priority] = counts.get(region.priority, 0) + 1
    return [_words(region, mark, active) for region, mark in zip(regions, recent, strict=True)]


def is_active(region: KernelWords) -> bool:
    """Whether it launched something in the period that ends now, or the one before."""
    return _spent(region.recent_kernel) > 0


def _spent(mark: int) -> int:
    return mark - 1 if mark > 0 else mark


def _words(region: KernelWords, mark: int, active: Active) -> Feedback:
    counts = [active.get(device, {}) for device in set(region.devices)]
    waits = any(
        number > 0 and priority < region.priority
        for by_priority in counts
        for priority, number in by_priority.items()
    )
    shared = any(by_priority.get(region.priority, 0) > 1 for by_priority in counts)
    if waits and mark >= 0:
        mark = -1
    elif not waits and mark < 0:
        mark = 0
    return Feedback(recent_kernel=mark, utilization_switch=int(waits or shared))
