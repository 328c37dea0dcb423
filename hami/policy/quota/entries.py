"""Who is charged what: one entry per pod, which every kind of quota counts."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, get_args

from hami.domain.allocations import ContainerAllocation
from hami.domain.kubernetes.objects import Pod
from hami.domain.profile import VendorProfile
from hami.domain.units import PodUid, VendorKey
from hami.policy.quota.constraint import QuotaRefusal
from hami.policy.quota.elastic.model import ElasticRefusal, Rule
from hami.policy.usage import quota_charge

Refusal = QuotaRefusal | ElasticRefusal
"""One limit of one object, whichever kind of quota."""

RULES: tuple[str, ...] = (*get_args(Rule), QuotaRefusal.rule)
"""Those that a refusal may name, in the order in which they are checked."""


class PodGate(Protocol):
    """What the quotas of one pod's namespace leave it."""

    @property
    def per_model(self) -> bool:
        """Whether single models of device are limited; without them nobody asks for them."""
        ...

    def of_models(self, containers: Sequence[ContainerAllocation], node: str) -> Mapping[str, int]:
        """What these containers would be charged there, of single models that are limited."""
        ...

    def left(self, resource: str) -> int | None:
        """At least as much of a resource as every object leaves; None when none limits it."""
        ...

    def refusals(
        self, asked: Mapping[str, int], *, ignoring_usage: bool = False
    ) -> tuple[Refusal, ...]:
        """Why these amounts are too much; empty when every object admits them.

        ``ignoring_usage``: whether they could ever be admitted.
        """
        ...


@dataclass(slots=True, eq=False)
class QuotaEntry:
    """What a pod holds; its ``charge`` is added up when some quota counts it.

    ``pod`` is as it was charged, by which scopes match until it is released; ``latest`` as it was
    last seen.
    """

    pod: Pod
    latest: Pod
    containers: Sequence[ContainerAllocation]
    profiles: Mapping[VendorKey, VendorProfile]
    node: str
    _charge: Mapping[str, int] | None = None

    @property
    def charge(self) -> Mapping[str, int]:
        if self._charge is None:
            self._charge = quota_charge(self.containers, self.profiles)
        return self._charge


class QuotaKind(Protocol):
    """One kind of quota: its objects, and what they count.

    The ledger asks and tells it about pods of ``namespaces`` alone, and takes back what it counts
    of a pod that is in ``counted``.
    """

    @property
    def namespaces(self) -> Container[str]:
        """Where some object of this kind counts pods."""
        ...

    @property
    def counted(self) -> Container[PodUid]:
        """The pods that it counts."""
        ...

    def gate(self, pod: Pod, gone: Sequence[QuotaEntry]) -> PodGate | None:
        """What it leaves the pod; None without any limit.

        ``gone``: entries of its namespace that count as if they were charged nothing.
        """
        ...

    def refusals(self, entry: QuotaEntry, gone: Sequence[QuotaEntry]) -> Sequence[Refusal]:
        """Every limit that a pod would exceed, were it charged this; ``gone`` as for a gate."""
        ...

    def charge(self, entry: QuotaEntry) -> None:
        """Count it, whatever the limits say."""
        ...

    def release(self, uid: PodUid) -> None:
        """Take back exactly what was counted. Idempotent."""
        ...
