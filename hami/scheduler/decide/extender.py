"""What kube-scheduler asks: which nodes take this pod, whom to evict for it, and bind it there.

From a body only uids and node names are believed; everything else is read
from the informer's pod, so that whoever reaches the port cannot have a forged request reserved,
bound and signed. No call to the API server is made while filtering.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import structlog

from hami.domain.allocations import PodAllocation
from hami.domain.kubernetes.objects import Pod
from hami.domain.requests import Invalid, PodRequest
from hami.domain.scheduling import SchedulingPolicy
from hami.domain.units import PodUid
from hami.kube.leases.leadership import Leadership
from hami.policy.filter.decision import Refused
from hami.policy.pods.pod_request import parse_pod
from hami.scheduler.bookings.state import ClusterState
from hami.scheduler.decide import overstayed, veto
from hami.scheduler.decide.binding import Binder
from hami.scheduler.decide.simulation import Simulator
from hami.scheduler.metrics import Metrics
from hami.scheduler.pending import answers
from hami.scheduler.pending.pending_pods import Refusal
from hami.wire.extender import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    MetaVictims,
)

PATIENCE = 1.0
"""Seconds that an answer waits for the informer to show a pod that kube-scheduler knows already."""


class _Identity(msgspec.Struct, frozen=True):
    uid: str = ""
    namespace: str = ""
    name: str = ""


class _PodHead(msgspec.Struct, frozen=True):
    """All that is believed of the body's pod."""

    metadata: _Identity = _Identity()


@dataclass(frozen=True, slots=True, kw_only=True)
class Filtered:
    """An answer, its kind for the metrics, and how many nodes were refused for each reason."""

    result: ExtenderFilterResult
    outcome: str
    words: dict[str, int]


def _failed(text: str) -> Filtered:
    return Filtered(result=ExtenderFilterResult(error=text), outcome="error", words={})


def _on(nodes: Sequence[str], outcome: str) -> Filtered:
    return Filtered(result=ExtenderFilterResult(node_names=nodes), outcome=outcome, words={})


