"""Promises that end by themselves: with time, and with a term of leadership."""

from __future__ import annotations

from collections.abc import Sequence

from hami.scheduler.bookings.holds import Hold
from hami.scheduler.bookings.reservations import Reservation
from hami.scheduler.bookings.state import ClusterState


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
