"""The vendors in docs/plugins.md are what the page says: they pass the kit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hami.domain.devices import Device
from hami.policy.profile.profile_vendor import ProfileVendor
from hami.testing import VendorContract, node_publishing

PAGE = (Path(__file__).parents[2] / "docs" / "plugins.md").read_text("utf-8")


def block(language: str, heading: str) -> str:
    """The first code block in ``language`` below ``heading``."""
    section = PAGE.split(f"\n## {heading}\n", 1)[1].split("\n## ")[0]
    found = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert found is not None
    return found[1]


class Documented(VendorContract):
    @pytest.fixture
    def fake_node(self, vendor):
        devices = [
            Device(id=f"ACME-{n}", vendor="ACME", index=n, slots=10, memory_mib=32768)
            for n in range(2)
        ]
        return node_publishing(vendor, devices)


class TestVendorThatIsOnlyData(Documented):
    @pytest.fixture
    def vendor(self):
        return ProfileVendor(block("yaml", "A vendor that is only data"))


class TestVendorWithCode(Documented):
    @pytest.fixture
    def vendor(self):
        names: dict[str, object] = {}
        exec(block("python", "A vendor with code"), names)
        return names["plugin"]
