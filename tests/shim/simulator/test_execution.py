"""The simulated driver's execution: what any driver promises, and what the daemon saw of it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ..builds import SHIM
from ..simulated import MIB, Held, SimulatedGpus
from .test_memory import TWO_CARDS, all_ok, made, nothing_left, run

MS = 1_000_000
SMS, RESIDENT_THREADS = 132, 2048
PROMISES = (
    "devices", "contexts", "streams", "launches", "racing", "captures", "captured", "graphs",
    "graph_memory",
)  # fmt: skip
MEMORY_HALF = ("memory", "async", "pool", "vmm", "array", "ipc", "external", "info")


class Walk:
    """A process that stands still after each step until the test goes on to the next."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._stands = False

    def to(self, step: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self._stands:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        assert self._process.stdout.readline() == f"{step}\n"
        self._stands = True


@contextmanager
def walking(
    program: str, name: str, gpus: SimulatedGpus, env: dict[str, str] | None = None, **knobs: object
) -> Iterator[Walk]:
    with subprocess.Popen(
        [program, name], env={**gpus.env("a", **knobs), **(env or {})}, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as process:  # fmt: skip
        yield Walk(process)
        process.communicate("\n")
        assert process.returncode == 0


def held(gpus: SimulatedGpus) -> Held:
    return gpus.held("a")


@pytest.mark.parametrize("program", PROMISES)
def test_what_any_driver_promises_the_simulated_one_keeps(gpus_with, built, program):
    with gpus_with(TWO_CARDS) as gpus:
        all_ok(run(made(built, f"conformance/{program}"), gpus=gpus))
        gpus.eventually(lambda: nothing_left(gpus))


@pytest.mark.parametrize("program", ["racing", "launches", "captured"])
def test_threads_do_not_race(threaded, tmp_path, program):
    with SimulatedGpus(tmp_path, build=threaded, config=TWO_CARDS) as gpus:
        all_ok(run(made(threaded, f"conformance/{program}"), gpus=gpus))


@pytest.mark.parametrize("program", ["sim_spellings", "sim_execution"])
def test_what_the_simulated_driver_alone_shows(gpus_with, built, program):
    with gpus_with(TWO_CARDS) as gpus:
        all_ok(run(made(built, f"programs/{program}"), gpus=gpus))
        gpus.eventually(lambda: nothing_left(gpus))


def test_uninitialised_nothing_works_and_nobody_connects(gpus_with, built):
    with gpus_with(TWO_CARDS) as gpus:
        all_ok(run(made(built, "programs/sim_spellings"), "uninitialised", gpus=gpus))
        assert gpus.clients() == []


def test_the_spellings_tried_are_all_that_the_execution_half_exports():
    tried = re.findall(
        r"CALL\((cu\w+), ", (SHIM / "simgpu/tests/programs/sim_spellings.c").read_text()
    )
    exported = [
        name
        for file in (SHIM / "simgpu").glob("cuda_*.c")
        if not file.name.startswith(tuple(f"cuda_{area}" for area in MEMORY_HALF))
        for name in re.findall(r"^SIM_EXPORT CUresult (\w+)\(", file.read_text(), re.MULTILINE)
    ]
    # Two take their parameters from a macro.
    exported += [name for name in ("cuLaunchKernel", "cuLaunchKernel_ptsz") if name not in exported]
    assert sorted(tried) == sorted(exported)
    assert len(exported) > 180


def test_the_driver_takes_memory_for_contexts_code_and_local_memory(gpus_with, built):
    program = made(built, "programs/sim_walks")
    with gpus_with(TWO_CARDS) as gpus, walking(program, "memory", gpus, CONTEXT_MIB=100) as walk:
        walk.to("context")
        assert held(gpus).bytes == held(gpus).context == 100 * MIB
        walk.to("second context")
        assert held(gpus).context == 200 * MIB
        walk.to("second context destroyed")
        gpus.eventually(lambda: held(gpus).context == 100 * MIB)
        walk.to("module")
        assert held(gpus).code == 6 * MIB, "the global, in granules of 2 MiB"
        walk.to("launched")
        assert held(gpus).code == 8 * MIB, "5 MiB of the global and 3 of code"
        walk.to("launched again")
        assert held(gpus).code == 10 * MIB, "one byte more than 8 MiB"
        walk.to("local memory")
        deep = (11 - 1) * 1024 * RESIDENT_THREADS * SMS
        assert deep <= held(gpus).internal < deep + 2 * MIB
        before = held(gpus).internal
        walk.to("less local memory")
        assert held(gpus).internal == before
        walk.to("heap")
        assert held(gpus).internal == before + 64 * MIB
        walk.to("unloaded")
        gpus.eventually(lambda: held(gpus).code == 0)
        assert held(gpus).internal == before + 64 * MIB
        walk.to("reset")
        gpus.eventually(lambda: held(gpus).bytes == 0)
        assert held(gpus).peak == 0, "no program asked for any of it"


def test_an_eager_module_takes_its_memory_when_it_is_loaded(gpus_with, built):
    program = made(built, "programs/sim_walks")
    with (
        gpus_with(TWO_CARDS) as gpus,
        walking(program, "memory", gpus, {"CUDA_MODULE_LOADING": "EAGER"}) as walk,
    ):
        for step in ("context", "second context", "second context destroyed", "module"):
            walk.to(step)
        assert held(gpus).code == 10 * MIB
        walk.to("launched")
        assert held(gpus).code == 10 * MIB
        for step in ("launched again", "local memory", "less local memory", "heap", "unloaded"):
            walk.to(step)
        walk.to("reset")


def test_a_context_that_does_not_fit_is_refused_and_takes_nothing(gpus_with, built):
    with gpus_with("gpu memory=200") as gpus:
        done = run(made(built, "programs/sim_walks"), "memory", gpus=gpus, CONTEXT_MIB=300)
        assert done.stdout == "the context was refused: 2\n"
        gpus.eventually(lambda: gpus.used() == 0)


def test_every_way_to_launch_keeps_the_device_as_busy(gpus_with, built):
    program = made(built, "programs/sim_walks")
    with gpus_with() as gpus, walking(program, "time", gpus) as walk:
        walk.to("captured")
        assert gpus.busy_of("a").wall_ns == 0, "what is captured does not run"
        walk.to("launched")
        busy = gpus.busy_of("a")
        assert busy.sm_ns == 10 * 10 * MS // 2
        assert 10 * 10 * MS // 2 <= busy.wall_ns <= 10 * 10 * MS


def test_calls_cost_what_a_knob_says(plain_gpus, plain):
    """A launch and an event, each as long as the knob says, on the processor."""
    program = made(plain, "programs/sim_costs")
    done = run(program, gpus=plain_gpus, LAUNCH_NS=20_000, EVENT_NS=10_000)
    assert done.returncode == 0, done.stderr
    costs = dict(line.split() for line in done.stdout.splitlines())
    assert int(costs["launch"]) >= 20_000
    assert int(costs["record"]) >= 10_000
    assert int(costs["query"]) >= 10_000
    done = run(program, gpus=plain_gpus)
    assert int(dict(line.split() for line in done.stdout.splitlines())["launch"]) < 20_000
