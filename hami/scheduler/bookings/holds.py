"""What the victims of a preemption leave behind, kept for the pod that they were evicted for.

Without it, whoever comes first takes what was freed: the victim's own replacement, as a rule. A
victim that is gone stays charged, on its devices and against its quotas, until the claimant has
been given something or too much time has passed. So nothing else needs to know of holds, save
whoever plans further evictions: for that, what is promised counts as done already.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType

from hami.domain.allocations import PodAllocation
from hami.domain.kubernetes.objects import Pod
from hami.domain.units import PodUid
from hami.policy.quota.elastic import Amounts, Member
from hami.scheduler.bookings.charge_book import ChargeBook

USUAL_GRACE = 30
"""Seconds, as the API server sets them for a pod that does not say."""


_NOTHING: Amounts = MappingProxyType({})
_LAST = "~"
"""After every creation time."""


@dataclass(frozen=True, slots=True)
class Left:
    """A victim that is gone, and what it had."""

    pod: Pod
    allocation: PodAllocation


@dataclass(slots=True, eq=False)
class Hold:
    """``expected`` are victims that still run, ``until`` is in monotonic seconds.

    ``charged`` is what the claimant will hold of elastic quotas, ``freed`` what each victim holds.
    """

    claimant: Pod
    expected: set[PodUid]
    until: float
    left: dict[PodUid, Left] = field(default_factory=dict)
    charged: Amounts = field(default_factory=dict)
    freed: dict[PodUid, Member] = field(default_factory=dict)


class Holds:
    """One hold per claimant, each victim in one of them."""

    def __init__(self, books: ChargeBook, *, clock: Callable[[], float], patience: float) -> None:
        """``patience``: seconds for the claimant to come after the last victim has gone."""
        self._books = books
        self._clock = clock
        self._patience = patience
        self._holds: dict[PodUid, Hold] = {}
        self._of_victim: dict[PodUid, Hold] = {}
        self._promised: dict[str, dict[str, int]] = {}
        """By namespace: what claimants will hold of elastic quotas less what victims do."""

    @property
    def holds(self) -> Mapping[PodUid, Hold]:
        """By claimant."""
        return self._holds

    @property
    def spoken_for(self) -> Collection[PodUid]:
        """Victims of somebody, gone or not."""
        return self._of_victim.keys()

    def expects(self, claimant: PodUid, victim: PodUid) -> bool:
        """This one still waits for that one to go."""
        hold = self._holds.get(claimant)
        return hold is not None and victim in hold.expected

    def awaits(self, claimant: PodUid) -> bool:
        """Some victim of this pod still runs."""
        hold = self._holds.get(claimant)
        return hold is not None and bool(hold.expected)

    def ready(self) -> Sequence[PodUid]:
        """Claimants whose victims have all gone."""
        return [uid for uid, hold in self._holds.items() if hold.left and not hold.expected]

    def begin(
        self,
        claimant: Pod,
        victims: Sequence[Pod],
        charged: Amounts = _NOTHING,
        members: Sequence[Member] = (),
    ) -> None:
        """Before the first of them is evicted. What others have left for the claimant stays.

        ``charged`` and ``members``: the claimant and its victims as elastic quotas count them.
        """
        graces = [pod.spec.termination_grace_period_seconds for pod in victims]
        grace = max((USUAL_GRACE if g is None else g for g in graces), default=0)
        until = self._clock() + grace + self._patience
        hold = self._holds.setdefault(claimant.uid, Hold(claimant, set(), until))
        hold.until = until
        self._promise(hold, -1)
        hold.charged = charged
        hold.freed.update((member.uid, member) for member in members)
        self._promise(hold, 1)
        for victim in victims:
            hold.expected.add(victim.uid)
            self._of_victim[victim.uid] = hold

    def spares(self, victim: PodUid) -> None:
        """It was not evicted after all. What others left stays held, and so does what it has left
        itself if it is gone by now: the refusal came too late.
        """
        hold = self._of_victim.get(victim)
        if hold is None or victim not in hold.expected:
            return
        member = self._expects_no_more(hold, victim)
        self._promise(hold, -1)
        if not hold.expected and not hold.left:
            del self._holds[hold.claimant.uid]  # Of that plan nothing is carried out.
            return
        if member is not None:
            hold.charged = {
                resource: max(0, amount - member.vector.get(resource, 0))
                for resource, amount in hold.charged.items()
            }
        self._promise(hold, 1)

    def lets_go(self, pod: PodUid) -> bool:
        """A pod that had no device of ours is gone, and nothing is kept of what it had.

        Not if it is kept already: it ended before it was deleted.
        """
        hold = self._of_victim.get(pod)
        if hold is not None and pod in hold.expected:
            self._expects_no_more(hold, pod)
            hold.until = max(hold.until, self._clock() + self._patience)
        return pod not in self._of_victim

    def _expects_no_more(self, hold: Hold, victim: PodUid) -> Member | None:
        """What it holds of elastic quotas is part of the promise no more."""
        hold.expected.discard(victim)
        del self._of_victim[victim]
        member = hold.freed.pop(victim, None)
        if member is not None:
            self._add(member.namespace, member.vector, 1)
        return member

    def keeps(self, pod: Pod, allocation: PodAllocation) -> Hold | None:
        """A pod is gone: its charge stays if it was somebody's victim."""
        hold = self._of_victim.get(pod.uid)
        if hold is not None and pod.uid in hold.expected:
            hold.expected.discard(pod.uid)
            hold.left[pod.uid] = Left(pod, allocation)
            hold.until = max(hold.until, self._clock() + self._patience)
        return hold

    @contextmanager
    def lifted(self, claimant: PodUid) -> Iterator[None]:
        """Within it, what is held for this pod is free."""
        hold = self._holds.get(claimant)
        left = list(hold.left.values()) if hold else []
        for each in left:
            self._books.discharge(each.pod)
        try:
            yield
        finally:
            if self._holds.get(claimant) is hold:
                for each in left:
                    self._books.charge(each.pod, each.allocation)

    def end(self, claimant: PodUid) -> Sequence[Left]:
        """What was held for it, free from now on. Idempotent."""
        hold = self._holds.pop(claimant, None)
        if hold is None:
            return ()
        self._promise(hold, -1)
        for uid in (*hold.expected, *hold.left):
            self._of_victim.pop(uid, None)
        for each in hold.left.values():
            self._books.discharge(each.pod)
        return tuple(hold.left.values())

    def forget(self) -> None:
        """All of them; the accounts are others now."""
        self._holds.clear()
        self._of_victim.clear()
        self._promised.clear()

    # What is promised.

    def promised(self, claimant: PodUid) -> Sequence[Member]:
        """Others' plans as if they were carried out: one member for all of a namespace's.

        It is the newest of its quota. Its amounts may be negative, where more goes than comes.
        """
        own = self._holds.get(claimant)
        if own is not None:
            self._promise(own, -1)
        found = [
            Member(
                uid=PodUid(f"promised in {namespace}"),
                namespace=namespace,
                name="promised",
                created=_LAST,
                vector=dict(amounts),
            )
            for namespace, amounts in self._promised.items()
        ]
        if own is not None:
            self._promise(own, 1)
        return found

    def _promise(self, hold: Hold, sign: int) -> None:
        self._add(hold.claimant.namespace, hold.charged, sign)
        for member in hold.freed.values():
            self._add(member.namespace, member.vector, -sign)

    def _add(self, namespace: str, amounts: Amounts, sign: int) -> None:
        sums = self._promised.setdefault(namespace, {})
        for resource, amount in amounts.items():
            sums[resource] = sums.get(resource, 0) + sign * amount
            if not sums[resource]:
                del sums[resource]
        if not sums:
            del self._promised[namespace]

    def overdue(self) -> Sequence[Hold]:
        """Those whose claimant did not come."""
        now = self._clock()
        return [hold for hold in self._holds.values() if hold.until < now]
