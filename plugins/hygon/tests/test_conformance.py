"""Both profiles of the plugin follow the vendor contract."""

from __future__ import annotations

import hami_hygon
import pytest

from hami.domain.devices import Device
from hami.testing import VendorContract, node_publishing


def devices(vendor: str, model: str, memory: int) -> list[Device]:
    return [
        Device(
            id=f"{vendor}-T{index}",
            vendor=vendor,
            index=index,
            model=model,
            slots=4,
            memory_mib=memory,
            numa=index // 2,
        )
        for index in range(4)
    ]


class TestDcu(VendorContract):
    @pytest.fixture
    def vendor(self):
        return hami_hygon.plugin

    @pytest.fixture
    def vendor_key(self):
        return "DCU"

    @pytest.fixture
    def fake_node(self, vendor):
        return node_publishing(vendor, devices("DCU", "DCU-K100_AI", 65520))


class TestHcu(TestDcu):
    @pytest.fixture
    def vendor_key(self):
        return "HCU"

    @pytest.fixture
    def fake_node(self, vendor):
        return node_publishing(vendor, devices("HCU", "BW200", 65520))


class TestDcuWithAMemoryFactor(TestDcu):
    """A unit of memory is 10 MiB."""

    @pytest.fixture
    def config(self):
        return {"hygon": {"memoryFactor": 10}}
