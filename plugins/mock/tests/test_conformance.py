"""The mock vendor implements every hook, and follows the vendor contract in each."""

from __future__ import annotations

import pytest
from hami_mock import MockVendor

from hami.domain.devices import Device
from hami.testing import VendorContract, node_publishing


class TestMock(VendorContract):
    @pytest.fixture
    def vendor(self):
        return MockVendor()

    @pytest.fixture
    def config(self, tmp_path):
        partitions = tmp_path / "partitions"
        partitions.mkdir()
        return {"mock": {"devices": "mockx2", "node": "node-a", "partitions": str(partitions)}}

    @pytest.fixture
    def fake_node(self, vendor):
        return node_publishing(
            vendor,
            [
                Device(
                    id=f"MOCK-node-a-{index}",
                    vendor="MOCK",
                    index=index,
                    model="Mock-16G",
                    slots=10,
                    memory_mib=16384,
                    numa=index // 2,
                    mode="mock",
                )
                for index in range(3)
            ],
        )
