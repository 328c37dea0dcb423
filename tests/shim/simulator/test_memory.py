"""The simulated driver's memory: what any driver promises, and what the ledger says of it."""

from __future__ import annotations

import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ..builds import SHIM, Build, make
from ..simulated import MIB, SimulatedGpus
from .conftest import goal_of

PROMISES = ("memory", "pools", "vmm", "arrays", "sharing", "threads")
SECONDS = 120
TWO_CARDS = "gpu memory=8192\ngpu memory=8192\n"


def made(build: Build, program: str) -> str:
    """``conformance/memory`` or ``programs/sim_memory``, in the flavour of ``build``."""
    make(goal_of(build.folder / program))
    return str(build.folder / program)


def run(
    program: str, *words: str, gpus: SimulatedGpus, **knobs: object
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *words], env=gpus.env("a", **knobs), capture_output=True, text=True,
        check=False, timeout=SECONDS,
    )  # fmt: skip


def all_ok(done: subprocess.CompletedProcess[str]) -> None:
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert done.stdout.count("ok - ") == len(done.stdout.splitlines()) > 0, said
    assert "not ok" not in said


def nothing_left(gpus: SimulatedGpus) -> bool:
    return gpus.used(0) == gpus.used(1) == 0


@pytest.mark.parametrize("program", PROMISES)
def test_what_any_driver_promises_the_simulated_one_keeps(gpus_with, built, program):
    with gpus_with(TWO_CARDS) as gpus:
        all_ok(run(made(built, f"conformance/{program}"), gpus=gpus))
        gpus.eventually(lambda: nothing_left(gpus))
        assert gpus.held("a").peak <= 8192 * MIB


def test_threads_do_not_race(threaded, tmp_path):
    with SimulatedGpus(tmp_path, build=threaded, config=TWO_CARDS) as gpus:
        all_ok(run(made(threaded, "conformance/threads"), gpus=gpus))


def test_what_the_simulated_driver_alone_shows(gpus_with, built):
    with gpus_with(TWO_CARDS) as gpus:
        all_ok(run(made(built, "programs/sim_memory"), gpus=gpus))
        gpus.eventually(lambda: nothing_left(gpus))


def test_before_initialisation_nothing_works_and_nobody_connects(gpus_with, built):
    with gpus_with(TWO_CARDS) as gpus:
        all_ok(run(made(built, "programs/sim_memory"), "uninitialised", gpus=gpus))
        assert gpus.clients() == []


def test_the_spellings_tried_are_all_that_the_memory_half_exports(built):
    tried = re.findall(
        r"CALL\((cu\w+), ", Path(SHIM / "simgpu/tests/programs/sim_memory.c").read_text()
    )
    exported = [
        name
        for area in ("memory", "async", "pool", "vmm", "array", "ipc", "external", "info")
        for file in (SHIM / "simgpu").glob(f"cuda_{area}*.c")
        for name in re.findall(r"^SIM_EXPORT CUresult (\w+)\(", file.read_text(), re.MULTILINE)
    ]
    assert sorted(tried) == sorted(exported)
    assert len(exported) > 100


@contextmanager
def holding(program: str, gpus: SimulatedGpus, **knobs: object) -> Iterator[subprocess.Popen[str]]:
    """A process that has some memory of each kind."""
    with subprocess.Popen(
        [program, "hold"], env=gpus.env("a", **knobs), text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as holder:  # fmt: skip
        assert holder.stdout is not None
        said = holder.stdout.readline()
        if said != "held\n":
            pytest.fail(said + holder.communicate()[0])
        yield holder
        holder.communicate()


@pytest.mark.parametrize("end", ["exit", "kill"])
def test_the_ledger_knows_each_kind_and_has_none_when_all_are_gone(gpus_with, built, end):
    program = made(built, "programs/sim_memory")
    with gpus_with(TWO_CARDS) as gpus:
        with holding(program, gpus) as holder:
            held = gpus.held("a")
            assert held.data == (10 + 6 + 4 + 8 + 16) * MIB
            assert held.pool == 64 * MIB
            assert held.peak == held.data + held.pool
            if end == "kill":
                holder.kill()
        assert holder.returncode == (-signal.SIGKILL if end == "kill" else 0)
        gpus.eventually(lambda: nothing_left(gpus))


def test_a_pool_takes_its_memory_in_steps_of_a_knob(gpus_with, built):
    program = made(built, "programs/sim_memory")
    with gpus_with(TWO_CARDS) as gpus, holding(program, gpus, POOL_STEP=8 * MIB):
        assert gpus.held("a").pool == 40 * MIB
