"""Promises that end by themselves: with time, and with a term of leadership."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from hami.domain.scheduling import SchedulingPolicy
from hami.scheduler.bookings.holds import Hold
from hami.scheduler.bookings.reservations import Reservation
from hami.scheduler.bookings.state import ClusterState
from hami.scheduler.decide.overstayed import make_way


def end_overdue(state: ClusterState, age: float, policy: SchedulingPolicy) -> None:
    """Everything whose time is over, each with a line in the log. ``age``: seconds for which a
    reservation stands without a bind.
    """
    log = structlog.get_logger("hami.scheduler")
    for hold in expire_holds(state):
        log.warning("a claimant did not come for what was freed", pod=hold.claimant.full_name)
    for reservation in make_way(state, age, policy):
        log.warning(
            "a reservation gives way: the pod asks again and again and is not bound",
            pod=reservation.pod.full_name,
            node=reservation.allocation.node,
        )
    for reservation in expire(state, age):
        log.warning(
            "a reservation expired: the pod was not bound in time",
            pod=reservation.pod.full_name,
            node=reservation.allocation.node,
        )


def expire(state: ClusterState, age: float) -> Sequence[Reservation]:
    """Give up what was promised longer than ``age`` seconds ago and never came to a bind."""
    expired = state.reservations.overdue(age)
    for reservation in expired:
        state.bookings.release(reservation.pod.uid)
    return expired


def expire_holds(state: ClusterState) -> Sequence[Hold]:
    """Give up what was held for claimants that do not come."""
    overdue = state.holds.overdue()
    for hold in overdue:
        state.bookings.end_hold(hold.claimant.uid)
    return overdue


def end_promises(state: ClusterState) -> None:
    """Another replica decides from now on; only what may be bound already still counts."""
    for claimant in list(state.holds.holds):
        state.bookings.end_hold(claimant)
    for uid in list(state.reservations):
        if state.reservations.promised(uid) is None:
            state.bookings.release(uid)
