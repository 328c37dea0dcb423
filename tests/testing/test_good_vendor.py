"""The kit accepts a vendor that follows the contract, without skipping a check."""

from __future__ import annotations

import pytest

from hami.testing import VendorContract

from .toy import CONFIG, ToyVendor, toy_node


class TestToy(VendorContract):
    @pytest.fixture
    def vendor(self):
        return ToyVendor()

    @pytest.fixture
    def fake_node(self):
        return toy_node()

    @pytest.fixture
    def config(self):
        return CONFIG
