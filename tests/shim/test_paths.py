"""Device memory by other ways than cuMemAlloc, judged by the simulated cards' own ledger."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hami.slices.c_layout import UsageC

from .builds import Build
from .memory import INVALID_VALUE, NOT_INITIALIZED, OUT_OF_MEMORY, Program, Tenant
from .simulated import MIB, SimulatedGpus
from .slices import Slice

EXPORTS, IMPORTS = 2, 4
STEP = 32 * MIB
"""By which the simulated driver's pools grow."""


class PathsTenant(Tenant):
    """Programs that say ``shim/tests/programs/paths``'s words."""

    def starts(self, *, library: bool = True, **knobs: object) -> Program:
        return Program(
            self._build.program("paths_console"),
            {**self._gpus.env(self.name, **knobs), **self.slice.env()},
            self._build.library if library else None,
        )

    def runs(self, gpu: int = 0, **knobs: object) -> Program:
        program = self.starts(**knobs)
        program.does("init")
        program.does("device", gpu)
        return program

    def flags(self) -> list[int]:
        """Of the slots that were ever used (``enum hami_slot_flags``)."""
        region = UsageC.from_buffer_copy((self.slice.folder / "usage").read_bytes())
        return [slot.flags for slot in region.slots if slot.pid]

    def charged_and_granted(self, gpu: int = 0) -> tuple[int, int]:
        return self.slice.charged(gpu), self.granted(gpu)


MakesTenant = Callable[..., PathsTenant]


@pytest.fixture
def gpus(shim: Build, tmp_path: Path):
    with SimulatedGpus(tmp_path, build=shim, gpus=2) as gpus:
        yield gpus


@pytest.fixture
def tenant(shim: Build, gpus: SimulatedGpus, tmp_path: Path) -> MakesTenant:
    def make(*memory: int, name: str = "a") -> PathsTenant:
        return PathsTenant(name, shim, gpus, Slice(tmp_path / name, *memory))

    return make


# ---- Pools ----------------------------------------------------------------------------------


@pytest.mark.parametrize("wait", ["sync_stream", "sync_stream_ptsz", "sync_event", "sync_context"])
@pytest.mark.parametrize("spelling", ["", "_ptsz"])
def test_a_pool_is_charged_what_it_reserves_until_the_program_waits(
    spelling: str, wait: str, tenant: MakesTenant
):
    a = tenant(200 * MIB)
    with a.runs() as program:
        program.does("alloc_async" + spelling, "x", 40 * MIB)
        assert a.charged_and_granted() == (2 * STEP, 2 * STEP)
        assert program.call("alloc_async" + spelling, "y", 161 * MIB) == OUT_OF_MEMORY
        program.does("free_async" + spelling, "x")
        assert a.charged_and_granted() == (2 * STEP, 2 * STEP)
        program.does(wait)
        assert a.charged_and_granted() == (0, 0)
    assert a.peak() <= 200 * MIB


def test_the_whole_limit_can_be_had_of_a_pool(tenant: MakesTenant):
    a = tenant(200 * MIB)
    with a.runs(POOL_STEP=2 * MIB) as program:
        count = 0
        while program.call("alloc_async", "x", MIB) == 0:
            count += 1
        assert count == 200
        assert a.charged_and_granted() == (200 * MIB, 200 * MIB)


def test_pools_of_a_program_and_what_they_cache(tenant: MakesTenant):
    a = tenant(200 * MIB)
    with a.runs() as program:
        program.does("pool", "p", 0)
        program.does("pool_threshold", "p", 1 << 40)
        program.does("alloc_pool", "x", 150 * MIB, "p")
        program.does("free_async", "x")
        program.does("sync_context")
        assert a.charged_and_granted() == (160 * MIB, 160 * MIB)
        program.does("alloc_pool_ptsz", "x", 150 * MIB, "p")
        program.does("free", "x")  # which waits, and the threshold keeps it
        assert a.charged_and_granted() == (160 * MIB, 160 * MIB)
        program.does("alloc", "y", 100 * MIB)  # for which the pool gives back its cache
        assert a.charged_and_granted() == (100 * MIB, 100 * MIB)
        program.does("alloc_pool", "x", 50 * MIB, "p")
        program.does("free_async", "x")
        program.does("sync_context")
        assert a.charged_and_granted() == (164 * MIB, 164 * MIB)
        program.does("pool_trim", "p", 0)
        assert a.charged_and_granted() == (100 * MIB, 100 * MIB)
    assert a.peak() <= 200 * MIB


