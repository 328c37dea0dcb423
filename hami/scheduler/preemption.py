"""Makes room for waiting pods by evicting others, where quota or priority says that it may.

Claimants are the waiting pods that a filter has refused, the most urgent first; of pods of one kind
nobody is tried behind one for whom there is no plan. What a plan frees is held for its claimant
from before the first eviction on. Only the leader evicts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import structlog

from hami.domain.objects import Pod
from hami.domain.requests import Invalid
from hami.domain.scheduling import SchedulingPolicy
from hami.domain.units import PodUid
from hami.kube.client import KubeClient
from hami.kube.errors import NOT_FOUND, TOO_MANY_REQUESTS, ApiError
from hami.kube.leadership import Leadership
from hami.policy.asking import parse_pod
from hami.policy.quota.elastic.ground import Budgets
from hami.policy.quota.elastic.plan import NoPlan, Plan, plan
from hami.scheduler.gangs import beside_the_others
from hami.scheduler.giving_way import who_is
from hami.scheduler.kinds import Kind, Waiting, may_come
from hami.scheduler.metrics import Metrics
from hami.scheduler.node_sets import ANYWHERE
from hami.scheduler.state import ClusterState
from hami.scheduler.state_ground import StateGround

COALESCING = 0.02
"""Seconds in which refusals and changes are gathered before anybody looks for victims."""

RESTS = (1.0, 30.0)
"""Seconds after which a kind is looked at again for which there was no plan: when something has
changed, and when nothing has but the time."""

FIRST_BACK_OFF, LONGEST_BACK_OFF = 5.0, 300.0
"""Seconds for a claimant whose victims would not go."""

AT_ONCE = 16
"""Evictions under way."""


class Recorder(Protocol):
    def record(self, about: Pod, reason: str, message: str, *, warning: bool) -> None: ...


@dataclass(slots=True)
class _Rest:
    """No plan was found when the books stood at ``change``."""

    change: int
    since: float


@dataclass(slots=True)
class _BackOff:
    """After ``failures`` in a row, not before ``until``; monotonic seconds."""

    failures: int = 0
    until: float = float("-inf")


class Preemption:
    """Owns the evictions under way; what they free is the state's holds."""

    def __init__(
        self,
        state: ClusterState,
        client: KubeClient,
        leadership: Leadership,
        metrics: Metrics,
        events: Recorder,
        budgets: Budgets,
        *,
        policy: Callable[[], SchedulingPolicy],
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._state = state
        self._client = client
        self._leadership = leadership
        self._metrics = metrics
        self._events = events
        self._budgets = budgets
        self._policy = policy
        self._clock = clock
        self._now = now
        self._rests: dict[bytes, _Rest] = {}
        self._back_offs: dict[PodUid, _BackOff] = {}
        self._unplanned: dict[PodUid, NoPlan] = {}
        self._evictions: set[asyncio.Task[None]] = set()
        self._permits = asyncio.Semaphore(AT_ONCE)
        self._log = structlog.get_logger("hami.preemption")

    @property
    def unplanned(self) -> Mapping[PodUid, NoPlan]:
        """Of the claimants that were looked at: why nobody makes room for them."""
        return self._unplanned

    async def run(self) -> None:
        """Until cancelled."""
        try:
            while True:
                await self._wait()
                self._state.claims.clear()
                if self._leadership.leading:
                    await self._round()
                else:
                    self._rests.clear()
                    self._unplanned.clear()
        finally:
            for task in self._evictions:
                task.cancel()
            await asyncio.gather(*self._evictions, return_exceptions=True)

    async def _wait(self) -> None:
        """Until something is refused or has changed, or time alone may have changed a verdict."""
        patience = RESTS[0] if self._state.waiting.pods else None
        try:
            async with asyncio.timeout(patience):
                await self._state.claims.wait()
        except TimeoutError:
            return
        await asyncio.sleep(COALESCING)

    async def _round(self) -> None:
        self._forget()
        for kind, waiting in self._claimants():
            if not self._leadership.leading:
                return
            if self._is_due(kind, waiting):
                self._consider(kind, waiting)
                await asyncio.sleep(0)  # A plan takes milliseconds; filters come in between.

    def _claimants(self) -> Iterator[tuple[Kind, Waiting]]:
        kinds = [kind for kind in self._state.waiting.kinds if kind.queue]
        for kind in sorted(kinds, key=lambda kind: kind.queue[0].urgency):
            for waiting in list(kind.queue):
                if kind.key in self._rests and not self._rested(kind):
                    break
                yield kind, waiting

    def _is_due(self, kind: Kind, waiting: Waiting) -> bool:
        uid = waiting.pod.uid
        back_off = self._back_offs.get(uid)
        return (
            self._state.waiting.pods.get(uid) is waiting  # Not of before a vendors' reload.
            and waiting.kind is kind
            and waiting.why is not None
            and waiting.offered != ANYWHERE
            and waiting.woken_at is None
            and may_come(waiting.pod)
            and not self._state.holds.awaits(uid)
            and not self._state.rests.left(who_is(self._state, uid))
            and (back_off is None or back_off.until <= self._clock())
        )

    def _rested(self, kind: Kind) -> bool:
        rest = self._rests[kind.key]
        changed = rest.change != self._state.change
        return self._clock() >= rest.since + RESTS[0 if changed else 1]

    def _forget(self) -> None:
        waiting = self._state.waiting
        keys = {kind.key for kind in waiting.kinds}
        self._rests = {key: rest for key, rest in self._rests.items() if key in keys}
        for book in (self._back_offs, self._unplanned):
            for uid in [uid for uid in book if uid not in waiting.pods]:
                del book[uid]

    def _consider(self, kind: Kind, waiting: Waiting) -> None:
        """Look for a plan and begin with it, in one turn of the loop."""
        state, pod = self._state, waiting.pod
        request = parse_pod(pod, state.vendors, self._policy())
        if isinstance(request, Invalid) or not request.vendors:
            return
        candidates = state.waiting.names(waiting.offered, state.nodes)
        with (
            state.holds.lifted(pod.uid),
            beside_the_others(state, request, candidates, self._policy()),
            self._as_promised(pod) as spoken_for,
            StateGround(state, request, candidates) as ground,
        ):
            book = state.ledger.elastic
            outcome = plan(
                book,
                state.ledger.claim(request),
                ground,
                self._budgets,
                book.options,
                self._now(),
                spoken_for,
            )
        if isinstance(outcome, NoPlan):
            self._rests[kind.key] = _Rest(state.change, self._clock())
            self._unplanned[pod.uid] = outcome
            return
        self._rests.pop(kind.key, None)
        self._unplanned.pop(pod.uid, None)
        victims = [state.pods[victim.uid] for victim in outcome.victims]
        if victims:
            state.holds.begin(pod, victims, outcome.vector, outcome.victims)
            task = asyncio.create_task(self._carry_out(pod, outcome, victims))
            self._evictions.add(task)
            task.add_done_callback(self._evictions.discard)

    @contextmanager
    def _as_promised(self, claimant: Pod) -> Iterator[Collection[PodUid]]:
        """Within it, elastic quotas are as others' plans will leave them; else two claimants would
        both take what one of them is guaranteed. Yields who cannot be a victim any more.
        """
        holds, book = self._state.holds, self._state.ledger.elastic
        promised = [m for m in holds.promised(claimant.uid) if book.leaf_of(m.namespace)]
        with book.trial() as trial:
            for member in promised:
                trial.put(member)
            these = {member.uid for member in promised}
            yield these.union(holds.spoken_for) if these else holds.spoken_for

    async def _carry_out(self, claimant: Pod, decided: Plan, victims: Sequence[Pod]) -> None:
        self._log.info(
            "evicting",
            claimant=claimant.full_name,
            kind=decided.kind,
            node=decided.node,
            victims=[victim.full_name for victim in victims],
        )
        names = ", ".join(victim.full_name for victim in victims)
        self._events.record(
            claimant,
            "Preempting",
            f"evicting {names} so that it fits on {decided.node} ({decided.kind})",
            warning=False,
        )
        if await self._evict_all(claimant, decided, victims):
            self._back_offs.pop(claimant.uid, None)
            return
        back_off = self._back_offs.setdefault(claimant.uid, _BackOff())
        seconds = min(FIRST_BACK_OFF * 2.0 ** min(back_off.failures, 16), LONGEST_BACK_OFF)
        back_off.failures += 1
        back_off.until = self._clock() + seconds

    async def _evict_all(self, claimant: Pod, decided: Plan, victims: Sequence[Pod]) -> bool:
        """Whether all go. First those that a budget is likely to keep, one by one: while one of
        them stays, the others would go for nothing.
        """
        first = [victim for victim in victims if victim.uid in decided.violating]
        others = [victim for victim in victims if victim.uid not in decided.violating]
        for at, victim in enumerate(first, start=1):
            if not await self._evict(claimant, decided, victim):
                for spared in (*first[at:], *others):
                    self._state.holds.spares(spared.uid)
                return False
        return all(await asyncio.gather(*(self._evict(claimant, decided, each) for each in others)))

    async def _evict(self, claimant: Pod, decided: Plan, victim: Pod) -> bool:
        """Whether it goes, is gone, or need not go any more."""
        async with self._permits:
            if not self._state.holds.expects(claimant.uid, victim.uid):
                return True
            if not self._leadership.leading:
                return False
            try:
                await self._client.evict(victim.namespace, victim.name, uid=victim.uid)
            except ApiError as error:
                if error.status == NOT_FOUND or victim.uid not in self._state.pods:
                    return True
                if not error.outcome_unknown:
                    self._state.holds.spares(victim.uid)
                self._not_evicted(claimant, victim, error)
                return False
        self._metrics.preempted(decided.kind)
        self._events.record(
            victim,
            "Preempted",
            f"evicted for pod {claimant.full_name}: {decided.reasons[victim.uid]}",
            warning=False,
        )
        return True

    def _not_evicted(self, claimant: Pod, victim: Pod, error: ApiError) -> None:
        self._log.warning(
            "not evicted", pod=victim.full_name, claimant=claimant.full_name, error=str(error)
        )
        if error.status == TOO_MANY_REQUESTS:
            text = f"pod {victim.full_name} is not evicted for it: {error.message}"
            self._events.record(claimant, "PreemptionHeldUp", text, warning=True)
