"""Reserves for all pods of a gang that wait, or for none of them.

The first one that is filtered decides for the others too: they are promised their devices before
kube-scheduler has asked for them. Later questions about them find these promises, and may move
them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import msgspec

from hami.domain import reasons
from hami.domain.allocations import PodAllocation
from hami.domain.kubernetes.objects import Node, Pod
from hami.domain.reasons import Rejected
from hami.domain.requests import Invalid, PodRequest
from hami.domain.scheduling import SchedulingPolicy
from hami.domain.units import PodUid
from hami.policy.filter.decision import Refused
from hami.policy.filter.gangs import GroupName, needed, together
from hami.policy.pods.pod_request import parse_pod
from hami.scheduler.bookings.reservations import Reservation
from hami.scheduler.bookings.state import ClusterState
from hami.scheduler.pending import answers
from hami.scheduler.pending.equivalence import may_come, urgency_of
from hami.scheduler.pending.node_sets import ANYWHERE

MOST_TOGETHER = 1000
"""Pods that are placed in one turn of the loop, which takes up to a second; whoever names a group
of more need not stop everybody else's filters."""


def reserve(
    state: ClusterState,
    request: PodRequest,
    candidates: Sequence[str],
    policy: SchedulingPolicy,
) -> PodAllocation | Refused:
    """As :meth:`Bookings.reserve`, for the pod and for whoever must run together with it."""
    gang = state.groups.gang_of(request.pod.uid)
    if gang is None:
        return state.bookings.reserve(request, candidates)
    return _Judgement(state, gang, request, candidates, policy).reserve()


def fits(
    state: ClusterState,
    request: PodRequest,
    candidates: Sequence[str],
    policy: SchedulingPolicy,
    coming: Collection[PodUid] = (),
) -> Mapping[PodUid, PodAllocation] | None:
    """What the pod and those that must run together with it would have; charged to nobody.

    ``coming``: pods that are charged already what they will be promised.
    """
    gang = state.groups.gang_of(request.pod.uid)
    if gang is None:
        with state.holds.lifted(request.pod.uid):
            outcome = state.bookings.try_on(request, candidates)
            if not isinstance(outcome, PodAllocation):
                return None
            state.bookings.take_off(request)
            return {request.pod.uid: outcome}
    return _Judgement(state, gang, request, candidates, policy, coming).would_have()


@contextmanager
def beside_the_others(
    state: ClusterState,
    request: PodRequest,
    candidates: Sequence[str],
    policy: SchedulingPolicy,
) -> Iterator[None]:
    """Within it, those that must run together with this pod have what fits, as far as it does.

    So of a gang that lacks room for one, there is one for whom room must be made.
    """
    gang = state.groups.gang_of(request.pod.uid)
    if gang is None:
        yield
        return
    judgement = _Judgement(state, gang, request, candidates, policy)
    with judgement.others_placed():
        yield


def left(state: ClusterState, gang: GroupName) -> None:
    """A member has gone that was not bound: without it, what the others were promised is free."""
    standing = _Standing.of(state, gang)
    least = state.groups.least(gang)
    if least is not None and standing.bound + standing.others + len(standing.held) >= least:
        return
    for former in [state.bookings.lift(uid) for uid in standing.held]:
        if former is not None:
            state.bookings.settle(former)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Standing:
    """How far a gang has come. ``waiting`` for devices, ``held``: those of them that are promised
    some; ``bound`` or about to be; ``others`` wait for no device of ours.
    """

    waiting: Mapping[PodUid, Pod]
    held: Sequence[PodUid]
    bound: int
    others: int

    @classmethod
    def of(cls, state: ClusterState, gang: GroupName) -> _Standing:
        waiting: dict[PodUid, Pod] = {}
        bound = others = 0
        for uid in state.groups.members(gang):
            pod = state.pods[uid]
            if pod.finished:
                continue
            if pod.spec.node_name or state.reservations.promised(uid) is not None:
                bound += 1
            elif not may_come(pod):
                continue
            elif state.pending.is_ours(pod) and state.pending.asks(pod):
                waiting[uid] = pod
            else:
                others += 1
        held = [uid for uid in waiting if uid in state.reservations]
        return cls(waiting=waiting, held=held, bound=bound, others=others)


