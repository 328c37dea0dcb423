"""What is measured of GPUs: of a made-up NVML that has samples, processes and faults."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hami_nvidia.measurement.measuring import ANEW_US, SAMPLE_US, Measuring
from hami_nvidia.measurement.sampled import means
from hami_nvidia.nvml.interface import (
    BusyRates,
    GpuInstance,
    GpuLost,
    MemoryInUse,
    MigDevice,
    NvmlAway,
    NvmlFailed,
    RunningProcess,
    Span,
    UtilisationSample,
)
from hami_nvidia.schedule.mig_placement import MIG_INSTANCE, MigInstance, MigPlacement

from hami.domain.allocations import ContainerKind
from hami.domain.devices import Device, Grant
from hami.domain.extra import NO_EXTRA
from hami.domain.slices import Slice

GIB = 1 << 30
SECOND = 1_000_000
IDLE = BusyRates(0, 0)
DEVICES = tuple(Device(id=id, vendor="NVIDIA") for id in ("GPU-0", "GPU-1"))


@dataclass
class OneGpu:
    used: int | None = 0
    rates: BusyRates | None = IDLE
    running: dict[int, int | None] = field(default_factory=dict)
    samples: list[UtilisationSample] | None = field(default_factory=list)
    fails: Exception | None = None


class FewGpus:
    """Answers the requests that measuring makes."""

    def __init__(self, **gpus: OneGpu) -> None:
        self.gpus = {f"GPU-{name[1:]}": gpu for name, gpu in gpus.items()}
        self.migs: dict[str, int] = {}
        self.placed: dict[int, Span] = {}
        self.closed = 0
        self.asked: list[str] = []

    def _gpu(self, id: str) -> OneGpu:
        gpu = self.gpus[id]
        if gpu.fails:
            raise gpu.fails
        return gpu

    def memory(self, id):
        if id in self.migs:
            return MemoryInUse(self.migs[id], 10 * GIB)
        if id not in self.gpus:
            raise NvmlFailed(f"{id}: Not Found")
        used = self._gpu(id).used
        return None if used is None else MemoryInUse(used, 80 * GIB)

    def busy_rates(self, id):
        return self._gpu(id).rates

    def running(self, id):
        return [RunningProcess(pid, used) for pid, used in self._gpu(id).running.items()]

    def utilisation(self, id, since_us):
        samples = self._gpu(id).samples
        return None if samples is None else [one for one in samples if one.at_us > since_us]

    def instances(self, gpu):
        self.asked.append("instances")
        return [
            GpuInstance(id=n, profile_id=0, span=s, compute_ids=(0,))
            for n, s in self.placed.items()
        ]

    def mig_devices(self, gpu):
        return [
            MigDevice(uuid=uuid, gpu_instance=n, compute_instance=0, profile="1g.10gb", memory_mib=1)
            for uuid, n in zip(self.migs, self.placed, strict=True)
        ]  # fmt: skip

    def close(self):
        self.closed += 1


class At:
    """A clock that a test moves; seconds."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def sample(pid: int, at: float, percent: int) -> UtilisationSample:
    return UtilisationSample(pid=pid, at_us=round(at * SECOND), percent=percent)


def percents(measured, gpu="GPU-0"):
    return {one.pid: one.utilisation for one in measured.processes if one.device_id == gpu}


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        pytest.param([], {}, id="nothing ran"),
        pytest.param([sample(1, 2, 40)], {1: 40}, id="the driver's own mean"),
        pytest.param([sample(1, 2, 40), sample(2, 2, 60)], {1: 40, 2: 60}, id="of two"),
        pytest.param([sample(1, 1.5, 40), sample(2, 2, 60)], {1: 20, 2: 60}, id="one that ended half way"),
        pytest.param([sample(1, 1.5, 40), sample(1, 2, 60)], {1: 50}, id="a sample for each period"),
        pytest.param([sample(1, 1.9, 100), sample(1, 2, 0)], {1: 90}, id="periods of different length"),
        pytest.param([sample(1, 1.5, 100), sample(2, 1.5, 10), sample(2, 2, 30)], {1: 50, 2: 20}, id="one that paused"),
        pytest.param([sample(1, 2, 80), sample(1, 2, 80)], {1: 100}, id="no more than all"),
        pytest.param([sample(1, 1, 80)], {}, id="no time has passed"),
    ],
)  # fmt: skip
def test_the_mean_over_the_time_since_the_last_look(samples, expected):
    assert means(samples, 1 * SECOND) == pytest.approx(expected)


