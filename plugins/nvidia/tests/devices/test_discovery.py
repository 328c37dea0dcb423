"""Which devices a node offers, by what NVML says and what the configuration wants."""

import pytest
from hami_nvidia.devices.discovery import discover, numa_node, static_devices
from hami_nvidia.mig.static_devices import MigLayoutRefused
from hami_nvidia.nvml.interface import Gpu, NvmlAway
from hami_nvidia.schedule.mig_placement import MIG_PROFILES
from hami_nvidia.schedule.node_annotations import node_annotations, node_devices
from hami_nvidia.schedule.topology import PAIR_SCORES

from hami.domain.errors import ConfigError

from ..builders import a_node, the_vendor
from ..hardware_builders import (
    bring_back,
    discovered,
    lose,
    mig,
    settings,
    simulated,
    take_driver_away,
    uuids,
)

OF_HAMI = [
    {"models": ["H20", "H100 on GH200"], "profiles": ["1g.12gb", "2g.24gb", "3g.48gb", "7g.96gb"]},
    {"models": ["H200 NVL", "NVIDIA H200"], "profiles": ["1g.18gb", "2g.35gb", "3g.71gb", "7g.141gb"]},
    {"models": ["A100-SXM4-40GB"], "profiles": ["1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb"]},
    {"models": ["A100-SXM4-80GB"], "profiles": ["1g.10gb", "1g.20gb", "7g.79gb"]},
]  # fmt: skip


def reports(nvml, with_=None, **rest):
    return "\n".join(discover(nvml, with_ or settings(), **rest).reports)


def profiles(device):
    return {p.name: (p.memory_mib, p.cores, p.slices) for p in device.extra.get(MIG_PROFILES)}


# What is published of a GPU.


def test_a_gpu_as_hami_publishes_it(tmp_path):
    (gpu,) = discovered(simulated(tmp_path, "a100-40g"))
    assert (gpu.id[:4], len(gpu.id), gpu.vendor) == ("GPU-", 40, "NVIDIA")
    assert (gpu.index, gpu.model, gpu.memory_mib) == (0, "NVIDIA A100-SXM4-40GB", 40960)
    assert (gpu.slots, gpu.cores, gpu.mode, gpu.healthy) == (10, 100, "hami-core", True)


@pytest.mark.parametrize(
    ("gpus", "keys", "field", "expected"),
    [
        pytest.param("t4", {}, "model", "NVIDIA-Tesla T4", id="a name that does not say NVIDIA"),
        pytest.param("l4", {}, "model", "NVIDIA L4", id="a name that does"),
        pytest.param("t4", {"deviceSplitCount": 3}, "slots", 3, id="the split count"),
        pytest.param("t4", {"deviceMemoryScaling": 1.5}, "memory_mib", 23040, id="more memory than there is"),
        pytest.param("l4", {"deviceMemoryScaling": 0.3}, "memory_mib", 6910, id="scaled memory, rounded down"),
        pytest.param("t4", {"deviceCoreScaling": 1.5}, "cores", 150, id="more compute than there is"),
        pytest.param([{"model": "t4", "sharesHostMemory": True}], {"preConfiguredDeviceMemory": 4096}, "memory_mib", 4096, id="memory that NVML does not know"),
        pytest.param([{"model": "t4", "sharesHostMemory": True}], {"preConfiguredDeviceMemory": 4096, "deviceMemoryScaling": 2.0}, "memory_mib", 8192, id="configured memory is scaled too"),
        pytest.param("h200", {}, "memory_mib", 143771, id="a large one"),
    ],
)  # fmt: skip
def test_a_field(tmp_path, gpus, keys, field, expected):
    (gpu,) = discovered(simulated(tmp_path, gpus), settings(**keys))
    assert getattr(gpu, field) == expected


def test_a_gpu_without_memory_is_left_out_and_told(tmp_path):
    nvml = simulated(tmp_path, [{"model": "t4", "sharesHostMemory": True}, {"model": "t4"}])
    assert [gpu.index for gpu in discovered(nvml)] == [1]
    assert "preConfiguredDeviceMemory" in reports(nvml)


