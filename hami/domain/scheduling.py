"""How a pod wants nodes and devices chosen: policies and weights, as values.

Read from HAMi's pod annotations and the service's defaults by ``hami.policy.fit.rank``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class NodePolicy(Enum):
    BINPACK = "binpack"
    SPREAD = "spread"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringWeights:
    """Weights of the three shares in a device's score (not in a node's)."""

    slot: int = 1
    core: int = 1
    memory: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePolicy:
    """The order of devices within a node, and two filters that ride in the same annotation.

    ``chain`` holds ``binpack``, ``spread``, ``numa`` or ``mutex`` in written order; the last
    alone. ``chained``: it was written with commas. ``mutex`` refuses devices in use;
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
