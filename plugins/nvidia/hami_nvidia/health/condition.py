"""How a device is, step by step: pure, the time is an argument (seconds, monotonic)."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hami_nvidia.health.xids import NEEDS_RESET
from hami_nvidia.nvml.interface import Recovery


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCondition:
    """Three things can be wrong, each on its own.

    ``problem``: it did not answer or cannot be used as it is; ``lost`` then says that it can only
    come back by a reset. ``demand``: what the driver says must be done. ``error``: the last
    critical error that is not forgotten, which came at ``since``.
    """

    problem: str = ""
    lost: bool = False
    demand: str = ""
    error: str = ""
    since: float = 0.0
    needs_reset: bool = False

    @property
    def healthy(self) -> bool:
        return not (self.problem or self.demand or self.error)

    @property
    def cause(self) -> str:
        """For people; empty for a healthy device."""
        demand = f"the driver demands {self.demand}" if self.demand else ""
        if self.error and self.needs_reset:
            error = f"{self.error}, which needs a reset of the GPU"
        else:
            error = self.error
        return "; ".join(text for text in (self.problem, demand, error) if text)


WELL = DeviceCondition()


def after_error(before: DeviceCondition, xid: int, now: float) -> DeviceCondition:
    """A critical error came. One that needs a reset is not outdone by a later one."""
    reset = xid in NEEDS_RESET
    named = before.error if before.needs_reset and not reset else f"XID {xid}"
    return replace(before, error=named, since=now, needs_reset=before.needs_reset or reset)


def after_failure(before: DeviceCondition, problem: str, *, lost: bool) -> DeviceCondition:
    """It does not answer (``lost``), or it does and cannot be used."""
    return replace(before, problem=problem, lost=before.lost or lost, demand="")


def after_answer(
    before: DeviceCondition, recovery: Recovery, now: float, quiet_seconds: float
) -> DeviceCondition:
    """It answered. An error is forgotten after ``quiet_seconds`` without another; 0: never.

    A GPU that was lost and answers was reset. Where the driver can say what must be done, it
    knows better than a list of errors.
    """
    known = recovery in (Recovery.NONE, Recovery.UNKNOWN)
    demand = "" if known else recovery.value
    if before.lost:
        return DeviceCondition(demand=demand)
    needs_reset = before.needs_reset and recovery is Recovery.UNKNOWN
    quiet = 0 < quiet_seconds <= now - before.since
    if before.error and quiet and not needs_reset and not demand:
        return WELL
    return replace(before, problem="", demand=demand, needs_reset=needs_reset)