class Extender:
    """Answers filter, preempt and bind; never raises for what a caller sends."""

    def __init__(
        self,
        state: ClusterState,
        binder: Binder,
        leadership: Leadership,
        metrics: Metrics,
        *,
        policy: Callable[[], SchedulingPolicy],
        refused: Callable[[Pod, str], None],
    ) -> None:
        self._state = state
        self._simulator = Simulator(state)
        self._binder = binder
        self._leadership = leadership
        self._metrics = metrics
        self._policy = policy
        self._refused = refused
        # Bound once: to find its configuration again takes a third of a line's time.
        self._log = structlog.get_logger("hami.extender").bind()

    async def filter(self, args: ExtenderArgs) -> ExtenderFilterResult:
        begin = time.perf_counter()
        head = _head(args.pod)
        done = await self._filter(args, head)
        seconds = time.perf_counter() - begin
        self._metrics.filtered(seconds, done.outcome, done.words)
        self._log.info(
            "filtered",
            pod=f"{head.namespace}/{head.name}",
            uid=head.uid,
            outcome=done.outcome,
            nodes=len(args.node_names or ()),
            node=next(iter(done.result.node_names or ())) if done.outcome == "placed" else None,
            reasons=done.words or None,
            error=done.result.error or None,
            ms=round(seconds * 1000, 2),
        )
        return done.result

    async def preempt(self, args: ExtenderPreemptionArgs) -> ExtenderPreemptionResult:
        """The nodes where evicting these victims makes the pod's devices fit."""
        begin = time.perf_counter()
        head = _head(args.pod)
        asked = veto.victims_of(args)
        done = await self._judge(asked, head)
        seconds = time.perf_counter() - begin
        self._metrics.preemption_judged(seconds, done.outcome, done.words)
        self._log.info(
            "preemption judged",
            pod=f"{head.namespace}/{head.name}",
            uid=head.uid,
            outcome=done.outcome,
            nodes=len(asked or ()),
            kept=len(done.kept),
            reasons=done.words or None,
            error=done.error or None,
            ms=round(seconds * 1000, 2),
        )
        return done.result

    async def bind(self, args: ExtenderBindingArgs) -> ExtenderBindingResult:
        begin = time.perf_counter()
        done = await self._binder.bind(args)
        seconds = time.perf_counter() - begin
        self._metrics.bound(seconds, done.outcome)
        self._log.info(
            "bound" if done.outcome == "bound" else "not bound",
            pod=f"{args.pod_namespace}/{args.pod_name}",
            uid=args.pod_uid,
            node=args.node,
            outcome=done.outcome,
            error=done.error or None,
            ms=round(seconds * 1000, 2),
        )
        return ExtenderBindingResult(error=done.error)

    async def _filter(self, args: ExtenderArgs, head: _Identity) -> Filtered:
        if not args.has_pod:
            return _failed("extender args missing pod")
        if args.has_nodes:
            return await self._simulate(args)
        if args.node_names is None and self._leadership.leading:
            return _failed("extender args missing NodeNames; set nodeCacheCapable: true")
        pod = await self._pod(head)
        if isinstance(pod, str):
            return _failed(pod)
        return self._place(pod, args.node_names or ())

    async def _pod(self, head: _Identity) -> Pod | str:
        """The informer's pod, of a leader that has it; or why not."""
        if not self._leadership.leading:
            return f"this replica does not lead; {self._leadership.holder or 'none'} does"
        pod = await self._state.expected.pod(PodUid(head.uid), PATIENCE)
        if pod is None:
            return f"pod {head.namespace}/{head.name} ({head.uid}) is not seen yet"
        if not self._leadership.leading:
            return "this replica has just stopped to lead"
        return pod

    async def _judge(self, asked: Mapping[str, MetaVictims] | None, head: _Identity) -> veto.Judged:
        if asked is None:
            return veto.unknown("extender args missing the victims by node")
        pod = await self._pod(head)
        if isinstance(pod, str):
            return veto.unknown(pod)
        done = await veto.judge(self._state, pod, self._policy(), asked)
        if not self._leadership.leading:
            return veto.unknown("this replica has just stopped to lead")
        return done

    def _place(self, pod: Pod, candidates: Sequence[str]) -> Filtered:
        """Decide and reserve, in one turn of the loop."""
        if pod.spec.node_name:
            return _on([pod.spec.node_name], "bound_already")
        if (promised := self._state.reservations.promised(pod.uid)) is not None:
            if promised in candidates:
                return _on([promised], "bound_already")
            return _failed(f"whether pod {pod.full_name} is bound to {promised} is not known yet")
        state = self._state
        request = parse_pod(pod, state.vendors, self._policy())
        if isinstance(request, Invalid) or not request.vendors:
            state.bookings.release(pod.uid)  # Of what it asked for before it was edited.
        if isinstance(request, Invalid):
            self._note(pod, candidates, Refusal(at=time.time(), text=request.text), request.text)
            result = answers.unfit_everywhere(candidates, request.text)
            return Filtered(result=result, outcome="refused", words={"InvalidRequest": 1})
        if not request.vendors:
            return _on(list(candidates), "passed")
        return self._reserve(request, candidates)

    def _reserve(self, request: PodRequest, candidates: Sequence[str]) -> Filtered:
        state, uid = self._state, request.pod.uid
        outcome: PodAllocation | Refused
        if not state.backoff and state.groups.gang_of(uid) is None:
            outcome = state.bookings.reserve(request, candidates)
        else:
            outcome = overstayed.reserve(state, request, candidates, self._policy())
        if isinstance(outcome, PodAllocation):
            return _on([outcome.node], "placed")
        pod = request.pod
        words = dict(answers.words_of(outcome))
        self._note(pod, candidates, Refusal(at=time.time(), outcome=outcome), "")
        overstayed.rest_of(self._state, pod)
        if details := answers.details_of(outcome):
            self._refused(pod, "; ".join(details))
        if rule := answers.rule_of(outcome):
            self._metrics.quota_refused(pod.namespace, rule)
        return Filtered(result=answers.refusal(outcome), outcome="refused", words=words)

    def _note(self, pod: Pod, candidates: Sequence[str], refusal: Refusal, text: str) -> None:
        self._state.pending.refused(pod, candidates, refusal)
        if text:
            self._refused(pod, text)

    async def _simulate(self, args: ExtenderArgs) -> Filtered:
        answer = await self._simulator.answer(args, self._policy())
        if isinstance(answer, str):
            return _failed(answer)
        return Filtered(result=answer, outcome="simulated", words={})


def _head(pod: msgspec.Raw) -> _Identity:
    try:
        return msgspec.json.decode(pod, type=_PodHead).metadata
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _Identity()
