"""Policies and weights by which a pod wants nodes and devices chosen.

``hami.policy.fit.rank`` reads them from HAMi's pod annotations and the service's defaults.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class NodePolicy(Enum):
    BINPACK = "binpack"
    SPREAD = "spread"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringWeights:
    """The weights of the three shares in a device's score (a node's score has none)."""

    slot: int = 1
    core: int = 1
    memory: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePolicy:
    """The order of devices within a node, and two filters that come in the same annotation.

    ``chain`` holds ``binpack``, ``spread``, ``numa`` or ``mutex`` in written order; ``mutex``
    stands alone. ``chained``: the annotation had commas. ``mutex`` refuses devices in use;
    ``topology_aware`` lets the vendor choose by links.
    """

    chain: tuple[str, ...] = ("spread",)
    chained: bool = False
    mutex: bool = False
    topology_aware: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingPolicy:
    node: NodePolicy = NodePolicy.BINPACK
    device: DevicePolicy = DevicePolicy()
    weights: ScoringWeights = ScoringWeights()
