"""Makes room for waiting pods by evicting others, where quota or priority says that it may.

Claimants are the waiting pods that a filter has refused, the most urgent first; of pods of one kind
nobody is tried behind one for whom there is no plan. What a plan frees is held for its claimant
from before the first eviction on. Only the leader evicts.

After a restart, or when another replica led before, nobody knows on which nodes kube-scheduler
would have a pod. Whoever would be made room for on some node is then woken, once, to be filtered.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

import structlog

from hami.domain.kubernetes.objects import Pod
from hami.domain.requests import Invalid
from hami.domain.scheduling import SchedulingPolicy
from hami.domain.units import PodUid
from hami.kube.client import KubeClient
from hami.kube.errors import ApiError
from hami.kube.leases.leadership import Leadership
from hami.policy.pods.pod_request import parse_pod
from hami.policy.quota.elastic import LeafKey
from hami.policy.quota.elastic.plans.ground import DisruptionBudgets
from hami.policy.quota.elastic.plans.plan import NoPlan, Plan, plan
from hami.scheduler.bookings.state import ClusterState
from hami.scheduler.decide.gangs import beside_the_others
from hami.scheduler.decide.overstayed import who_is
from hami.scheduler.decide.wakeup import FORGOTTEN, touch
from hami.scheduler.metrics import Metrics
from hami.scheduler.pending.equivalence import EquivalenceClass, PendingPod, may_come
from hami.scheduler.reclaim.cluster_ground import ClusterGround
from hami.scheduler.reclaim.eviction_rounds import EvictionRounds
from hami.scheduler.reclaim.evictions import Evictions, Recorder, kept_out

COALESCING = 0.02
"""Seconds in which refusals and changes are gathered before anybody looks for victims."""

RESTS = (1.0, 30.0)
"""Seconds after which a kind is looked at again for which there was no plan: when something has
changed, and when nothing has but the time."""

FIRST_BACK_OFF, LONGEST_BACK_OFF = 5.0, 300.0
"""Seconds for a claimant whose victims would not go."""

WOKEN_AT_ONCE = 16
"""Claimants on their way through kube-scheduler so as to be judged."""


@dataclass(frozen=True, slots=True)
class _Rest:
    """Nobody goes for a kind: looked at again from ``until`` on if the books do not stand at
    ``change`` any more, and from ``longest`` on in any case; monotonic seconds.
    """

    change: int
    until: float
    longest: float


@dataclass(slots=True)
class _BackOff:
    """After ``failures`` in a row, not before ``until``; monotonic seconds."""

    failures: int = 0
    until: float = float("-inf")


class Preemption:
    """Decides who goes for whom, and when it is looked at again; ``Evictions`` does the rest."""

    def __init__(
        self,
        state: ClusterState,
        client: KubeClient,
        leadership: Leadership,
        metrics: Metrics,
        events: Recorder,
        budgets: DisruptionBudgets,
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
        self._evictions = Evictions(
            state, client, leadership, metrics, events, budgets,
            went=self._went, ended=self._ended,
        )  # fmt: skip
        self._policy = policy
        self._clock = clock
        self._now = now
        self._rests: dict[bytes, _Rest] = {}
        self._back_offs: dict[PodUid, _BackOff] = {}
        self._unplanned: dict[PodUid, NoPlan] = {}
        self._rounds = EvictionRounds(clock)
        self._rules = state.quota_objects.rules
        self._called: dict[PodUid, PendingPod] = {}
        """Claimants that were woken so as to be judged, and have not come yet."""
        self._calls: set[asyncio.Task[None]] = set()
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
                self._state.pending.claims.clear()
                if self._leadership.leading:
                    await self._round()
                else:
                    self._rests.clear()
                    self._unplanned.clear()
        finally:
            await self._evictions.close()
            for task in self._calls:
                task.cancel()
            await asyncio.gather(*self._calls, return_exceptions=True)

    async def _wait(self) -> None:
        """Until something is refused or has changed, or time alone may have changed a verdict."""
        patience = RESTS[0] if self._state.pending.pods else None
        try:
            async with asyncio.timeout(patience):
                await self._state.pending.claims.wait()
        except TimeoutError:
            return
        await asyncio.sleep(COALESCING)

    async def _round(self) -> None:
        self._forget()
        if self._rules != self._state.quota_objects.rules:
            self._rules = self._state.quota_objects.rules
            self._rests.clear()
            self._rounds.try_again()
        for kind, waiting in self._claimants():
            if not self._leadership.leading:
                return
            if self._is_due(kind, waiting):
                self._consider(kind, waiting)
                await asyncio.sleep(0)  # A plan takes milliseconds; filters come in between.

    def _claimants(self) -> Iterator[tuple[EquivalenceClass, PendingPod]]:
        kinds = [kind for kind in self._state.pending.kinds if kind.queue]
        for kind in sorted(kinds, key=lambda kind: kind.queue[0].urgency):
            for waiting in list(kind.queue):
                if kind.key in self._rests and not self._rested(kind):
                    break
                yield kind, waiting

    def _is_due(self, kind: EquivalenceClass, waiting: PendingPod) -> bool:
        uid = waiting.pod.uid
        back_off = self._back_offs.get(uid)
        return (
            self._state.pending.pods.get(uid) is waiting  # Not of before a vendors' reload.
            and waiting.kind is kind
            and waiting.woken_at is None
            and (waiting.judged or self._may_be_called(waiting))
            and may_come(waiting.pod)
            and not self._state.holds.awaits(uid)
            and not self._state.backoff.left(who_is(self._state, uid))
            and (back_off is None or back_off.until <= self._clock())
        )

    def _rested(self, kind: EquivalenceClass) -> bool:
        rest = self._rests[kind.key]
        changed = rest.change != self._state.bookings.change
        return self._clock() >= (rest.until if changed else rest.longest)

    def _forget(self) -> None:
        waiting = self._state.pending
        keys = {kind.key for kind in waiting.kinds}
        self._rests = {key: rest for key, rest in self._rests.items() if key in keys}
        for book in (self._back_offs, self._unplanned):
            for uid in [uid for uid in book if uid not in waiting.pods]:
                del book[uid]
        for uid, called in list(self._called.items()):
            if called.judged and called.kind is not None:
                self._rests.pop(called.kind.key, None)  # It has come, and is looked at at once.
            if called.judged or called.called_at is None or uid not in waiting.pods:
                del self._called[uid]

    def _consider(self, kind: EquivalenceClass, waiting: PendingPod) -> None:
        """Look for a plan and begin with it, in one turn of the loop."""
        outcome = self._plan(waiting)
        if outcome is None:
            return
        if isinstance(outcome, NoPlan):
            self._rest(kind, RESTS[0], RESTS[1])
            self._unplanned[waiting.pod.uid] = outcome
            return
        if self._go_round(kind, waiting.pod, outcome):
            return
        self._rests.pop(kind.key, None)
        self._unplanned.pop(waiting.pod.uid, None)
        if not waiting.judged:
            self._call(waiting)
        elif victims := [self._state.pods[victim.uid] for victim in outcome.victims]:
            if (quota := self._quota(outcome)) and self._rounds.takes(quota, self._others(outcome)):
                self._metrics.preemption_backed_off(quota)
            self._evictions.begin(waiting.pod, outcome, victims)

    def _rest(self, kind: EquivalenceClass, least: float, most: float) -> None:
        now = self._clock()
        self._rests[kind.key] = _Rest(self._state.bookings.change, now + least, now + most)

    def _plan(self, waiting: PendingPod) -> Plan | NoPlan | None:
        """None for a pod that asks for nothing of ours any more."""
        state, pod = self._state, waiting.pod
        request = parse_pod(pod, state.vendors, self._policy())
        if isinstance(request, Invalid) or not request.vendors:
            return None
        offered = state.pending.names(waiting.offered, state.nodes)
        # What has happened to the nodes since they were offered, the plan would not see.
        outside = {name: why for name in offered if (why := kept_out(pod, state.nodes[name]))}
        candidates = [name for name in offered if name not in outside] if outside else offered
        with (
            state.holds.lifted(pod.uid),
            beside_the_others(state, request, candidates, self._policy()),
            self._as_promised(pod) as spoken_for,
            ClusterGround(state, request, candidates) as ground,
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
        if isinstance(outcome, NoPlan) and outside and not candidates:
            return NoPlan(claim=outcome.claim, why={"nodes": "; ".join(outside.values())})
        return outcome

    @contextmanager
    def _as_promised(self, claimant: Pod) -> Iterator[Collection[PodUid]]:
        """Within it, elastic quotas are as others' plans will leave them; else two claimants would
        both take what one of them is guaranteed. Yields who cannot be a victim any more.
        """
        holds, book = self._state.holds, self._state.ledger.elastic
        promised = [m for m in holds.promised(claimant.uid) if book.leaf_of(m.namespace)]
        with self._state.bookings.beside(promised):
            these = {member.uid for member in promised}
            yield these.union(holds.spoken_for) if these else holds.spoken_for

    # Those that take turns.

    def _go_round(self, kind: EquivalenceClass, claimant: Pod, decided: Plan) -> bool:
        """The quotas of claimant and victims evict each other in turns, and have to wait by now."""
        quota = self._quota(decided)
        found = self._rounds.back_off(quota, self._others(decided)) if quota else None
        if found is None:
            return False
        seconds = found.until - self._clock()
        text = found.text(seconds)
        self._rest(kind, seconds, seconds)
        self._unplanned[claimant.uid] = NoPlan(claim=decided.claim, why={"back-off": text})
        self._events.record(claimant, "PreemptionBackedOff", text, warning=True)
        return True

    def _quota(self, decided: Plan) -> LeafKey:
        leaf = self._state.ledger.elastic.leaf_of(decided.claim.namespace)
        return leaf.key if leaf else ""

    def _others(self, decided: Plan) -> frozenset[LeafKey]:
        """The quotas of its victims, apart from its own."""
        leaves = map(self._state.ledger.elastic.leaf_of, {v.namespace for v in decided.victims})
        return frozenset(leaf.key for leaf in leaves if leaf) - {self._quota(decided)}

    # What has become of a plan.

    def _went(self, decided: Plan, victim: Pod) -> None:
        leaf = self._state.ledger.elastic.leaf_of(victim.namespace)
        if leaf is not None and leaf.key != self._quota(decided):
            self._rounds.loses(leaf.key)

    def _ended(self, decided: Plan, kept: str) -> None:
        uid = decided.claim.uid
        if not kept:
            self._back_offs.pop(uid, None)
            return
        seconds = self._back_off(uid)
        again = datetime.fromtimestamp(self._now() + seconds, UTC).isoformat(timespec="seconds")
        why: dict[str, str] = {decided.kind: f"{kept}; tried again at {again}"}
        self._unplanned[uid] = NoPlan(claim=decided.claim, why=why)

    def _back_off(self, uid: PodUid) -> float:
        """For so many seconds."""
        back_off = self._back_offs.setdefault(uid, _BackOff())
        seconds = min(FIRST_BACK_OFF * 2.0 ** min(back_off.failures, 16), LONGEST_BACK_OFF)
        back_off.failures += 1
        back_off.until = self._clock() + seconds
        return seconds

    # Those of whom it is not known where they may go.

    def _may_be_called(self, waiting: PendingPod) -> bool:
        if waiting.called_at is not None:
            return False
        coming = list(islice(reversed(self._called.values()), WOKEN_AT_ONCE))  # The last ones.
        latest = self._clock() - FORGOTTEN
        return len(coming) < WOKEN_AT_ONCE or (coming[-1].called_at or 0.0) <= latest

    def _call(self, waiting: PendingPod) -> None:
        """Have it filtered, so that it is known."""
        self._state.pending.called_at(waiting, self._clock())
        self._called.pop(waiting.pod.uid, None)
        self._called[waiting.pod.uid] = waiting
        task = asyncio.create_task(self._touch(waiting))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)

    async def _touch(self, waiting: PendingPod) -> None:
        try:
            await touch(self._client, waiting.pod)
        except ApiError as error:
            self._log.warning("cannot wake a pod", pod=waiting.pod.full_name, error=str(error))
            self._state.pending.called_at(waiting, None)
            self._called.pop(waiting.pod.uid, None)
            self._back_off(waiting.pod.uid)
        else:
            self._metrics.woken(1)
