"""`hami chart vendor` prints what the chart's values say of each vendor."""

from __future__ import annotations

import pytest
import yaml
from typer.testing import CliRunner

import hami.cli.app as cli
from hami.vendors.registry import load_vendors

from ..kubernetes.chart import refusal, values

ENTRIES = values()["vendors"]


def hami(*arguments: str):
    return CliRunner().invoke(cli.app, ["chart", *arguments])


def test_the_chart_has_every_vendor_in_the_tree():
    assert sorted(ENTRIES) == sorted(load_vendors())


@pytest.mark.parametrize("key", load_vendors())
def test_a_vendor_s_entry_is_what_its_profile_says(key):
    printed = yaml.safe_load(hami("vendor", key.lower()).stdout)["vendors"][key]
    ours = ENTRIES[key]
    for part in ("managedResources", "annotations"):
        assert ours[part] == printed[part]
    assert ours["devicePlugin"]["enabled"] == printed["devicePlugin"]["enabled"]
    assert printed["enabled"] is True


def test_an_entry_is_a_value_of_the_chart(tmp_path):
    acme = """\
profiles:
  - key: ACME
    resources: {count: acme.example.com/device, memory: acme.example.com/memory}
    node_annotations: {register: acme.example.com/devices, also_written: [acme.example.com/links]}
    pod_annotations: {allocated: acme.example.com/allocated}
"""
    (tmp_path / "acme.yaml").write_text(acme)
    printed = yaml.safe_load(hami("vendor", "ACME", "--profiles", str(tmp_path)).stdout)
    assert printed["vendors"]["ACME"] == {
        "enabled": True,
        "managedResources": ["acme.example.com/device", "acme.example.com/memory"],
        "annotations": {
            "node": ["acme.example.com/devices", "acme.example.com/links"],
            "pod": [],
            "allocation": ["acme.example.com/allocated"],
        },
        "devicePlugin": {"enabled": False},
    }
    assert refusal(printed) == ""


def test_resources_have_the_names_of_the_device_configuration(tmp_path):
    config = tmp_path / "device-config.yaml"
    config.write_text("nvidia: {resourceCountName: acme.com/gpu}")
    result = hami("vendor", "NVIDIA", "--device-config", str(config))
    names = yaml.safe_load(result.stdout)["vendors"]["NVIDIA"]["managedResources"]
    assert names[0] == "acme.com/gpu"


def test_a_vendor_that_nobody_has_is_an_error():
    result = hami("vendor", "acme")
    assert result.exit_code == 2
    assert (
        "no installed plugin has vendor acme; name one of DCU, HCU, MOCK, NVIDIA" in result.stderr
    )
