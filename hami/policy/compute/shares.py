"""How the time of one device is divided until the next tick.

Who wants its guarantee has it, and what nobody wants of the others' is lent in proportion to the
guarantees, up to each one's limit. All times are in 1/100 percent of the device.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import msgspec

from hami.policy.compute.demand import IDLE, WHOLE, ComputeDemand, Entitlement, Seen, demand

FLOOR = 500
"""What a slice keeps while it waits for one of higher priority."""
LEAST = 100
"""What a slice has that named no guarantee, where others were guaranteed all of the device."""


class Contender(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One slice on the device."""

    entitlement: Entitlement
    seen: Seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """``shares``: what each slice may have; 0: nothing is handed out, and the limits page holds.

    ``demands`` are for the next division.
    """

    shares: Mapping[str, int]
    demands: Mapping[str, ComputeDemand]


def divide(
    slices: Mapping[str, Contender], before: Mapping[str, ComputeDemand], *, floor: int = FLOOR
) -> Division:
    """The share of each slice of one device.

    ``before``: the demands of the last division; a slice that it does not name is taken to have
    been idle. Of all that want more, no two together are handed out more than there is; who is idle
    keeps its guarantee, so that it begins at once, and others give way when it is seen.
    """
    entitled = {name: slices[name].entitlement for name in sorted(slices)}
    guarantees = _guarantees(entitled)
    demands = {
        name: demand(slices[name].seen, one, guarantees[name], before.get(name, IDLE))
        for name, one in entitled.items()
    }
    held = [name for name in entitled if _is_held(name, entitled)]
    yielding = _yielding(held, entitled, demands, guarantees, floor)
    wants = {name: demands[name].wants for name in held if name not in yielding}
    room = WHOLE - sum(least for name, least in yielding.items() if demands[name].wants > 0)
    own = {name: min(most, guarantees[name]) for name, most in wants.items()}
    idle = room - sum(own.values())
    idle -= sum(demands[name].wants for name in entitled if name not in held)
    more = {name: wants[name] - own[name] for name in own}
    lent = _lent(idle, more, guarantees)
    spare = max(0, idle - sum(lent.values())) if lent == more else 0
    shares = dict.fromkeys(entitled, 0) | yielding
    for name, limit in ((name, entitled[name].limit) for name in wants):
        share = own[name] + lent[name] + (spare if wants[name] > 0 else 0)
        if wants[name] < limit:
            share = max(share, guarantees[name])
        shares[name] = max(1, min(share, limit))
    return Division(shares=shares, demands=demands)


def _guarantees(entitled: Mapping[str, Entitlement]) -> Mapping[str, int]:
    """What each can count on: less than it was promised where more was promised than there is.

    Those that named none have equal parts of what the others were not guaranteed.
    """
    unnamed = sum(one.guarantee == 0 for one in entitled.values())
    left = WHOLE - sum(one.guarantee for one in entitled.values())
    part = max(LEAST, left // unnamed) if unnamed else 0
    named = {name: one.guarantee or min(part, one.limit) for name, one in entitled.items()}
    return _within(WHOLE, named)


def _is_held(name: str, entitled: Mapping[str, Entitlement]) -> bool:
    """Whether it has a limit, or may be in the way of one that has a guarantee or goes first."""
    one = entitled[name]
    return not one.unlimited and (
        0 < one.guarantee < WHOLE
        or one.limit < WHOLE
        or any(
            other.guarantee > 0 or other.priority < one.priority
            for their, other in entitled.items()
            if their != name
        )
    )


def _yielding(
    held: Collection[str],
    entitled: Mapping[str, Entitlement],
    demands: Mapping[str, ComputeDemand],
    guarantees: Mapping[str, int],
    floor: int,
) -> dict[str, int]:
    """Who waits for a slice of higher priority that computes, and what it keeps meanwhile.

    What others say of themselves makes nobody wait: the driver's figures must have seen them.
    """
    computing = [entitled[name].priority for name, one in demands.items() if one.computes]
    first = min(computing, default=None)
    waiting = [name for name in held if first is not None and entitled[name].priority > first]
    least = _within(WHOLE // 2, {name: min(floor, guarantees[name]) for name in waiting})
    return {name: max(1, part) for name, part in least.items()}


def _within(room: int, parts: Mapping[str, int]) -> Mapping[str, int]:
    """``parts``, made smaller in proportion where they are more than there is room for."""
    total = sum(parts.values())
    return parts if total <= room else {name: part * room // total for name, part in parts.items()}


def _lent(idle: int, wanted: Mapping[str, int], weights: Mapping[str, int]) -> Mapping[str, int]:
    """``idle`` in proportion to the weights, to nobody more than it wants."""
    lent = dict.fromkeys(wanted, 0)
    left = {name for name, more in wanted.items() if more > 0}
    while left and idle > 0:
        weight = sum(weights[name] for name in left)
        content = {name for name in left if wanted[name] * weight <= idle * weights[name]}
        for name in content or left:
            lent[name] = wanted[name] if content else idle * weights[name] // weight
        idle -= sum(lent[name] for name in content)
        left = left - content if content else set()
    return lent
