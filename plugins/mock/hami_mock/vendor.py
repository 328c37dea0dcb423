"""The plugin object."""

from __future__ import annotations

from hami_mock.node import MockNode
from hami_mock.scheduling import MockScheduling


class MockVendor(MockScheduling, MockNode):
    """Every hook of the contract. A test makes its own, because the node's side remembers."""

    HAMI_API = 1

    def __init__(self) -> None:
        MockScheduling.__init__(self)
        MockNode.__init__(self)
