"""No byte above a limit: one program at a time, every way to device memory, by the cards' ledger.

What is asserted: the ledger counts what was asked for (its kinds ``data`` and ``pool``) in the 2 MiB
granules in which a card gives memory, and keeps the most that it ever was. A limit is held if that
peak is not above it: not after the request, not while it was made. What the driver takes on its own
(contexts, code, heaps) is of other kinds and no request; see test_driver_memory.py.
"""

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

KIB = 1 << 10
GRANULE = 2 * MIB
SIZES = (
    1,
    512,
    4 * KIB + 1,
    100_000,
    MIB,
    MIB + 1,
    GRANULE - 1,
    GRANULE,
    GRANULE + 1,
    7 * MIB // 2,
    33 * MIB,
)
HUGE = ((1 << 32) - 1, 1 << 32, 1 << 46, 1 << 54, (1 << 63) - 1, 1 << 63, (1 << 64) - 1)
UNEVEN = 63 * MIB + 5
"""A limit that is no multiple of anything."""
POOLED = ("cuMemAllocAsync", "cuMemAllocAsync_ptsz", "cuMemAllocFromPoolAsync",
          "cuMemAllocFromPoolAsync_ptsz", "new-pool", "graph")  # fmt: skip


@pytest.fixture
def gpus(shim: Build, tmp_path: Path):
    with SimulatedGpus(tmp_path, build=shim, gpus=2) as gpus:
        yield gpus


@pytest.fixture
def tenant(shim: Build, gpus: SimulatedGpus, tmp_path: Path) -> MakesTenant:
    def make(*memory: int, name: str = "a", reserve: int = 0) -> StormTenant:
        return StormTenant(name, shim, gpus, Slice(tmp_path / name, *memory, reserve=reserve))

    return make


def test_the_ways_are_those_of_the_program(shim: Build):
    said = subprocess.run(
        [shim.program("storm"), "ways"],
        check=True,
        capture_output=True,
        text=True,
        env=shim.environment(),
    )
    assert tuple(said.stdout.split()) == WAYS


@pytest.mark.parametrize("way", WAYS)
def test_of_any_size_as_much_as_fits_and_no_more(
    way: str, tenant: MakesTenant, gpus: SimulatedGpus
):
    """And when it is given back, as much again: nothing is lost on the way."""
    a = tenant(UNEVEN)
    with a.runs(CONTEXT_MIB=2, POOL_STEP=GRANULE) as program:
        for size in SIZES:
            many = 3000 if size < MIB else 1 << 30  # of the small ones, enough to need many blocks
            first = program.take(way, size, many)
            assert first[1] > 0, size
            assert a.slice.charged() >= a.granted(), size
            program.give(way)
            assert (a.granted(), a.slice.charged()) == (0, 0), size
            assert program.take(way, size, many) == first, size
            if many > 3000:
                assert first[0] == OUT_OF_MEMORY
                # Whatever it is rounded up to: another one would not have fitted.
                assert a.granted() + size + 2 * GRANULE > UNEVEN, size
            program.give(way)
            assert (a.granted(), a.slice.charged()) == (0, 0), size
    assert UNEVEN // GRANULE * GRANULE >= a.peak() > 60 * MIB
    assert a.peak(1) == 0


@pytest.mark.parametrize("way", WAYS)
def test_what_nothing_could_hold_is_refused_and_costs_nothing(way: str, tenant: MakesTenant):
    a = tenant(UNEVEN)
    with a.runs(CONTEXT_MIB=2, POOL_STEP=GRANULE) as program:
        for size in HUGE:
            result, taken = program.take(way, size, 1)
            assert (result != SUCCESS, taken) == (True, 0), size
            assert (a.granted(), a.slice.charged()) == (0, 0), size
        assert a.peak() == 0
        assert program.take(way, MIB, 1) == (SUCCESS, 1)


@pytest.mark.parametrize("way", WAYS)
def test_a_limit_of_one_byte_gives_nothing(way: str, tenant: MakesTenant):
    a = tenant(1)
    with a.runs(CONTEXT_MIB=2) as program:
        for size in (1, MIB, GRANULE, 100 * MIB):
            assert program.take(way, size, 1) == (OUT_OF_MEMORY, 0)
    assert a.peak() == 0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("first", ["cuMemAlloc_v2", "cuMemCreate"])
def test_every_way_counts_what_another_took(first: str, way: str, tenant: MakesTenant):
    a = tenant(UNEVEN)
    with a.runs(CONTEXT_MIB=2, POOL_STEP=GRANULE) as program:
        for size in (40 * MIB, 9 * MIB):
            assert program.take(first, size, 1) == (SUCCESS, 1)
            result, _ = program.take(way, 3 * MIB)
            assert result == OUT_OF_MEMORY
            program.give(way)
            program.give(first)
        assert (a.granted(), a.slice.charged()) == (0, 0)
    assert 50 * MIB < a.peak() <= UNEVEN


