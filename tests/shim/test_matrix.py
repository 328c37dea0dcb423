"""Every hooked function, come by in every way, called wherever a program may call it.

``shim/tests/matrix`` is the program: a snippet for each function, which prepares, calls and undoes.
With the library and without it the same must happen, and of the simulated driver the function of
that very spelling must be what is reached.
"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from .builds import SHIM, Build
from .hook_list import HOOKS, NVML_HOOKS
from .simulated import SimulatedGpus
from .slices import Slice

GIB = 1 << 30
NAMES = {hook.name for hook in HOOKS} | set(NVML_HOOKS)
OURS, DRIVER, NVML = "libvgpu.so", "libcuda.so.1", "libnvidia-ml.so.1"
IMAGE = "hami-sim 1\nkernel nothing ns=2000 width=8\n"
WITHOUT_VERSIONS = ("link", "handle", "default", "next", "proc", "proc2")
WAYS = (*WITHOUT_VERSIONS, "version")
THREADS = 64
NOT_INITIALIZED = "3"
AFTER_FORK = {"cuGetProcAddress", "cuGetProcAddress_v2", *NVML_HOOKS}
"""Need no driver that works: the first two never, NVML connects anew."""


def expected_owner(name: str, *, library: bool) -> str:
    return OURS if library else NVML if name in NVML_HOOKS else DRIVER


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A line of the program: see ``run.c``."""

    place: str
    way: str
    name: str
    file: str
    symbol: str
    prepare: str
    call: str
    undo: str
    reached: str
    others: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    build: Build
    gpus: SimulatedGpus
    folder: Path

    def run(self, *arguments: str, preload: Sequence[Path] = (), **env: str) -> list[str]:
        """The lines it printed; the slice is as large as a card's half."""
        folder = self.folder / f"slice{len(list(self.folder.glob('slice*')))}"
        Slice(folder, 40 * GIB, 40 * GIB)
        image = self.folder / "image"
        image.write_text(IMAGE)
        done = subprocess.run(
            [str(self.build.program("matrix")), *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=120,
            env={
                **self.gpus.env("a", CONTEXT_MIB=2),
                **self.build.environment(),
                "LD_PRELOAD": ":".join([*self.sanitizer, *map(str, preload)]),
                "HAMI_SLICE_DIR": str(folder),
                "MATRIX_IMAGE": str(image),
                "TSAN_OPTIONS": f"halt_on_error=1:suppressions={SHIM}/tests/tsan_suppressions",
                **env,
            },
        )
        assert not done.stderr, done.stderr[:8000]
        assert done.returncode == 0, done.stdout[-1000:]
        return done.stdout.splitlines()

    @property
    def sanitizer(self) -> list[str]:
        """Its runtime comes first where anything is preloaded."""
        name = {"asan": "libasan.so", "tsan": "libtsan.so"}.get(self.build.flavour)
        if name is None:
            return []
        command = ["cc", f"-print-file-name={name}"]
        return [subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()]


@pytest.fixture
def gpus(shim: Build, tmp_path: Path) -> Iterator[SimulatedGpus]:
    with SimulatedGpus(tmp_path, build=shim, gpus=2) as gpus:
        yield gpus


@pytest.fixture
def plain(shim: Build, gpus: SimulatedGpus, tmp_path: Path) -> Matrix:
    return Matrix(build=shim, gpus=gpus, folder=tmp_path)


@pytest.fixture(params=["shim", "shim_asan"])
def matrix(request: pytest.FixtureRequest, gpus: SimulatedGpus, tmp_path: Path) -> Matrix:
    return Matrix(build=request.getfixturevalue(request.param), gpus=gpus, folder=tmp_path)


@pytest.fixture(params=["shim", "shim_asan", "shim_tsan"])
def raced(request: pytest.FixtureRequest, gpus: SimulatedGpus, tmp_path: Path) -> Matrix:
    return Matrix(build=request.getfixturevalue(request.param), gpus=gpus, folder=tmp_path)


def calls_in(lines: Sequence[str]) -> list[Called]:
    rows = [line.split(" ") for line in lines if " balance " not in line]
    fields = Called.__dataclass_fields__
    return [Called(**dict(zip(fields, row, strict=True))) for row in rows]


EXACT = {"cuMemAllocAsync", "cuMemAllocAsync_ptsz"}
"""Asked of the driver as cuMemAllocFromPoolAsync, so that the pool is the one that was charged."""


def expected_reach(name: str, *, library: bool) -> str:
    if name in NVML_HOOKS:
        return "-"
    return "0" if library and name in EXACT else "1"


def assert_called(
    calls: Sequence[Called], *, place: str, library: bool, times: int = 1, every_way: bool = True
) -> None:
    """Each function once by each way, with success, by way of the library or not."""
    ways = WAYS if library else WITHOUT_VERSIONS
    wrong = [
        call
        for call in calls
        if (call.prepare, call.call, call.undo, call.others) != ("0", "ok", "0", "0")
        or call.reached != expected_reach(call.name, library=library)
        or (call.file, call.symbol) != (expected_owner(call.name, library=library), call.name)
        or call.place != place
    ]
    assert wrong == []
    counted = Counter((call.way, call.name) for call in calls)
    if every_way:
        expected = {
            (way, name) for way in ways for name in NAMES
            if not (way in ("proc", "proc2") and name in NVML_HOOKS)
        }  # fmt: skip
        assert set(counted) == expected
        assert set(counted.values()) == {times}
    else:
        assert {name for _, name in counted} == NAMES


def assert_balanced(lines: Sequence[str], *, places: int = 1) -> None:
    """By what the library tells the program to be free: exact to the byte."""
    rows = [line.split(" ") for line in lines if " balance " in line]
    assert len(rows) == places * (len(WAYS) - 1)
    assert [row for row in rows if row[3] != row[4] or row[3] == "0"] == []


def test_there_is_a_snippet_of_every_hook_and_of_nothing_else(plain: Matrix) -> None:
    """What is compiled is what ``hooks.def`` lists, and is called by being linked to."""
    names = [call.name for call in calls_in(plain.run("here")) if call.way == "link"]
    assert sorted(names) == sorted(NAMES)
    assert len(HOOKS) > 140


@pytest.mark.parametrize("library", [False, True], ids=["plain", "library"])
def test_a_program_calls_every_function_by_every_way(matrix: Matrix, library: bool) -> None:
    lines = matrix.run("here", preload=[matrix.build.library] * library)
    assert_called(calls_in(lines), place="here", library=library)
    if library:
        assert_balanced(lines)


ORDERS = {
    "opened": (("open",), ("library",)),
    "before us": (("idle",), ("constructor", "library")),
    "behind us": (("idle",), ("library", "constructor")),
}


@pytest.mark.parametrize(("words", "order"), ORDERS.values(), ids=ORDERS.keys())
def test_so_does_a_constructor_of_another_library(
    plain: Matrix, words: tuple[str, ...], order: tuple[str, ...]
) -> None:
    constructor = plain.build.program("libmatrix.so")
    files = {"library": plain.build.library, "constructor": constructor}
    arguments = (*words, str(constructor)) if words == ("open",) else words
    lines = plain.run(
        *arguments, preload=[files[name] for name in order], MATRIX_CONSTRUCTOR="here"
    )
    assert lines[-2:] == ["constructed 0", "main"]
    assert_called(calls_in(lines[:-2]), place="here", library=True)
    assert_balanced(lines)


@pytest.mark.parametrize("library", [False, True], ids=["plain", "library"])
def test_so_does_a_child_of_a_process_without_cuda(matrix: Matrix, library: bool) -> None:
    lines = matrix.run("forked", preload=[matrix.build.library] * library)
    calls = calls_in(lines)
    for place in ("forked", "parent"):
        here = [call for call in calls if call.place == place]
        assert_called(here, place=place, library=library)
    if library:
        assert_balanced(lines, places=2)


def test_a_child_of_a_process_with_cuda_is_told_what_the_driver_tells_it(matrix: Matrix) -> None:
    told: dict[bool, list[list[str]]] = {}
    for library in (False, True):
        lines = matrix.run("stale", preload=[matrix.build.library] * library)
        children = [line.split(" ") for line in lines if line.startswith("child ")]
        rows = [line for line in lines if not line.startswith("child ")]
        assert_called(calls_in(rows), place="after", library=library, every_way=False)
        told[library] = children
        for _, way, name, file, symbol, status, result, reached, others, charge in children:
            where = (way, name, library)
            assert (file, symbol) == (expected_owner(name, library=library), name), where
            assert (status, others) == ("0", "0"), where
            assert result == ("0" if name in AFTER_FORK else NOT_INITIALIZED), where
            assert reached == ("0" if name in NVML_HOOKS else "1"), where
            if library:
                assert charge == "same", where
    assert {child[2]: child[6] for child in told[False]} == {
        child[2]: child[6] for child in told[True]
    }
    assert {child[2] for child in told[True]} == NAMES
    assert {child[1] for child in told[True]} == set(WAYS)


@pytest.mark.parametrize("library", [False, True], ids=["plain", "library"])
def test_so_do_many_threads_at_once(raced: Matrix, library: bool) -> None:
    calls = calls_in(raced.run("threads", preload=[raced.build.library] * library))
    assert_called(calls, place="threads", library=library, every_way=False)
    linked = Counter(call.name for call in calls if call.way == "link")
    assert set(linked.values()) == {len(range(0, THREADS, len(WAYS)))}


def test_threads_before_main_are_as_good(plain: Matrix) -> None:
    """A library that starts its threads in its constructor, ahead of ours."""
    constructor = plain.build.program("libmatrix.so")
    lines = plain.run(
        "idle", preload=[constructor, plain.build.library], MATRIX_CONSTRUCTOR="threads"
    )
    assert lines[-2:] == ["constructed 0", "main"]
    assert_called(calls_in(lines[:-2]), place="threads", library=True, every_way=False)


# ---- cuGetProcAddress, by name, version and flags


@pytest.mark.parametrize("driver", [12040, 13050])
def test_the_answers_by_version_are_the_drivers_but_for_whose_they_are(
    plain: Matrix, driver: int
) -> None:
    """At each version at which anything changes and one below, known names and unknown ones."""
    free = plain.run("abi", HAMI_SIM_DRIVER_VERSION=str(driver))
    ours = plain.run("abi", preload=[plain.build.library], HAMI_SIM_DRIVER_VERSION=str(driver))
    hooked = {hook.name for hook in HOOKS}
    expected = []
    for line in free:
        *answer, file, symbol = line.split(" ")
        assert file in (DRIVER, "-"), line
        expected.append(" ".join((*answer, OURS if symbol in hooked else file, symbol)))
    assert ours == expected
    found = {line.split(" ")[-1] for line in ours if OURS in line}
    assert found == {hook.name for hook in HOOKS if hook.since <= driver}
    assert len(ours) > 50_000
