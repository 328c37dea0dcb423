"""What the parts of the agent share: one node, one vendor."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hami.domain.devices import Device
from hami.domain.units import DeviceId
from hami.hookspecs import PluginConfig
from hami.kube.events import EventRecorder
from hami.node.device.threads import Threads
from hami.node.disk.cdi import CdiFolders
from hami.node.disk.store import SliceStore
from hami.node.pod.cgroups import PodCgroups
from hami.node.pod.granting import Granting
from hami.node.pod.pods import NodePods
from hami.node.slice.live_slices import LiveSlices
from hami.vendors.boundary import Vendor


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentContext:
    """``kind`` is the CDI kind of the vendor's slices; the callables tell the state of now.

    ``hooks`` are the threads of the vendor's hooks, ``pages`` those that may wait for a tenant, and
    ``disk`` those of everything else that blocks.
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
    devices: Callable[[], Mapping[DeviceId, Device]]
    config: Callable[[], PluginConfig]
    clock: Callable[[], float] = time.time
