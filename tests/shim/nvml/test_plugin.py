"""The plugin sees on the simulated driver what it sees on its stand-in for NVML."""

from __future__ import annotations

import random

import pytest
from hami_nvidia.devices.discovery import discover
from hami_nvidia.health.watch import HealthWatch
from hami_nvidia.mig.claims import InstanceClaim, Owner
from hami_nvidia.mig.instances import InstanceRefused, Instances
from hami_nvidia.nvml.interface import GpuLost, NvmlAway, NvmlFailed, Recovery, Span, XidEvent
from hami_nvidia.schedule.mig_placement import MigInstance, MigPlacement

from plugins.nvidia.tests.stand_in.spec import builtin_models

from .cards import settings_for
from .driver_calls import (
    of_pair,
)

# The plugin sees the same.


@pytest.mark.parametrize(
    "gpus",
    [
        pytest.param("t4x2, l4", id="small ones"),
        pytest.param("v100-32gx4", id="linked with each other"),
        pytest.param("h100-80gx8", id="linked by a switch"),
        pytest.param([{"model": "a100-80g", "count": 2, "mig": True}], id="cut"),
        pytest.param([{"model": "t4"}, {"model": "h200", "count": 3}], id="mixed"),
    ],
)
def test_cards_links_and_devices_are_those_of_the_stand_in(node_with, gpus):
    node = node_with(gpus)
    settings = settings_for(node.folder, node.stand_in)
    known = {gpu.uuid: gpu for gpu in node.stand_in.gpus()}
    told_of = node.nvml.gpus()
    assert [without_numa(gpu) for gpu in told_of] == [without_numa(gpu) for gpu in known.values()]
    for one in known:
        assert node.nvml.links(one) == list(node.stand_in.links(one))
        for other in known:
            if one != other:
                assert node.nvml.ancestor(one, other) == node.stand_in.ancestor(one, other)
    assert discover(node.nvml, settings) == discover(node.stand_in, settings)


@pytest.mark.parametrize("model", [name for name, model in builtin_models().items() if model.mig])
def test_profiles_are_those_of_the_stand_in(node_with, model):
    node = node_with([{"model": model, "mig": True}])
    (gpu,) = node.uuids
    assert node.nvml.instance_profiles(gpu) == list(node.stand_in.instance_profiles(gpu))
    settings = settings_for(node.folder, node.stand_in, entry={"operatingmode": "mig"})
    assert discover(node.nvml, settings) == discover(node.stand_in, settings)


def without_numa(gpu):
    """NVML does not know it; sysfs does."""
    return {field: getattr(gpu, field) for field in gpu.__dataclass_fields__ if field != "numa"}


def outcome(nvml, name, *args):
    """What a request comes to, without the UUIDs of MIG devices, which each makes up itself."""
    try:
        found = getattr(nvml, name)(*args)
    except NvmlFailed as error:
        kinds = (
            "Insufficient Resources",
            "Invalid Argument",
            "Not Found",
            "Not Supported",
            "In use",
        )
        return next((kind for kind in kinds if kind in str(error)), str(error))
    if name == "mig_devices":
        return [(d.gpu_instance, d.compute_instance, d.profile, d.memory_mib) for d in found]
    return found


@pytest.mark.parametrize("seed", range(3))
def test_instances_come_and_go_as_with_the_stand_in(cut_node, seed):
    dice = random.Random(seed)
    gpu = cut_node.uuids[seed % 2]
    kinds = cut_node.stand_in.instance_profiles(gpu)
    for step in range(60):
        existing = cut_node.stand_in.instances(gpu)
        some = dice.choice([*(each.id for each in existing), 3])
        kind = dice.choice(kinds)
        # Not every span is one of the profile's.
        span = dice.choice([*kind.spans, Span(start=1, size=kind.spans[0].size)])
        request = dice.choice(
            [
                ("create_instance", gpu, kind, span),
                ("create_instance", gpu, kind, span),
                ("create_compute", gpu, some),
                ("destroy_compute", gpu, some, 0),
                ("destroy_instance", gpu, some),
            ]
        )
        wanted = outcome(cut_node.stand_in, *request)
        assert outcome(cut_node.nvml, *request) == wanted, (step, request)
    for name in ("instances", "mig_devices"):
        assert outcome(cut_node.nvml, name, gpu) == list(outcome(cut_node.stand_in, name, gpu))


def a_claim(gpu, profile, start, size):
    return InstanceClaim(
        gpu=gpu,
        instance=MigInstance(profile=profile, placement=MigPlacement(start=start, size=size)),
        owner=Owner(slice_id="a", pod_uid="pod-a", name="ns/pod, container c"),
    )


def test_the_plugin_makes_finds_and_destroys_instances(cut_node):
    gpu = cut_node.uuids[0]
    instances, claim = Instances(cut_node.nvml), a_claim(gpu, "3g.20gb", 4, 4)
    made = instances.ensure(claim)
    assert instances.ensure(claim) == made
    assert Instances(cut_node.process("restarted").nvml).ensure(claim) == made
    assert [d.uuid for d in cut_node.nvml.mig_devices(gpu)] == [made.mig_uuid]
    with pytest.raises(InstanceRefused):
        instances.ensure(a_claim(gpu, "2g.10gb", 4, 2))
    instances.release(claim, made)
    assert cut_node.nvml.mig_devices(gpu) == []
    assert instances.ensure(claim) == made


# Errors and health.


