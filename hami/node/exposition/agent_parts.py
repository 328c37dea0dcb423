"""The parts of an agent that are asked how they do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from hami.node.device.advertise import Advertiser
from hami.node.kubelet.served_resources import ServedResources
from hami.node.slice.agent_context import AgentContext
from hami.node.slice.resizing import Resizing
from hami.node.start.container_start import StartCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentParts:
    """``recovered``: whether the slices of a former agent have been taken over."""

    around: AgentContext
    advertiser: Advertiser
    resources: ServedResources
    resizing: Resizing
    starts: StartCounts
    recovered: Callable[[], bool]
