"""Where a pod goes by devices, quotas and locks: on trial, or to be promised."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from hami.domain.allocations import PodAllocation
from hami.domain.requests import PodRequest
from hami.policy.filter.decision import Placed, Refused, decide, over_quota
from hami.policy.quota import QuotaLedger
from hami.policy.tables.cluster_table import ClusterTable
from hami.scheduler.bookings.groups import Groups
from hami.scheduler.bookings.lock_book import Locks


class TrialBooks(Protocol):
    """What is charged to whom."""

    locks: Locks
    table: ClusterTable
    ledger: QuotaLedger
    groups: Groups


def decided(
    books: TrialBooks, request: PodRequest, candidates: Sequence[str]
) -> PodAllocation | Refused:
    """Charged to the quotas, if it is an allocation."""
    ledger = books.ledger
    # Nobody fits a pod into thousands of nodes to find its quota used up on each.
    if hopeless := ledger.hopeless(request):
        return over_quota(candidates, hopeless)
    outcome = _on_a_free_node(books, request, candidates)
    if not isinstance(outcome, Placed):
        return outcome
    refusals = ledger.reserve(request.pod, outcome.allocation)
    if refusals:
        return over_quota(candidates, refusals)
    return outcome.allocation


def _on_a_free_node(
    books: TrialBooks, request: PodRequest, candidates: Sequence[str]
) -> Placed | Refused:
    """The best candidate whose lock is free; for want of one, the best that only its siblings keep
    busy: all of a gang are promised devices before one is bound, and its binds wait for each other.
    """
    table, gate, busy = books.table, books.ledger.gate(request.pod), books.locks.busy(request)
    outcome = decide(table, request, gate, candidates, locked=busy)
    if not busy or isinstance(outcome, Placed):
        return outcome
    siblings = books.groups.siblings(request.pod.uid)
    if not siblings:
        return outcome
    others = books.locks.busy(request, siblings=siblings)
    return decide(table, request, gate, candidates, locked=others)


def try_on(
    books: TrialBooks, request: PodRequest, candidates: Sequence[str]
) -> PodAllocation | Refused:
    """Charged to its devices too, until :func:`take_off` in the same turn of the loop."""
    outcome = decided(books, request, candidates)
    if isinstance(outcome, PodAllocation):
        books.table.charge(request.pod.uid, outcome)
    return outcome


def take_off(books: TrialBooks, request: PodRequest) -> None:
    """It waits for its share as before."""
    books.table.release(request.pod.uid)
    books.ledger.release(request.pod.uid)
    books.ledger.ask(request)
