from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hami_mock import MockVendor
from hami_mock.settings import NODE_HOOKS

from hami.domain.allocations import ContainerKind
from hami.domain.devices import Grant
from hami.domain.errors import VendorFailed
from hami.domain.measurements import MeasuredSlice
from hami.domain.slices import HealthChange, Slice
from hami.domain.units import DeviceId, PodUid, VendorKey
from hami.vendors.boundary import Vendor
from hami.vendors.registry import Vendors

MOCK = VendorKey("MOCK")


def node_of(**mock: Any) -> tuple[Vendor, dict[str, Any]]:
    config = {"mock": mock}
    return Vendors.of({"mock": MockVendor()}, config)[MOCK], config


def a_slice(state: Path, id: str = "uid/c", *devices: int) -> Slice:
    return Slice(
        id=id,
        vendor=MOCK,
        pod_uid=PodUid("uid"),
        namespace="ns",
        pod="p",
        container="c",
        kind=ContainerKind.APP,
        grants=tuple(
            Grant(device_id=DeviceId(f"MOCK-w1-{i}"), vendor=MOCK, memory_mib=1000, cores=30)
            for i in devices or (0,)
        ),
        state_dir=state,
    )


def files(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_discovers_the_devices_of_the_section() -> None:
    vendor, config = node_of(devices="mockx2,mock-80gx1", node="w1", unhealthy=["MOCK-w1-1"])
    found = [(d.id, d.memory_mib, d.numa, d.healthy) for d in vendor.discover(config)]
    assert found == [
        ("MOCK-w1-0", 16384, 0, True),
        ("MOCK-w1-1", 16384, 0, False),
        ("MOCK-w1-2", 81920, 1, True),
    ]


def test_discovers_nothing_without_a_section() -> None:
    vendor, config = node_of()
    assert vendor.discover(config) == ()


@pytest.mark.parametrize(
    ("devices", "words"),
    [
        pytest.param("h100x2", ["'h100x2'", "NVIDIA", "mockx4"], id="another vendor's devices"),
        pytest.param("mock", ["mock.devices", "'mock'"], id="no count"),
    ],
)
def test_bad_devices_fail_discovery(devices: str, words: list[str]) -> None:
    vendor, config = node_of(devices=devices)
    with pytest.raises(VendorFailed) as caught:
        vendor.discover(config)
    assert all(word in str(caught.value) for word in words)


def test_enforce_golden(tmp_path: Path) -> None:
    vendor, config = node_of()
    edits = vendor.enforce(a_slice(tmp_path / "s", "uid/c", 0, 1), config)
    assert edits.env == {
        "MOCK_VISIBLE_DEVICES": "MOCK-w1-0,MOCK-w1-1",
        "MOCK_DEVICE_MEMORY_LIMIT_0": "1000m",
        "MOCK_DEVICE_MEMORY_LIMIT_1": "1000m",
    }
    (mount,) = edits.mounts
    assert (mount.container_path, mount.read_only) == ("/run/hami/mock.json", True)
    assert json.loads(Path(mount.host_path).read_text()) == {
        "sliceId": "uid/c",
        "grants": [
            {"deviceId": "MOCK-w1-0", "memoryMiB": 1000, "cores": 30},
            {"deviceId": "MOCK-w1-1", "memoryMiB": 1000, "cores": 30},
        ],
    }


def test_enforce_twice_is_enforce_once(tmp_path: Path) -> None:
    vendor, config = node_of(partitions=str(tmp_path / "hw"))
    slice = a_slice(tmp_path / "s")
    first = vendor.enforce(slice, config)
    before = {name: (tmp_path / name).read_bytes() for name in files(tmp_path)}
    assert vendor.enforce(slice, config) == first
    assert {name: (tmp_path / name).read_bytes() for name in files(tmp_path)} == before
    assert sorted(before) == ["hw/uid%2Fc.json", "s/mock.json"]


def test_release_undoes_enforce_and_may_be_repeated(tmp_path: Path) -> None:
    vendor, config = node_of(partitions=str(tmp_path / "hw"))
    slice = a_slice(tmp_path / "s")
    vendor.enforce(slice, config)
    for _ in range(2):
        vendor.release(slice, config)
        assert files(tmp_path) == []


def test_reconcile_keeps_live_slices_and_what_it_did_not_make(tmp_path: Path) -> None:
    vendor, config = node_of(partitions=str(tmp_path / "hw"))
    live, gone = a_slice(tmp_path / "a", "a"), a_slice(tmp_path / "b", "b")
    for slice in (live, gone):
        vendor.enforce(slice, config)
    (tmp_path / "hw" / "README").touch()
    for _ in range(2):
        vendor.reconcile([live], config)
        assert files(tmp_path / "hw") == ["README", "a.json"]
    vendor.reconcile([], config)
    assert files(tmp_path / "hw") == ["README"]


def test_reconcile_without_hardware_does_nothing() -> None:
    vendor, config = node_of()
    vendor.reconcile([], config)


def test_measure_answers_from_the_records(tmp_path: Path) -> None:
    vendor, config = node_of(devices="mockx2", node="w1")
    one, two = a_slice(tmp_path / "1", "one", 0), a_slice(tmp_path / "2", "two", 0, 1)
    never = a_slice(tmp_path / "3", "never")
    for slice in (one, two):
        vendor.enforce(slice, config)

    def of(device: int, slice_id: str) -> MeasuredSlice:
        return MeasuredSlice(
            device_id=DeviceId(f"MOCK-w1-{device}"),
            slice_id=slice_id,
            memory_bytes=1000 << 20,
            utilisation=30.0,
        )

    devices = vendor.discover(config)
    found = vendor.measure(devices, [one, two, never])
    assert found.slices == (of(0, "one"), of(0, "two"), of(1, "two"))
    used = {device.id: (device.memory_used_bytes, device.utilisation) for device in found.devices}
    assert used["MOCK-w1-0"] == (2000 << 20, 60.0)
    assert used["MOCK-w1-1"] == (1000 << 20, 30.0)
    assert [device.memory_total_bytes for device in found.devices] == [
        device.memory_mib << 20 for device in devices
    ]


def test_health_changes_are_reported_once_and_in_both_directions(tmp_path: Path) -> None:
    ill = tmp_path / "unhealthy"
    vendor, config = node_of(devices="mockx2", node="w1", unhealthyFile=str(ill))
    devices = vendor.discover(config)
    assert vendor.check_health(devices) == ()
    ill.write_text("MOCK-w1-1\nMOCK-elsewhere\n")
    assert vendor.check_health(devices) == (
        HealthChange(DeviceId("MOCK-w1-1"), healthy=False, cause="mock.unhealthy"),
    )
    assert vendor.check_health(devices) == ()
    ill.unlink()
    assert vendor.check_health(devices) == (
        HealthChange(DeviceId("MOCK-w1-1"), healthy=True, cause="mock.unhealthy"),
    )


def test_health_is_compared_with_what_discovery_said(tmp_path: Path) -> None:
    ill = tmp_path / "unhealthy"
    ill.write_text("MOCK-w1-0")
    vendor, config = node_of(devices="mockx1", node="w1", unhealthyFile=str(ill))
    devices = vendor.discover(config)
    assert [device.healthy for device in devices] == [False]
    assert vendor.check_health(devices) == ()


def test_health_before_any_discovery_is_what_the_devices_say() -> None:
    vendor, config = node_of(devices="mockx1", node="w1")
    devices = vendor.discover(config)
    restarted, _ = node_of(devices="mockx1", node="w1", unhealthy=["MOCK-w1-0"])
    assert [change.healthy for change in restarted.check_health(devices)] == [False]


def call(vendor: Vendor, hook: str, config: dict[str, Any], state: Path) -> None:
    slice = a_slice(state)
    calls = {
        "hami_node_options": vendor.node_options,
        "hami_discover": lambda: vendor.discover(config),
        "hami_static_devices": lambda: vendor.static_devices(config),
        "hami_static_edits": lambda: vendor.static_edits([], config),
        "hami_enforce": lambda: vendor.enforce(slice, config),
        "hami_release": lambda: vendor.release(slice, config),
        "hami_reconcile": lambda: vendor.reconcile([slice], config),
        "hami_check_health": lambda: vendor.check_health([]),
        "hami_measure": lambda: vendor.measure([], [slice]),
    }
    calls[hook]()


@pytest.mark.parametrize("hook", sorted(NODE_HOOKS))
def test_a_node_hook_raises_when_asked(hook: str, tmp_path: Path) -> None:
    vendor, config = node_of(fail={hook: "raise"})
    with pytest.raises(VendorFailed, match=rf"{hook} fails because mock\.fail"):
        call(vendor, hook, config, tmp_path / "s")
    assert files(tmp_path) == []


@pytest.mark.parametrize("hook", sorted(NODE_HOOKS))
def test_a_node_hook_is_slow_when_asked(
    hook: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    vendor, config = node_of(fail={hook: "slow"}, slowSeconds=7)
    call(vendor, hook, config, tmp_path / "s")
    assert slept == [7.0]


def test_static_devices_are_named_by_their_resource() -> None:
    vendor, config = node_of(static={"mock.hami.io/whole": "mockx2"})
    devices = vendor.static_devices(config)["mock.hami.io/whole"]
    assert [device.id for device in devices] == ["mock.hami.io-whole-0", "mock.hami.io-whole-1"]
    assert vendor.static_edits(devices[1:], config).env == {
        "MOCK_VISIBLE_DEVICES": "mock.hami.io-whole-1"
    }
