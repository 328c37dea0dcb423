"""What the state needs from outside, and what it has to say: to whom, about what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hami.domain.objects import Node, Pod, ResourceQuota
from hami.domain.profile import VendorProfile
from hami.domain.units import PodUid
from hami.policy.pods.accounting import Account
from hami.scheduler.bookings.elastic_objects import QuotaObject
from hami.signing import Signer

Subject = Pod | Node | ResourceQuota | QuotaObject


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with an object, for its owner: becomes a log line and an event."""

    about: Subject
    reason: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerDeps:
    """What the state needs from outside. ``clock`` gives monotonic seconds.

    ``bind_seen`` is told the seconds from a bind until the informer showed it. ``hold``: seconds
    for which what a preemption freed waits for its claimant.
    """

    clock: Callable[[], float]
    alive: Callable[[VendorProfile, Node], bool]
    signer: Callable[[], Signer]
    report: Callable[[Problem], None]
    bind_seen: Callable[[float], None]
    hold: float = 60.0


@dataclass(frozen=True, slots=True, eq=False)
class Unjudged:
    """A pod's signature that is to be verified, which takes too long for the loop.

    ``first``: nothing else was ever known of what the pod uses.
    """

    uid: PodUid
    account: Account
    text: str
    first: bool


class Problems:
    """Tells each problem once, until it changes."""

    def __init__(self, report: Callable[[Problem], None]) -> None:
        self._report = report
        self._told: dict[tuple[str, str], tuple[str, ...]] = {}

    def tell(
        self, about: Subject, key: tuple[str, str], reason: str, problems: tuple[str, ...]
    ) -> None:
        """``problems``: everything that is wrong with it now."""
        if self._told.get(key, ()) == problems:
            return
        self._told[key] = problems
        for text in problems:
            self._report(Problem(about, reason, text))

    def forget(self, key: tuple[str, str]) -> None:
        self._told.pop(key, None)


def nobody(*_: object) -> None:
    """Nobody wants to know."""