class _Judgement:
    """One question about one pod of a gang."""

    def __init__(
        self,
        state: ClusterState,
        gang: GroupName,
        request: PodRequest,
        candidates: Sequence[str],
        policy: SchedulingPolicy,
        coming: Collection[PodUid] = (),
    ) -> None:
        self._state = state
        self._gang = gang
        self._asked = request.pod
        self._candidates = candidates
        self._policy = policy
        standing = _Standing.of(state, gang)
        self._waiting = {**standing.waiting, request.pod.uid: request.pod}
        held = [uid for uid in standing.waiting if uid in coming or uid in standing.held]
        self._held = [uid for uid in held if uid != request.pod.uid]
        need = needed(
            state.groups.least(gang),
            bound=standing.bound,
            others=standing.others,
            waiting=len(self._waiting),
        )
        self._need = min(need, MOST_TOGETHER)
        self._requests: dict[PodUid, PodRequest | Invalid] = {request.pod.uid: request}
        self._given: dict[PodUid, PodAllocation] = {}
        self._refused: dict[PodUid, Refused] = {}
        self._hopeless: set[object] = set()
        self._lifted: list[Reservation] = []

    # What is asked of it.

    def reserve(self) -> PodAllocation | Refused:
        state, uid = self._state, self._asked.uid
        memory = self._memory()
        if uid not in state.reservations:
            again = state.groups.remembered(self._gang, memory)
            if again is not None:
                return again
        self._lift([uid])
        with self._holds_lifted():
            placed = self._place_beside(self._held)
            untold = [uid for uid in self._held if not state.reservations[uid].told]
            if placed is None and untold:
                self._lift(untold)
                placed = self._place_beside([uid for uid in self._held if uid not in untold])
            if placed is not None:
                self._promise(placed)
        if placed is None:
            self._give_up()
        for former in self._lifted:
            state.bookings.settle(former)
        if placed is not None:
            return self._given[uid]
        refused = self._why()
        if not self._lifted:
            state.groups.remember(self._gang, memory, refused)
        return refused

    def would_have(self) -> Mapping[PodUid, PodAllocation] | None:
        with self._holds_lifted():
            placed = self._place_beside(self._held)
            for uid in placed or ():
                self.take_back(uid)
        return self._given if placed is not None else None

    @contextmanager
    def others_placed(self) -> Iterator[None]:
        spoken_for = {*self._held, *self._state.holds.holds, self._asked.uid}
        others = self._hardest_first([uid for uid in self._waiting if uid not in spoken_for])
        left = self._need - (len(self._waiting) - len(others))
        placed: list[PodUid] = []
        try:
            for uid in others:
                if len(placed) < left and self.place(uid):
                    placed.append(uid)
            yield
        finally:
            for uid in placed:
                self.take_back(uid)

    # Places, one beside the other.

    def place(self, member: PodUid) -> bool:
        request = self._request_of(member)
        if isinstance(request, Invalid) or not request.vendors:
            return False
        key = self._key_of(request.pod)
        if key in self._hopeless:
            return False
        outcome = self._state.bookings.try_on(request, self._candidates_of(request.pod))
        if isinstance(outcome, PodAllocation):
            self._given[member] = outcome
            self._refused.pop(member, None)
            return True
        self._refused[member] = outcome
        self._hopeless.add(key)
        return False

    def take_back(self, member: PodUid) -> None:
        request = self._request_of(member)
        assert isinstance(request, PodRequest)
        self._state.bookings.take_off(request)
        self._hopeless.clear()

    def _place_beside(self, held: Sequence[PodUid]) -> Sequence[PodUid] | None:
        """The pod and as many others as are needed; those that are held stay where they are."""
        self._given.clear()
        self._hopeless.clear()
        need = max(self._need - len(held), 1)
        uids = [uid for uid in self._waiting if uid not in held]
        members = self._hardest_first(uids) if need > 1 else [self._asked.uid]
        return together(self, members, self._asked.uid, need)

    def _request_of(self, uid: PodUid) -> PodRequest | Invalid:
        if (known := self._requests.get(uid)) is None:
            known = parse_pod(self._waiting[uid], self._state.vendors, self._policy)
            self._requests[uid] = known
        return known

    def _hardest_first(self, uids: Sequence[PodUid]) -> Sequence[PodUid]:
        """Who asks for most, and of equals the most urgent."""
        return sorted(
            uids,
            key=lambda uid: (
                *(-amount for amount in _size(self._request_of(uid))),
                urgency_of(self._waiting[uid]),
            ),
        )

    def _candidates_of(self, pod: Pod) -> Sequence[str]:
        """Where kube-scheduler would let it go, as far as we can know before it says so."""
        if pod.uid == self._asked.uid:
            return self._candidates
        if _whereabouts(pod) == _whereabouts(self._asked) and not self._is_hint():
            return self._candidates
        waiting = self._state.pending.pods.get(pod.uid)
        if waiting is not None and waiting.offered not in (0, ANYWHERE):
            return self._state.pending.names(waiting.offered, self._state.nodes)
        return [name for name, node in self._state.nodes.items() if _may_go(pod, node)]

    def _key_of(self, pod: Pod) -> object:
        """Pods of which one fits if another does; whoever asks was offered nodes of its own."""
        waiting = self._state.pending.pods.get(pod.uid)
        own = pod.uid == self._asked.uid or (waiting.offered if waiting else 0)
        return self._state.pending.kind_of(pod), _whereabouts(pod), own

    def _is_hint(self) -> bool:
        """One node alone: kube-scheduler asks about all of them next, if this will not do."""
        return len(self._candidates) == 1 and len(self._state.nodes) > 1

    # What comes of it.

    def _promise(self, placed: Sequence[PodUid]) -> None:
        state = self._state
        now = state.reservations.now()
        held = [state.reservations[uid] for uid in self._held if uid in state.reservations]
        first = min((each.first for each in (*self._lifted, *held)), default=now)
        for uid in placed:
            waiting = state.pending.pods.get(uid)
            told = uid == self._asked.uid
            if not told and waiting and waiting.seen is not None and waiting.woken_at is None:
                state.pending.call(self._waiting[uid])
            state.bookings.promise(self._waiting[uid], self._given[uid], first, told=told)
        for each in held:
            state.bookings.renew(each, first)

    def _give_up(self) -> None:
        """The others go with it, unless they are enough, or another question follows at once."""
        if self._need > len(self._held) and not self._is_hint():
            self._lift(self._held)
            return
        for former in self._lifted:
            if former.pod.uid != self._asked.uid:
                self._state.bookings.put_back(former)

    def _why(self) -> Refused:
        if (own := self._refused.get(self._asked.uid)) is not None:
            return own
        text = f"{self._need} waiting pods of group {self._gang} must have devices together"
        if self._refused:
            uid, refused = next(iter(self._refused.items()))
            text += f"; for {self._waiting[uid].name}, {answers.summary(refused)}"
        return Refused.everywhere(
            self._candidates, Rejected.of(reasons.GROUP_NOT_FIT, details=[text])
        )

    def _memory(self) -> object:
        """A refusal holds while nothing has come free: others who took something change nothing."""
        waiting = self._state.pending
        return (
            waiting.frees,
            waiting.numbering,
            waiting.set_of(self._candidates),
            self._key_of(self._asked),
            self._need,
            len(self._held),
        )

    def _lift(self, uids: Sequence[PodUid]) -> None:
        for uid in uids:
            if (former := self._state.bookings.lift(uid)) is not None:
                self._lifted.append(former)

    @contextmanager
    def _holds_lifted(self) -> Iterator[None]:
        with ExitStack() as stack:
            for uid in self._waiting:
                if uid in self._state.holds.holds:
                    stack.enter_context(self._state.holds.lifted(uid))
            yield


def _size(request: PodRequest | Invalid) -> tuple[int, int]:
    """Slices, and MiB or percent of memory."""
    if isinstance(request, Invalid):
        return (0, 0)
    asked = [r for container in request.containers for r in container.requests]
    memory = sum(r.count * (r.memory_mib or r.memory_percent or 0) for r in asked)
    return sum(r.count for r in asked), memory


def _whereabouts(pod: Pod) -> bytes:
    """What kube-scheduler reads of where it may go."""
    spec = pod.spec
    return msgspec.json.encode((spec.node_selector, spec.affinity, spec.tolerations))


def _may_go(pod: Pod, node: Node) -> bool:
    """A guess for a pod that was never asked about; its own filter has the last word."""
    if node.spec is not None and node.spec.unschedulable:
        return False
    selector = pod.spec.node_selector or {}
    return all(node.labels.get(key) == value for key, value in selector.items())
