"""The simulated NVML: what its file may say, and that it behaves as hardware does."""

import json
import multiprocessing
import re
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from hami_nvidia.devices.places import places
from hami_nvidia.nvml.interface import (
    InUse,
    MigMode,
    NotSupported,
    NvmlAway,
    NvmlFailed,
    Span,
    XidEvent,
    profile_name,
)
from hami_nvidia.simulation.nvml import SimulatedNvml
from hami_nvidia.simulation.spec import builtin_models, mig_minors_text, read_simulation
from hami_nvidia.simulation.state import StateFile
from hypothesis import given
from hypothesis import strategies as st

from hami.domain.errors import ConfigError

from .devices.test_discovery import cut
from .hardware_builders import settings, simulated, take_driver_away, uuids

UUID = re.compile(r"GPU-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")


# The file.


@pytest.mark.parametrize(
    ("gpus", "names"),
    [
        pytest.param("t4", ["Tesla T4"], id="one"),
        pytest.param("t4x2, l4", ["Tesla T4"] * 2 + ["NVIDIA L4"], id="several"),
        pytest.param([{"model": "h200", "count": 2}], ["NVIDIA H200"] * 2, id="a list"),
        pytest.param([{"model": "t4", "name": "Own"}], ["Own"], id="another name"),
        pytest.param("", [], id="none at all"),
    ],
)
def test_gpus(tmp_path, gpus, names):
    assert [gpu.name for gpu in simulated(tmp_path, gpus).gpus()] == names


@pytest.mark.parametrize("name", builtin_models())
def test_every_model_can_be_a_node(tmp_path, name):
    nvml = simulated(tmp_path, f"{name}x2")
    one, other = nvml.gpus()
    assert UUID.fullmatch(one.uuid)
    assert one.uuid != other.uuid
    assert (one.numa, other.numa) == (0, 1)


def test_names_of_instances_are_what_their_sizes_say():
    for model in builtin_models().values():
        for kind in model.mig:
            computed = profile_name(kind.slices, kind.memory_mib, model.memory_mib << 20)
            assert computed == kind.name.removesuffix("+me")


def test_uuids_depend_on_the_node_alone(tmp_path):
    first, second, other = (tmp_path / name for name in ("first", "second", "other"))
    for folder in (first, second, other):
        folder.mkdir()
    assert uuids(simulated(first, "t4x2")) == uuids(simulated(second, "t4x2"))
    assert not set(uuids(simulated(first, "t4x2"))) & set(uuids(simulated(other, "t4x2", node="m")))


def test_the_nodes_name_is_the_agents_if_the_file_has_none(tmp_path):
    path = tmp_path / "gpus.yaml"
    path.write_text("gpus: t4\n")
    one, other = (read_simulation(path, name).gpus[0].gpu.uuid for name in ("a", "b"))
    assert one != other


def test_own_models(tmp_path):
    model = {"name": "Own", "memoryMiB": 1024}
    (gpu,) = simulated(tmp_path, "own", models={"own": model}).gpus()
    assert (gpu.name, gpu.memory_bytes, gpu.mig) == ("Own", 1 << 30, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("gpus: t5", "no model 't5'; known are a100-40g", id="an unknown model"),
        pytest.param("gpus: t4x0", "1 to 64", id="no GPU"),
        pytest.param("gpus: t4 x2", r"a100-40gx2", id="a space"),
        pytest.param("gpu: t4", "gpus", id="another key"),
        pytest.param("gpus: [{model: t4, memory: 1}]", "memory", id="another key of a GPU"),
        pytest.param("gpus: t4\nwaitSeconds: -1", "waitSeconds", id="a wrong time"),
        pytest.param("gpus: [", "cannot be read", id="no YAML"),
        pytest.param("[]", "gpus.yaml", id="no mapping"),
    ],
)
def test_what_makes_no_sense_is_told(tmp_path, text, message):
    path = tmp_path / "gpus.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        read_simulation(path, "n")
    assert str(path) in str(caught.value)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(ConfigError, match=r"gone\.yaml cannot be read"):
        read_simulation(tmp_path / "gone.yaml", "n")


# It behaves as hardware does.


def a100(tmp_path):
    return simulated(tmp_path, [{"model": "a100-40g", "mig": True}])


