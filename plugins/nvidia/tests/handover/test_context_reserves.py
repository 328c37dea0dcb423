"""What a CUDA context is charged on each GPU, before it is made."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hami_nvidia.devices import context_memory as module
from hami_nvidia.devices.context_memory import UNKNOWN_MIB, context_memory, multiprocessors
from hami_nvidia.node_side import enforce
from hami_nvidia.nvml.driver import DriverNvml
from hami_nvidia.nvml.interface import Capability, Gpu
from hami_nvidia.simulation.spec import builtin_models

from hami.domain.slices import PageSettings

from ..hardware_builders import bring_back, lose, take_driver_away
from ..node_builders import a_grant, a_node, a_slice, gpu_ids, reported, with_node_spec
from ..nvml.fake_library import driver_over


def a_gpu(cores, capability):
    return Gpu(
        uuid="GPU-1",
        index=0,
        minor=0,
        name="NVIDIA",
        pci_bus_id="00000000:07:00.0",
        memory_bytes=1 << 34,
        cores=cores,
        capability=Capability(*capability) if capability else None,
    )


REPORTED = [
    pytest.param(4352, (8, 9), 34, 107, id="GeForce RTX 4060 Ti"),
    pytest.param(10496, (8, 6), 82, 256, id="GeForce RTX 3090"),
    pytest.param(18176, (8, 9), 142, 426, id="RTX 6000 Ada Generation"),
    pytest.param(24064, (12, 0), 188, 555, id="RTX PRO 6000 Blackwell"),
]


@pytest.mark.parametrize(("cores", "capability", "count", "reported_mib"), REPORTED)
def test_no_context_that_was_ever_reported_takes_more(cores, capability, count, reported_mib):
    """Nor much less: what is charged and not taken is lost to the tenant."""
    gpu = a_gpu(cores, capability)
    assert multiprocessors(gpu) == count
    assert reported_mib <= context_memory(gpu) <= reported_mib + 20


def test_what_the_module_says_of_them_is_so():
    lines = re.findall(r"^(.+?)  +(\d+)  +(\d+) MiB  +(\d+) MiB$", module.__doc__, re.MULTILINE)
    assert [(name, int(count), int(told), int(here)) for name, count, told, here in lines] == [
        (each.id, each.values[2], each.values[3], context_memory(a_gpu(*each.values[:2])))
        for each in REPORTED
    ]


@pytest.mark.parametrize(
    ("cores", "capability", "expected"),
    [
        pytest.param(2560, (7, 5), 40 * 2 + 10, id="a T4 has 1024 threads a multiprocessor"),
        pytest.param(6912, (8, 0), 108 * 4 + 10, id="an A100 has 64 cores in one"),
        pytest.param(16896, (9, 0), 132 * 4 + 10, id="an H100"),
        pytest.param(12800, (99, 0), 100 * 4 + 10, id="one that is not known is a large one"),
        pytest.param(129, (8, 6), 2 * 3 + 10, id="no part of a multiprocessor"),
        pytest.param(384, (8, 6), 20, id="whole blocks of 2 MiB"),
        pytest.param(None, (9, 0), UNKNOWN_MIB, id="an old driver does not count cores"),
        pytest.param(16896, None, UNKNOWN_MIB, id="nor name the generation"),
        pytest.param(0, (9, 0), UNKNOWN_MIB, id="no cores are no answer"),
    ],
)
def test_it_follows_from_the_size(cores, capability, expected):
    assert context_memory(a_gpu(cores, capability)) == expected


@pytest.mark.parametrize("model", builtin_models().items(), ids=lambda item: item[0])
def test_simulated_models_have_whole_multiprocessors(model):
    """And what MIG says of all their slices together is not more."""
    _, written = model
    gpu = a_gpu(written.cores, map(int, written.capability.split(".")))
    count = multiprocessors(gpu)
    known = module._BY_CAPABILITY[gpu.capability]
    assert count * known.cores == written.cores
    assert all(profile.multiprocessors <= count for profile in written.mig)


def test_the_documented_figures_are_these():
    text = (Path(__file__).parents[4] / "docs/enforcement.md").read_text()
    told = re.findall(r"^\| ([A-Z0-9, ]+) \| (\d+) MiB \|$", text, re.MULTILINE)
    documented = {name: int(mib) for names, mib in told for name in names.split(", ")}
    assert documented == {
        model.upper().partition("-")[0]: context_memory(
            a_gpu(written.cores, map(int, written.capability.split(".")))
        )
        for model, written in builtin_models().items()
    }
    assert f"takes {UNKNOWN_MIB} MiB where a driver does not say" in text
    for case in REPORTED:
        assert re.search(rf"\b{case.values[3]}\b", text), case.id


# What a slice gets.


def cdi_node(tmp_path, gpus="a100-40g,t4", **settings):
    node = a_node(tmp_path, gpus, **settings)
    with_node_spec(node, {gpu: f"/dev/nvidia{n}" for n, gpu in enumerate(gpu_ids(node))})
    return node


def reserves_of(node, *grants):
    return dict(enforce(a_slice(node, *grants), node).page.context_reserve_mib)


def test_each_gpu_of_a_slice_has_its_own(tmp_path):
    node = cdi_node(tmp_path)
    large, small = gpu_ids(node)
    assert reserves_of(node, a_grant(large), a_grant(small)) == {large: 442, small: 90}
    assert reserves_of(node, a_grant(small)) == {small: 90}
    assert reported(node) == []


@pytest.mark.parametrize("figure", [0, 700])
def test_the_operators_figure_is_taken_at_its_word(tmp_path, figure):
    node = cdi_node(tmp_path, context_reserve_mib=figure)
    large, small = gpu_ids(node)
    assert reserves_of(node, a_grant(large), a_grant(small)) == {large: figure, small: figure}


def test_a_gpu_is_asked_once(tmp_path):
    """What it takes is remembered while it does not answer: a restarted container keeps it."""
    node = cdi_node(tmp_path)
    large, _ = gpu_ids(node)
    assert reserves_of(node, a_grant(large)) == {large: 442}
    take_driver_away(node.nvml)
    assert reserves_of(node, a_grant(large)) == {large: 442}


def test_one_that_does_not_answer_is_asked_again(tmp_path):
    node = cdi_node(tmp_path)
    _, small = gpu_ids(node)
    lose(node.nvml, 1)
    assert reserves_of(node, a_grant(small)) == {small: UNKNOWN_MIB}
    bring_back(node.nvml, 1)
    assert reserves_of(node, a_grant(small)) == {small: 90}


def test_a_driver_that_does_not_say_is_asked_by_every_slice(tmp_path):
    """It may be a GPU that was cut when it was asked."""
    node = cdi_node(tmp_path, [{"model": "a100-40g", "mig": True}])
    (gpu,) = gpu_ids(node)
    assert reserves_of(node, a_grant(gpu)) == {gpu: UNKNOWN_MIB}
    node.nvml.set_mig(gpu, enabled=False)
    assert reserves_of(node, a_grant(gpu)) == {gpu: 442}


def test_hamis_protocol_has_no_page_to_say_it_on(tmp_path):
    node = a_node(tmp_path, identity="lock")
    assert enforce(a_slice(node), node).page == PageSettings()


# What is too small.


def test_a_slice_without_room_for_a_context_is_reported(tmp_path):
    node = cdi_node(tmp_path)
    large, small = gpu_ids(node)
    enforce(a_slice(node, a_grant(large, 441), a_grant(small, 90)), node)
    (told,) = reported(node)
    assert f"441 MiB of {large}, where a CUDA context takes about 442 MiB" in told
    assert "pod default/pod-1, container main" in told
    assert small not in told
    assert "--context-reserve-mib" in told


def test_two_parts_of_one_gpu_are_one(tmp_path):
    node = cdi_node(tmp_path)
    large, _ = gpu_ids(node)
    enforce(a_slice(node, a_grant(large, 300), a_grant(large, 300)), node)
    assert reported(node) == []


@pytest.mark.parametrize(
    ("settings", "memory", "env"),
    [
        pytest.param({}, 0, {}, id="no limit at all"),
        pytest.param({}, 100, {"CUDA_DISABLE_CONTROL": "1"}, id="no library"),
        pytest.param({"context_reserve_mib": 0}, 100, {}, id="no reserve"),
    ],
)
def test_nothing_is_reported_of_what_nobody_holds(tmp_path, settings, memory, env):
    node = cdi_node(tmp_path, **settings)
    grant = a_grant(gpu_ids(node)[0], memory)
    enforce(a_slice(node, grant, container_env=env), node)
    assert reported(node) == []


# What the driver says.


@pytest.mark.parametrize("number", [1, 3, 4, 13, 999])
@pytest.mark.parametrize(
    ("function", "field"),
    [("nvmlDeviceGetNumGpuCores", "cores"), ("nvmlDeviceGetCudaComputeCapability", "capability")],
)
def test_a_gpu_is_there_whatever_the_driver_has_against_it(tmp_path, function, field, number):
    """What newer drivers alone can say is no reason to lose a GPU."""
    node = a_node(tmp_path)
    driver, library = driver_over(node.nvml)
    library.failing[function] = number
    for gpu, expected in zip(driver.gpus(), node.nvml.gpus(), strict=True):
        assert (gpu.uuid, getattr(gpu, field)) == (expected.uuid, None)


@pytest.mark.parametrize("missing", ["nvmlDeviceGetNumGpuCores"])
def test_an_older_library_has_no_such_function(tmp_path, missing):
    node = a_node(tmp_path)
    driver, library = driver_over(node.nvml)
    library.missing.add(missing)
    assert isinstance(driver, DriverNvml)
    assert [gpu.cores for gpu in driver.gpus()] == [None, None]
