"""What pods are charged, on devices and against quotas: always both, in one step."""

from __future__ import annotations

from msgspec.structs import replace

from hami.domain.allocations import PodAllocation
from hami.domain.kubernetes.objects import Pod
from hami.domain.units import PodUid
from hami.policy.quota import QuotaLedger
from hami.policy.tables.cluster_table import ClusterTable
from hami.policy.usage import at_least
from hami.scheduler.bookings.charges import Charge, known_part


class ChargeBook:
    """``table`` knows what is in use of each device, ``ledger`` of each quota, ``charges`` why, of
    bound pods. ``resizing``: what some of these may have instead at any moment.
    """

    def __init__(self, table: ClusterTable, ledger: QuotaLedger) -> None:
        self.table = table
        self.ledger = ledger
        self.charges: dict[PodUid, Charge] = {}
        self.resizing: dict[PodUid, PodAllocation] = {}

    def use(self, table: ClusterTable, ledger: QuotaLedger) -> None:
        """Other, empty ones; ``charges`` are as they were, until the pods are read anew."""
        self.table = table
        self.ledger = ledger

    def charge(self, pod: Pod, allocation: PodAllocation) -> None:
        """Whatever the limits say; what the pod was charged before is replaced."""
        self.table.charge(pod.uid, allocation)
        self.ledger.charge(pod, allocation)

    def charge_bound(self, charge: Charge) -> None:
        """A bound pod: with what nobody can read of it, and less once init containers ended.

        One that is being resized: with the larger of what it has and what it may get.
        """
        pod, account = charge.pod, charge.account
        self.charges[pod.uid] = charge
        if (coming := self.resizing.get(pod.uid)) is not None:
            coming = known_part(coming, self.table.vendors)
            account = replace(account, allocation=at_least(account.allocation, coming))
        self.table.charge(
            pod.uid, account.allocation, account.unknown, init_ended=account.init_ended
        )
        self.ledger.charge(pod, account.running)

    def discharge(self, pod: Pod) -> None:
        self.table.release(pod.uid)
        self.ledger.release(pod.uid)
