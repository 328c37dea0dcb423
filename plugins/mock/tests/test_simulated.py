from __future__ import annotations

import json
from typing import Any

import pytest
from hami_mock import MockVendor
from hami_mock.catalog import builtin_catalog
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.devices import Device
from hami.domain.errors import ConfigError, PluginRejected
from hami.domain.kubernetes.objects import Metadata, Node
from hami.domain.units import VendorKey
from hami.vendors.registry import Vendors
from hami.wire.codecs import decode_register_csv, decode_register_json

ACME = {
    "vendors": {"ACME": {"register": "acme.io/devices", "idPrefix": "ACME", "mode": "acme"}},
    "profiles": {"x1": {"vendor": "ACME", "model": "Acme X1", "memoryMiB": 32768, "slots": 2}},
}


def a_node(devices: str | None, name: str = "n1") -> Node:
    written = {} if devices is None else {"mock.hami.io/devices": devices}
    return Node(metadata=Metadata(name=name, annotations=written))


def annotations(devices: str | None, name: str = "n1", **mock: Any) -> dict[str, str]:
    vendors = Vendors.of({"mock": MockVendor()})
    return dict(vendors.simulated_annotations(a_node(devices, name), {"mock": mock}))


def decoded(text: str, vendor: str) -> tuple[Device, ...]:
    decode = decode_register_csv if vendor in ("DCU", "HCU") else decode_register_json
    devices = decode(text, annotation="a", vendor=VendorKey(vendor))
    assert isinstance(devices, tuple), devices
    return devices


def test_a_node_that_asks_for_nothing_gets_nothing() -> None:
    assert annotations(None) == {}


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        pytest.param(
            "t4x1",
            {
                "hami.io/node-nvidia-register": '[{"id":"GPU-n1-0","count":10,"devmem":15360,'
                '"devcore":100,"type":"NVIDIA-Tesla T4","mode":"hami-core","health":true}]'
            },
            id="one GPU has no pair scores",
        ),
        pytest.param(
            "k100x2",
            {
                "hami.io/node-dcu-register": "DCU-n1-0,4,32752,100,DCU-K100,0,true,0,hami:"
                "DCU-n1-1,4,32752,100,DCU-K100,1,true,1,hami:"
            },
            id="DCUs as text",
        ),
        pytest.param(
            "mockx1",
            {
                "hami.io/node-mock-register": '[{"id":"MOCK-n1-0","count":10,"devmem":16384,'
                '"devcore":100,"type":"Mock-16G","mode":"mock","health":true}]'
            },
            id="the vendor MOCK",
        ),
    ],
)
def test_register_goldens(devices: str, expected: dict[str, str]) -> None:
    assert annotations(devices) == expected


def test_mig_golden() -> None:
    (device,) = json.loads(annotations("a100-40g:migx1")["hami.io/node-nvidia-register"])
    assert list(device) == [
        "id",
        "count",
        "devmem",
        "devcore",
        "type",
        "mode",
        "migProfiles",
        "health",
    ]
    assert (device["count"], device["mode"]) == (7, "mig")
    assert json.dumps(device["migProfiles"][1:3], separators=(",", ":")) == (
        '[{"name":"2g.10gb","memoryMB":9984,"core":29,"sliceCount":2,'
        '"placements":[{"start":0,"size":2},{"start":2,"size":2},{"start":4,"size":2}]},'
        '{"name":"3g.20gb","memoryMB":20096,"core":43,"sliceCount":3,'
        '"placements":[{"start":0,"size":4},{"start":4,"size":4}]}]'
    )


@pytest.mark.parametrize(
    ("devices", "near", "far"),
    [
        pytest.param("h100x4", 1820, 1810, id="18 NVLinks through a switch"),
        pytest.param("a100-80gx4", 1220, 1210, id="12 NVLinks"),
        pytest.param("t4x4", 20, 10, id="PCIe alone"),
        pytest.param("h100:migx4", 20, 10, id="no NVLink in MIG mode"),
        pytest.param("h100x2,h100x2", 1820, 10, id="no NVLink between two boards"),
    ],
)
def test_pair_scores(devices: str, near: int, far: int) -> None:
    pairs = json.loads(annotations(devices)["hami.io/node-nvidia-score"])
    assert [pair["uuid"] for pair in pairs] == [f"GPU-n1-{i}" for i in range(4)]
    assert pairs[0]["score"] == {"GPU-n1-1": near, "GPU-n1-2": far, "GPU-n1-3": far}
    assert pairs[3]["score"] == {"GPU-n1-0": far, "GPU-n1-1": far, "GPU-n1-2": near}


def test_pair_score_keys_are_sorted_as_go_sorts_them() -> None:
    scores = json.loads(annotations("h100x11")["hami.io/node-nvidia-score"])[0]["score"]
    assert list(scores) == sorted(scores)
    assert list(scores)[:3] == ["GPU-n1-1", "GPU-n1-10", "GPU-n1-2"]


def test_entries_of_one_vendor_share_indexes_and_numa_nodes() -> None:
    devices = decoded(annotations("a100-40g:migx2, t4x2")["hami.io/node-nvidia-register"], "NVIDIA")
    assert [(d.id, d.index, d.numa, d.mode) for d in devices] == [
        ("GPU-n1-0", 0, 0, "mig"),
        ("GPU-n1-1", 1, 0, "mig"),
        ("GPU-n1-2", 2, 1, "hami-core"),
        ("GPU-n1-3", 3, 1, "hami-core"),
    ]


