"""The plugin object: the scheduler's hooks and the node's."""

from __future__ import annotations

from hami_nvidia.node_side import NvidiaNode
from hami_nvidia.scheduler_side import NvidiaScheduling


class NvidiaVendor(NvidiaScheduling, NvidiaNode):
    """All hooks of the vendor NVIDIA. The node's side keeps state, so a test makes its own."""

    HAMI_API = 1