@pytest.mark.parametrize(
    ("kept_back", "expected"),
    [
        pytest.param({"uuid": [0]}, [1, 2], id="by uuid"),
        pytest.param({"index": [1, 7]}, [0, 2], id="by index"),
        pytest.param({"uuid": [2], "index": [0]}, [1], id="by both"),
        pytest.param({}, [0, 1, 2], id="none"),
    ],
)
def test_devices_are_kept_back(tmp_path, kept_back, expected):
    nvml = simulated(tmp_path, "t4x3")
    entry = {
        "filterdevices": {**kept_back, "uuid": [uuids(nvml)[n] for n in kept_back.get("uuid", [])]}
    }
    assert [gpu.index for gpu in discovered(nvml, settings(entry=entry))] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("1\n", 1, id="a NUMA node"),
        pytest.param("-1\n", 0, id="a machine with one"),
        pytest.param("what\n", 0, id="no number"),
        pytest.param(None, 0, id="no file"),
    ],
)
def test_the_numa_node_is_the_kernels(tmp_path, text, expected):
    device = tmp_path / "bus/pci/devices/0000:0a:00.0"
    if text is not None:
        device.mkdir(parents=True)
        (device / "numa_node").write_text(text)
    gpu = Gpu(
        uuid="GPU-x", index=0, minor=0, name="", pci_bus_id="00000000:0A:00.0", memory_bytes=1
    )  # fmt: skip
    assert numa_node(gpu, settings(sysRoot=str(tmp_path))) == expected


def test_discovery_is_stable_and_survives_the_wire(tmp_path):
    first = discovered(simulated(tmp_path, "a100-40gx4,t4x2"))
    again = discovered(simulated(tmp_path, "a100-40gx4,t4x2"))
    profile = the_vendor().profile
    assert first == again
    assert list(node_devices(profile, a_node(node_annotations(profile, first)))) == first
    assert [gpu.index for gpu in first] == [0, 1, 2, 3, 4, 5]


def test_pair_scores_are_published_where_there_are_pairs(tmp_path):
    one, other = discovered(simulated(tmp_path, "a100-40gx2"))
    assert [(s.peer, s.score) for s in one.extra.get(PAIR_SCORES)] == [(other.id, 1210)]
    assert not discovered(simulated(tmp_path, "t4"))[0].extra
    assert not discovered(simulated(tmp_path, "t4x2"), settings(enableTopologyScore=False))[0].extra


# GPUs that do not answer.


def test_a_lost_gpu_is_still_there_and_not_healthy(tmp_path):
    nvml = simulated(tmp_path, "t4x3")
    before = discovered(nvml)
    lose(nvml, 1)
    after = discovered(nvml, known=before)
    assert [(gpu.index, gpu.healthy) for gpu in after] == [(0, True), (1, False), (2, True)]
    assert uuids(nvml)[1] in reports(nvml, known=before)
    bring_back(nvml, 1)
    assert discovered(nvml, known=after) == before


def test_a_gpu_that_was_never_seen_is_told(tmp_path):
    nvml = simulated(tmp_path, "t4x2")
    lose(nvml, 0)
    assert [gpu.index for gpu in discovered(nvml)] == [1]
    assert "GPU is lost" in reports(nvml)


def test_a_gpu_that_is_kept_back_from_now_on_is_not_lost(tmp_path):
    nvml = simulated(tmp_path, "t4x2")
    before = discovered(nvml)
    kept_back = settings(entry={"filterdevices": {"index": [0]}})
    assert [gpu.index for gpu in discovered(nvml, kept_back, known=before)] == [1]


def test_an_ailing_gpu_is_not_healthy(tmp_path):
    nvml = simulated(tmp_path, "t4x2")
    found = discovered(nvml, ailing={uuids(nvml)[0]: "XID 79"})
    assert [gpu.healthy for gpu in found] == [False, True]


