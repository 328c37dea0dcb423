"""What pods are charged, on devices and against quotas: always both, in one step."""

from __future__ import annotations

from hami.domain.allocations import PodAllocation
from hami.domain.objects import Pod
from hami.policy.pods.accounting import Account
from hami.policy.quota import QuotaLedger
from hami.policy.tables.cluster_table import ClusterTable


class Accounts:
    """``table`` knows what is in use of each device, ``ledger`` of each quota."""

    def __init__(self, table: ClusterTable, ledger: QuotaLedger) -> None:
        self.table = table
        self.ledger = ledger

    def use(self, table: ClusterTable, ledger: QuotaLedger) -> None:
        """Other, empty ones."""
        self.table = table
        self.ledger = ledger

    def charge(self, pod: Pod, allocation: PodAllocation) -> None:
        """Whatever the limits say; what the pod was charged before is replaced."""
        self.table.charge(pod.uid, allocation)
        self.ledger.charge(pod, allocation)

    def charge_bound(self, pod: Pod, account: Account) -> None:
        """A bound pod: with what nobody can read of it, and less once init containers ended."""
        self.table.charge(
            pod.uid, account.allocation, account.unknown, init_ended=account.init_ended
        )
        self.ledger.charge(pod, account.running)

    def discharge(self, pod: Pod) -> None:
        self.table.release(pod.uid)
        self.ledger.release(pod.uid)
