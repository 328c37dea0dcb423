"""Which victims a PodDisruptionBudget does not let go: counted one by one, as they are chosen."""

from __future__ import annotations

from collections.abc import Iterable

from hami.domain.units import PodUid
from hami.policy.quota.elastic.model import Member
from hami.policy.quota.elastic.plans.ground import DisruptionBudgets


class Tally:
    """What is left of each budget while victims are chosen."""

    def __init__(self, budgets: DisruptionBudgets) -> None:
        self._budgets = budgets
        self._taken: dict[str, int] = {}

    def violates(self, member: Member) -> bool:
        """Whether a budget would not let it go, after those that were taken."""
        return any(
            self._taken.get(budget, 0) >= allowed
            for budget, allowed in self._budgets.counting(member).items()
        )

    def take(self, member: Member) -> None:
        self._add(member, 1)

    def spare(self, member: Member) -> None:
        """One that was taken stays after all."""
        self._add(member, -1)

    def _add(self, member: Member, change: int) -> None:
        for budget in self._budgets.counting(member):
            self._taken[budget] = self._taken.get(budget, 0) + change


def violations(budgets: DisruptionBudgets, victims: Iterable[Member]) -> frozenset[PodUid]:
    """Those of the victims, taken in this order, that a budget does not let go any more."""
    tally = Tally(budgets)
    found: set[PodUid] = set()
    for victim in victims:
        if tally.violates(victim):
            found.add(victim.uid)
        tally.take(victim)
    return frozenset(found)