def test_without_a_driver_what_was_known_is_not_healthy(tmp_path):
    nvml = simulated(tmp_path, "t4x2")
    before = discovered(nvml)
    take_driver_away(nvml)
    after = discovered(nvml, known=before)
    assert [(gpu.id, gpu.healthy) for gpu in after] == [(gpu.id, False) for gpu in before]
    take_driver_away(nvml, "")
    assert discovered(nvml, known=after) == before


def test_without_a_driver_from_the_start_discovery_fails_or_finds_nothing(tmp_path):
    nvml = simulated(tmp_path, "t4x2")
    take_driver_away(nvml)
    with pytest.raises(NvmlAway, match="Driver Not Loaded"):
        discovered(nvml)
    assert discovered(nvml, settings(failOnInitError=False)) == []


# Mode mig.


def test_a_cut_gpu_offers_nvmls_profiles(tmp_path):
    nvml = simulated(tmp_path, [{"model": "a100-40g", "mig": True}])
    (gpu,) = discovered(
        nvml, mig(deviceMemoryScaling=2.0, deviceCoreScaling=2.0, deviceSplitCount=3)
    )
    assert (gpu.mode, gpu.slots, gpu.memory_mib, gpu.cores) == ("mig", 7, 40960, 100)
    assert profiles(gpu) == {
        "1g.5gb": (4864, 15, 1),
        "2g.10gb": (9984, 29, 2),
        "3g.20gb": (20096, 43, 3),
        "4g.20gb": (20096, 58, 4),
        "7g.40gb": (40320, 100, 7),
    }


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        pytest.param("h200", ["1g.18gb", "2g.35gb", "3g.71gb", "7g.141gb"], id="the longest model counts: H200 is no H20"),
        pytest.param("a100-40g", ["1g.5gb", "2g.10gb", "3g.20gb", "7g.40gb"], id="names of the list, no 4g"),
        pytest.param("a100-80g", ["1g.10gb", "1g.20gb", "7g.79gb"], id="a variant by name, a plain one by its slices"),
    ],
)  # fmt: skip
def test_the_allow_list_names_the_profiles(tmp_path, model, expected):
    nvml = simulated(tmp_path, [{"model": model, "mig": True}])
    (gpu,) = discovered(nvml, mig(migProfileAllowlist=OF_HAMI))
    assert list(profiles(gpu)) == expected


def test_a_variant_is_what_its_name_says(tmp_path):
    nvml = simulated(tmp_path, [{"model": "a100-80g", "mig": True}])
    (gpu,) = discovered(nvml, mig(migProfileAllowlist=OF_HAMI))
    assert profiles(gpu) == {
        "1g.10gb": (9728, 15, 1), "1g.20gb": (19968, 15, 1), "7g.79gb": (80896, 100, 7)
    }  # fmt: skip


def test_a_model_that_the_list_does_not_name_is_left_out_and_told(tmp_path):
    nvml = simulated(tmp_path, [{"model": "h100-80g", "mig": True}])
    only = mig(migProfileAllowlist=OF_HAMI[2:])
    assert discovered(nvml, only) == []
    assert "add an entry with that model" in reports(nvml, only)


def test_a_gpu_that_cannot_be_cut_is_left_out_of_mode_mig(tmp_path):
    nvml = simulated(tmp_path, "t4")
    assert discovered(nvml, mig()) == []
    assert "cannot be cut" in reports(nvml, mig())


def test_a_gpu_that_is_not_cut_yet_is_not_healthy_in_mode_mig(tmp_path):
    nvml = simulated(tmp_path, "a100-40g")
    (gpu,) = discovered(nvml, mig())
    assert (gpu.healthy, gpu.extra.get(MIG_PROFILES)) == (False, None)
    nvml.set_mig(gpu.id, enabled=True)
    (gpu,) = discovered(nvml, mig())
    assert gpu.healthy


def test_a_cut_gpu_cannot_be_shared_whole(tmp_path):
    nvml = simulated(tmp_path, [{"model": "a100-40g", "mig": True}])
    assert [gpu.healthy for gpu in discovered(nvml)] == [False]
    assert "nvidia-smi -mig 0" in reports(nvml)


# Static MIG.