def test_a_destroyed_pool_is_charged_until_its_memory_is_freed(tenant: MakesTenant):
    a = tenant(200 * MIB)
    with a.runs() as program:
        program.does("pool", "p", 0)
        program.does("pool_use", 0, "p")
        program.does("alloc_async", "x", 40 * MIB)
        program.does("pool_destroy", "p")
        assert a.charged_and_granted() == (2 * STEP, 2 * STEP)
        program.does("alloc_async", "y", 1)  # of the device's own pool again
        assert a.charged_and_granted() == (3 * STEP, 3 * STEP)
        program.does("free_async", "x")
        program.does("sync_context")
        assert a.charged_and_granted() == (STEP, STEP)


def test_a_pools_device_is_charged_and_memory_of_the_host_is_nobodys(tenant: MakesTenant):
    a = tenant(200 * MIB, 100 * MIB)
    with a.runs(0) as program:
        program.does("pool", "p", 1)
        program.does("alloc_pool", "x", 90 * MIB, "p")
        assert a.charged_and_granted(0) == (0, 0)
        assert a.charged_and_granted(1) == (96 * MIB, 96 * MIB)
        assert program.call("alloc_pool", "y", 90 * MIB, "p") == OUT_OF_MEMORY
        program.does("pool", "h", -1)
        program.does("alloc_pool", "z", 900 * MIB, "h")
        assert (a.slice.charged(0), a.slice.charged(1)) == (0, 96 * MIB)
        program.does("free_async", "x")
        program.does("free_async", "z")
        program.does("sync_context")
        program.does("pool_trim", "p", 0)
        assert a.charged_and_granted(1) == (0, 0)


def test_a_stream_takes_from_its_own_devices_pool(tenant: MakesTenant):
    a = tenant(200 * MIB, 100 * MIB)
    with a.runs(1) as program:
        program.does("stream", "s")
        program.does("device", 0)
        program.does("alloc_async", "x", 40 * MIB, "s")
        assert a.charged_and_granted(0) == (0, 0)
        assert a.charged_and_granted(1) == (2 * STEP, 2 * STEP)


def test_a_captured_allocation_is_charged_when_the_graph_runs(tenant: MakesTenant):
    a = tenant(200 * MIB)
    with a.runs() as program:
        program.does("stream", "s")
        program.does("capture", "s")
        program.does("alloc_async", "x", 150 * MIB, "s")
        program.does("free_async", "x", "s")
        program.does("captured", "s", "g")
        assert a.charged_and_granted() == (0, 0)
        program.does("alloc", "y", 100 * MIB)
        assert program.call("instantiate", "e", "g") == OUT_OF_MEMORY
        program.does("free", "y")
        program.does("instantiate", "e", "g")
        program.does("launch", "e", "s")
        program.does("sync_stream", "s")
        charged, granted = a.charged_and_granted()
        assert charged == granted >= 150 * MIB
    assert a.peak() <= 200 * MIB


