"""Carries plans out: evicts their victims, tells both sides, and stops where it would be vain."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

import structlog

from hami.domain.kubernetes.objects import Node, Pod
from hami.domain.kubernetes.taints import CORDON, untolerated
from hami.kube.client import KubeClient
from hami.kube.errors import NOT_FOUND, TOO_MANY_REQUESTS, ApiError
from hami.kube.leases.leadership import Leadership
from hami.policy.quota.elastic.plans.ground import DisruptionBudgets
from hami.policy.quota.elastic.plans.plan import Plan
from hami.scheduler.bookings.state import ClusterState
from hami.scheduler.metrics import Metrics

AT_ONCE = 16
"""Evictions under way."""


class Recorder(Protocol):
    def record(self, about: Pod, reason: str, message: str, *, warning: bool) -> None: ...


def kept_out(pod: Pod, node: Node) -> str:
    """Why a node takes no such pod, whatever else it may have; empty: it may."""
    taint = untolerated(pod.spec, node)
    if taint is None:
        return ""
    if taint is CORDON:
        return f"node {node.name} is cordoned"
    value = f"={taint.value}" if taint.value else ""
    return f"node {node.name} has the taint {taint.key}{value}:{taint.effect}"


class Evictions:
    """Owns the evictions under way; what they free is the state's holds."""

    def __init__(
        self,
        state: ClusterState,
        client: KubeClient,
        leadership: Leadership,
        metrics: Metrics,
        events: Recorder,
        budgets: DisruptionBudgets,
        *,
        went: Callable[[Plan, Pod], None],
        ended: Callable[[Plan, str], None],
    ) -> None:
        """``went``: a victim is evicted. ``ended``: a plan is carried out, or why not."""
        self._state = state
        self._client = client
        self._leadership = leadership
        self._metrics = metrics
        self._events = events
        self._budgets = budgets
        self._went = went
        self._ended = ended
        self._tasks: set[asyncio.Task[None]] = set()
        self._permits = asyncio.Semaphore(AT_ONCE)
        self._log = structlog.get_logger("hami.preemption")

    def begin(self, claimant: Pod, decided: Plan, victims: Sequence[Pod]) -> None:
        """What they leave is held from now on."""
        self._state.bookings.hold(claimant, victims, decided.vector, decided.victims)
        task = asyncio.create_task(self._carry_out(claimant, decided, victims))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

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
        self._ended(decided, await self._evict_all(claimant, decided, victims))

    async def _evict_all(self, claimant: Pod, decided: Plan, victims: Sequence[Pod]) -> str:
        """Empty when all go, else what keeps one. First those that a budget is likely to keep, one
        by one: while one of them stays, the others would go for nothing.
        """
        first = [victim for victim in victims if victim.uid in decided.violating]
        others = [victim for victim in victims if victim.uid not in decided.violating]
        for at, victim in enumerate(first, start=1):
            if kept := await self._evict(claimant, decided, victim):
                for spared in (*first[at:], *others):
                    self._state.bookings.spare(spared.uid)
                return kept
        kept_by = await asyncio.gather(*(self._evict(claimant, decided, each) for each in others))
        return next(filter(None, kept_by), "")

    async def _evict(self, claimant: Pod, decided: Plan, victim: Pod) -> str:
        """Empty when it goes, is gone, or need not go any more; else what keeps it."""
        async with self._permits:
            if not self._state.holds.expects(claimant.uid, victim.uid):
                return ""
            if not self._leadership.leading:
                return "this replica does not lead any more"
            if vain := self._in_vain(claimant, decided.node):
                self._state.bookings.spare(victim.uid)
                return vain
            try:
                await self._client.evict(victim.namespace, victim.name, uid=victim.uid)
            except ApiError as error:
                if error.status == NOT_FOUND or victim.uid not in self._state.pods:
                    return ""
                if not error.outcome_unknown:
                    self._state.bookings.spare(victim.uid)
                return self._not_evicted(claimant, decided, victim, error)
        self._metrics.preempted(decided.kind)
        self._events.record(
            victim,
            "Preempted",
            f"evicted for pod {claimant.full_name}: {decided.reasons[victim.uid]}",
            warning=False,
        )
        self._went(decided, victim)
        return ""

    def _in_vain(self, claimant: Pod, node: str) -> str:
        """The node has changed since the plan was made."""
        now = self._state.nodes.get(node)
        return f"node {node} is gone" if now is None else kept_out(claimant, now)

    def _not_evicted(self, claimant: Pod, decided: Plan, victim: Pod, error: ApiError) -> str:
        self._log.warning(
            "not evicted", pod=victim.full_name, claimant=claimant.full_name, error=str(error)
        )
        text = f"pod {victim.full_name} is not evicted for it"
        if error.status != TOO_MANY_REQUESTS:
            return f"{text}: {error}"
        if budgets := self._kept_by(decided, victim):
            text += f": PodDisruptionBudget {' and '.join(budgets)} does not allow it now"
        text += f": {error.message}"
        self._events.record(claimant, "PreemptionHeldUp", text, warning=True)
        return text

    def _kept_by(self, decided: Plan, victim: Pod) -> list[str]:
        """The budgets that let nobody go; where we see none such yet, all that count the pod."""
        member = next(member for member in decided.victims if member.uid == victim.uid)
        counting = self._budgets.counting(member)
        used_up = sorted(name for name, allowed in counting.items() if allowed <= 0)
        return used_up or sorted(counting)