def cut(nvml, gpu, *places):
    """``cut(nvml, 0, ("1g.5gb", 0))``: instances as an operator would make them."""
    uuid = uuids(nvml)[gpu]
    kinds = {kind.name: kind for kind in nvml.instance_profiles(uuid)}
    for name, start in places:
        span = next(span for span in kinds[name].spans if span.start == start)
        nvml.create_compute(uuid, nvml.create_instance(uuid, kinds[name], span))
    return nvml


def two_cut(tmp_path, *gpus):
    return simulated(tmp_path, [{"model": "a100-40g", "mig": on} for on in gpus or (True, True)])


SINGLE, MIXED = settings(migStrategy="single"), settings(migStrategy="mixed")


def test_single_offers_each_mig_device(tmp_path):
    nvml = two_cut(tmp_path)
    for gpu in (0, 1):
        cut(nvml, gpu, ("3g.20gb", 0), ("3g.20gb", 4))
    found = discovered(nvml, SINGLE)
    assert [(d.slots, d.memory_mib, d.mode, d.numa) for d in found] == [
        (1, 20096, "", 0), (1, 20096, "", 0), (1, 20096, "", 1), (1, 20096, "", 1)
    ]  # fmt: skip
    assert {d.id for d in found} == {d.uuid for u in uuids(nvml) for d in nvml.mig_devices(u)}
    assert {d.model for d in found} == {"NVIDIA A100-SXM4-40GB MIG 3g.20gb"}
    profile = the_vendor().profile
    assert list(node_devices(profile, a_node(node_annotations(profile, found)))) == found


@pytest.mark.parametrize(
    ("cut_gpus", "places", "message"),
    [
        pytest.param((True, False), {0: ["1g.5gb"]}, "the same migEnabled value", id="not all"),
        pytest.param((True, True), {0: ["1g.5gb"]}, "has no MIG devices configured", id="an empty one"),
        pytest.param((True, True), {0: ["1g.5gb"], 1: ["2g.10gb"]}, "more than one MIG device type", id="not alike"),
    ],
)  # fmt: skip
def test_single_refuses(tmp_path, cut_gpus, places, message):
    nvml = two_cut(tmp_path, *cut_gpus)
    for gpu, names in places.items():
        cut(nvml, gpu, *((name, 0) for name in names))
    with pytest.raises(MigLayoutRefused, match=message):
        discovered(nvml, SINGLE)


def test_single_on_a_node_without_mig_offers_whole_gpus(tmp_path):
    assert [gpu.slots for gpu in discovered(simulated(tmp_path, "t4x2"), SINGLE)] == [10, 10]


def test_mixed_offers_cut_gpus_by_profile_and_the_others_whole(tmp_path):
    nvml = cut(two_cut(tmp_path, True, False), 0, ("1g.5gb", 1), ("1g.5gb+me", 0), ("3g.20gb", 4))
    assert [gpu.index for gpu in discovered(nvml, MIXED)] == [1]
    static = static_devices(nvml, MIXED)
    assert {name: len(devices) for name, devices in static.by_resource.items()} == {
        "nvidia.com/mig-1g.5gb": 1, "nvidia.com/mig-1g.5gb.me": 1, "nvidia.com/mig-3g.20gb": 1
    }  # fmt: skip


def test_a_gpu_that_was_cut_meanwhile_is_not_lost(tmp_path):
    nvml = two_cut(tmp_path, False, False)
    before = discovered(nvml, MIXED)
    nvml.set_mig(uuids(nvml)[0], enabled=True)
    assert [gpu.index for gpu in discovered(nvml, MIXED, known=before)] == [1]


def test_other_strategies_have_no_static_devices(tmp_path):
    nvml = cut(two_cut(tmp_path), 0, ("1g.5gb", 0))
    assert static_devices(nvml, settings()).by_resource == {}
    assert static_devices(nvml, SINGLE).by_resource == {}


def test_mode_mig_and_a_strategy_exclude_each_other(tmp_path):
    with pytest.raises(ConfigError, match="exclude each other"):
        discovered(simulated(tmp_path, "a100-40g"), mig(migStrategy="mixed"))
