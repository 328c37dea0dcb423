"""The plugin object."""

from __future__ import annotations

from hami_mock.node import NodeSide
from hami_mock.scheduling import SchedulerSide


class MockVendor(SchedulerSide, NodeSide):
    """Every hook of the contract. A test makes its own, because the node's side remembers."""

    HAMI_API = 1

    def __init__(self) -> None:
        SchedulerSide.__init__(self)
        NodeSide.__init__(self)