# ---- Graphs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("how", range(5))
def test_a_graphs_memory_is_charged_as_the_driver_reserves_it(how: int, tenant: MakesTenant):
    a = tenant(200 * MIB)
    with a.runs() as program:
        program.does("graph", "g")
        program.does("graph_alloc", "g", "x", 100 * MIB)
        program.does("graph_free", "g", "x")
        program.does("instantiate", "e", "g", how)
        program.does("upload", "e")
        program.does("launch", "e")
        program.does("sync_stream")
        charged, granted = a.charged_and_granted()
        assert charged == granted >= 100 * MIB
        program.does("launch_ptsz", "e")
        program.does("sync_context")
        assert a.charged_and_granted() == (charged, charged)
        program.does("exec_destroy", "e")
        program.does("graph_destroy", "g")
        program.does("graph_trim")
        assert a.charged_and_granted() == (0, 0)


def test_a_graph_that_does_not_fit_is_refused_when_it_is_instantiated_or_launched(
    tenant: MakesTenant,
):
    a = tenant(200 * MIB)
    with a.runs() as program:
        program.does("graph", "g")
        program.does("graph_alloc", "g", "x", 150 * MIB)
        program.does("graph_free", "g", "x")
        program.does("alloc", "y", 60 * MIB)
        assert program.call("instantiate", "e", "g") == OUT_OF_MEMORY
        program.does("free", "y")
        program.does("instantiate", "e", "g")
        program.does("graph_trim")
        program.does("alloc", "y", 60 * MIB)
        assert program.call("launch", "e") == OUT_OF_MEMORY
        assert a.charged_and_granted() == (60 * MIB, 60 * MIB)
        program.does("free", "y")
        program.does("launch", "e")
        program.does("sync_context")
        program.does("alloc", "y", 150 * MIB)  # for which graphs give back what they cache
        assert a.charged_and_granted() == (150 * MIB, 150 * MIB)
    assert a.peak() <= 200 * MIB


def test_memory_that_a_graph_left_is_freed_by_anybody(tenant: MakesTenant):
    a = tenant(200 * MIB)
    with a.runs() as program:
        program.does("graph", "g")
        program.does("graph_alloc", "g", "x", 100 * MIB)
        program.does("instantiate", "e", "g")
        program.does("launch", "e")
        program.does("sync_context")
        charged, granted = a.charged_and_granted()
        assert charged == granted >= 100 * MIB
        program.does("free_async", "x")
        program.does("sync_context")
        program.does("graph_trim")
        assert a.charged_and_granted() == (0, 0)


# ---- Physical allocations -------------------------------------------------------------------


def test_physical_memory_is_charged_until_nothing_refers_to_it(tenant: MakesTenant):
    a = tenant(100 * MIB)
    with a.runs() as program:
        program.does("create", "h", 0, 60 * MIB)
        assert program.call("create", "i", 0, 42 * MIB) == OUT_OF_MEMORY
        assert a.charged_and_granted() == (60 * MIB, 60 * MIB)
        program.does("reserve", "x", 128 * MIB)
        program.does("map", "x", 0, 60 * MIB, "h")
        program.does("release", "h")
        assert a.charged_and_granted() == (60 * MIB, 60 * MIB)
        program.does("retain", "r", "x", 37 * MIB)
        program.does("unmap", "x", 0, 60 * MIB)
        assert a.charged_and_granted() == (60 * MIB, 60 * MIB)
        program.does("release", "r")
        assert a.charged_and_granted() == (0, 0)
        assert program.call("release", "r") != 0
        program.does("create", "h", 0, 100 * MIB)
        program.does("release", "h")
    assert a.peak() <= 100 * MIB


def test_one_unmapping_of_several_mappings(tenant: MakesTenant):
    a = tenant(100 * MIB)
    with a.runs() as program:
        program.does("reserve", "x", 64 * MIB)
        for number, handle in enumerate("hij"):
            program.does("create", handle, 0, 10 * MIB)
            program.does("map", "x", number * 10 * MIB, 10 * MIB, handle)
            program.does("release", handle)
        assert program.call("unmap", "x", 0, 15 * MIB) == INVALID_VALUE
        assert a.charged_and_granted() == (30 * MIB, 30 * MIB)
        program.does("unmap", "x", 10 * MIB, 20 * MIB)
        assert a.charged_and_granted() == (10 * MIB, 10 * MIB)
        program.does("unmap", "x", 0, 10 * MIB)
        assert a.charged_and_granted() == (0, 0)