@pytest.mark.parametrize("way", [way for way in WAYS if way not in POOLED])
def test_holes_that_freed_ones_leave_count(way: str, tenant: MakesTenant):
    """A block with one small allocation left in it is still a block that the card has given."""
    a = tenant(UNEVEN)
    with a.runs(CONTEXT_MIB=2) as program:
        for size, keep in ((4 * KIB, 512), (64 * KIB, 32), (300 * KIB, 7), (700 * KIB, 2)):
            program.take(way, size, 20_000 if way != "context" else 200)
            program.give(way, keep)
            assert a.slice.charged() >= a.granted(), size
            program.take("cuMemCreate", GRANULE)
            assert a.peak() <= UNEVEN, (size, keep)
            program.give("cuMemCreate")
            program.give(way)
            assert (a.granted(), a.slice.charged()) == (0, 0), size


def test_small_ones_of_many_contexts_share_nothing(tenant: MakesTenant):
    """Each context has blocks of its own, however little is in them."""
    a = tenant(UNEVEN)
    with a.runs(CONTEXT_MIB=2) as program:
        result, taken = program.take("context", 512)
        assert (result, taken) == (OUT_OF_MEMORY, 31)
        assert a.granted() == a.slice.charged() == 62 * MIB
        program.give("context", 5)
        assert a.granted() == a.slice.charged() == 14 * MIB
        assert program.take("cuMemAlloc_v2", GRANULE) == (OUT_OF_MEMORY, 24)
    assert a.peak() == 62 * MIB


def test_sizes_by_turns_are_packed_within_the_limit(tenant: MakesTenant):
    """Where the driver's blocks do not fill up as they would with one size."""
    a = tenant(UNEVEN)
    with a.runs(CONTEXT_MIB=2) as program:
        for _ in range(3):
            result = SUCCESS
            while result == SUCCESS:
                for size in (MIB, 512, 700 * KIB, 1100, MIB - 1, 350 * KIB):
                    result = result or program.take("cuMemAlloc_v2", size, 1)[0]
            assert a.slice.charged() >= a.granted() > UNEVEN - 2 * GRANULE
            program.give("cuMemAlloc_v2", 4)
            assert a.slice.charged() >= a.granted()
            program.take("cuMemAllocManaged", 900 * KIB)
            program.give("cuMemAllocManaged")
            program.give("cuMemAlloc_v2")
            assert (a.granted(), a.slice.charged()) == (0, 0)
    assert a.peak() <= UNEVEN


@pytest.mark.parametrize("way", WAYS)
def test_a_limit_that_sinks_below_what_is_held_takes_nothing_away(way: str, tenant: MakesTenant):
    a = tenant(100 * MIB)
    with a.runs(CONTEXT_MIB=2, POOL_STEP=GRANULE) as program:
        assert program.take(way, 20 * MIB, 3) == (SUCCESS, 3)
        held = a.granted()
        a.slice.resize(30 * MIB)
        for other in WAYS:
            assert program.take(other, 512, 1) == (OUT_OF_MEMORY, 0), other
        assert a.granted() == a.slice.charged() == held
        a.slice.resize(held + 6 * MIB)
        assert program.take(way, 2 * MIB, 1) == (SUCCESS, 1)
        a.slice.resize(30 * MIB)
        program.give(way)
        assert (a.granted(), a.slice.charged()) == (0, 0)
        assert program.take("cuMemCreate", GRANULE) == (OUT_OF_MEMORY, 15)
    assert a.peak() <= held + 6 * MIB


def test_each_device_has_a_limit_of_its_own(tenant: MakesTenant):
    a = tenant(40 * MIB, 80 * MIB)
    with a.runs(0, CONTEXT_MIB=2, POOL_STEP=GRANULE) as program:
        for gpu, limit in ((0, 40 * MIB), (1, 80 * MIB), (0, 40 * MIB)):
            program.does("device", gpu)
            for way in WAYS:
                assert program.take(way, 3 * MIB)[0] == OUT_OF_MEMORY
                program.give(way)
            assert limit - 2 * GRANULE < a.peak(gpu) <= limit
            assert (a.granted(gpu), a.slice.charged(gpu)) == (0, 0)


@pytest.mark.parametrize("step", [GRANULE, 32 * MIB])
def test_at_random_by_threads(step: int, tenant: MakesTenant):
    a = tenant(UNEVEN)
    with a.runs(CONTEXT_MIB=2, POOL_STEP=step) as program:
        for seed, small in enumerate((0, 50, 100)):
            program.storms(seed, rounds=1500, most=24 * MIB, small=small, threads=4)
            stormed = program.stormed()
            assert min(stormed.granted.values()) > 0
            assert stormed.refused > 0 or small == 100
            assert (a.granted(), a.slice.charged()) == (0, 0)
    assert 50 * MIB < a.peak() <= UNEVEN
