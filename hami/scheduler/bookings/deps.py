"""What the books need from outside, given once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hami.domain.kubernetes.objects import Node
from hami.domain.profile import VendorProfile
from hami.scheduler.bookings.lock_book import NeedsLock
from hami.scheduler.bookings.problems import Problem
from hami.signing import Signer


def no_lock(_node: Node, _profile: VendorProfile) -> str:
    """Where nobody binds, nobody needs a lock."""
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerDeps:
    """``clock`` gives monotonic seconds. ``report`` is told what is wrong with an object.

    ``bind_seen`` is told the seconds from a bind until the informer showed it. ``hold``: seconds
    for which what a preemption freed waits for its claimant. ``scheduler_name``: of the
    kube-scheduler that asks us, empty for any. ``needs_lock`` and ``lock_expiry`` (seconds) are
    about the locks of nodes.
    """

    clock: Callable[[], float]
    alive: Callable[[VendorProfile, Node], bool]
    signer: Callable[[], Signer]
    report: Callable[[Problem], None]
    bind_seen: Callable[[float], None]
    hold: float = 60.0
    scheduler_name: Callable[[], str] = str
    needs_lock: NeedsLock = no_lock
    lock_expiry: Callable[[], float] = lambda: 300.0
