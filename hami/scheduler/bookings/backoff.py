"""Who has held devices for too long without being bound, and must leave them to others for a while.

Each time it happens to the same pod or gang, the while is twice as long.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hami.domain.units import PodUid
from hami.policy.filter.gangs import GroupName

Who = GroupName | PodUid
"""A gang, or a pod that is in none."""

FIRST, LONGEST = 10.0, 300.0
"""Seconds; the first is time enough for whoever is woken, the last how often kube-scheduler itself
tries a pod again."""

PAUSE = 2.0
"""Seconds, when it asks again and others still come first."""


@dataclass(slots=True)
class _Rest:
    """``until`` is in monotonic seconds."""

    until: float
    times: int


class PodBackoff(dict[Who, _Rest]):
    """Whom others come before, and for how long. Empty where nobody had to rest lately."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock

    def begin(self, who: Who) -> None:
        rest = self.setdefault(who, _Rest(0.0, 0))
        rest.until = self._clock() + min(FIRST * 2.0 ** min(rest.times, 16), LONGEST)
        rest.times += 1

    def pause(self, who: Who) -> None:
        """Others still come first; all its pods need not be told so one by one."""
        self[who].until = self._clock() + PAUSE

    def left(self, who: Who) -> float:
        """Seconds; 0 for whoever does not rest."""
        rest = self.get(who)
        return max(0.0, rest.until - self._clock()) if rest is not None else 0.0

    def times(self, who: Who) -> int:
        """How often it had to leave devices to others, as far as that is remembered."""
        rest = self.get(who)
        return rest.times if rest is not None else 0

    def forget(self, age: float) -> None:
        """Those whose rest was over so many seconds ago, and the longest rest on top of it."""
        oldest = self._clock() - age - LONGEST
        for who in [who for who, rest in self.items() if rest.until <= oldest]:
            del self[who]
