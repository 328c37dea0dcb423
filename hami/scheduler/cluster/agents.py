"""Which node agents have fallen silent: what they said of themselves on their nodes counts no more.

``hami.io/node-identity: NVIDIA=kubelet`` says that pods of this vendor need no lock there. It
outlives its agent, and the next one may be HAMi's device plugin, which gives a pod another one's
devices where nobody takes the lock. So an agent renews a Lease, and while it does not, its node is
as one whose agent said nothing: the lock is taken. That is safe whoever serves there, and a node
that went back to HAMi's plugin works on. Who has no Lease at all is as silent as who lets it lapse.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from hami.domain.units import VendorKey
from hami.kube.compat.node_lock import utc_now
from hami.kube.leases.heartbeat import SILENCE
from hami.kube.resources import Lease
from hami.wire import keys

LOOK_EVERY = 1.0
"""Seconds between looks at who has fallen silent."""


@dataclass(frozen=True, slots=True)
class _Heard:
    """``at``: monotonic seconds of the last change that was seen; long ago if it was stale then."""

    renewed: str
    at: float


class Agents:
    """The handler of their Leases; ``changed`` is told the node whose agent falls silent or comes
    back.
    """

    def __init__(
        self,
        changed: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        self._tell = changed
        self._clock = clock
        self._now = now
        self._heard: dict[tuple[str, str], _Heard] = {}
        self._silent: set[tuple[str, str]] = set()

    def silent(self, node: str, vendor: VendorKey) -> bool:
        heard = self._heard.get((node, vendor))
        return heard is None or self._clock() - heard.at > SILENCE

    async def run(self) -> None:
        """Until cancelled: nothing in the cluster says that time has passed."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            self.look()

    def look(self) -> None:
        """Tell of those who have fallen silent since the last look, and of those who are back."""
        since = self._clock() - SILENCE
        silent = {agent for agent, heard in self._heard.items() if heard.at < since}
        before, self._silent = self._silent, silent
        for node in {node for node, _ in before ^ silent}:
            self._tell(node)

    # What the informer says.

    def changed(self, new: Lease, old: Lease | None) -> None:  # noqa: ARG002 -- the handler's signature
        agent = self._agent(new)
        if agent is None:
            return
        renewed = new.spec.renew_time or ""
        heard = self._heard.get(agent)
        if heard is not None and heard.renewed == renewed:
            return
        # Seen for the first time it may be of any age: then its time is all there is to go by, and
        # a clock that is wrong costs locks until it is renewed.
        fresh = heard is not None or self._is_recent(renewed)
        at = self._clock() if fresh else self._clock() - SILENCE - 1
        self._heard[agent] = _Heard(renewed, at)
        if not fresh:
            self._silent.add(agent)
        elif heard is None or agent in self._silent:
            self._silent.discard(agent)
            self._tell(agent[0])

    def gone(self, last: Lease) -> None:
        """Its node is gone, or somebody took the Lease away: an agent that lives makes it anew."""
        agent = self._agent(last)
        if agent is not None and self._heard.pop(agent, None) is not None:
            self._silent.discard(agent)
            self._tell(agent[0])

    @staticmethod
    def _agent(lease: Lease) -> tuple[str, str] | None:
        node, vendor = lease.spec.holder_identity, (lease.metadata.labels or {}).get(keys.AGENT)
        return (node, vendor) if node and vendor else None

    def _is_recent(self, renewed: str) -> bool:
        try:
            at = datetime.fromisoformat(renewed)
        except ValueError:
            return False
        if at.tzinfo is None:
            at = at.replace(tzinfo=UTC)
        return self._now() - at <= timedelta(seconds=SILENCE)
