"""The cluster as a planner sees it: where a claimant fits once others are gone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from types import TracebackType
from typing import Self

from hami.domain.allocations import PodAllocation
from hami.domain.requests import PodRequest
from hami.domain.units import PodUid
from hami.policy.filter.decision import Placed, decide
from hami.policy.fit.exact import fit_pod
from hami.policy.quota.elastic import Amounts
from hami.policy.usage import asked_at_least
from hami.scheduler.bookings.state import ClusterState


class ClusterGround:
    """Within ``with``, for one plan: pods on their way out that nobody waits for count as gone.

    So nobody is evicted for room that is about to be free.
    """

    def __init__(self, state: ClusterState, request: PodRequest, candidates: Sequence[str]) -> None:
        self._state = state
        self._request = request
        self._candidates = candidates
        self._open: Sequence[str] | None = None
        self._short: bool | None = None
        self._leaving = state.bound.leaving.difference(state.holds.spoken_for)
        self._leaving_by_node: dict[str, set[PodUid]] = {}
        self._leaving_here: set[PodUid] = set()
        """Of the claimant's namespace: those that its ResourceQuotas count."""
        for pod in filter(None, map(state.pods.get, self._leaving)):
            self._leaving_by_node.setdefault(pod.spec.node_name, set()).add(pod.uid)
            if pod.namespace == request.pod.namespace:
                self._leaving_here.add(pod.uid)

    def __enter__(self) -> Self:
        self._trial = self._state.bookings.without(self._leaving)
        self._trial.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._trial.__exit__(kind, error, trace)

    def nodes(self) -> Sequence[str]:
        return self._candidates

    def open_nodes(self) -> Sequence[str]:
        """The best node as a filter finds it, and those that somebody is about to leave."""
        if self._open is None:
            self._open = list(self._open_now())
        return self._open

    def _open_now(self) -> Iterator[str]:
        state, request = self._state, self._request
        gate = state.ledger.hard_gate(request.pod, self._leaving_here)
        best = decide(state.table, request, gate, self._candidates)
        if isinstance(best, Placed):
            yield best.allocation.node
        for node in self._leaving_by_node.keys() & set(self._candidates):
            if self.fits(node, ()) is not None:
                yield node

    def members_on(self, node: str) -> Collection[PodUid]:
        here = self._state.table.charged_on(node)
        return [uid for uid in here if uid not in self._leaving and self._state.ledger.known(uid)]

    def short_of_quota(self) -> bool:
        """Asked again and again in one plan; the first time those it counts become known, wherever
        they run.
        """
        if self._short is None:
            self._short = self._is_short()
            if self._short:
                ledger = self._state.ledger
                for uid in ledger.charged_in(self._request.pod.namespace) - self._leaving:
                    ledger.known(uid)
        return self._short

    def _is_short(self) -> bool:
        state, request = self._state, self._request
        gate = state.ledger.hard_gate(request.pod, self._leaving_here)
        profiles = {key: state.vendors[key].profile for key in state.vendors}
        return gate is not None and bool(
            gate.refusals(asked_at_least(request.containers, profiles))
        )

    def fits(self, node: str, without: Collection[PodUid]) -> Amounts | None:
        """What the claimant is charged there; elastic quotas are the planner's."""
        state, request = self._state, self._request
        if node not in state.nodes:
            return None
        gate = state.ledger.hard_gate(request.pod, self._leaving_here.union(without))
        gone = self._leaving_by_node.get(node, set()).union(without)
        found = fit_pod(request, state.table.devices(node, gone), state.vendors, gate)
        if not isinstance(found, PodAllocation):
            return None
        return state.ledger.vector(request.pod, found)
