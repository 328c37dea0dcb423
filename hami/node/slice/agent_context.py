"""What the parts of the agent share: one node, one vendor."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from hami.blocking.threads import Threads
from hami.kube.events import EventRecorder
from hami.node.device.inventory import HookConfig, Inventory
from hami.node.disk.cdi import CdiFolders
from hami.node.disk.store import SliceStore
from hami.node.pod.pods import Granting, NodePods
from hami.node.slice.live_slices import LiveSlices
from hami.slices.cgroups import PodCgroups
from hami.vendors.boundary import Vendor


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentContext:
    """``kind`` is the CDI kind of the vendor's slices; ``config`` is what its hooks are given.

    ``hooks`` are the threads of the vendor's hooks, ``pages`` those that may wait for a tenant, and
    ``disk`` those of everything else that blocks. ``clock`` tells Unix seconds.
    """

    vendor: Vendor
    kind: str
    pods: NodePods
    granting: Granting
    slices: LiveSlices
    store: SliceStore
    folders: CdiFolders
    cgroups: PodCgroups
    events: EventRecorder
    hooks: Threads
    pages: Threads
    disk: Threads
    inventory: Inventory
    config: HookConfig
    clock: Callable[[], float] = time.time
