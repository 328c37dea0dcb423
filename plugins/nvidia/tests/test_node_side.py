"""The node's hooks: what they remember between calls, and what becomes of new settings."""

from __future__ import annotations

import logging

import pytest
from hami_nvidia import NvidiaVendor
from hami_nvidia.node_side import NvidiaReports
from hami_nvidia.nvml.interface import NvmlAway

from hami.domain.errors import ConfigError
from hami.domain.options import NodeOption

from .node_builders import a_library, a_node, a_slice, a_vendor, gpu_ids, node_of, section_of


@pytest.fixture
def plugin():
    return NvidiaVendor()


class World:
    """A plugin on a simulated node, as the agent calls it."""

    def __init__(self, tmp_path, gpus="t4x2", **settings):
        self.node = a_node(tmp_path, gpus, **settings)
        self.plugin = a_vendor()
        self.section = section_of(self.node)
        self.entries = []

    @property
    def config(self):
        return {"nvidia": self.section, "node": node_of(self.node), "nodeconfig": self.entries}

    @property
    def profile(self):
        return self.plugin.hami_vendors(config=self.config)[0]

    def discover(self):
        return self.plugin.hami_discover(config=self.config)


def test_the_options_are_declared(plugin):
    options = plugin.hami_node_options()
    assert all(isinstance(option, NodeOption) for option in options)
    assert "--mig-strategy" in {flag for option in options for flag in option.flags}


def test_devices_are_those_of_the_hardware(tmp_path):
    world = World(tmp_path)
    devices = world.discover()
    assert [device.id for device in devices] == gpu_ids(world.node)
    assert {device.slots for device in devices} == {10}


def test_new_settings_are_taken_over_live(tmp_path):
    world = World(tmp_path)
    world.discover()
    opened = world.plugin._opened
    world.section["deviceSplitCount"] = 3
    assert {device.slots for device in world.discover()} == {3}
    world.entries.append({"name": "worker-1", "devicesplitcount": 5})
    assert {device.slots for device in world.discover()} == {5}
    assert world.plugin._opened is opened, "the connection to NVML stays"


def test_other_hardware_is_a_new_connection(tmp_path):
    world = World(tmp_path)
    first = world.discover()
    (tmp_path / "other").mkdir()
    other = a_node(tmp_path / "other", "l4x1")
    world.section["containerDriverRoot"] = str(other.settings.container_driver_root)
    second = world.discover()
    assert {device.model for device in first} != {device.model for device in second}
    assert len(second) == 1, "what the former hardware had is forgotten"


def test_wrong_settings_are_an_error_and_change_nothing(tmp_path):
    world = World(tmp_path)
    before = world.discover()
    world.section["deviceSplitCount"] = -1
    with pytest.raises(ConfigError, match="deviceSplitCount"):
        world.discover()
    world.section["deviceSplitCount"] = 10
    assert world.discover() == before


def test_without_a_driver_devices_are_kept_and_not_healthy(tmp_path, caplog):
    world = World(tmp_path)
    before = world.discover()
    away(world, "the driver is not loaded")
    for _ in range(3):
        devices = world.discover()
        assert [device.id for device in devices] == [device.id for device in before]
        assert not any(device.healthy for device in devices)
    told = [r for r in caplog.records if "the driver is not loaded" in r.getMessage()]
    assert len(told) == 1, "said once"
    away(world, "")
    assert world.discover() == before


def away(world, text):
    with world.node.nvml.state.changing() as state:
        state.away = text


@pytest.mark.parametrize("fails", [True, False])
def test_a_start_without_a_driver_is_an_error_unless_configured(tmp_path, fails):
    world = World(tmp_path)
    world.section["failOnInitError"] = fails
    away(world, "there is no driver")
    if fails:
        with pytest.raises(NvmlAway, match="there is no driver"):
            world.discover()
    else:
        assert world.discover() == ()


def test_real_hardware_that_is_not_there_is_named_with_the_remedy(tmp_path):
    """On a machine with GPUs the driver answers; here nothing may be simulated."""
    world = World(tmp_path)
    world.plugin = NvidiaVendor()
    world.section["failOnInitError"] = True
    problem = ""
    try:
        world.discover()
    except NvmlAway as error:
        problem = str(error)
    if not problem:
        pytest.skip("this machine has a driver: nothing is away")
    assert "libnvidia-ml" in problem or "driver" in problem


def test_health_is_asked_of_what_was_discovered(tmp_path):
    world = World(tmp_path)
    assert world.plugin.hami_check_health(devices=()) == ()
    devices = world.discover()
    assert world.plugin.hami_check_health(devices=devices) == []
    away(world, "the driver is not loaded")
    changes = world.plugin.hami_check_health(devices=devices)
    assert {(change.device_id, change.healthy) for change in changes} == {
        (device.id, False) for device in devices
    }


def test_static_devices_are_kubelets_and_not_ours(tmp_path):
    gpus = ({"model": "t4"}, {"model": "a100-40g", "mig": True})
    world = World(tmp_path, gpus)
    world.section["migStrategy"] = "mixed"
    node = world.node
    cut = gpu_ids(node)[1]
    profile = next(p for p in node.nvml.instance_profiles(cut) if p.name == "3g.20gb")
    node.nvml.create_compute(cut, node.nvml.create_instance(cut, profile, profile.spans[0]))
    found = world.plugin.hami_static_devices(config=world.config)
    assert list(found) == ["nvidia.com/mig-3g.20gb"]
    (device,) = found["nvidia.com/mig-3g.20gb"]
    assert device.id not in {d.id for d in world.discover()}
    edits = world.plugin.hami_static_edits(devices=[device], config=world.config)
    assert edits.env["NVIDIA_VISIBLE_DEVICES"] == device.id


def test_a_slice_lives_from_enforce_to_release(tmp_path):
    world = World(tmp_path, "t4x2", identity="lock")
    slice = a_slice(world.node)
    world.plugin.hami_reconcile(live_slices=(), config=world.config)
    edits = world.plugin.hami_enforce(slice=slice, config=world.config)
    shared = tmp_path / "usr-local/vgpu/containers/pod-uid-1_main"
    assert shared.is_dir()
    world.plugin.hami_reconcile(live_slices=(slice,), config=world.config)
    assert world.plugin.hami_enforce(slice=slice, config=world.config) == edits
    world.plugin.hami_release(slice=slice, config=world.config)
    assert not shared.exists()


def test_reconcile_puts_the_library_in_place_before_anything_starts(tmp_path):
    world = World(tmp_path)
    world.plugin.hami_reconcile(live_slices=(), config=world.config)
    (library,) = (tmp_path / "usr-local/vgpu").glob("libvgpu.so.*")
    assert library.read_bytes() == a_library(tmp_path).read_bytes()


def test_what_comes_again_is_said_again(caplog):
    """A GPU that was lost, came back and is lost once more."""
    reports = NvidiaReports()
    with caplog.at_level(logging.WARNING, "hami.nvidia"):
        for said in (["lost"], ["lost", "odd"], [], ["lost"]):
            reports.stand("devices", said)
            reports.stand("static devices", ["lost"])
    told = [record.getMessage() for record in caplog.records]
    assert sorted(told) == ["lost", "lost", "lost", "odd"]


def test_reports_are_said_once_and_not_kept_for_ever(caplog):
    reports = NvidiaReports()
    with caplog.at_level(logging.WARNING, "hami.nvidia"):
        for _ in range(2):
            reports("first")
        for number in range(2000):
            reports(f"other {number}")
        reports("first")
    assert [r.getMessage() for r in caplog.records].count("first") == 2
