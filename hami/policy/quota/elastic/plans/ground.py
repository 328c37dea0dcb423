"""What a plan asks about everything that is not elastic quota: nodes, devices, other quotas, PDBs.

Answers are about one claimant and one moment, and stay the same while a plan is made. They are
``what if`` questions: nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from hami.domain.units import PodUid
from hami.policy.quota.elastic.model import Amounts, Member


class Ground(Protocol):
    """Where a claimant might go, and what has to be gone from there."""

    def nodes(self) -> Sequence[str]:
        """Nodes where the claimant might go if pods were evicted, best first.

        Those that no eviction helps (taints, selectors, a device that is too small) are left out.
        """
        ...

    def open_nodes(self) -> Sequence[str]:
        """Those of them where ``fits(node, ())`` is not None, best first.

        One for each charge is enough: nodes where the claimant would be charged the same have no
        difference that matters to a plan.
        """
        ...

    def members_on(self, node: str) -> Collection[PodUid]:
        """The pods that hold something on a node and could be evicted."""
        ...

    def short_of_quota(self) -> bool:
        """A ResourceQuota of its namespace refuses the claimant as things are.

        Only then can a pod on another node be in the way of ``fits``.
        """
        ...

    def fits(self, node: str, without: Collection[PodUid]) -> Amounts | None:
        """What the claimant would be charged on a node if these pods were gone; None: no place.

        A place is devices, and room in every ResourceQuota that counts the claimant.
        """
        ...


class DisruptionBudgets(Protocol):
    """PodDisruptionBudgets as they stand."""

    def counting(self, member: Member) -> Mapping[str, int]:
        """The budgets that count a pod, and how many of theirs may go now; at least 0."""
        ...


class NoBudgets:
    """A cluster without PodDisruptionBudgets."""

    def counting(self, member: Member) -> Mapping[str, int]:
        del member
        return {}
