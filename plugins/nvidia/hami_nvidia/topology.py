"""Devices that belong together: those with the best links, or the one whose loss hurts least."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

import msgspec

from hami.domain import reasons
from hami.domain.devices import Device, DeviceState, Grant
from hami.domain.extra import ExtraKey
from hami.domain.reasons import Rejected
from hami.domain.requests import DeviceRequest, FitContext
from hami.domain.units import DeviceId
from hami.policy.topology import EXACT_UP_TO, best_connected


class PairScore(msgspec.Struct, frozen=True, kw_only=True):
    """How close a device is to another: 10 to 60 over PCIe, 100 more for each NVLink."""

    peer: DeviceId
    score: int


PAIR_SCORES = ExtraKey("nvidia.pair-scores", tuple[PairScore, ...])
"""On a device: its links to the others of its node, by their ids; a missing one counts 0."""

_Scores = Sequence[Sequence[int]]


def choose(
    request: DeviceRequest, candidates: Sequence[tuple[DeviceState, Grant]], ctx: FitContext
) -> Sequence[Grant] | Rejected | None:
    """For one device the least connected candidate, for several the best connected set.

    Sets that quota refuses are passed over for the next best. With more candidates than can be
    searched exactly the policy order decides instead (None).
    """
    if not ctx.policy.device.topology_aware or len(candidates) < request.count:
        return None
    scores = _matrix([state.device for state, _ in candidates])
    for indexes in _best_first(scores, request.count):
        grants = [candidates[i][1] for i in indexes]
        if ctx.allowed(grants):
            return grants
    if len(candidates) > EXACT_UP_TO:
        return None
    return Rejected.of({reasons.QUOTA: len(candidates)}, len(candidates))


def _best_first(scores: _Scores, count: int) -> Iterator[tuple[int, ...]]:
    """Sets of candidates, best first; of equals the first in policy order."""
    size = len(scores)
    if count == 1:
        for index in sorted(range(size), key=lambda i: sum(scores[i])):
            yield (index,)
        return
    best = best_connected(scores, count)
    yield best
    if size <= EXACT_UP_TO:
        others = (chosen for chosen in combinations(range(size), count) if chosen != best)
        yield from sorted(others, key=lambda chosen: -_links_within(scores, chosen))


def _links_within(scores: _Scores, chosen: Sequence[int]) -> int:
    return sum(scores[a][b] for a, b in combinations(chosen, 2))


def _matrix(devices: Sequence[Device]) -> _Scores:
    """Scores from each to each; between two slices of one device there is no link."""
    rows = [{link.peer: link.score for link in d.extra.get(PAIR_SCORES) or ()} for d in devices]
    return [
        [0 if device.id == other.id else row.get(other.id, 0) for other in devices]
        for device, row in zip(devices, rows, strict=True)
    ]
