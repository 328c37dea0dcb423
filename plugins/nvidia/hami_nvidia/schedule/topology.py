"""Devices that belong together: those with the best links, or the one whose loss hurts least."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from hami.domain import reasons
from hami.domain.devices import Device, DeviceState, Grant
from hami.domain.extra import ExtraKey
from hami.domain.reasons import Rejected
from hami.domain.requests import DeviceRequest, FitContext
from hami.domain.units import DeviceId
from hami.policy.fit.topology import best_connected, least_connected


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

    Where quota refuses that set, the dearest candidates are left out one by one. None, the policy
    order: when topology is not asked for, or there are too few candidates.
    """
    if not ctx.policy.device.topology_aware or len(candidates) < request.count:
        return None
    left = list(candidates)
    while len(left) >= request.count:
        grants = _best(left, request.count)
        if ctx.allowed(grants):
            return grants
        dearest = max(left, key=lambda candidate: _price(candidate[1]))
        if all(_price(grant) == _price(dearest[1]) for _, grant in left):
            break  # every set costs the same
        left.remove(dearest)
    return Rejected.of({reasons.QUOTA: len(candidates)}, len(candidates))


def _best(candidates: Sequence[tuple[DeviceState, Grant]], count: int) -> list[Grant]:
    scores = _matrix([state.device for state, _ in candidates])
    chosen = (least_connected(scores),) if count == 1 else best_connected(scores, count)
    return [candidates[index][1] for index in chosen]


def _price(grant: Grant) -> tuple[int, int]:
    return grant.memory_mib, grant.cores


def _matrix(devices: Sequence[Device]) -> _Scores:
    """Scores from each to each; between two slices of one device there is no link."""
    rows = [{link.peer: link.score for link in d.extra.get(PAIR_SCORES) or ()} for d in devices]
    return [
        [0 if device.id == other.id else row.get(other.id, 0) for other in devices]
        for device, row in zip(devices, rows, strict=True)
    ]
