"""Who decides: only one process may reserve and bind.

A Binding carries no fencing token, so time is the fence. ``margin`` is the longest time that one
write may take. A leader starts nothing later than ``margin`` before its lease runs out, and a new
leader begins ``margin`` after its predecessor's lease ran out. Each process counts on its own clock
since boot, from the moment when it saw or sent a renewal, as client-go does
(tools/leaderelection/leaderelection.go); it never compares clocks of different machines. That clock
goes on while a machine is suspended: a leader that wakes up after an hour has lost its lease.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Protocol

from hami.kube.client import KubeClient
from hami.kube.informer import Informer
from hami.kube.pace import Backoff
from hami.kube.resources import LEASES, Lease

NEVER = float("-inf")
LONG_AGO = float("-inf")
FIELD_TIMES = "%Y-%m-%dT%H:%M:%S.%fZ"

_IDLE = 10.0
"""Seconds: a held Lease is written every two seconds, so a watch that is silent for longer is
dead."""


_SILENCE = 0.4
"""After this share of the lease's duration without a renewal we assume that we are cut off: two
periods and some more, be they kube-scheduler's own 2 of 15 s or OpenShift's 26 of 137 s."""


def boot_seconds() -> float:
    """Seconds since boot, suspension included; ``time.monotonic`` leaves it out."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Leadership(Protocol):
    """Whether this process decides, in which term, and who leads otherwise.

    Ask ``leading`` at every use, because it ends by the mere passing of time. ``term`` grows with
    every change of leader. ``holder`` is for messages.
    """

    @property
    def leading(self) -> bool: ...

    @property
    def term(self) -> int: ...

    @property
    def holder(self) -> str: ...

    async def run(self) -> None:
        """Follow the lease until cancelled."""


class AlwaysLeads:
    """The leadership of a single process, which always leads."""

    leading = True
    term = 0
    holder = "this process"

    async def run(self) -> None:
        await asyncio.Event().wait()

    async def release(self) -> None:
        """Do nothing: no other process waits."""


class ObservedLease:
    """We lead while the kube-scheduler on this host does, and never write its Lease.

    kube-scheduler names itself ``<hostname>_<uuid>``. Its clock is ours, so we know a renewal's age
    even when we see it late. It releases its Lease without asking us, and a process that is cut off
    does not hear of that. So we lead only for about two periods of renewal, which is less than the
    lease. We begin when that time and ``margin`` have passed since the predecessor's last renewal,
    whether it released the Lease or not.
    """

    def __init__(
        self,
        client: KubeClient,
        namespace: str,
        name: str,
        hostname: str,
        *,
        margin: float,
        on_problem: Callable[[str], None],
        clock: Callable[[], float] = boot_seconds,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.term = 0
        self.holder = ""
        self.leading_since = LONG_AGO
        self.leading_until = NEVER
        self._hostname = hostname
        self._margin = margin
        self._on_problem = on_problem
        self._too_short: float | None = None
        self._clock = clock
        self._now = now
        self._started = clock()
        self._last: _Held | None = None
        self._informer = Informer(
            client,
            LEASES,
            self,
            namespace=namespace,
            field_selector=f"metadata.name={name}",
            on_problem=on_problem,
            idle=_IDLE,
            backoff=Backoff(first=0.2, most=2.0),
        )

    @property
    def leading(self) -> bool:
        return self.leading_since <= self._clock() < self.leading_until

    async def run(self) -> None:
        try:
            await self._informer.run()
        finally:
            self.leading_until = NEVER

    async def release(self) -> None:
        """Do nothing: only kube-scheduler gives its Lease back."""

    def changed(self, new: Lease, old: Lease | None) -> None:  # noqa: ARG002 -- the handler's
        """The Lease was renewed or has another holder."""
        self.holder = new.spec.holder_identity or ""
        self.term = new.spec.lease_transitions or 0
        if not self.holder:
            # Released: the last holder may not know yet.
            self.leading_until = NEVER
            return
        before, seen = self._last, self._clock()
        held = self._last = _Held(
            ours=self._is_ours(self.holder),
            term=self.term,
            seen=seen,
            duration=float(new.spec.lease_duration_seconds or 0),
            relists=self._informer.relists,
        )
        if not held.ours:
            self.leading_until = NEVER
            return
        self._warn_of(held.duration)
        if before is None or not before.ours or not before.is_followed_by(held):
            self.leading_since = self._begins(new, held, before)
        renewed = seen - self._age(new.spec.renew_time)
        self.leading_until = renewed + self._reach(held.duration)

    def gone(self, last: Lease) -> None:  # noqa: ARG002 -- the handler's
        """The Lease was deleted, so it has no holder."""
        self.holder = ""
        self.leading_until = NEVER

    def _begins(self, lease: Lease, held: _Held, before: _Held | None) -> float:
        """The time from which no write of a predecessor can be under way."""
        acquired = held.seen - self._age(lease.spec.acquire_time)
        if before is None and not held.term:
            begins = acquired  # The first holder of all.
        elif before is not None and before.is_followed_by(held) and before.relists == held.relists:
            # Every renewal of the predecessor was seen, the last one included.
            ended = before.seen + self._reach(before.duration)
            begins = max(ended, acquired) + self._margin
        else:
            begins = acquired + self._reach(held.duration) + self._margin
        if acquired < self._started:
            # Our own predecessor on this host may have led under it until just now.
            begins = max(begins, self._started + self._margin)
        return begins

    def _reach(self, duration: float) -> float:
        """Seconds after a renewal within which something new may be begun."""
        return min(duration - self._margin, _SILENCE * duration)

    def _warn_of(self, duration: float) -> None:
        """Tell, once, that such a lease never lets us lead; nothing else would say why."""
        if self._reach(duration) > 0 or duration == self._too_short:
            return
        self._too_short = duration
        self._on_problem(
            f"kube-scheduler's Lease lasts {duration:g} s, which leaves no time to bind in: "
            f"bind-timeout is {self._margin:g} s; shorten it, or lengthen kube-scheduler's "
            f"leaderElection.leaseDuration"
        )

    def _is_ours(self, holder: str) -> bool:
        host, underscore, _ = holder.rpartition("_")
        return bool(underscore) and host == self._hostname

    def _age(self, text: str | None) -> float:
        """Seconds since a time that this host's clock gave; 0 for one that cannot be read."""
        try:
            at = datetime.fromisoformat(text or "")
        except ValueError:
            return 0.0
        return max(0.0, (self._now() - at.astimezone(UTC)).total_seconds())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """A holder as the Lease showed it: since when we have ``seen`` it, and how long it holds.

    ``relists`` is the number of lists by then: what happened between two lists was not seen.
    """

    ours: bool
    term: int
    seen: float
    duration: float
    relists: int

    def is_followed_by(self, other: _Held) -> bool:
        """Whether no other holder came in between: each one is another transition."""
        return 0 <= other.term - self.term <= 1
