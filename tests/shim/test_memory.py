"""Device memory under the library, judged by the simulated cards' own ledger."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from .builds import Build
from .memory import (
    INVALID_DEVICE,
    NOT_INITIALIZED,
    OUT_OF_MEMORY,
    Program,
    Tenant,
)
from .simulated import MIB, SimulatedGpus
from .slices import Slice

CONTEXT = 300 * MIB


class SizedTenant(Tenant):
    """Its contexts take ``CONTEXT`` where no knob says otherwise."""

    def starts(self, *, library: bool = True, **knobs: object) -> Program:
        return super().starts(library=library, **{"CONTEXT_MIB": CONTEXT // MIB, **knobs})


MakesTenant = Callable[..., Tenant]


@pytest.fixture
def gpus(shim: Build, tmp_path: Path):
    with SimulatedGpus(tmp_path, build=shim, gpus=2) as gpus:
        yield gpus


@pytest.fixture
def tenant(shim: Build, gpus: SimulatedGpus, tmp_path: Path) -> MakesTenant:
    """``tenant(500 * MIB, 300 * MIB)``: limits of the first two cards; contexts are free of charge
    unless ``reserve`` says otherwise."""

    def make(*memory: int, reserve: int = 0, name: str = "a") -> Tenant:
        return SizedTenant(name, shim, gpus, Slice(tmp_path / name, *memory, reserve=reserve))

    return make


WAYS = {
    "cuMemAlloc_v2": (("alloc", "a", "{}"), ("free", "a")),
    "cuMemAlloc": (("alloc_v1", "a", "{}"), ("free_v1", "a")),
    "cuMemAllocManaged": (("managed", "a", "{}"), ("free", "a")),
    "cuMemAllocPitch_v2": (("pitch", "a", 1 << 20, "{rows}"), ("free", "a")),
    "cuMemAllocPitch": (("pitch_v1", "a", 1 << 20, "{rows}"), ("free_v1", "a")),
    "cuArrayCreate_v2": (("array", "a", 1 << 16, "{rows}"), ("array_destroy", "a")),
    "cuArrayCreate": (("array_v1", "a", 1 << 16, "{rows}"), ("array_destroy", "a")),
    "cuArray3DCreate_v2": (("array3d", "a", 1 << 12, 16, "{rows}", 0), ("array_destroy", "a")),
    "cuArray3DCreate": (("array3d_v1", "a", 1 << 12, 16, "{rows}", 0), ("array_destroy", "a")),
    "cuMipmappedArrayCreate": (
        ("mipmap", "a", 1 << 16, "{rows}", 0, 0, 1),
        ("mipmap_destroy", "a"),
    ),
}
"""Each takes so many bytes, or so many rows (layers) of 1 MiB."""


def said(words: tuple[object, ...], mib: int) -> tuple[object, ...]:
    return tuple(str(word).format(mib * MIB, rows=mib) for word in words)


@pytest.mark.parametrize("way", WAYS)
def test_each_way_of_allocating_is_held_to_the_limit_and_counted_until_it_is_freed(
    way: str, tenant: MakesTenant
):
    a = tenant(64 * MIB)
    allocate, free = WAYS[way]
    with a.runs() as program:
        program.does("alloc", "z", 16 * MIB)
        assert program.call(*said(allocate, 56)) == OUT_OF_MEMORY
        assert (a.granted(), a.slice.charged()) == (16 * MIB, 16 * MIB)
        program.does(*said(allocate, 48))
        assert (a.granted(), a.slice.charged()) == (64 * MIB, 64 * MIB)
        assert program.call("alloc", "b", 1) == OUT_OF_MEMORY
        program.does(*free)
        assert (a.granted(), a.slice.charged()) == (16 * MIB, 16 * MIB)
        program.does(*said(allocate, 48))
        program.does(*free)
        assert program.call(*free) != 0
        assert (a.granted(), a.slice.charged()) == (16 * MIB, 16 * MIB)
        program.does("free", "z")
        assert (a.granted(), a.slice.charged()) == (0, 0)
    assert a.peak() == 64 * MIB


@pytest.mark.parametrize("way", WAYS)
def test_a_full_card_leaves_nothing_charged(way: str, tenant: MakesTenant, gpus: SimulatedGpus):
    a, other = tenant(0), tenant(0, name="b")
    with other.runs() as hog, a.runs() as program:
        free = hog.ask("info")[1]
        hog.does("alloc", "a", free - 20 * MIB)
        charged = a.slice.charged()
        assert program.call(*said(WAYS[way][0], 40)) == OUT_OF_MEMORY
        assert a.slice.charged() == charged == 0


def test_allocations_of_any_size_stay_below_the_limit_by_the_ledger(tenant: MakesTenant):
    """Of one size at a time: how different small ones share a block is the driver's business."""
    for number, size in enumerate(
        [MIB // 2, 700 * 1024, MIB, MIB + 1, 2 * MIB + 1, 3 * MIB + 4096, 5 * MIB, 200 * 1024]
    ):
        a = tenant(64 * MIB, name=f"size{number}")
        with a.runs() as program:
            refused = 0
            while program.call("alloc", "a", size) == 0:
                refused += 1
                assert refused < 1000
            assert a.peak() <= 64 * MIB
            assert a.granted() == a.slice.charged()
            assert a.granted() + max(size, 2 * MIB) > 64 * MIB - 2 * MIB


def test_the_program_sees_its_slice_as_the_card(tenant: MakesTenant):
    a = tenant(1000 * MIB, reserve=CONTEXT)
    with a.runs() as program:
        assert program.ask("info") == [0, 700 * MIB, 1000 * MIB]
        assert program.ask("info_v1") == [0, 700 * MIB, 1000 * MIB]
        assert program.ask("total", 0) == [0, 0, 1000 * MIB]
        assert program.ask("total_v1", 0) == [0, 0, 1000 * MIB]
        program.does("alloc", "a", 500 * MIB)
        assert program.ask("info") == [0, 200 * MIB, 1000 * MIB]
        a.slice.resize(600 * MIB)
        assert program.ask("info") == [0, 0, 600 * MIB]
        assert program.call("alloc", "b", 1) == OUT_OF_MEMORY
        a.slice.resize(6000 * MIB)
        assert program.ask("info") == [0, 5200 * MIB, 6000 * MIB]
        assert program.ask("total", 0) == [0, 0, 6000 * MIB]
        assert program.ask("total_v1", 0)[2] < 1 << 32
        program.does("alloc", "b", 5000 * MIB)


def test_what_is_free_is_no_more_than_the_card_has_free(tenant: MakesTenant, gpus: SimulatedGpus):
    a, other = tenant(20000 * MIB), tenant(0, name="b")
    with other.runs() as hog, a.runs() as program:
        hog.does("alloc", "a", hog.ask("info")[1] - 100 * MIB)
        free, total = program.ask("info")[1:]
        assert free <= 100 * MIB
        assert total == 20000 * MIB


QUESTIONS = (
    ("info",),
    ("info_without_free",),
    ("info_v1",),
    ("total", 7),
    ("total", -1),
    ("alloc", "a", 0),
    ("alloc_v1", "a", 0),
    ("managed", "a", 0),
    ("pitch", "a", 0, 5),
    ("pitch", "a", 5, 0),
    ("pitch", "a", 1 << 63, 2),
    ("array", "a", 0, 0),
    ("array3d", "a", 0, 0, 0, 0),
    ("free", "q"),
    ("retain", 9, "Q"),
    ("release", 9),
    ("reset", -3),
    ("create", "C", 9),
    ("destroy", "Q"),
    ("detach", "Q"),
    ("current", "Q"),
    ("limit", 99, 5),
    ("release", 0),
    ("release", 0),
)
"""Where the driver's own answer is wanted."""


@pytest.mark.parametrize("context", [True, False], ids=["context", "no context"])
def test_errors_are_the_drivers(context: bool, tenant: MakesTenant):
    a = tenant(0, 0)
    with a.starts() as program, a.starts(library=False) as bare:
        for one in (program, bare):
            one.does("init")
            if context:
                one.does("retain", 0, "P")
                one.does("current", "P")
        for question in QUESTIONS:
            answers = program.ask(*question), bare.ask(*question)
            # What no card could hold is refused before the driver is asked.
            expected = {answers[1][0], OUT_OF_MEMORY} if 1 << 63 in question else {answers[1][0]}
            assert answers[0][0] in expected, question


def test_before_cuinit_nothing_is_ours(tenant: MakesTenant):
    a = tenant(64 * MIB)
    with a.starts() as program, a.starts(library=False) as bare:
        for question in (*QUESTIONS, ("alloc", "a", 5), ("create", "C", 0)):
            assert program.ask(*question)[0] == bare.ask(*question)[0], question
    assert a.slice.usage().slots == ()


def test_without_a_slice_the_library_stands_aside(tenant: MakesTenant, gpus: SimulatedGpus):
    a = tenant(64 * MIB)
    with a.runs_bare() as bare:
        answers = bare.ask("info"), bare.ask("total", 0)
    gpus.eventually(lambda: a.holds() == 0)
    a.slice.remove()
    with a.runs() as program:
        assert (program.ask("info"), program.ask("total", 0)) == answers
        program.does("alloc", "a", 5000 * MIB)
        assert a.granted() == 5000 * MIB


def test_where_refused_the_programs_variables_stay_as_they_were(tenant: MakesTenant):
    a = tenant(64 * MIB)
    with a.runs() as program:
        assert program.ask("pitch", "a", 65 * MIB, 1) == [OUT_OF_MEMORY, 77]
        assert program.ask("pitch_v1", "a", 65 * MIB, 1) == [OUT_OF_MEMORY, 77]


def test_cumemfree_ends_stream_ordered_memory_too(tenant: MakesTenant):
    a = tenant(64 * MIB)
    with a.runs() as program:
        program.does("alloc_async", "a", 50 * MIB)
        assert 64 * MIB >= a.slice.charged() == a.granted() >= 50 * MIB
        assert program.call("alloc", "b", 20 * MIB) == OUT_OF_MEMORY
        program.does("free", "a")
        program.does("synchronize")
        assert a.slice.charged() == a.granted() == 0
        program.does("alloc", "b", 64 * MIB)
        program.does("free", "b")


SPARSE, MAPPED_LATER = 0x40, 0x80


@pytest.mark.parametrize("flags", [SPARSE, MAPPED_LATER], ids=["sparse", "mapped later"])
def test_arrays_without_memory_charge_nothing(flags: int, tenant: MakesTenant):
    a = tenant(64 * MIB)
    with a.runs() as program:
        program.does("array3d", "a", 4096, 4096, 0, flags)
        program.does("array3d_v1", "b", 4096, 4096, 0, flags)
        program.does("mipmap", "c", 4096, 4096, 0, flags, 5)
        assert (a.granted(), a.slice.charged()) == (0, 0)
        program.does("array_destroy", "a")
        program.does("array_destroy", "b")
        program.does("mipmap_destroy", "c")
        assert (a.granted(), a.slice.charged()) == (0, 0)


def test_a_device_that_is_not_in_the_slice_has_nothing(tenant: MakesTenant):
    a = tenant(64 * MIB)
    with a.runs() as program:
        assert program.call("create", "C", 1) == OUT_OF_MEMORY
        assert program.call("retain", 1, "C") == OUT_OF_MEMORY
        assert a.holds(1) == 0


def test_threads_leave_nothing_charged(tenant: MakesTenant):
    a = tenant(900 * MIB, 900 * MIB, reserve=CONTEXT)
    with a.starts() as program:
        program.does("init")
        program.does("threads", 8, 60)
        for gpu in (0, 1):
            assert a.slice.charged(gpu) == a.holds(gpu) == 0
            assert a.peak(gpu) <= 900 * MIB


def test_a_forked_child_changes_nothing(tenant: MakesTenant):
    a = tenant(900 * MIB, reserve=CONTEXT)
    with a.runs() as program:
        program.does("alloc", "a", 50 * MIB)
        assert program.call("fork") == NOT_INITIALIZED
        assert a.slice.charged() == a.holds() == CONTEXT + 50 * MIB
        assert len(a.slice.usage().slots) == 1
        program.does("free", "a")
        program.does("alloc", "b", 600 * MIB)
        assert a.slice.charged() == a.holds() == CONTEXT + 600 * MIB


# ---- Contexts -------------------------------------------------------------------------------


def test_a_context_is_charged_before_it_is_made_and_refunded_when_it_goes(tenant: MakesTenant):
    a = tenant(1000 * MIB, reserve=CONTEXT)
    with a.runs() as program:
        for spelling in ("create", "create_v1", "create_v3", "create_v4"):
            program.does(spelling, "C", 0)
            program.does(spelling, "D", 0)
            assert a.slice.charged() == a.holds() == 3 * CONTEXT
            assert program.call(spelling, "E", 0) == OUT_OF_MEMORY
            program.does("alloc", "a", 80 * MIB)  # in D, with which it goes
            assert a.slice.charged() == a.holds() == 3 * CONTEXT + 80 * MIB
            program.does("destroy", "D")
            assert a.slice.charged() == a.holds() == 2 * CONTEXT
            program.does("destroy_v1", "C")
            assert a.slice.charged() == a.holds() == CONTEXT
            assert program.call("destroy", "C") != 0
        program.does("current", "P")
        program.does("alloc", "a", 700 * MIB)
    assert a.slice.charged() == CONTEXT + 700 * MIB  # until somebody recovers what it left


def test_the_primary_context_goes_with_its_last_release(tenant: MakesTenant):
    a = tenant(1000 * MIB, reserve=CONTEXT)
    with a.runs() as program:
        program.does("retain", 0, "Q")
        assert a.slice.charged() == CONTEXT
        program.does("alloc", "a", 500 * MIB)
        program.does("managed", "b", 20 * MIB)
        program.does("array", "c", 1024, 1024)
        program.does("mipmap", "d", 1024, 1024, 0, 0, 20)
        assert a.slice.charged() == a.holds()
        program.does("release", 0)
        assert a.slice.charged() == a.holds() > CONTEXT + 500 * MIB
        program.does("release_v1", 0)
        assert a.slice.charged() == a.holds() == 0
        program.does("retain", 0, "P")
        assert a.slice.charged() == a.holds() == CONTEXT


@pytest.mark.parametrize("reset", ["reset", "reset_v1"])
def test_a_reset_drops_the_primary_context_but_not_its_uses(reset: str, tenant: MakesTenant):
    a = tenant(1000 * MIB, reserve=CONTEXT)
    with a.runs() as program:
        program.does("alloc", "a", 500 * MIB)
        program.does(reset, 0)
        assert a.slice.charged() == a.holds() == 0
        program.does("retain", 0, "P")
        program.does("current", "P")
        program.does("alloc", "a", 600 * MIB)
        assert a.slice.charged() == a.holds() == CONTEXT + 600 * MIB
        program.does("release", 0)
        assert a.slice.charged() == a.holds() == CONTEXT + 600 * MIB
        program.does("release", 0)
        assert a.slice.charged() == a.holds() == 0


def test_a_context_that_does_not_fit_is_not_made(tenant: MakesTenant):
    a = tenant(CONTEXT - 1, reserve=CONTEXT)
    with a.starts() as program:
        program.does("init")
        assert program.call("retain", 0, "P") == OUT_OF_MEMORY
        assert program.call("create", "P", 0) == OUT_OF_MEMORY
        assert program.call("green", "P", 0) == OUT_OF_MEMORY
        assert a.slice.charged() == a.holds() == 0
        a.slice.resize(CONTEXT)
        program.does("retain", 0, "P")


def test_the_last_detach_destroys(tenant: MakesTenant):
    a = tenant(1000 * MIB, reserve=CONTEXT)
    with a.starts() as program:
        program.does("init")
        program.does("create", "C", 0)
        program.does("attach", "C")
        program.does("alloc", "a", 50 * MIB)
        program.does("detach", "C")
        assert a.slice.charged() == a.holds() == CONTEXT + 50 * MIB
        program.does("detach", "C")
        assert a.slice.charged() == a.holds() == 0


def test_memory_is_charged_to_the_device_of_the_current_context(tenant: MakesTenant):
    a = tenant(1000 * MIB, 1000 * MIB)
    with a.starts() as program:
        program.does("init")
        program.does("create", "C", 0)
        program.does("create", "D", 1)
        program.does("retain", 0, "P")
        rows = [0, 0]
        for number, (switch, gpu) in enumerate(
            [
                (("current", "C"), 0),
                (("current", "D"), 1),
                (("push", "P"), 0),
                (("pop", "X"), 1),
                (("push_v1", "C"), 0),
                (("push", "D"), 1),
                (("pop_v1", "X"), 0),
                (("current", "P"), 0),
                (("current", "D"), 1),
            ]
        ):
            program.does(*switch)
            program.does("alloc", chr(ord("a") + number), 10 * MIB)
            rows[gpu] += 10 * MIB
            assert [a.slice.charged(0), a.slice.charged(1)] == rows, switch
            assert [a.granted(0), a.granted(1)] == rows, switch
        program.does("destroy", "D")
        assert a.slice.charged(1) == a.granted(1) == 0
        program.does("create", "E", 0)  # whose handle may be D's
        program.does("alloc", "z", 10 * MIB)
        assert a.slice.charged(0) == a.granted(0) == rows[0] + 10 * MIB


def test_green_contexts_live_in_the_primary_one(tenant: MakesTenant):
    """What they take beside it is the driver's own; the monitor sees it."""
    green = 2 * MIB
    a = tenant(1000 * MIB, reserve=CONTEXT)
    with a.starts(GREEN_MIB=2) as program:
        program.does("init")
        program.does("green", "G", 0)
        assert a.slice.charged() == a.holds() - green == CONTEXT
        program.does("green_context", "G")
        program.does("current", "G")
        program.does("alloc", "a", 50 * MIB)
        program.does("green", "H", 0)
        assert a.slice.charged() == a.holds() - 2 * green == CONTEXT + 50 * MIB
        program.does("green_destroy", "G")
        assert a.slice.charged() == a.holds() - green
        program.does("green_context", "H")
        program.does("current", "H")
        program.does("alloc", "a", 60 * MIB)
        program.does("reset", 0)
        assert a.slice.charged() == a.holds() == 0


PRINTF, HEAP, STACK = 1, 2, 0


def test_limits_of_a_context_are_requests(tenant: MakesTenant):
    a = tenant(1000 * MIB, reserve=CONTEXT)
    with a.runs() as program:
        program.does("limit", HEAP, 500 * MIB)
        assert a.slice.charged() >= a.holds() > CONTEXT + 400 * MIB
        assert program.call("limit", PRINTF, 300 * MIB) == OUT_OF_MEMORY
        program.does("limit", HEAP, 100 * MIB)
        program.does("limit", PRINTF, 300 * MIB)
        assert a.slice.charged() >= a.holds()
        assert program.call("limit", STACK, 64 << 10) == OUT_OF_MEMORY
        program.does("limit", STACK, 2 << 10)
        assert 1000 * MIB >= a.slice.charged() >= a.holds()
        program.does("release", 0)
        assert a.slice.charged() == a.holds() == 0


# ---- What the monitor sees ------------------------------------------------------------------


def test_what_the_driver_takes_on_its_own_is_charged_once_the_monitor_saw_it(tenant: MakesTenant):
    a = tenant(1000 * MIB, reserve=CONTEXT - 100 * MIB)
    with a.runs() as program:
        assert a.slice.charged() == a.holds() - 100 * MIB
        a.slice.observe(a.holds())
        program.does("alloc", "a", 100 * MIB)
        assert a.slice.charged() == a.holds()
        assert program.call("alloc", "b", 601 * MIB) == OUT_OF_MEMORY
        a.slice.observe(a.holds())
        program.does("synchronize")
        assert a.slice.charged() == a.holds()


# ---- Several processes ----------------------------------------------------------------------


def test_programs_of_a_container_share_its_limit(tenant: MakesTenant):
    a = tenant(100 * MIB)
    with a.runs() as one, a.runs() as two:
        one.does("alloc", "a", 60 * MIB)
        assert two.ask("info") == [0, 40 * MIB, 100 * MIB]
        assert two.call("alloc", "a", 41 * MIB) == OUT_OF_MEMORY
        two.does("alloc", "a", 40 * MIB)
        one.kill()
        two.does("alloc", "b", 60 * MIB)
        assert a.granted() <= 100 * MIB


def test_racing_programs_that_are_killed_never_have_more_than_the_limit(
    tenant: MakesTenant, gpus: SimulatedGpus
):
    limit = 256 * MIB
    a = tenant(limit)
    chance = random.Random(6)
    programs = [a.runs(CONTEXT_MIB=2) for _ in range(16)]
    try:
        for program in programs:
            program.tell("storm", chance.randrange(1 << 30), 0, 40)
        for _ in range(40):
            time.sleep(chance.uniform(0.001, 0.02))
            victim = chance.randrange(len(programs))
            programs[victim].kill()
            programs[victim] = a.runs(CONTEXT_MIB=2)
            programs[victim].tell("storm", chance.randrange(1 << 30), 0, 40)
    finally:
        for program in programs:
            program.kill()
    assert limit // 2 < a.peak() <= limit
    gpus.eventually(lambda: a.holds() == 0)
    with a.runs() as program:
        program.does("alloc", "a", limit)
        assert a.slice.charged() == a.granted() == limit


def test_no_slot_is_no_memory(tenant: MakesTenant):
    """A broken region: everything is out of memory, and nothing is granted."""
    a = tenant(100 * MIB)
    (a.slice.folder / "usage").write_bytes(b"scribbled")
    with a.starts() as program:
        program.does("init")
        assert program.call("retain", 0, "P") == OUT_OF_MEMORY
        assert program.call("create", "P", 0) == OUT_OF_MEMORY
        assert program.call("alloc", "a", 1) == OUT_OF_MEMORY
        assert program.call("retain", 7, "P") == INVALID_DEVICE
        assert a.holds() == 0
