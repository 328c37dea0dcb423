from __future__ import annotations

from typing import Any

import pytest
from hami_mock import MockVendor

from hami.domain.errors import ConfigError, VendorFailed
from hami.domain.measurements import Measurement
from hami.domain.units import VendorKey
from hami.vendors.registry import Vendors


@pytest.mark.parametrize(
    ("section", "words"),
    [
        pytest.param({"device": "mockx1"}, ["mock.device ", "mockx1"], id="unknown key"),
        pytest.param(["mockx1"], ["mock ", "mockx1"], id="no mapping"),
        pytest.param({"devices": 4}, ["mock.devices", "4"], id="no text"),
        pytest.param({"fail": {"hami_x": "raise"}}, ["mock.fail", "hami_x"], id="no such hook"),
        pytest.param(
            {"fail": {"hami_fit": "slow"}}, ["hami_fit is pure"], id="a slow scheduler hook"
        ),
        pytest.param(
            {"fail": {"hami_fit": "crash"}}, ["mock.fail.hami_fit", "'crash'"], id="unknown failure"
        ),
        pytest.param({"slowSeconds": -1}, ["mock.slowSeconds", "-1"], id="negative time"),
        pytest.param({"partitions": "here"}, ["mock.partitions", "absolute"], id="relative path"),
        pytest.param(
            {"profiles": {"x": {"vendor": "MOCK", "model": "a,b", "memoryMiB": 1}}},
            ["mock.profiles.x.model", "'a,b'"],
            id="a separator in a model",
        ),
        pytest.param(
            {"profiles": {"x": {"vendor": "MOCK", "model": "X", "memoryMiB": 0}}},
            ["mock.profiles.x.memoryMiB", "0"],
            id="no memory",
        ),
        pytest.param(
            {"profiles": {"a b": {"vendor": "MOCK", "model": "X", "memoryMiB": 1}}},
            ["mock.profiles", "a b"],
            id="a profile that cannot be asked for",
        ),
    ],
)
def test_bad_section(section: Any, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        Vendors.of({"mock": MockVendor()}, {"mock": section})
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_no_section_is_needed() -> None:
    profile = Vendors.of({"mock": MockVendor()})[VendorKey("MOCK")].profile
    assert profile.resources.all_names == (
        "mock.hami.io/device",
        "mock.hami.io/memory",
        "mock.hami.io/memory-percentage",
        "mock.hami.io/cores",
    )
    assert (profile.liveness, profile.lock) == ("capacity", "none")


def test_two_configurations_of_one_plugin_object_do_not_mix() -> None:
    plugin = MockVendor()
    failing = Vendors.of({"mock": plugin}, {"mock": {"fail": {"hami_measure": "raise"}}})
    fine = Vendors.of({"mock": plugin})
    assert fine[VendorKey("MOCK")].measure([], []) == Measurement()
    with pytest.raises(VendorFailed, match=r"mock\.fail"):
        failing[VendorKey("MOCK")].measure([], [])
