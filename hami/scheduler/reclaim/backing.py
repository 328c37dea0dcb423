"""Whether the cluster has what all elastic quotas together guarantee, and whose it may not have.

Looked at now and then, and after the quotas have changed; in turns, as it reads every node.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from hami.domain.units import with_unit
from hami.kube.pace import Turns
from hami.policy.quota.elastic import GPU_MEMORY, Amounts, ElasticBook
from hami.policy.quota.elastic.units import TYPED
from hami.policy.quota.elastic.vector import WHOLE_GPU, slice_gb
from hami.scheduler.bookings.quotas.capacity import add_node
from hami.scheduler.bookings.state import ClusterState

REFRESH = 30.0
"""Seconds between two looks: nodes come and go, and a flag that flaps tells nobody much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unbacked:
    """One resource of which ``guaranteed`` in all is more than the cluster ``has``."""

    resource: str
    guaranteed: int
    has: int
    unit: str = ""

    def __str__(self) -> str:
        return (
            f"all elastic quotas together guarantee "
            f"{with_unit(self.guaranteed, self.unit)} of {self.resource}, "
            f"and the cluster has {with_unit(self.has, self.unit)}: lower some min or add "
            f"nodes, or not everybody can have what is guaranteed"
        )


class Backing:
    """Owns what is not backed; ``changed`` is called when that is something else."""

    def __init__(
        self, state: ClusterState, *, known: Callable[[], bool], changed: Callable[[], None]
    ) -> None:
        """``known``: this replica leads, and has read all nodes and quotas."""
        self._state = state
        self._known = known
        self._changed = changed
        self._look = asyncio.Event()
        self.unbacked: Mapping[str, Unbacked] = {}
        """By resource."""

    @property
    def missing(self) -> Mapping[str, int]:
        """How much more is guaranteed than there is, by resource."""
        return {r: one.guaranteed - one.has for r, one in self.unbacked.items()}

    def touch(self) -> None:
        """The quotas have changed."""
        self._look.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if self._known():
                await self.look()
            else:
                self.unbacked = {}
            try:
                async with asyncio.timeout(REFRESH if self._known() else 1.0):
                    await self._look.wait()
            except TimeoutError:
                continue
            self._look.clear()

    async def look(self) -> None:
        guaranteed = self._state.ledger.elastic.guaranteed_in_all
        has = await self._capacity() if guaranteed else {}
        found = dict(_unbacked(self._state.ledger.elastic, guaranteed, has))
        if found != self.unbacked:
            self.unbacked = found
            self._state.quota_objects.tell_unbacked(found)
            self._changed()

    async def _capacity(self) -> Amounts:
        """As quotas count it; slices of other plugins and whole GPUs too."""
        state, turns, total = self._state, Turns(), Counter[str]()
        units, whole = state.ledger.units, state.ledger.elastic.options.gpu_memory_gb
        for name in list(state.nodes):
            if (node := state.nodes.get(name)) is None:
                continue
            add_node(total, state.table, node, units)
            ours = bool(state.table.inventory(name))
            for resource, text in (node.allocatable or {}).items():
                if not text.isdecimal():
                    continue
                total[GPU_MEMORY] += int(text) * slice_gb(resource)
                if resource == WHOLE_GPU and not ours:
                    total[GPU_MEMORY] += int(text) * whole
                    total[WHOLE_GPU] += int(text)
            await turns.pause()
        return total


def _unbacked(
    book: ElasticBook, guaranteed: Amounts, has: Amounts
) -> Iterator[tuple[str, Unbacked]]:
    """Of single models it is not known here what there is."""
    for resource, amount in sorted(guaranteed.items()):
        if TYPED not in resource and amount > has.get(resource, 0):
            yield (
                resource,
                Unbacked(
                    resource=resource, guaranteed=amount, has=has.get(resource, 0),
                    unit=book.unit(resource),
                ),
            )  # fmt: skip
