"""The plugin object: the scheduler's hooks and the node's."""

from __future__ import annotations

from hami_nvidia.node_side import NvidiaNode
from hami_nvidia.scheduler_side import NvidiaScheduling


class NvidiaVendor(NvidiaScheduling, NvidiaNode):
    """A test makes its own, because the node's side remembers."""

    HAMI_API = 1
