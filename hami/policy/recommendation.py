"""What a container could ask for, judged by what it used in the last hour.

The figures alone give the amounts, and what it asks for only whether they are worth a change. So
whoever takes a recommendation gets no other one from the same figures.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from hami.domain.units import MIB, WHOLE_DEVICE, CorePercent, MemoryMiB, mib_up

HEADROOM_PERCENT = 20
"""Of what was used, on top of it."""
MEMORY_STEP = MemoryMiB(256)
CORES_STEP = CorePercent(5)
WORTH_PERCENT = 10
"""A change by less of what is asked is not worth saying."""
MINUTES_KNOWN = 30
"""With fewer, a usual peak may not be among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceUse:
    """One device of one container: what it has, and what it used in its last hour.

    ``memory_limit_mib`` and ``guarantee``: 0 if there is none. ``device_memory_mib`` is what the
    whole device has. ``minutes``: of the hour those that are known; ``p95_utilisation``: their
    95th percentile in percent of the device, None if nobody knows it; ``waited_minutes``: those in
    which it waited for compute. ``age_minutes``: since the container was started.
    """

    memory_limit_mib: MemoryMiB
    device_memory_mib: MemoryMiB
    guarantee: CorePercent
    used_bytes: int
    max_used_bytes: int
    p95_utilisation: float | None
    minutes: int
    waited_minutes: int
    age_minutes: float

    @property
    def held_back(self) -> bool:
        """It waited for compute most of the time."""
        return self.waited_minutes * 2 > self.minutes


class NoRecommendation(Enum):
    """Why a container is recommended nothing."""

    FITS = "asks for about what it uses"
    SHORT = f"known for less than {MINUTES_KNOWN} minutes"
    RESTARTED = f"started less than {MINUTES_KNOWN} minutes ago"
    NO_FIGURES = "no figures"
    MIG = "a MIG instance has a fixed size"
    WHOLE_DEVICE = "has a whole device"
    UNLIMITED = "limits neither memory nor compute"
    FOREIGN_LIBRARY = "HAMi's own library, whose limits cannot change while it runs"
    SEVERAL_VENDORS = "has devices of several vendors"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """What each device of a container could be asked for; None leaves an amount as it is."""

    memory_mib: MemoryMiB | None
    cores: CorePercent | None


def recommend(uses: Sequence[DeviceUse]) -> Recommendation | NoRecommendation:
    """One answer for all of ``uses``: the devices of a container, or of a container's replicas.

    They ask for the same amounts, so the one that needs the most decides.
    """
    if not uses:
        return NoRecommendation.NO_FIGURES
    for use in uses:
        if nothing := _nothing(use):
            return nothing
    memory, cores = _memory(uses), _cores(uses)
    if memory is None and cores is None:
        guaranteed = all(use.guarantee for use in uses)
        return NoRecommendation.NO_FIGURES if guaranteed else NoRecommendation.UNLIMITED
    if not _worth(memory, [use.memory_limit_mib for use in uses]):
        memory = None
    if not _worth(cores, [use.guarantee for use in uses]):
        cores = None
    if memory is None and cores is None:
        return NoRecommendation.FITS
    return Recommendation(memory_mib=memory, cores=cores)


def _nothing(use: DeviceUse) -> NoRecommendation | None:
    if use.minutes < MINUTES_KNOWN:
        return NoRecommendation.SHORT
    if use.age_minutes < MINUTES_KNOWN:
        return NoRecommendation.RESTARTED
    if use.guarantee >= WHOLE_DEVICE and use.memory_limit_mib >= use.device_memory_mib:
        return NoRecommendation.WHOLE_DEVICE
    return None


def _memory(uses: Sequence[DeviceUse]) -> MemoryMiB | None:
    """None where one of them has no limit."""
    if not all(use.memory_limit_mib for use in uses):
        return None
    wanted = 0
    for use in uses:
        used = max(_with_headroom(use.max_used_bytes), use.used_bytes)
        needs = _up_to_step(mib_up(used), MEMORY_STEP)
        # Rounding up alone gives nobody more.
        enough = used <= use.memory_limit_mib * MIB
        wanted = max(wanted, min(needs, use.memory_limit_mib) if enough else needs)
    return MemoryMiB(min(wanted, *(use.device_memory_mib for use in uses)))


def _cores(uses: Sequence[DeviceUse]) -> CorePercent | None:
    """None where one of them is guaranteed nothing, or nobody knows what it used."""
    wanted = CorePercent(0)
    for use in uses:
        if not use.guarantee or use.p95_utilisation is None:
            return None
        # In thousandths: 25 * 1.2 is not 30 in floating point.
        used = round(use.p95_utilisation * 1000)
        needs = _up_to_step(-(-_with_headroom(used) // 1000), CORES_STEP)
        # What others left idle was no need of it, unless it waited; then it had less than it needs.
        kept = max(needs, use.guarantee) if use.held_back else min(needs, use.guarantee)
        wanted = max(wanted, CorePercent(kept))
    return min(wanted, WHOLE_DEVICE)


def _with_headroom(used: int) -> int:
    return -(-used * (100 + HEADROOM_PERCENT) // 100)


def _up_to_step(amount: int, step: int) -> int:
    """A multiple of ``step``, and at least one: 0 would mean no limit."""
    return max(step, -(-amount // step) * step)


def _worth(wanted: int | None, asked: Sequence[int]) -> bool:
    return wanted is not None and any(
        wanted != one and abs(wanted - one) * 100 >= WORTH_PERCENT * one for one in asked
    )