def test_the_location_is_charged_not_the_current_device(tenant: MakesTenant):
    a = tenant(100 * MIB, 50 * MIB)
    with a.runs(0) as program:
        assert program.call("create", "h", 1, 60 * MIB) == OUT_OF_MEMORY
        program.does("create", "h", 1, 40 * MIB)
        assert (a.slice.charged(0), a.slice.charged(1)) == (0, 40 * MIB)
        program.does("create", "i", -1, 200 * MIB)
        assert (a.slice.charged(0), a.slice.charged(1)) == (0, 40 * MIB)
        program.does("release", "i")


def test_exported_memory_that_comes_back_is_charged_while_anything_holds_it(
    tenant: MakesTenant, gpus: SimulatedGpus
):
    a = tenant(100 * MIB)
    with a.runs() as program:
        program.does("create", "h", 0, 60 * MIB)
        program.does("export", "d", "h")
        program.does("import", "i", "d")
        program.does("close", "d")
        program.does("release", "h")
        assert a.charged_and_granted() == (60 * MIB, 60 * MIB)
        assert program.call("create", "h", 0, 60 * MIB) == OUT_OF_MEMORY
        program.does("release", "i")
        assert a.slice.charged() == 0
        gpus.eventually(lambda: a.granted() == 0)
        program.does("create", "h", 0, 60 * MIB)
        program.does("export", "d", "h")
        program.does("release", "h")
        assert a.charged_and_granted() == (60 * MIB, 60 * MIB)  # the descriptor is open
        program.does("close", "d")
        gpus.eventually(lambda: a.granted() == 0)
        program.does("create", "h", 0, 60 * MIB)
        assert a.charged_and_granted() == (60 * MIB, 60 * MIB)
    assert a.peak() <= 100 * MIB


def test_a_slot_says_that_its_process_exported_and_imported(tenant: MakesTenant):
    a = tenant(100 * MIB)
    with a.runs() as program:
        program.does("create", "h", 0, 60 * MIB)
        assert a.flags() == [0]
        program.does("export", "d", "h")
        assert a.flags() == [EXPORTS]
        program.does("import", "i", "d")  # its own, but a driver's descriptors all look alike
        assert a.flags() == [EXPORTS | IMPORTS]
        program.does("release", "i")
        assert a.flags() == [EXPORTS]


@pytest.mark.parametrize(
    ("make", "bind", "unbind", "bind_address", "end"),
    [
        pytest.param("multicast", "bind", "unbind", "bind_address", "release", id="a multicast"),
        pytest.param("endpoint", "endpoint_bind", "endpoint_unbind", "endpoint_bind_address", "endpoint_destroy", id="a logical endpoint"),
    ],
)  # fmt: skip
def test_memory_bound_to_a_team_is_held(tenant: MakesTenant, make, bind, unbind, bind_address, end):
    a = tenant(100 * MIB)
    with a.runs() as program:
        program.does(make, "t", 32 * MIB)
        program.does("create", "h", 0, 32 * MIB)
        program.does(bind, "t", "h", 32 * MIB)
        program.does("release", "h")
        assert a.charged_and_granted() == (32 * MIB, 32 * MIB)
        program.does(unbind, "t", 32 * MIB)
        assert a.charged_and_granted() == (0, 0)
        program.does("create", "h", 0, 32 * MIB)
        program.does("reserve", "x", 32 * MIB)
        program.does("map", "x", 0, 32 * MIB, "h")
        program.does(bind_address, "t", "x", 32 * MIB)
        program.does("release", "h")
        program.does("unmap", "x", 0, 32 * MIB)
        assert a.charged_and_granted() == (32 * MIB, 32 * MIB)
        program.does(end, "t")
        assert a.charged_and_granted() == (0, 0)