def kind(nvml, name):
    return next(k for k in nvml.instance_profiles(uuids(nvml)[0]) if k.name == name)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        pytest.param(("3g.20gb", 0), ("2g.10gb", 2), "Insufficient Resources", id="the place is taken"),
        pytest.param(("1g.5gb+me", 0), ("1g.5gb+me", 1), "Insufficient Resources", id="there is one of it"),
        pytest.param(("1g.5gb", 0), ("2g.10gb", 1), "Invalid Argument", id="it cannot start there"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(tmp_path, first, second, message):
    nvml = cut(a100(tmp_path), 0, first)
    name, start = second
    profile = kind(nvml, name)
    with pytest.raises(NvmlFailed, match=message):
        nvml.create_instance(uuids(nvml)[0], profile, Span(start=start, size=profile.spans[0].size))


@pytest.mark.parametrize(
    ("cuts", "ids"),
    [
        pytest.param([("7g.40gb", 0)], {0}, id="the whole GPU is 0"),
        pytest.param([("3g.20gb", 0), ("3g.20gb", 4)], {1, 2}, id="its halves are 1 and 2"),
        pytest.param([("4g.20gb", 0), ("2g.10gb", 4), ("1g.5gb", 6)], {1, 5, 13}, id="as NVIDIA's MIG guide shows it"),
        pytest.param([("1g.5gb", n) for n in range(7)], {*range(7, 14)}, id="the smallest are 7 to 13"),
    ],
)  # fmt: skip
def test_instances_are_numbered_by_their_place(tmp_path, cuts, ids):
    nvml = cut(a100(tmp_path), 0, *cuts)
    assert {i.id for i in nvml.instances(uuids(nvml)[0])} == ids


def test_what_is_made_again_is_called_the_same(tmp_path):
    nvml = cut(a100(tmp_path), 0, ("3g.20gb", 0), ("1g.5gb", 4))
    gpu = uuids(nvml)[0]
    first = nvml.mig_devices(gpu)[0]
    nvml.destroy_compute(gpu, 1, 0)
    nvml.destroy_instance(gpu, 1)
    cut(nvml, 0, ("3g.20gb", 0))
    assert nvml.mig_devices(gpu)[0] == first


def test_what_is_used_is_not_destroyed(tmp_path):
    nvml = cut(a100(tmp_path), 0, ("1g.5gb", 0))
    gpu = uuids(nvml)[0]
    with nvml.state.changing() as state:
        state.busy = [nvml.mig_devices(gpu)[0].uuid]
    with pytest.raises(NvmlFailed, match="In use"):
        nvml.destroy_compute(gpu, 7, 0)
    with pytest.raises(NvmlFailed, match="In use"):
        nvml.destroy_instance(gpu, 7)


@pytest.mark.parametrize("by", ["busy", "held_open"])
def test_mig_waits_while_somebody_has_the_gpu(tmp_path, by):
    nvml = simulated(tmp_path, "a100-40g")
    (gpu,) = uuids(nvml)
    with nvml.state.changing() as state:
        setattr(state, by, [gpu])
    with pytest.raises(InUse, match="In use by another client"):
        nvml.set_mig(gpu, enabled=True)
    assert nvml.mig_mode(gpu) == MigMode(enabled=False, pending=True)
    with nvml.state.changing() as state:
        setattr(state, by, [])
    nvml.set_mig(gpu, enabled=True)
    assert nvml.mig_mode(gpu) == MigMode(enabled=True, pending=True)


def test_mig_may_wait_for_a_reset(tmp_path):
    nvml = simulated(tmp_path, "a100-40g")
    (gpu,) = uuids(nvml)
    with nvml.state.changing() as state:
        state.gpu(gpu).resets_late = True
    for _ in range(2):
        nvml.set_mig(gpu, enabled=True)
        assert nvml.mig_mode(gpu) == MigMode(enabled=False, pending=True)


def test_a_mode_that_is_in_force_hurts_nobody(tmp_path):
    nvml = cut(a100(tmp_path), 0, ("1g.5gb", 0))
    (gpu,) = uuids(nvml)
    before = nvml.instances(gpu)
    with nvml.state.changing() as state:
        state.busy = [gpu]
    nvml.set_mig(gpu, enabled=True)
    assert nvml.instances(gpu) == before


def test_turning_mig_off_destroys_all(tmp_path):
    nvml = cut(a100(tmp_path), 0, ("1g.5gb", 0))
    (gpu,) = uuids(nvml)
    nvml.set_mig(gpu, enabled=False)
    assert nvml.instances(gpu) == []


def test_what_cannot_be_cut_has_no_mig_mode(tmp_path):
    nvml = simulated(tmp_path, "t4")
    assert nvml.mig_mode(uuids(nvml)[0]) is None
    with pytest.raises(NotSupported):
        nvml.set_mig(uuids(nvml)[0], enabled=True)


def test_without_a_driver_nothing_works(tmp_path):
    nvml = simulated(tmp_path, "a100-40g")
    watch, (gpu,) = nvml.watch(uuids(nvml)), uuids(nvml)
    take_driver_away(nvml)
    for ask in (nvml.gpus, lambda: nvml.busy(gpu), lambda: nvml.links(gpu), lambda: watch.wait(0)):
        with pytest.raises(NvmlAway, match="Driver Not Loaded"):
            ask()


# What changes outlives who changed it.


def test_it_is_found_again(tmp_path):
    made = cut(a100(tmp_path), 0, ("3g.20gb", 4)).mig_devices
    gpu = uuids(a100(tmp_path))[0]
    assert a100(tmp_path).mig_devices(gpu) == made(gpu)


def test_the_state_is_a_file_that_a_person_can_read(tmp_path):
    nvml = cut(a100(tmp_path), 0, ("3g.20gb", 4))
    state = json.loads((tmp_path / "gpus.yaml.state.json").read_text())
    assert state["gpus"][uuids(nvml)[0]]["instances"][0]["start"] == 4


def test_a_change_that_fails_changes_nothing(tmp_path):
    nvml = simulated(tmp_path, "t4")
    with suppress(RuntimeError), nvml.state.changing() as state:
        state.away = "half-way"
        raise RuntimeError
    assert nvml.gpus()


def test_many_threads_change_it(tmp_path):
    state = StateFile(tmp_path / "state.json")
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(state.add_event, range(80)))
    assert state.read().event_count == 80
    assert sorted(event.number for event in state.read().events) == list(range(1, 81))


