"""What uses a GPU, asked of the real ``pynvml`` over a library that is made up."""

from __future__ import annotations

import pytest
from hami_nvidia.nvml.interface import BusyRates, NotSupported, RunningProcess, UtilisationSample

from ..hardware_builders import simulated, uuids
from .fake_library import driver_over

NOT_AVAILABLE = (1 << 64) - 1
SECOND = 1_000_000


@pytest.fixture
def asked(tmp_path):
    nvml = simulated(tmp_path, [{"model": "a100-40g"}, {"model": "t4", "sharesHostMemory": True}])
    driver, library = driver_over(nvml)
    return driver, library, uuids(nvml)


def test_memory_and_how_busy_a_gpu_is(asked):
    driver, _, (gpu, shared) = asked
    memory = driver.memory(gpu)
    assert (memory.used * 4, driver.busy_rates(gpu)) == (memory.total, BusyRates(70, 30))
    assert driver.memory(shared) is None


def test_a_process_is_there_once_whatever_it_does(asked):
    driver, library, (gpu, _) = asked
    library.listed = {
        "compute": [(11, 100), (12, NOT_AVAILABLE), (13, 10), (13, 20)],
        "graphics": [(11, 100), (14, 5)],
        "mps": [(12, NOT_AVAILABLE), (15, 7)],
    }
    assert sorted(driver.running(gpu)) == [
        RunningProcess(11, 100),
        RunningProcess(12, None),
        RunningProcess(13, 30),
        RunningProcess(14, 5),
        RunningProcess(15, 7),
    ]


def test_a_driver_need_not_know_of_graphics_or_mps(asked):
    driver, library, (gpu, _) = asked
    library.listed = {"compute": [(11, 100)]}
    for name in ("v3", "v2"):
        library.missing.add(f"nvmlDeviceGetMPSComputeRunningProcesses_{name}")
    assert driver.running(gpu) == [RunningProcess(11, 100)]
    library.failing = dict.fromkeys(
        [f"nvmlDeviceGetComputeRunningProcesses_v{n}" for n in (2, 3)], 3
    )
    with pytest.raises(NotSupported):
        driver.running(gpu)


def test_samples_since_a_moment(asked):
    driver, library, (gpu, _) = asked
    library.samples = [(11, SECOND, 40), (12, 2 * SECOND, 104), (0, 3 * SECOND, 9)]
    assert driver.utilisation(gpu, 0) == [
        UtilisationSample(11, SECOND, 40),
        UtilisationSample(12, 2 * SECOND, 100),
    ]
    assert driver.utilisation(gpu, SECOND) == [UtilisationSample(12, 2 * SECOND, 100)]


@pytest.mark.parametrize("says_not_found", [True, False])
def test_no_newer_sample_is_an_answer(asked, says_not_found):
    driver, library, (gpu, _) = asked
    library.says_not_found = says_not_found
    assert driver.utilisation(gpu, 0) == ()


def test_a_list_that_grows_while_it_is_read_is_read_again(asked):
    driver, library, (gpu, _) = asked
    library.samples, library.grows = [(11, SECOND, 40)], 2
    assert driver.utilisation(gpu, 0) == [UtilisationSample(11, SECOND, 40)]
    library.grows = 100
    assert driver.utilisation(gpu, 0) == ()


def test_where_no_utilisation_is_told_there_is_none(asked):
    driver, library, (gpu, _) = asked
    library.failing = {"nvmlDeviceGetProcessUtilization": 3, "nvmlDeviceGetUtilizationRates": 3}
    assert (driver.utilisation(gpu, 0), driver.busy_rates(gpu)) == (None, None)
