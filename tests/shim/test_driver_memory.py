"""What the driver takes on its own: reserved before, corrected by what the monitor sees, within one
period. The test plays the monitor, which knows what the cards' ledger knows."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .builds import Build
from .memory import OUT_OF_MEMORY, SUCCESS
from .simulated import MIB, SimulatedGpus
from .slices import Slice
from .storms import WAYS, StormTenant

MakesTenant = Callable[..., StormTenant]

GRANULE = 2 * MIB
LIMIT = 300 * MIB
CONTEXT = 100 * MIB
KNOBS = {"CONTEXT_MIB": CONTEXT // MIB, "POOL_STEP": GRANULE}


@pytest.fixture
def gpus(shim: Build, tmp_path: Path):
    with SimulatedGpus(tmp_path, build=shim) as gpus:
        yield gpus


@pytest.fixture
def tenant(shim: Build, gpus: SimulatedGpus, tmp_path: Path) -> MakesTenant:
    def make(*memory: int, reserve: int, name: str = "a") -> StormTenant:
        return StormTenant(name, shim, gpus, Slice(tmp_path / name, *memory, reserve=reserve))

    return make


def test_the_reserve_is_charged_before_the_context_is_made(tenant: MakesTenant):
    a = tenant(LIMIT, reserve=CONTEXT)
    with a.runs(**KNOBS) as one, a.runs(**KNOBS) as two:
        assert a.slice.charged() == a.holds() == 2 * CONTEXT
        assert one.take("context", 512, 1) == (OUT_OF_MEMORY, 0)  # one more and something in it
        assert a.holds() == 2 * CONTEXT
        with a.starts(**KNOBS) as three:
            three.does("init")
            three.does("device", 0)
            assert a.slice.charged() == a.holds() == LIMIT
            for way in WAYS:
                for program in (one, two, three):
                    assert program.take(way, 1, 1) == (OUT_OF_MEMORY, 0), way
            with a.starts(**KNOBS) as four:
                four.does("init")
                assert four.call("device", 0) == OUT_OF_MEMORY
    assert a.peak() == 0


@pytest.mark.parametrize(
    ("limit", "said"),
    [
        pytest.param(CONTEXT - 1, True, id="smaller than a context"),
        pytest.param(CONTEXT, False, id="just large enough"),
    ],
)
def test_a_slice_without_room_for_a_context_says_so(
    limit: int, said: bool, shim: Build, gpus: SimulatedGpus, tmp_path: Path
):
    """A program is out of memory before it asked for any: its log must say why."""
    slice_ = Slice(tmp_path / "a", limit, reserve=CONTEXT)
    done = subprocess.run(
        [shim.program("storm")],
        input="init\ndevice 0\n",
        env={
            **gpus.env("a", **KNOBS),
            **slice_.env(),
            "LD_PRELOAD": str(shim.library),
            "LIBCUDA_LOG_LEVEL": "1",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == [str(SUCCESS), str(OUT_OF_MEMORY if said else SUCCESS)]
    told = "a context takes about 100 MiB of device 0, and the limit is 99 MiB"
    assert (told in done.stderr) == said
    assert gpus.held("a").most == (0 if said else CONTEXT)


@pytest.mark.parametrize("way", WAYS)
def test_what_was_not_reserved_is_charged_once_the_monitor_saw_it(way: str, tenant: MakesTenant):
    """From the first request after the monitor wrote; all beyond the limit is refused then."""
    unforeseen = 64 * MIB
    a = tenant(LIMIT, reserve=CONTEXT - unforeseen)
    with a.runs(**KNOBS) as program:
        assert a.holds() - a.slice.charged() == unforeseen
        assert program.take(way, 20 * MIB, 3) == (SUCCESS, 3)
        behind = a.holds() - a.slice.charged()
        assert behind == unforeseen or way == "context"
        a.slice.observe(a.holds())
        assert program.take(way, max(1, LIMIT - a.holds() + 1), 1) == (OUT_OF_MEMORY, 0)
        assert a.slice.charged() == a.holds()
        room = max(0, LIMIT - a.holds())  # each of the contexts took more than was reserved
        result, blocks = program.take("cuMemCreate", GRANULE)
        assert (result, blocks) == (OUT_OF_MEMORY, room // GRANULE)
        assert a.slice.charged() == a.holds()


def test_over_the_limit_nothing_more_is_given_and_nothing_taken_away(tenant: MakesTenant):
    a = tenant(LIMIT, reserve=0)
    with a.runs(**KNOBS) as program:
        assert program.take("cuMemAlloc_v2", 90 * MIB, 3) == (SUCCESS, 3)
        assert (a.slice.charged(), a.holds()) == (270 * MIB, 370 * MIB)
        a.slice.observe(a.holds())
        for way in WAYS:
            assert program.take(way, 1, 1) == (OUT_OF_MEMORY, 0), way
        assert (a.slice.charged(), a.holds()) == (370 * MIB, 370 * MIB)
        program.give("cuMemAlloc_v2", 3)
        a.slice.observe(a.holds())
        assert program.take("cuMemCreate", GRANULE) == (
            OUT_OF_MEMORY,
            (LIMIT - 190 * MIB) // GRANULE,
        )
        assert a.holds() <= LIMIT


def test_what_the_driver_gives_back_is_given_back(tenant: MakesTenant):
    a = tenant(LIMIT, reserve=0)
    with a.runs(**KNOBS) as program:
        a.slice.observe(a.holds() + 150 * MIB)
        assert program.take("cuMemAlloc_v2", 100 * MIB, 1) == (OUT_OF_MEMORY, 0)
        assert a.slice.charged() == 250 * MIB
        for _ in range(4):  # not believed at once: the charge moved within the last periods
            a.slice.observe(a.holds())
            program.take("cuMemAlloc_v2", 300 * MIB, 1)
        assert a.slice.charged() == a.holds() == CONTEXT
        assert program.take("cuMemAlloc_v2", 100 * MIB, 2) == (SUCCESS, 2)


def test_each_process_is_corrected_by_its_own_figure(tenant: MakesTenant):
    a = tenant(LIMIT, reserve=0)
    with a.runs(**KNOBS) as one, a.runs(**KNOBS) as two:
        a.slice.observe(CONTEXT, CONTEXT)
        assert one.take("cuMemAlloc_v2", 51 * MIB, 1) == (SUCCESS, 1)  # it knows of its own only
        assert a.slice.charged() == CONTEXT + 52 * MIB
        assert two.take("cuMemAlloc_v2", 52 * MIB, 1) == (OUT_OF_MEMORY, 0)
        assert a.slice.charged() == 2 * CONTEXT + 52 * MIB == a.holds()
        one.kill()
        assert two.take("cuMemAlloc_v2", 100 * MIB, 2) == (SUCCESS, 2)
        # The figure is of the slot's last holder: a new one is not charged for it.
        with a.runs(**KNOBS) as three:
            assert three.take("cuMemAlloc_v2", 1, 1) == (OUT_OF_MEMORY, 0)
            assert a.slice.charged() == CONTEXT + 200 * MIB