def test_errors_reach_who_watches(node):
    watch = node.nvml.watch(node.uuids)
    assert watch.wait(0) is None
    node.gpus.command("xid", 1, 79)
    node.gpus.command("xid", 0, 31, 2, 0)
    assert watch.wait(20) == XidEvent(xid=79, uuid=node.uuids[1])
    assert watch.wait(20) == XidEvent(
        xid=31, uuid=node.uuids[0], gpu_instance=2, compute_instance=0
    )
    assert watch.wait(0) is None
    watch.close()


def test_the_plugin_sees_devices_fall_ill_and_recover(node):
    now = [0.0]
    settings = settings_for(node.folder, node.stand_in)
    devices = discover(node.nvml, settings).devices
    health = HealthWatch(node.nvml, wait_seconds=0, clock=lambda: now[0])
    changed = lambda: {c.device_id: c.healthy for c in health.check(devices, settings)}  # noqa: E731
    assert changed() == {}
    node.gpus.command("xid", 1, 79)
    assert changed() == {node.uuids[1]: False}
    node.gpus.command("lose", 0)
    assert changed() == {node.uuids[0]: False}
    now[0] += 10_000
    node.gpus.command("find", 0)
    node.gpus.command("recovery", 1, 1)
    assert node.nvml.probe(node.uuids[1]) is Recovery.RESET
    health.check(devices, settings)
    assert node.uuids[0] not in health.ailing()
    assert node.uuids[1] in health.ailing()
    health.close()


def test_a_lost_card_answers_nothing(node):
    lost, well = node.uuids
    watch = node.nvml.watch([lost])
    node.gpus.command("lose", 0)
    for request in (lambda: node.nvml.probe(lost), lambda: watch.wait(20)):
        with pytest.raises(GpuLost):
            request()
    unreadable, gpu = node.nvml.gpus()
    assert "GPU is lost" in unreadable.problem
    assert gpu.uuid == well
    assert lost in node.nvml.watch([lost, well]).refused
    node.gpus.command("find", 0)
    assert node.nvml.probe(lost) is Recovery.NONE


def test_without_a_driver_nothing_works(node):
    watch = node.nvml.watch(node.uuids)
    node.gpus.command("driver", "away")
    for request in (node.nvml.gpus, lambda: watch.wait(20)):
        with pytest.raises(NvmlAway):
            request()
    node.gpus.command("driver", "back")
    assert len(node.nvml.gpus()) == 2


def test_a_daemon_that_dies_is_a_driver_that_is_gone(node):
    assert len(node.nvml.gpus()) == 2
    watch = node.nvml.watch(node.uuids)
    node.gpus.kill()
    for request in (lambda: watch.wait(20), node.nvml.gpus):
        with pytest.raises(NvmlAway):
            request()


def test_links_go_down_and_up(node):
    gpu = node.uuids[0]
    node.gpus.command("link", 0, 3, "down")
    assert len(node.nvml.links(gpu)) == 17
    assert node.agent.run(of_pair, "nvmlDeviceGetP2PStatus", *node.uuids, 2) == 0
    for link in range(18):
        node.gpus.command("link", 0, link, "down")
    assert node.nvml.links(gpu) == []
    assert node.agent.run(of_pair, "nvmlDeviceGetP2PStatus", *node.uuids, 2) == 1
    node.gpus.command("link", 0, 3, "up")
    assert len(node.nvml.links(gpu)) == 1


@pytest.mark.parametrize(
    ("request_", "status", "told"),
    [
        pytest.param("create-instance", 23, "Insufficient Resources", id="an instance"),
        pytest.param("create-compute", 23, "Insufficient Resources", id="a compute instance"),
        pytest.param("mig-devices", 999, "Unknown Error", id="the MIG devices"),
        pytest.param("destroy-compute", 19, "In use", id="the end of a compute instance"),
        pytest.param("destroy-instance", 19, "In use", id="the end of an instance"),
        pytest.param("set-mig", 4, "Insufficient Permissions", id="the mode"),
    ],
)
def test_a_request_is_refused_as_long_as_the_daemon_is_told_to(cut_node, request_, status, told):
    gpu = cut_node.uuids[0]
    kind = next(k for k in cut_node.nvml.instance_profiles(gpu) if k.name == "1g.5gb")

    def cycle():
        made = cut_node.nvml.create_instance(gpu, kind, kind.spans[0])
        cut_node.nvml.create_compute(gpu, made)
        cut_node.nvml.mig_devices(gpu)
        cut_node.nvml.destroy_compute(gpu, made, 0)
        cut_node.nvml.destroy_instance(gpu, made)
        cut_node.nvml.set_mig(gpu, enabled=False)

    cut_node.gpus.command("refuse", 0, request_, status)
    with pytest.raises(NvmlFailed, match=told):
        cycle()
    cut_node.gpus.command("refuse", 0, request_, 0)
    for left in cut_node.nvml.instances(gpu):
        for part in left.compute_ids:
            cut_node.nvml.destroy_compute(gpu, left.id, part)
        cut_node.nvml.destroy_instance(gpu, left.id)
    cycle()


@pytest.mark.parametrize(
    "words",
    [
        pytest.param("refuse 0 everything 3", id="no such request"),
        pytest.param("refuse 0 set-mig", id="no status"),
        pytest.param("xid 2 79", id="no such card"),
        pytest.param("xid 0", id="no code"),
        pytest.param("xid 0 x", id="no number"),
        pytest.param("link 0 0 sideways", id="no way for a link to be"),
        pytest.param("recovery 0 8", id="no action"),
        pytest.param("driver somewhere", id="no place for a driver"),
    ],
)
def test_commands_that_make_no_sense_are_refused(node, words):
    with pytest.raises(AssertionError, match="error"):
        node.gpus.command(words)
