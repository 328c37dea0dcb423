"""Touches waiting pods when there is room for them, so that kube-scheduler tries them at once.

A pod that an extender refused is otherwise tried again after five minutes. A change of one of its
annotations puts it back into the queue, and it is bound within 20 to 50 ms.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from hami.domain.allocations import PodAllocation
from hami.domain.kubernetes.objects import Pod
from hami.domain.requests import Invalid, PodRequest
from hami.domain.scheduling import SchedulingPolicy
from hami.domain.units import PodUid
from hami.kube.client import KubeClient
from hami.kube.errors import CONFLICT, NOT_FOUND, ApiError
from hami.kube.leases.leadership import Leadership
from hami.kube.resources import PODS
from hami.policy.filter.decision import Placed, decide
from hami.policy.fit.exact import fit_pod
from hami.policy.pods.pod_request import parse_pod
from hami.scheduler.bookings.state import ClusterState
from hami.scheduler.decide import gangs
from hami.scheduler.metrics import Metrics
from hami.scheduler.pending.equivalence import PendingPod
from hami.scheduler.pending.wake_round import Attempt, Round
from hami.wire import keys

AT_ONCE = 32
"""Pods on their way through kube-scheduler after a wake-up; more wait until some are placed."""

COALESCING = 0.005
"""Seconds in which changes of capacity are gathered before anybody is woken for them."""

FORGOTTEN = 0.5
"""Seconds after which a woken pod that was not filtered again takes nobody's place any more."""

TURN = 0.001
"""Seconds after which choosing begins no further step before a filter may come in between."""

