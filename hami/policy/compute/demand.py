"""What one slice wants of its device's time, judged from what is seen of it each tick.

All times are in 1/100 percent of the device: ``WHOLE`` is all of it.
"""

from __future__ import annotations

from typing import Literal, Self

import msgspec

Policy = Literal["default", "force", "disable"]

WHOLE = 10_000
WAITED = 200
"""Who waited for its turn for so much of a tick wants more than it has."""
NOISE = 200
"""A figure may be off by so much: NVML's are whole percents of late samples."""
LATE = 2
"""Figures may be so many ticks late: what one slice leaves idle is lent to others after that."""


class Entitlement(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the limits page says of one slice on one device.

    ``guarantee``: 0 if the container named none. ``priority``: 0 goes before 1. ``unlimited``: its
    policy is ``disable``, and nothing holds it.
    """

    guarantee: int
    limit: int
    priority: int = 1
    unlimited: bool = False

    @classmethod
    def of_page(
        cls,
        *,
        cores: int,
        cores_limit: int,
        policy: Policy,
        priority: int,
    ) -> Self:
        """The words of the page, in whole percents."""
        return cls(
            guarantee=cores * 100,
            limit=limit_of_page(cores=cores, cores_limit=cores_limit, policy=policy) * 100,
            priority=priority,
            unlimited=policy == "disable",
        )


def limit_of_page(*, cores: int, cores_limit: int, policy: Policy) -> int:
    """The most that a slice may have, by the words of its page; all in whole percents.

    ``force`` makes the guarantee the limit, ``disable`` the whole device. Otherwise ``cores_limit``
    is, or the whole device where there is none, as for who named no guarantee.
    """
    if policy == "force" and cores:
        return cores
    if policy == "disable" or not cores_limit:
        return 100
    return max(cores, cores_limit)


class Seen(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What was seen of a slice since the last tick.

    ``use``: how much of the device's time it had, by the driver's figures. The other two are what
    its own processes say: ``waited``, for how long their threads waited for their turn, summed, in
    1/100 percent of the tick; ``launched``, whether they launched anything, ``None`` if nobody
    counts it. They may be lies, which win a slice no more than its guarantee and its part of what
    is idle.
    """

    use: int
    waited: int = 0
    launched: bool | None = None


class ComputeDemand(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """How much a slice wants, 0 if it is idle; its limit if nobody knows how much more.

    ``computes``: the driver's figures saw it, now or one tick ago. ``use``: the last figure.
    ``late``: ticks until a figure may be taken to be about the present load.
    """

    wants: int = 0
    computes: bool = False
    use: int = 0
    late: int = 0


IDLE = ComputeDemand()


def demand(
    seen: Seen, entitlement: Entitlement, guarantee: int, before: ComputeDemand
) -> ComputeDemand:
    """What a slice wants now; ``guarantee`` is what it has been given in place of one of 0.

    One that begins is taken to want its guarantee at once. One that leaves some of it is believed
    only after a while, and keeps room to grow: it may use little because others are in its way.
    """
    use = min(max(seen.use, 0), WHOLE)
    computes = use > 0 or before.use > 0
    if seen.waited >= WAITED:
        return ComputeDemand(wants=entitlement.limit, computes=computes, use=use, late=LATE)
    if seen.launched is False or (seen.launched is None and use == 0):
        # A long kernel runs on; a figure that falls is of what has ended.
        runs = use > 0 and use * 2 >= before.use
        wants = min(guarantee, entitlement.limit) if runs else 0
        return ComputeDemand(wants=wants, computes=computes, use=use, late=LATE)
    enough = use + 2 * NOISE
    wants, late = before.wants, before.late - 1
    if wants <= 0 or use > wants - NOISE:
        wants, late = max(guarantee, enough), LATE
    elif late <= 0:
        wants, late = enough + max(0, wants - enough) // 2, 0
    else:
        wants = max(wants, enough)
    return ComputeDemand(wants=min(wants, entitlement.limit), computes=computes, use=use, late=late)