def test_devices_and_their_processes():
    one = OneGpu(used=3 * GIB, rates=BusyRates(70, 20), running={11: 2 * GIB, 12: GIB})
    one.samples = [sample(11, 1000, 70)]
    nvml = FewGpus(g0=one, g1=OneGpu(used=None, rates=None, running={13: None}, samples=None))
    found = Measuring(nvml, At()).measure(DEVICES, ())
    assert [
        (d.memory_used_bytes, d.memory_total_bytes, d.utilisation, d.memory_utilisation)
        for d in found.devices
    ] == [(3 * GIB, 80 * GIB, 70.0, 20.0), (None, None, None, None)]
    assert {(p.device_id, p.pid, p.memory_bytes, p.utilisation) for p in found.processes} == {
        ("GPU-0", 11, 2 * GIB, 70.0),
        ("GPU-0", 12, GIB, 0.0),
        ("GPU-1", 13, None, None),
    }
    assert found.seconds == 1.0


def test_a_process_that_computed_and_is_gone_is_told_once():
    gpu, at = OneGpu(samples=[sample(11, 1000, 40)]), At()
    measuring = Measuring(FewGpus(g0=gpu), at)
    [process] = measuring.measure(DEVICES[:1], ()).processes
    assert (process.pid, process.memory_bytes, process.utilisation) == (11, 0, 40.0)
    gpu.samples += [sample(12, 1000.5, 40)]
    at.now += 0.5
    assert percents(measuring.measure(DEVICES[:1], ())) == {12: 40.0}


def test_no_newer_sample_says_nothing_for_a_while_and_then_that_nothing_ran():
    gpu, at = OneGpu(running={11: GIB}, samples=[sample(11, 1000, 40)]), At()
    measuring = Measuring(FewGpus(g0=gpu), at)
    for now, expected in ((1000.0, 40.0), (1000.9, 40.0), (1001.1, 0.0), (1005.0, 0.0)):
        at.now = now
        assert percents(measuring.measure(DEVICES[:1], ())) == {11: expected}
    at.now = 1005.5
    gpu.samples += [sample(11, 1005.25, 80)]
    found = measuring.measure(DEVICES[:1], ())
    assert percents(found) == {11: 80.0}
    assert found.seconds < 2 * SAMPLE_US / SECOND


def test_a_clock_that_is_set_back_stops_nothing():
    gpu, at = OneGpu(running={11: GIB}, samples=[sample(11, 1000, 40)]), At()
    measuring = Measuring(FewGpus(g0=gpu), at)
    measuring.measure(DEVICES[:1], ())
    gpu.samples = [sample(11, 500, 90)]
    at.now = 500.0
    assert percents(measuring.measure(DEVICES[:1], ())) == {11: 90.0}


def test_a_gpu_that_fell_off_the_bus_leaves_the_others():
    at = At()
    nvml = FewGpus(g0=OneGpu(fails=GpuLost("lost")), g1=OneGpu(used=GIB, running={13: GIB}))
    measuring = Measuring(nvml, at)
    for _ in range(3):
        found = measuring.measure(DEVICES, ())
        assert [d.id for d in found.devices] == ["GPU-1"]
        assert [p.device_id for p in found.processes] == ["GPU-1"]
    assert nvml.closed == 1
    at.now += ANEW_US / SECOND
    measuring.measure(DEVICES, ())
    assert nvml.closed == 2


def test_without_a_driver_there_is_no_answer():
    nvml = FewGpus(g0=OneGpu(), g1=OneGpu(fails=NvmlAway("away")))
    with pytest.raises(NvmlAway):
        Measuring(nvml, At()).measure(DEVICES, ())


def a_mig_slice(start: int) -> Slice:
    instance = MigInstance(profile="1g.10gb", placement=MigPlacement(start=start, size=1))
    grant = Grant(device_id="GPU-0", vendor="NVIDIA", extra=NO_EXTRA.with_(MIG_INSTANCE, instance))
    return Slice(
        id=f"s{start}", vendor="NVIDIA", pod_uid="u", namespace="n", pod="p", container="c",
        kind=ContainerKind.APP, grants=(grant,), state_dir=Path("/nowhere"),
    )  # fmt: skip


def test_a_slice_that_is_a_mig_instance_is_counted_by_the_hardware():
    nvml = FewGpus(g0=OneGpu(rates=None, samples=None))
    nvml.migs, nvml.placed = {"MIG-a": GIB}, {7: Span(start=2, size=1)}
    measuring = Measuring(nvml, At())
    for _ in range(3):
        found = measuring.measure(DEVICES[:1], (a_mig_slice(2), a_mig_slice(4)))
        assert [(s.slice_id, s.memory_bytes, s.utilisation) for s in found.slices] == [
            ("s2", GIB, None),
            ("s4", None, None),
        ]
    assert nvml.asked.count("instances") == 1 + 3  # s4 is looked for again each time
    nvml.migs, nvml.placed = {"MIG-b": 2 * GIB}, {9: Span(start=2, size=1)}
    measuring.measure(DEVICES[:1], (a_mig_slice(2),))
    found = measuring.measure(DEVICES[:1], (a_mig_slice(2),))
    assert [s.memory_bytes for s in found.slices] == [2 * GIB]
