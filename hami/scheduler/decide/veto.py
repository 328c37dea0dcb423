"""kube-scheduler's question before it evicts: which of these nodes would really help the pod?

It picks victims by what it counts itself: CPU, memory, ports. Whether the pod's devices and quota
would fit once they are gone it cannot know, so each node where they would not is taken off its
list. Victims are never added, and nothing changes here: the pods that go are released when they
are gone, and the pod that stays is filtered again.

From the body only uids and node names are believed. A lie changes no more than the answer to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from hami.domain import reasons
from hami.domain.kubernetes.objects import Pod
from hami.domain.reasons import Rejected
from hami.domain.requests import Invalid, PodRequest
from hami.domain.scheduling import SchedulingPolicy
from hami.domain.units import PodUid
from hami.kube.pace import Turns
from hami.policy.fit.exact import fit_pod
from hami.policy.pods.pod_request import parse_pod
from hami.scheduler.bookings.state import ClusterState
from hami.wire.extender import (
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    MetaPod,
    MetaVictims,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """The nodes that stay, the answer's kind for the metrics, and the others' reasons, counted."""

    kept: Mapping[str, MetaVictims] = field(default_factory=dict)
    outcome: str
    words: Mapping[str, int] = field(default_factory=dict)
    error: str = ""

    @property
    def result(self) -> ExtenderPreemptionResult:
        """Without any node kube-scheduler evicts nobody, and says on the pod ``no candidate node
        for preemption``.

        That is also the answer where nothing can be known. With an HTTP error it would do the
        same, but under ``ignorable: true`` it would go on and evict.
        """
        return ExtenderPreemptionResult(node_name_to_meta_victims=self.kept)


def unknown(text: str) -> Judged:
    """Nobody is to be evicted on a guess."""
    return Judged(outcome="error", error=text)


def victims_of(args: ExtenderPreemptionArgs) -> Mapping[str, MetaVictims] | None:
    """By node, whichever way the caller says it; None when it says neither."""
    if args.node_name_to_meta_victims is not None:
        return args.node_name_to_meta_victims
    if args.node_name_to_victims is None:
        return None
    return {
        node: MetaVictims(
            pods=[MetaPod(uid=pod.uid) for pod in victims.pods or ()],
            num_pdb_violations=victims.num_pdb_violations,
        )
        for node, victims in args.node_name_to_victims.items()
    }


async def judge(
    state: ClusterState, pod: Pod, policy: SchedulingPolicy, asked: Mapping[str, MetaVictims]
) -> Judged:
    """Which nodes would take the pod without their victims; each judged in one turn of the loop."""
    if pod.spec.node_name or state.reservations.promised(pod.uid) is not None:
        return Judged(outcome="bound_already")  # It has its node; there is nothing to evict for.
    vendors = state.vendors
    request = parse_pod(pod, vendors, policy)
    if isinstance(request, Invalid):
        return Judged(outcome="vetoed", words={"InvalidRequest": len(asked)})
    if not request.vendors:
        return Judged(kept=asked, outcome="passed")
    kept: dict[str, MetaVictims] = {}
    words: Counter[str] = Counter()
    turns = Turns()
    for node, victims in asked.items():
        await turns.pause()
        if state.vendors is not vendors:
            return unknown("the device configuration has just changed")
        gone = [PodUid(victim.uid) for victim in victims.pods or ()]
        if (refusal := _refusal(state, request, node, gone)) is None:
            kept[node] = victims
        else:
            words.update({reason.word: 1 for reason, _ in refusal.counts})
    return Judged(kept=kept, outcome="kept" if kept else "vetoed", words=words)


def _refusal(
    state: ClusterState, request: PodRequest, node: str, gone: Collection[PodUid]
) -> Rejected | None:
    """Why this node would not take the pod even then; what it holds itself is not counted."""
    if node not in state.nodes:
        return Rejected.of(reasons.NODE_UNREGISTERED)
    pod, table, ledger = request.pod, state.table, state.ledger
    with state.bookings.without(gone):
        gate = ledger.gate(pod, gone)
        outcome = fit_pod(request, table.devices(node, (pod.uid, *gone)), table.vendors, gate)
        if isinstance(outcome, Rejected):
            return outcome
        if gate and (refusals := gate.refusals(ledger.amount(outcome.containers))):
            return Rejected.of(reasons.QUOTA, 1, [str(refusal) for refusal in refusals])
    return None