FEW = 16
"""Up to so many nodes are fitted one by one; more go through the vectorised pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Taker:
    """A pod that was woken ``at`` (monotonic seconds) because this would do for it.

    ``seen`` is what it had seen before. It ``blocks`` others, unless its kind did not come before.
    """

    waiting: PendingPod
    allocation: PodAllocation
    at: float
    seen: int
    blocks: bool

    @property
    def under_way(self) -> bool:
        return self.waiting.woken_at == self.at


class WakeUp:
    """Owns which pods are on their way; the state knows who waits, and for what."""

    def __init__(
        self,
        state: ClusterState,
        client: KubeClient,
        leadership: Leadership,
        metrics: Metrics,
        *,
        policy: Callable[[], SchedulingPolicy],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._state = state
        self._client = client
        self._leadership = leadership
        self._metrics = metrics
        self._policy = policy
        self._clock = clock
        self._takers: dict[PodUid, Taker] = {}
        self._again: float | None = None
        self._followed = policy()
        self._log = structlog.get_logger("hami.wakeup")

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._patience()):
                    await self._state.pending.freed.wait()
            await asyncio.sleep(COALESCING)
            self._state.pending.freed.clear()
            self._again = None
            if self._leadership.leading:
                await self._round()
            else:
                self._takers.clear()

    def _patience(self) -> float | None:
        """Seconds until there is something to do, whether or not anything comes free."""
        ends = [taker.at + FORGOTTEN for taker in self._takers.values()]
        if self._again is not None:
            ends.append(self._again)
        return max(min(ends) - self._clock(), 0.0) if ends else None

    async def _round(self) -> None:
        """Wake as many as fit together now."""
        if (policy := self._policy()) != self._followed:
            self._followed = policy
            self._state.pending.gave_way_everywhere()
        await self._call()
        round_ = Round(self._state.pending, self._clock(), self._state.holds.ready())
        steps, numbering = round_.steps(), self._state.pending.numbering
        more = arrived = True
        while more and arrived:
            if self._state.pending.numbering is not numbering:
                self._look_again(self._clock())  # What this round knows of nodes is no more.
                return
            chosen, more = self._choose(round_, steps)
            if chosen:
                touched = await asyncio.gather(*map(self._touch, chosen))
                self._metrics.woken(sum(touched))
                arrived = all(touched)
            await asyncio.sleep(0)
        self._look_again(round_.again)

    async def _call(self) -> None:
        """Those that have a place by now, of which kube-scheduler knows only that they had none."""
        pods = self._state.pending.take_called()
        touched = await asyncio.gather(*map(self._patch, pods))
        self._metrics.woken(touched.count(None))

    def _choose(self, round_: Round, steps: Iterator[Attempt | None]) -> tuple[list[Taker], bool]:
        """The next pods that fit, and whether to go on: one turn of the loop."""
        end = self._clock() + TURN
        chosen: list[Taker] = []
        self._forget_takers()
        with self._state.bookings.on_trial() as trial:
            while len(self._takers) < AT_ONCE:
                if self._clock() > end:
                    return chosen, True
                try:
                    attempt = next(steps)
                except StopIteration:
                    break
                if attempt is None:
                    continue
                for taker in self._takers.values():
                    if taker.blocks:
                        trial.charge(taker.waiting.pod, taker.allocation)
                if (found := self._fit(attempt)) is None:
                    round_.refuse(attempt)
                    continue
                chosen += (self._take(waiting, allocation) for waiting, allocation in found)
        return chosen, False

    def _take(self, waiting: PendingPod, allocation: PodAllocation) -> Taker:
        taker = Taker(
            waiting=waiting,
            allocation=allocation,
            at=self._clock(),
            seen=waiting.seen or 0,
            blocks=waiting.kind is None or not waiting.kind.absent,
        )
        self._takers[waiting.pod.uid] = taker
        self._state.pending.woken(waiting, taker.at)
        return taker

    def _forget_takers(self) -> None:
        """Those that were filtered since, are gone, or never came."""
        waiting, now = self._state.pending, self._clock()
        for uid, taker in list(self._takers.items()):
            if taker.under_way:
                if now < taker.at + FORGOTTEN:
                    continue
                waiting.did_not_come(taker.waiting, taker.allocation.node, now)
            del self._takers[uid]
            if taker.blocks and self._given(uid) != taker.allocation:
                waiting.gave_way(taker.allocation.node, taker.waiting.pod.namespace)

    def _given(self, uid: PodUid) -> PodAllocation | None:
        if (reservation := self._state.reservations.get(uid)) is not None:
            return reservation.allocation
        charge = self._state.charges.get(uid)
        return charge.account.allocation if charge is not None else None

    def _fit(self, attempt: Attempt) -> Sequence[tuple[PendingPod, PodAllocation]] | None:
        """The pod, and whoever of its gang must come with it."""
        state, pod = self._state, attempt.waiting.pod
        request = parse_pod(pod, state.vendors, self._followed)
        if isinstance(request, Invalid) or not request.vendors:
            return None
        if state.groups.gang_of(pod.uid) is not None:
            return self._gang_fits(request, attempt.waiting)
        with state.holds.lifted(pod.uid):
            found = self._place(request, state.pending.names(attempt.nodes, state.nodes))
        return None if found is None else [(attempt.waiting, found)]

    def _gang_fits(
        self, request: PodRequest, asked: PendingPod
    ) -> Sequence[tuple[PendingPod, PodAllocation]] | None:
        """On any node: what came free for one of them lets another one run elsewhere."""
        state = self._state
        offered = state.pending.names(asked.offered, state.nodes)
        given = gangs.fits(state, request, offered, self._followed, self._takers)
        if given is None:
            return None
        pods = state.pending.pods
        return [(pods[uid], found) for uid, found in given.items() if uid in pods]

    def _place(self, request: PodRequest, candidates: list[str]) -> PodAllocation | None:
        state = self._state
        gate = state.ledger.gate(request.pod)
        coming = [taker.allocation for taker in self._takers.values() if taker.under_way]
        if locked := state.bookings.locked_for(request, coming):
            candidates = [name for name in candidates if name not in locked]
        if len(candidates) > FEW:
            outcome = decide(state.table, request, gate, candidates)
            return outcome.allocation if isinstance(outcome, Placed) else None
        for name in candidates:
            found = fit_pod(request, state.table.devices(name), state.vendors, gate)
            if isinstance(found, PodAllocation):
                return found
        return None

    async def _touch(self, taker: Taker) -> bool:
        """Whether the pod was changed."""
        error = await self._patch(taker.waiting.pod)
        if error is not None:
            self._failed(taker, error)
        return error is None

    async def _patch(self, pod: Pod) -> ApiError | None:
        try:
            await touch(self._client, pod)
        except ApiError as error:
            self._log.warning("cannot wake a pod", pod=pod.full_name, error=str(error))
            return error
        return None

    def _failed(self, taker: Taker, error: ApiError) -> None:
        """Try it again in a while, unless it is gone, which the informer is about to say."""
        now = self._clock()
        if error.status in (NOT_FOUND, CONFLICT):
            self._look_again(now)
        elif taker.under_way:
            least = error.retry_after or 0.0
            self._state.pending.not_woken(taker.waiting, taker.seen, now, least)
            self._look_again(taker.waiting.not_before)

    def _look_again(self, at: float | None) -> None:
        if at is not None:
            self._again = at if self._again is None else min(self._again, at)


async def touch(client: KubeClient, pod: Pod) -> None:
    """Change it, so that kube-scheduler tries it again.

    Raises:
        ApiError: it was not changed, or nobody knows.
    """
    count = pod.annotations.get(keys.WAKE_UP, "0")
    number = int(count) + 1 if count.isdecimal() and len(count) < 10 else 1
    patch = {"metadata": {"uid": pod.uid, "annotations": {keys.WAKE_UP: str(number)}}}
    await client.patch(PODS, pod.name, patch, namespace=pod.namespace)
