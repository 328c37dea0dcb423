"""One scrape: the state is read on the loop in short turns, the text is made in a thread."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from types import MappingProxyType

from hami.domain.devices import Device, Usage
from hami.kube.pace import Turns
from hami.scheduler.bookings.state import ClusterState
from hami.scheduler.exposition.compat.hami_metrics import HamiText, QuotaUsage, Snapshot
from hami.scheduler.exposition.elastic_metrics import elastic_rows
from hami.scheduler.metrics import Levels, Metrics

NOTHING: Mapping[str, int] = MappingProxyType({})

REST = 2.0
"""How long a scrape rests after each piece, as a multiple of the time that the piece took."""


async def take_snapshot(state: ClusterState, unbacked: Mapping[str, int] = NOTHING) -> Snapshot:
    """Everything that the metrics show. Each node, pod and quota is whole; two of them may be
    some milliseconds apart.
    """
    turns = Turns()
    # One turn for both, so that no pod is missing or counted twice. Charges are immutable; listing
    # 20 000 of them takes 0.1 ms.
    charges = list(state.charges.values())
    promised = [(held.pod, held.allocation) for held in state.reservations.values()]
    await turns.pause()
    quotas = []
    for constraint in list(state.ledger.constraints):
        key = (constraint.namespace, constraint.name)
        if key in state.quotas:
            used, limits = state.ledger.used(*key), constraint.limits
            if used.keys() == limits.keys():  # Else the quota was replaced in between.
                quotas.append(QuotaUsage(namespace=key[0], name=key[1], limits=limits, used=used))
        await turns.pause()
    elastic = await elastic_rows(state.ledger.elastic, turns)
    table = state.table
    nodes: dict[str, Sequence[tuple[Device, Usage]]] = {}
    names = list(table.node_names)
    for first in range(0, len(names), 50):
        batch = names[first : first + 50]
        nodes |= {name: held for name in batch if (held := table.inventory(name))}
        await turns.pause()
    return Snapshot(
        nodes=nodes,
        charges=charges,
        promised=promised,
        quotas=quotas,
        profiles={profile.key: profile for profile in state.vendors.profiles},
        elastic=elastic,
        unbacked=unbacked,
    )


class Scrape:
    """Answers ``GET /metrics``."""

    def __init__(
        self,
        state: ClusterState,
        metrics: Metrics,
        *,
        leading: Callable[[], bool],
        unbacked: Callable[[], Mapping[str, int]] = dict,
        legacy: bool = False,
    ) -> None:
        self._state = state
        self._metrics = metrics
        self._leading = leading
        self._unbacked = unbacked
        self._text = HamiText(legacy=legacy)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The text, piece by piece: 5000 nodes of 8 devices are 50 MB."""
        self._metrics.set_levels(self._levels())
        yield await asyncio.to_thread(self._metrics.render)
        pieces = self._text.pieces(await take_snapshot(self._state, self._unbacked()))
        while True:
            begin = time.perf_counter()
            piece = await asyncio.to_thread(next, pieces, None)
            if piece is None:
                return
            if piece:
                yield piece
            # A scrape is less urgent than a filter, for which kube-scheduler waits.
            await asyncio.sleep(REST * (time.perf_counter() - begin))

    def _levels(self) -> Levels:
        state = self._state
        phases = Counter({"reserved": 0, "binding": 0, "bound": 0})
        phases.update(reservation.phase.value for reservation in state.reservations.values())
        return Levels(
            leading=self._leading(),
            nodes=len(state.nodes),
            pods_charged=len(state.charges),
            pods_waiting=len(state.pending.pods),
            reservations=phases,
        )