def test_memory_in_a_sparse_array_is_held(tenant: MakesTenant):
    a = tenant(100 * MIB)
    with a.runs() as program:
        program.does("sparse", "t")
        assert a.slice.charged() == 0
        for handle in "hij":
            program.does("create_tiles", handle, 0, 10 * MIB)
        program.does("tile", "t", 0, "h")
        program.does("tile", "t", 128, "i")
        for handle in "hi":
            program.does("release", handle)
        assert a.charged_and_granted() == (30 * MIB, 30 * MIB)
        program.does("tile", "t", 0, "j")
        program.does("sync_context")
        assert a.charged_and_granted() == (20 * MIB, 20 * MIB)
        program.does("release", "j")
        program.does("tile", "t", 0)
        program.does("sync_context")
        assert a.charged_and_granted() == (10 * MIB, 10 * MIB)
        program.does("array_destroy", "t")
        assert a.charged_and_granted() == (0, 0)


# ---- Modules and others' memory -------------------------------------------------------------


@pytest.mark.parametrize("kind", ["module", "module_ex", "library"])
def test_an_eagerly_loaded_image_is_charged_its_size_until_it_is_unloaded(
    kind: str, tenant: MakesTenant, monkeypatch: pytest.MonkeyPatch
):
    a = tenant(16 * MIB)
    with eager(a) as program:
        program.does(kind, "m", 5 * MIB)
        charged = a.slice.charged()
        assert 5 * MIB <= charged < 6 * MIB
        program.does("alloc", "x", 8 * MIB)
        assert program.call(kind, "n", 5 * MIB) == OUT_OF_MEMORY
        program.does(f"{kind.removesuffix('_ex')}_unload", "m")
        assert a.slice.charged() == 8 * MIB
        program.does(kind, "n", 5 * MIB)


def eager(tenant: PathsTenant) -> Program:
    """A program whose driver loads modules at once."""
    program = Program(
        tenant._build.program("paths_console"),
        {
            **tenant._gpus.env(tenant.name),
            **tenant.slice.env(),
            "CUDA_MODULE_LOADING": "EAGER",
        },
        tenant._build.library,
    )
    program.does("init")
    program.does("device", 0)
    return program


def test_a_module_goes_with_its_context(tenant: MakesTenant):
    a = tenant(16 * MIB)
    with eager(a) as program:
        program.does("module", "m", 5 * MIB)
        assert a.slice.charged() > 5 * MIB
        program.does("drop")
        assert a.slice.charged() == 0


@pytest.mark.parametrize("kind", ["module", "library"])
def test_an_image_in_a_file(kind: str, tenant: MakesTenant, tmp_path: Path):
    a = tenant(16 * MIB)
    image = tmp_path / "image"
    image.write_text("hami-sim 1\nkernel k ns=1 code=3000000\n".ljust(3000000, "\n"))
    with eager(a) as program:
        program.does(f"{kind}_file", "m", image)
        assert 3000000 < a.slice.charged() < 3010000
        program.does("alloc", "x", 12 * MIB)
        assert program.call(f"{kind}_file", "n", image) == OUT_OF_MEMORY
        assert program.call(f"{kind}_file", "n", tmp_path / "nowhere") not in (0, OUT_OF_MEMORY)
        program.does(f"{kind}_unload", "m")
        assert a.slice.charged() == 12 * MIB


def test_a_lazily_loaded_image_costs_little_before_it_is_used(tenant: MakesTenant):
    a = tenant(16 * MIB)
    with a.runs() as program:
        program.does("module", "m", 5 * MIB)
        program.does("library", "l", 5 * MIB)
        assert 0 < a.slice.charged() <= 65536
        program.does("module_unload", "m")
        program.does("library_unload", "l")
        assert a.slice.charged() == 0


