"""Touches waiting pods when there is room for them, so that kube-scheduler tries them at once.

A pod that an extender refused is otherwise tried again after five minutes. A change of one of its
annotations puts it back into the queue, and it is bound within 20 to 50 ms.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import msgspec
import structlog

from hami.domain.allocations import PodAllocation
from hami.domain.objects import Pod
from hami.domain.requests import Invalid, PodRequest
from hami.domain.scheduling import SchedulingPolicy
from hami.domain.units import PodUid
from hami.kube.client import KubeClient
from hami.kube.errors import ApiError
from hami.kube.leadership import Leadership
from hami.kube.resources import PODS
from hami.policy.filter import Placed, decide, parse_pod
from hami.policy.fit import fit_pod
from hami.scheduler.metrics import Metrics
from hami.scheduler.state import ClusterState
from hami.scheduler.waiting import Waiting
from hami.wire import keys

AT_ONCE = 32
"""Pods on their way through kube-scheduler after a wake-up; more wait until some are placed."""

COALESCING = 0.005
"""Seconds in which changes of capacity are gathered before anybody is woken for them."""

FORGOTTEN = 5.0
"""Seconds after which a woken pod that was not filtered again takes nobody's place any more."""

TURN = 0.002
"""Seconds that choosing takes of the loop before a filter may come in between."""

FEW = 16
"""Up to so many nodes are fitted one by one; more go through the vectorised pass."""


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
        self._takers: dict[PodUid, PodAllocation] = {}
        self._log = structlog.get_logger("hami.wakeup")

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(FORGOTTEN if self._takers else None):
                    await self._state.freed.wait()
            await asyncio.sleep(COALESCING)
            self._state.freed.clear()
            if self._leadership.leading:
                await self._round()

    async def _round(self) -> None:
        """Wake as many as fit together now."""
        refused: set[bytes] = set()
        looked_at: set[PodUid] = set()
        while True:
            chosen, more = self._choose(refused, looked_at)
            if chosen:
                await asyncio.gather(*(self._touch(waiting.pod) for waiting in chosen))
                self._metrics.woken(len(chosen))
            if not more:
                return
            await asyncio.sleep(0)

    def _choose(
        self, refused: set[bytes], looked_at: set[PodUid]
    ) -> tuple[Sequence[Waiting], bool]:
        """The next pods that fit, and whether to go on: one turn of the loop.

        ``refused`` are the kinds of pods that did not fit in this round, ``looked_at`` all pods
        that were tried in it.
        """
        end = self._clock() + TURN
        chosen: list[Waiting] = []
        self._forget_takers()
        with self._takers_charged():
            for waiting, nodes in self._state.waiting.worth_trying():
                if waiting.pod.uid in looked_at:
                    continue
                if len(self._takers) >= AT_ONCE:
                    return chosen, False
                if self._clock() > end:
                    return chosen, True
                looked_at.add(waiting.pod.uid)
                if (allocation := self._fits(waiting.pod, nodes, refused)) is not None:
                    self._take(waiting, allocation)
                    chosen.append(waiting)
        return chosen, False

    def _take(self, waiting: Waiting, allocation: PodAllocation) -> None:
        pod = waiting.pod
        self._takers[pod.uid] = allocation
        self._charge(pod, allocation)
        self._state.waiting.woken(pod.uid, self._clock())

    def _forget_takers(self) -> None:
        """Those that were filtered since, are gone, or never came."""
        waiting, oldest = self._state.waiting.pods, self._clock() - FORGOTTEN
        for uid in list(self._takers):
            known = waiting.get(uid)
            if known is None or known.woken_at is None:
                del self._takers[uid]
            elif known.woken_at < oldest:
                known.woken_at = None
                del self._takers[uid]

    @contextmanager
    def _takers_charged(self) -> Iterator[None]:
        """For this turn alone, the woken pods have what they were woken for."""
        for uid, allocation in self._takers.items():
            self._charge(self._state.waiting.pods[uid].pod, allocation)
        try:
            yield
        finally:
            for uid in self._takers:
                self._state.table.release(uid)
                self._state.ledger.release(uid)

    def _charge(self, pod: Pod, allocation: PodAllocation) -> None:
        self._state.table.charge(pod.uid, allocation)
        self._state.ledger.charge(pod, allocation)

    def _fits(
        self, pod: Pod, nodes: frozenset[str] | None, refused: set[bytes]
    ) -> PodAllocation | None:
        kind = _kind(pod, nodes)
        if kind in refused:
            return None
        request = parse_pod(pod, self._state.vendors, self._policy())
        if not isinstance(request, Invalid) and request.vendors:
            candidates = self._state.nodes if nodes is None else nodes & self._state.nodes.keys()
            if (found := self._place(request, sorted(candidates))) is not None:
                return found
        refused.add(kind)
        return None

    def _place(self, request: PodRequest, candidates: Sequence[str]) -> PodAllocation | None:
        state = self._state
        gate = state.ledger.gate(request.pod)
        if len(candidates) > FEW:
            outcome = decide(state.table, request, gate, candidates)
            return outcome.allocation if isinstance(outcome, Placed) else None
        for name in candidates:
            found = fit_pod(request, state.table.devices(name), state.vendors, gate)
            if isinstance(found, PodAllocation):
                return found
        return None

    async def _touch(self, pod: Pod) -> None:
        count = pod.annotations.get(keys.WAKE_UP, "0")
        number = int(count) + 1 if count.isdecimal() and len(count) < 10 else 1
        patch = {"metadata": {"uid": pod.uid, "annotations": {keys.WAKE_UP: str(number)}}}
        try:
            await self._client.patch(PODS, pod.name, patch, namespace=pod.namespace)
        except ApiError as error:
            self._log.warning("cannot wake a pod", pod=pod.full_name, error=str(error))


def _kind(pod: Pod, nodes: frozenset[str] | None) -> bytes:
    """Pods of one kind fit, or do not, alike."""
    about = pod.metadata
    annotations = {k: v for k, v in pod.annotations.items() if k != keys.WAKE_UP}
    offered = None if nodes is None else (len(nodes), hash(nodes))
    return msgspec.json.encode((pod.namespace, about.labels, annotations, pod.spec, offered))
