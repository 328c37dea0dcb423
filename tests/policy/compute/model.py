"""A device, its tenants, the library's gate and the monitor's late figures, in time of their own.

Coarse on purpose: the device serves all that have work alike, and a gate is a bucket of time that
fills at the share. What the real library does beside that is tested with it (``tests/shim``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hami.policy.compute.demand import WHOLE, ComputeDemand, Entitlement, Seen
from hami.policy.compute.shares import FLOOR, Contender, divide

STEP = 0.01
TICK = 0.5
FULL = 0.1
"""Seconds of the device that a bucket holds, and that a tenant may have launched ahead."""
BACKLOG = 10.0
"""A load of which the device never does all."""

Load = Callable[[float], float]
"""What part of the device a program wants at a moment; ``BACKLOG`` for all that it can get."""


def steadily(part: float) -> Load:
    return lambda _now: part


def between(begin: float, end: float, part: float = BACKLOG) -> Load:
    return lambda now: part if begin <= now < end else 0.0


def in_bursts(on: float, off: float, part: float = BACKLOG) -> Load:
    return lambda now: part if now % (on + off) < on else 0.0


@dataclass(slots=True, kw_only=True)
class Tenant:
    """One slice and its program. ``lies``: its processes say that they wait, always."""

    load: Load
    guarantee: int
    limit: int = 0
    priority: int = 1
    policy: str = "default"
    lies: bool = False
    share: float = 0.0
    level: float = FULL
    asked: float = 0.0
    queued: float = 0.0
    waited: float = 0.0
    launched: bool = False
    had: list[float] = field(default_factory=list)
    """Seconds of the device, by step."""
    shares: list[float] = field(default_factory=list)
    """The share that was handed out, by tick."""

    @property
    def entitlement(self) -> Entitlement:
        return Entitlement.of_page(
            cores=self.guarantee,
            cores_limit=self.limit,
            policy=self.policy,  # type: ignore[arg-type]
            priority=self.priority,
        )

    def part(self, begin: float, end: float) -> float:
        """Percent of the device that it had."""
        return 100 * sum(self.had[round(begin / STEP) : round(end / STEP)]) / (end - begin)

    def program(self, now: float) -> None:
        wants = self.load(now)
        self.asked = min(self.asked + wants * STEP, FULL if wants >= BACKLOG else 2 * STEP)
        self.level = min(FULL, self.level + (self.share or 1.0) * STEP)
        goes = min(self.asked, max(0.0, FULL - self.queued), max(0.0, self.level))
        if goes < self.asked - 1e-9:
            self.waited += STEP
        self.launched = self.launched or goes > 0
        self.asked -= goes
        self.queued += goes
        self.level -= goes if self.share else 0.0

    def seen(self, now: float, delay: float) -> Seen:
        """NVML's whole percents of a tick that ended a while ago."""
        use = int(self.part(max(0.0, now - delay - TICK), max(TICK, now - delay)))
        waited = WHOLE if self.lies else round(WHOLE * self.waited / TICK)
        found = Seen(use=use * 100, waited=waited, launched=self.launched or self.lies)
        self.waited, self.launched = 0.0, False
        return found


def serve(tenants: Sequence[Tenant]) -> None:
    """One step of the device, whose time goes to all that have work alike."""
    left, waiting = STEP, [tenant for tenant in tenants if tenant.queued > 1e-12]
    got = dict.fromkeys(map(id, tenants), 0.0)
    while waiting and left > 1e-12:
        part = left / len(waiting)
        for tenant in waiting:
            time = min(part, tenant.queued)
            tenant.queued -= time
            got[id(tenant)] += time
            left -= time
        waiting = [tenant for tenant in waiting if tenant.queued > 1e-12]
    for tenant in tenants:
        tenant.had.append(got[id(tenant)])


def run(
    tenants: Mapping[str, Tenant], seconds: float, *, delay: float = 0.2, floor: int = FLOOR
) -> None:
    """Run them; the monitor's figures are ``delay`` seconds late."""
    demands: Mapping[str, ComputeDemand] = {}
    for step in range(round(seconds / STEP)):
        now = step * STEP
        if step and step % round(TICK / STEP) == 0:
            slices = {
                name: Contender(entitlement=tenant.entitlement, seen=tenant.seen(now, delay))
                for name, tenant in tenants.items()
            }
            division = divide(slices, demands, floor=floor)
            demands = division.demands
            for name, tenant in tenants.items():
                share = division.shares[name] / WHOLE
                if share < tenant.share:  # what was saved was saved of more
                    tenant.level = min(tenant.level, STEP)
                tenant.share = share
                tenant.shares.append(division.shares[name] / 100)
        for tenant in tenants.values():
            tenant.program(now)
        serve(list(tenants.values()))