def _count(path, times):
    state = StateFile(path)
    for _ in range(times):
        state.add_event(79)


def test_many_processes_change_it(tmp_path):
    path = tmp_path / "state.json"
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_count, args=(path, 20)) for _ in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert StateFile(path).read().event_count == 40


def test_an_error_is_told_while_one_waits(tmp_path):
    nvml = simulated(tmp_path, "t4x2", waitSeconds=5)
    watch = nvml.watch(uuids(nvml))
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(watch.wait, 60)
        nvml.state.add_event(79, uuids(nvml)[1])
        assert waiting.result() == XidEvent(xid=79, uuid=uuids(nvml)[1])


def test_waiting_ends(tmp_path):
    nvml = simulated(tmp_path, "t4", waitSeconds=0.05)
    before = time.monotonic()
    assert nvml.watch(uuids(nvml)).wait(60) is None
    assert time.monotonic() - before < 60


# Files of MIG devices.


@pytest.mark.parametrize(
    ("line", "minor"),
    [
        pytest.param("config", 1, id="config"),
        pytest.param("monitor", 2, id="monitor"),
        pytest.param("gpu0/gi0/access", 3, id="the first instance"),
        pytest.param("gpu0/gi0/ci0/access", 4, id="its first part"),
        pytest.param("gpu0/gi3/access", 30, id="the fourth instance"),
        pytest.param("gpu1/gi0/access", 138, id="the second GPU"),
    ],
)
def test_minors_are_the_drivers(line, minor):
    assert f"{line} {minor}" in mig_minors_text(2).splitlines()


@given(st.integers(0, 4))
def test_every_minor_is_one_files(gpus):
    minors = [line.split()[1] for line in mig_minors_text(gpus).splitlines()]
    assert len(set(minors)) == len(minors) == 2 + gpus * 15 * 9


def test_the_plugin_reads_them(tmp_path):
    nvml = cut(a100(tmp_path), 0, ("1g.5gb", 3))
    table = tmp_path / "driver/nvidia-caps/mig-minors"
    table.parent.mkdir(parents=True)
    table.write_text(mig_minors_text(1))
    device = nvml.mig_devices(uuids(nvml)[0])[0]
    assert places(nvml, settings(procRoot=str(tmp_path)))[device.uuid].paths == (
        "/dev/nvidia0",
        "/dev/nvidia-caps/nvidia-cap93",
        "/dev/nvidia-caps/nvidia-cap94",
    )


def test_it_is_of_the_simulated_kind(tmp_path):
    assert isinstance(simulated(tmp_path, "t4"), SimulatedNvml)