def test_memory_of_another_interface_is_charged_while_it_is_imported(tenant: MakesTenant):
    a = tenant(100 * MIB)
    with a.runs() as program:
        program.does("external", "e", 60 * MIB)
        assert a.charged_and_granted() == (60 * MIB, 60 * MIB)
        assert program.call("external", "f", 42 * MIB) == OUT_OF_MEMORY
        program.does("external_destroy", "e")
        assert a.charged_and_granted() == (0, 0)


def test_shared_memory_is_charged_once_and_both_sides_say_so(tenant: MakesTenant, tmp_path: Path):
    a = tenant(100 * MIB)
    with a.runs() as owner, a.runs() as guest:
        owner.does("alloc", "x", 60 * MIB)
        owner.does("ipc_export", "x", tmp_path / "handle")
        guest.does("ipc_open", "y", tmp_path / "handle")
        assert a.charged_and_granted() == (60 * MIB, 60 * MIB)
        assert a.flags() == [EXPORTS, IMPORTS]
        guest.does("ipc_close", "y")
        owner.does("free", "x")
        assert a.charged_and_granted() == (0, 0)


# ---- Together -------------------------------------------------------------------------------


def test_a_forked_child_changes_nothing(tenant: MakesTenant):
    a = tenant(400 * MIB)
    with a.runs() as program:
        program.does("alloc_async", "x", 40 * MIB)
        program.does("create", "h", 0, 60 * MIB)
        program.does("graph", "g")
        program.does("graph_alloc", "g", "y", 100 * MIB)
        program.does("graph_free", "g", "y")
        program.does("instantiate", "e", "g")
        program.does("launch", "e")
        program.does("sync_context")
        held = a.charged_and_granted()
        assert held[0] == held[1] >= 200 * MIB
        assert program.call("fork", "x", "h", "e") == NOT_INITIALIZED
        assert a.charged_and_granted() == held
        program.does("free_async", "x")
        program.does("release", "h")
        program.does("launch", "e")
        program.does("sync_context")
        program.does("graph_trim")
        assert a.charged_and_granted() == (0, 0)


def test_racing_programs_never_have_more_than_the_limit_by_any_way(tenant: MakesTenant):
    a = tenant(512 * MIB)
    programs = [a.runs(CONTEXT_MIB=2, POOL_STEP=2 * MIB) for _ in range(6)]
    try:
        for number, program in enumerate(programs):
            program.tell("storm", number + 1, 400, 16)
        answers = [program.answer() for program in programs]
        assert [result for result, _ in answers] == [0] * 6
        assert sum(refused for _, refused in answers) > 0
        assert a.peak() <= 512 * MIB
        assert a.charged_and_granted() == (0, 0)
    finally:
        for program in programs:
            program.__exit__()


@pytest.mark.parametrize("step", [2 * MIB, STEP])
def test_threads_never_have_more_than_the_limit_by_any_way(step: int, tenant: MakesTenant):
    a = tenant(512 * MIB)
    with a.runs(CONTEXT_MIB=2, POOL_STEP=step) as program:
        result, refused = program.ask("storm", 1, 400, 16, 8)
        assert result == 0
        assert refused > 0
        assert a.peak() <= 512 * MIB
        program.does("sync_context")
        assert a.charged_and_granted() == (0, 0)


def test_killed_programs_leave_nothing_charged(tenant: MakesTenant, gpus: SimulatedGpus):
    a = tenant(512 * MIB)
    for round_ in range(5):
        programs = [a.runs(CONTEXT_MIB=2, POOL_STEP=2 * MIB) for _ in range(4)]
        for number, program in enumerate(programs):
            program.tell("storm", 10 * round_ + number + 1, 0, 16, 2)
        time.sleep(0.05)
        for program in programs:
            program.kill()
    gpus.eventually(lambda: a.granted() == 0)
    assert a.peak() <= 512 * MIB
    with a.runs(CONTEXT_MIB=2) as program:
        program.does("create", "h", 0, 512 * MIB)
        assert a.charged_and_granted() == (512 * MIB, 512 * MIB)
