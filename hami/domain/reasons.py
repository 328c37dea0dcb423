"""Why a device or a node was refused: values, counted, and made into text only for output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reason:
    """One word that says why. Vendors may make their own; HAMi's are below.

    A ``whole_node`` word describes the node, so it is shown without a device count.
    ``unresolvable`` means that evicting pods cannot help: no such device, or the pod excludes it.
    """

    word: str
    whole_node: bool = False
    unresolvable: bool = False

    def __str__(self) -> str:
        return self.word


# HAMi's vocabulary, spelling included: dashboards and people's scripts match on it.
NOT_HEALTHY = Reason("CardNotHealth", unresolvable=True)
CORDONED = Reason("CardCordoned", unresolvable=True)
TYPE_MISMATCH = Reason("CardTypeMismatch", unresolvable=True)
UUID_MISMATCH = Reason("CardUuidMismatch", unresolvable=True)
NO_SLOT = Reason("CardTimeSlicingExhausted")
EXCLUSIVE_CONFLICT = Reason("ExclusiveDeviceAllocateConflict")
QUOTA = Reason("ResourceQuotaNotFit")
NO_MEMORY = Reason("CardInsufficientMemory")
NO_CORES = Reason("CardInsufficientCore")
CORES_EXHAUSTED = Reason("CardComputeUnitsExhausted")
VENDOR_RULE = Reason("CardNotFoundCustomFilterRule")
MIG_INFEASIBLE = Reason("CardMigTopologyInfeasible")
NUMA_NOT_FIT = Reason("NumaNotFit")
TOO_FEW = Reason("AllocatedCardsInsufficientRequest")
MODE_NOT_FIT = Reason("ModeNotFit", unresolvable=True)
NODE_TOO_FEW_DEVICES = Reason("NodeInsufficientDevice", whole_node=True, unresolvable=True)
NODE_UNREGISTERED = Reason("node unregistered", whole_node=True, unresolvable=True)

# Ours.
GROUP_NOT_FIT = Reason("PodGroupNotFit", whole_node=True)
"""The pod would fit, but not enough pods of its group would fit with it."""
GIVES_WAY = Reason("GivesWay", whole_node=True, unresolvable=True)
"""The pod held devices for long without being bound, and other pods that fit now have them."""
UNKNOWN_USAGE = Reason("UnknownUsage")
"""A pod runs here whose allocation cannot be read, so nobody knows what is free."""
NODE_LOCKED = Reason("NodeLocked", whole_node=True, unresolvable=True)
"""Another pod is between bind and start on the node, whose agent serves one pod at a time."""
VENDOR_ERROR = Reason("VendorError", unresolvable=True)
"""The vendor's plugin failed; the log names its distribution."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """Why a node, or one container on it, was refused.

    ``counts`` holds (reason, number of devices) pairs. ``devices`` is the number of devices looked
    at. ``details`` are sentences for people (which quota, used, asked, limit), never parsed back.
    ``rules`` name the quota rules that those sentences are about, for counting.
    """

    counts: tuple[tuple[Reason, int], ...]
    devices: int = 0
    details: tuple[str, ...] = ()
    rules: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls,
        reasons: Mapping[Reason, int] | Reason,
        devices: int = 0,
        details: Iterable[str] = (),
        rules: Iterable[str] = (),
    ) -> Rejected:
        """Make one from counts, or from one reason that holds for the whole node."""
        counted = {reasons: 1} if isinstance(reasons, Reason) else reasons
        kept = sorted(((r, n) for r, n in counted.items() if n), key=lambda item: item[0].word)
        return cls(tuple(kept), devices, tuple(details), frozenset(rules))

    @property
    def unresolvable(self) -> bool:
        """Preemption cannot help: too few devices would remain whatever pods are evicted."""
        return all(reason.unresolvable for reason, _ in self.counts)

    def __str__(self) -> str:
        """HAMi's text: ``1/4 AllocatedCardsInsufficientRequest, 3/4 ResourceQuotaNotFit``."""
        parts = [
            reason.word if reason.whole_node else f"{n}/{self.devices} {reason.word}"
            for reason, n in self.counts
        ]
        return ", ".join(sorted(parts))
