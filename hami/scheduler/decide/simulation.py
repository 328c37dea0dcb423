"""Filter requests that carry whole nodes: a question of a planner, answered without any effect.

Cluster Autoscaler asks whether a pod would fit on nodes that do not exist yet, which count as
empty; on a node that exists, what is in use counts, and quota counts as it is. Thousands of nodes
take a second, so that is done in a thread, one question after the other, while the loop goes on
answering kube-scheduler.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import msgspec

from hami.domain.allocations import PodAllocation
from hami.domain.kubernetes.objects import Node, Pod
from hami.domain.profile import VendorProfile
from hami.domain.requests import Invalid
from hami.domain.scheduling import SchedulingPolicy
from hami.domain.units import PodUid
from hami.kube.pace import Turns
from hami.policy.filter.decision import Placed, decide
from hami.policy.pods.pod_request import parse_pod
from hami.policy.ports import VendorRegistry
from hami.policy.profile.liveness import alive
from hami.policy.quota import PodGate
from hami.policy.tables.cluster_table import ClusterTable
from hami.policy.usage import UnknownUsage
from hami.scheduler.bookings.state import ClusterState
from hami.scheduler.pending import answers
from hami.wire.extender import ExtenderArgs, ExtenderFilterResult

T = TypeVar("T")

MOST_NODES = 5000
"""Of one question; a planner sends one node per group of equal ones."""

_BEGINNING = datetime.fromisoformat("0001-01-01T00:00:00")
_WORK, _PAUSE = 0.001, 0.0001
"""Seconds in which the thread works, and then lets go of the interpreter: otherwise the loop waits
for sys.getswitchinterval, 5 ms, whenever it has something to do."""


class _NodeList(msgspec.Struct):
    """The nodes undecoded, so that the chosen one is given back as it came."""

    items: list[msgspec.Raw] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    pod: Pod
    nodes: Sequence[Node]
    raw: Sequence[msgspec.Raw]

    @property
    def names(self) -> list[str]:
        return [node.name for node in self.nodes]


@dataclass(frozen=True, slots=True)
class _Held:
    """What one pod is charged."""

    uid: PodUid
    allocation: PodAllocation
    unknown: tuple[UnknownUsage, ...] = ()
    init_ended: bool = False


class Simulator:
    """Answers such requests, one at a time; the others wait."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="simulation")

    async def answer(
        self, args: ExtenderArgs, policy: SchedulingPolicy
    ) -> ExtenderFilterResult | str:
        """The best node as a list of one, or why none; a text when the body is no such question."""
        loop = asyncio.get_running_loop()
        question = await loop.run_in_executor(self._thread, _read, args)
        if isinstance(question, str):
            return question
        # The loop owns the books; this is what they say at this moment.
        vendors, gate = self._state.vendors, self._state.ledger.gate(question.pod)
        held = await self._held_on(question)
        return await loop.run_in_executor(
            self._thread, _decide, question, args, vendors, gate, policy, held
        )

    async def _held_on(self, question: _Question) -> Sequence[_Held]:
        """What other pods hold on these nodes; each pod as a whole, gathered in turns."""
        state, turns, found = self._state, Turns(), list[_Held]()
        for name in question.names:
            await turns.pause()
            for uid in state.table.charged_on(name):
                if uid == question.pod.uid:
                    continue
                if (charge := state.charges.get(uid)) is not None:
                    account = charge.account
                    found.append(
                        _Held(uid, account.allocation, account.unknown, account.init_ended)
                    )
                elif (reservation := state.reservations.get(uid)) is not None:
                    found.append(_Held(uid, reservation.allocation))
        return found


def _read(args: ExtenderArgs) -> _Question | str:
    try:
        pod = msgspec.json.decode(args.pod, type=Pod)
        raw = msgspec.json.decode(args.nodes, type=_NodeList).items or []
        if len(raw) > MOST_NODES:
            return (
                f"the request carries {len(raw)} whole nodes, and {MOST_NODES} are the most that "
                "is simulated; kube-scheduler's extender needs nodeCacheCapable: true"
            )
        nodes = [msgspec.json.decode(item, type=Node) for item in _politely(raw)]
    except (msgspec.MsgspecError, UnicodeError) as error:
        return f"the simulated pod or node cannot be read: {error}"
    except RecursionError:
        return "the simulated pod or node cannot be read: JSON nested too deeply"
    return _Question(pod=pod, nodes=nodes, raw=raw)


def _decide(
    question: _Question,
    args: ExtenderArgs,
    vendors: VendorRegistry,
    gate: PodGate | None,
    policy: SchedulingPolicy,
    held: Sequence[_Held],
) -> ExtenderFilterResult:
    names = question.names
    request = parse_pod(question.pod, vendors, policy)
    if isinstance(request, Invalid):
        return answers.unfit_everywhere(names, request.text)
    if not request.vendors:
        return ExtenderFilterResult(nodes=args.nodes)
    table = ClusterTable(vendors, alive=_alive)
    for node in _politely(question.nodes):
        table.set_node(node)
    for pod in _politely(held):
        table.charge(pod.uid, pod.allocation, pod.unknown, init_ended=pod.init_ended)
    outcome = decide(table, request, gate, names)
    if not isinstance(outcome, Placed):
        return answers.refusal(outcome)
    best = outcome.allocation.node
    chosen = msgspec.json.encode({"items": [question.raw[names.index(best)]]})
    return ExtenderFilterResult(nodes=msgspec.Raw(chosen))


def _politely(items: Iterable[T]) -> Iterator[T]:
    end = time.perf_counter() + _WORK
    for item in items:
        yield item
        if time.perf_counter() >= end:
            time.sleep(_PAUSE)
            end = time.perf_counter() + _WORK


def _alive(profile: VendorProfile, node: Node) -> bool:
    """A node that does not exist yet has no age, and lists what its group's nodes list."""
    return alive(profile, node, _BEGINNING, absent_is_alive=True)
