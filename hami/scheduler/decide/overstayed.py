"""Devices that are promised again and again and never used make way for others that wait.

A pod that something else keeps from being bound is filtered every few seconds, and so is a gang
that cannot be complete. Each question renews the promise. From ``reservation-ttl`` after the first
one on, what is in the way of others is theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Self

from hami.domain import reasons
from hami.domain.allocations import PodAllocation
from hami.domain.kubernetes.objects import Pod
from hami.domain.reasons import Rejected
from hami.domain.requests import PodRequest
from hami.domain.scheduling import SchedulingPolicy
from hami.domain.units import PodUid
from hami.policy.filter.decision import Refused
from hami.policy.filter.gangs import GroupName, giving_way
from hami.policy.pods.pod_request import parse_pod
from hami.scheduler.bookings.backoff import Who
from hami.scheduler.bookings.reservations import Reservation
from hami.scheduler.bookings.state import ClusterState
from hami.scheduler.decide import gangs
from hami.scheduler.pending.equivalence import PendingPod, may_come

MOST_TRIED = 32
"""Waiting pods that are tried each time: a few are enough to see that somebody needs the room."""


def reserve(
    state: ClusterState,
    request: PodRequest,
    candidates: Sequence[str],
    policy: SchedulingPolicy,
) -> PodAllocation | Refused:
    """As :func:`gangs.reserve`, for one who may have had its turn already."""
    if not state.backoff:
        return gangs.reserve(state, request, candidates, policy)
    who = who_is(state, request.pod.uid)
    if seconds := state.backoff.left(who):
        state.bookings.release(request.pod.uid)
        return _resting(candidates, seconds)
    if not state.backoff.times(who) or who in _holders(state):
        return gangs.reserve(state, request, candidates, policy)
    with _Others(state, policy, frozenset({who})) as others:
        anybody = others.take(fewer_times=state.backoff.times(who))
        outcome = gangs.reserve(state, request, candidates, policy)
    if anybody and not isinstance(outcome, PodAllocation):
        state.backoff.pause(who)
        if isinstance(who, GroupName):
            state.groups.forget(who)  # It is about room that others have first.
    return outcome


def make_way(state: ClusterState, age: float, policy: SchedulingPolicy) -> Sequence[Reservation]:
    """Take from whoever has held devices for more than ``age`` seconds what others need."""
    state.backoff.forget(age)
    held = _held_by_whom(state, age)
    if not held or not state.pending.pods:
        return ()
    with _Others(state, policy, held.keys()) as others:
        going = giving_way(_Holdings(state, held, others, policy), list(held))
    gone = [former for who in going for former in held[who]]
    for who in going:
        state.backoff.begin(who)
    for former in gone:
        state.bookings.settle(former)
        rest_of(state, former.pod)
    return gone


def who_is(state: ClusterState, uid: PodUid) -> Who:
    return state.groups.gang_of(uid) or uid


def rest_of(state: ClusterState, pod: Pod) -> None:
    """A pod that was refused because others come first is woken later, and not before."""
    if not state.backoff:
        return
    who, waiting = who_is(state, pod.uid), state.pending.pods.get(pod.uid)
    if state.backoff.times(who) and waiting is not None:
        state.pending.not_woken(waiting, 0, state.reservations.now(), state.backoff.left(who))
        state.pending.look_again()


def _holders(state: ClusterState) -> Collection[Who]:
    return {who_is(state, uid) for uid in state.reservations}


def _held_by_whom(state: ClusterState, age: float) -> dict[Who, list[Reservation]]:
    """Whoever has held longest first; of a gang, all that is not on its way to a bind."""
    late = sorted(state.reservations.overstayed(age), key=lambda each: each.first)
    held: dict[Who, list[Reservation]] = {who_is(state, each.pod.uid): [] for each in late}
    if held:
        for each in state.reservations.unbound():
            if (who := who_is(state, each.pod.uid)) in held:
                held[who].append(each)
    return held


class _Others:
    """Within ``with``, those who wait for what somebody else holds have what fits them."""

    def __init__(
        self, state: ClusterState, policy: SchedulingPolicy, holders: Collection[Who]
    ) -> None:
        """``holders`` are none of them."""
        self._state = state
        self._policy = policy
        self._holders = holders

    def __enter__(self) -> Self:
        self._trial = self._state.bookings.on_trial().__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._trial.__exit__(kind, error, trace)

    def take(self, *, fewer_times: int | None = None) -> bool:
        """Whether there is anybody. ``fewer_times``: only those who had to leave devices to others
        less often than that.
        """
        kinds = [kind for kind in self._state.pending.kinds if kind.queue]
        tried = 0
        for kind in sorted(kinds, key=lambda kind: kind.queue[0].urgency):
            for waiting in list(kind.queue):
                if not self._waits(waiting, fewer_times):
                    continue
                tried += 1
                if tried > MOST_TRIED or not self._takes(waiting):
                    break  # Nor does any other of the kind.
        return bool(self._trial.pods)

    def _waits(self, waiting: PendingPod, fewer_times: int | None) -> bool:
        """It was refused, and not because it rests, and it has come when it was woken."""
        state, who = self._state, who_is(self._state, waiting.pod.uid)
        return (
            waiting.why is not None
            and not waiting.in_vain
            and may_come(waiting.pod)
            and waiting.pod.uid not in self._trial.pods
            and who not in self._holders
            and not state.backoff.left(who)
            and (fewer_times is None or state.backoff.times(who) < fewer_times)
        )

    def _takes(self, waiting: PendingPod) -> bool:
        state = self._state
        request = parse_pod(waiting.pod, state.vendors, self._policy)
        if not isinstance(request, PodRequest) or not request.vendors:
            return False
        offered = state.pending.names(waiting.offered, state.nodes)
        given = gangs.fits(state, request, offered, self._policy, self._trial.pods)
        for uid, allocation in (given or {}).items():
            self._trial.charge(state.pods[uid], allocation)
        return given is not None


class _Holdings:
    """The state's books, in one turn of the loop."""

    def __init__(
        self,
        state: ClusterState,
        held: Mapping[Who, Sequence[Reservation]],
        others: _Others,
        policy: SchedulingPolicy,
    ) -> None:
        self._state = state
        self._held = held
        self._others = others
        self._policy = policy

    def lift(self, holder: Who) -> None:
        for former in self._held[holder]:
            self._state.bookings.lift(former.pod.uid)

    def others_take(self) -> bool:
        return self._others.take()

    def put_back(self, holder: Who, *, as_it_was: bool) -> bool:
        held = self._held[holder]
        if as_it_was:
            for former in held:
                self._state.bookings.put_back(former)
            return True
        if all(map(self._again, held)):
            return True
        for former in held:
            self._state.bookings.lift(former.pod.uid)
        return False

    def _again(self, former: Reservation) -> bool:
        request = parse_pod(former.pod, self._state.vendors, self._policy)
        return isinstance(request, PodRequest) and self._state.bookings.move(former, request)


def _resting(candidates: Sequence[str], seconds: float) -> Refused:
    text = (
        "it held devices for longer than reservation-ttl without being bound, and others can use "
        f"them; it may have some again in {seconds:.0f} s"
    )
    return Refused.everywhere(candidates, Rejected.of(reasons.GIVES_WAY, details=[text]))