@pytest.mark.parametrize(
    ("count", "numa"),
    [
        pytest.param(1, [0], id="one"),
        pytest.param(3, [0, 0, 1], id="three"),
        pytest.param(8, [0, 0, 0, 0, 1, 1, 1, 1], id="eight"),
    ],
)
def test_half_the_devices_are_on_each_numa_node(count: int, numa: list[int]) -> None:
    devices = decoded(annotations(f"h200x{count}")["hami.io/node-nvidia-register"], "NVIDIA")
    assert [device.numa for device in devices] == numa


def test_vendors_of_one_node_are_numbered_apart() -> None:
    found = annotations("t4x1,k100-aix1,mockx1,hcu-k100-aix1")
    assert {key: text.count("-0") for key, text in found.items()} == {
        "hami.io/node-nvidia-register": 1,
        "hami.io/node-dcu-register": 1,
        "hami.io/node-mock-register": 1,
        "hami.io/node-hcu-register": 1,
    }


def test_what_the_node_says_itself_wins() -> None:
    written = {"mock.hami.io/devices": "t4x1", "hami.io/node-nvidia-register": "[]"}
    node = Node(metadata=Metadata(name="n1", annotations=written))
    assert Vendors.of({"mock": MockVendor()}).simulated_annotations(node, {}) == {}


def test_a_custom_profile_of_a_custom_vendor() -> None:
    (device,) = decoded(annotations("x1x1", **ACME)["acme.io/devices"], "ACME")
    assert (device.id, device.model, device.slots, device.mode) == (
        "ACME-n1-0",
        "Acme X1",
        2,
        "acme",
    )


def test_a_custom_profile_replaces_one_that_comes_with_the_package() -> None:
    small = {"t4": {"vendor": "NVIDIA", "model": "NVIDIA-Small", "memoryMiB": 1000}}
    (device,) = decoded(
        annotations("t4x1", profiles=small)["hami.io/node-nvidia-register"], "NVIDIA"
    )
    assert (device.model, device.memory_mib) == ("NVIDIA-Small", 1000)


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        pytest.param("h100", ["'h100' is not <profile>", "h100x8"], id="no count"),
        pytest.param("", ["'' is not <profile>"], id="empty"),
        pytest.param("h100x8,", ["'' is not <profile>"], id="a comma too many"),
        pytest.param("h100 x 8", ["'h100 x 8' is not"], id="blanks inside"),
        pytest.param("h100x0", ["'h100x0'", "1 to 64"], id="none of them"),
        pytest.param("h100x65", ["'h100x65'", "1 to 64"], id="too many"),
        pytest.param("h900x8", ["'h900'", "a100-40g, a100-80g", "mock.profiles"], id="unknown"),
        pytest.param("t4:migx2", ["t4 has no mode 'mig'", "has hami-core"], id="T4 has no MIG"),
        pytest.param("h100:mpsx2", ["'mps'", "hami-core and mig"], id="unknown mode"),
    ],
)
def test_bad_text_is_an_error_with_node_value_and_remedy(devices: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        annotations(devices, "worker-1")
    for word in ["node worker-1: annotation mock.hami.io/devices", *words]:
        assert word in str(caught.value)


def test_a_profile_of_an_unknown_vendor_is_an_error() -> None:
    stray = {"x1": {"vendor": "NONE", "model": "X", "memoryMiB": 1}}
    with pytest.raises(ConfigError, match=r"'NONE'.*known are AMD.*mock\.vendors"):
        annotations("x1x1", profiles=stray)


def test_a_node_name_that_no_id_can_hold_is_an_error() -> None:
    with pytest.raises(ConfigError, match="a node name with"):
        annotations("k100x1", "a;b")


@given(st.text(alphabet="h1049-:x, gmit\n", max_size=20))
def test_any_text_gives_devices_or_an_error(text: str) -> None:
    try:
        found = annotations(text)
    except ConfigError:
        return
    assert found


@pytest.mark.parametrize("name", sorted(builtin_catalog().profiles))
def test_every_profile_makes_readable_devices(name: str) -> None:
    profile = builtin_catalog().profiles[name]
    key = builtin_catalog().vendors[profile.vendor].register_key
    devices = decoded(annotations(f"{name}x8", "a-node")[key], profile.vendor)
    assert len({device.id for device in devices}) == 8
    assert {(d.model, d.memory_mib, d.slots) for d in devices} == {
        (profile.model, profile.memory_mib, profile.slots)
    }


MIG_PROFILES = [
    pytest.param(profile, instance, id=f"{name} {instance.name}")
    for name, profile in sorted(builtin_catalog().profiles.items())
    for instance in profile.mig
]


@pytest.mark.parametrize(("profile", "instance"), MIG_PROFILES)
def test_a_mig_instance_fits_its_device(profile: Any, instance: Any) -> None:
    assert instance.memory_mib <= profile.memory_mib
    assert instance.name.startswith(f"{instance.slices}g.")
    assert all(start % instance.size == 0 for start in instance.starts)
    assert max(instance.starts) + instance.size <= 8
    # Memory slices are eighths: no set of placements can promise more memory than there is.
    assert instance.memory_mib <= profile.memory_mib * instance.size / 8


def test_a_node_can_ask_its_simulation_to_fail() -> None:
    written = {"mock.hami.io/fail": "hami_simulated_annotations=raise"}
    node = Node(metadata=Metadata(name="n1", annotations=written))
    with pytest.raises(PluginRejected, match=r"MockFailure: .* of node n1"):
        Vendors.of({"mock": MockVendor()}).simulated_annotations(node, {})
