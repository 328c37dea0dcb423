"""Whose function a program gets, by every way there is to ask for one."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from .builds import Build
from .fake_driver import SOURCES, compiled, make_driver
from .hook_list import BASES, CALLS, HOOKS, NVML_CALLS, NVML_HOOKS, spelling

OURS, DRIVER, NVML = "libvgpu.so", "libcuda.so.1", "libnvidia-ml.so.1"
VERSIONS = sorted({hook.since + step for hook in HOOKS for step in (-10, 0, 10)} | {13050})
LEGACY, PER_THREAD = 0, 2
OLDEST = "GLIBC_2.2.5" if platform.machine() == "x86_64" else "GLIBC_2.17"
WAYS = ("default", "next", "handle", "self", "old", "versioned=GLIBC_2.17")
NOT_OURS = ("cursor", "curl_easy_init", "cuda_main", "cublasCreate_v2", "cudnnCreate", "cu", "nvml")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A folder with programs to start, and which library and driver they start with."""

    programs: Path
    build: Build
    driver: Path

    @property
    def sanitizer(self) -> list[str]:
        """Its runtime, which must come first in a program that was not made with it."""
        name = {"asan": "libasan.so", "tsan": "libtsan.so"}.get(self.build.flavour)
        if name is None:
            return []
        command = ["cc", f"-print-file-name={name}"]
        return [subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()]

    def run(
        self, program: str, *arguments: str, preload: Sequence[str] | None = None, **env: str
    ) -> str:
        """What it prints; without ``preload`` the library is there and nothing else."""
        ahead = [str(self.build.library)] if preload is None else preload
        done = subprocess.run(
            [str(self.programs / program), *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            env={
                **self.build.environment(),
                "LD_LIBRARY_PATH": f"{self.driver}:{self.programs}",
                "LD_PRELOAD": ":".join([*self.sanitizer, *ahead]),
                "HAMI_SLICE_DIR": str(self.programs / "no-slice"),
                **env,
            },
        )
        assert (done.returncode, done.stderr) == (0, ""), (done.returncode, done.stderr)
        return done.stdout

    def answers(
        self, way: str, names: Iterable[str], *, preload: Sequence[str] | None = None, **env: str
    ) -> dict[str, str]:
        lines = self.run("probe", way, *names, preload=preload, **env).splitlines()
        return dict(line.split(" ", 1) for line in lines)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory, shim: Build) -> Path:
    """Compiled without the driver, except for one that is linked to it."""
    folder = tmp_path_factory.mktemp("resolution")
    for name in ("probe", "iterates", "threads", "untouched", "weak"):
        compiled(SOURCES / f"{name}.c", folder / name)
    driver = make_driver(folder / "driver")
    compiled(SOURCES / "forwarded.c", folder / "forwarded", f"-L{driver}", "-l:libcuda.so.1")
    for name in ("forwarder", "allocator"):
        compiled(SOURCES / f"{name}.c", folder / f"{name}.so", "-shared")
    compiled(
        SOURCES / "constructor.c",
        folder / "constructor.so",
        "-shared",
        "-Wl,--no-as-needed",
        f"-L{driver}",
        "-l:libcuda.so.1",
    )
    for name in ("libnvidia-other.so.1", "libcudadebugger.so.1", "libcudart.so.13", "libother.so"):
        compiled(SOURCES / "asks.c", folder / name, "-shared")
    return folder


@pytest.fixture
def plain(programs: Path, shim: Build) -> Place:
    """Where a sanitizer's own start, allocator or threads would be in the way."""
    return Place(programs=programs, build=shim, driver=programs / "driver")


@pytest.fixture(params=["shim", "shim_asan", "shim_tsan"])
def place(request: pytest.FixtureRequest, programs: Path) -> Place:
    build: Build = request.getfixturevalue(request.param)
    return Place(programs=programs, build=build, driver=programs / "driver")


def with_driver(place: Place, driver: Path) -> Place:
    return Place(programs=place.programs, build=place.build, driver=driver)


# ---- dlsym and dlvsym


@pytest.mark.parametrize("way", WAYS)
def test_every_hooked_name_is_ours_however_it_is_asked_for(place: Place, way: str) -> None:
    names = [hook.name for hook in HOOKS]
    preload = [str(place.build.library), str(place.driver / DRIVER)]
    assert place.answers(way, names, preload=preload) == {name: f"{OURS} {name}" for name in names}


@pytest.mark.parametrize("way", ["handle", "old"])
def test_so_is_every_hooked_name_of_nvml(place: Place, way: str) -> None:
    answers = place.answers(way, [*NVML_HOOKS, *NVML_CALLS], PROBE_NVML="1")
    assert {name: answers[name] for name in NVML_HOOKS} == {
        name: f"{OURS} {name}" for name in NVML_HOOKS
    }
    assert {name: answers[name] for name in NVML_CALLS} == {
        name: f"{NVML} {name}" for name in NVML_CALLS
    }


@pytest.mark.parametrize("way", ["handle", "old"])
def test_what_we_do_not_stand_before_is_the_drivers(place: Place, way: str) -> None:
    assert place.answers(way, CALLS) == {name: f"{DRIVER} {name}" for name in CALLS}


@pytest.mark.parametrize(
    "way", ["default", "next", "self", "old", "library=libc.so.6", f"versioned={OLDEST}"]
)
def test_who_asks_for_dlsym_itself_gets_ours(place: Place, way: str) -> None:
    """Else all other names would be the driver's from there on."""
    names = ["dlsym", "dlvsym"]
    assert place.answers(way, names) == {name: f"{OURS} {name}" for name in names}


def test_a_dlsym_that_is_not_there_is_not_ours(place: Place) -> None:
    answers = place.answers("versioned=GLIBC_9.99", ["dlsym", "dlvsym", "dlsymx", "dlv"])
    assert all(answer.startswith("- ") for answer in answers.values())
    driver = f"library={place.driver / DRIVER}"
    assert place.answers(driver, ["dlsym"])["dlsym"] == f"{OURS} dlsym"  # which it depends on


@pytest.mark.parametrize("style", ["gnu", "sysv"])
def test_a_driver_is_read_by_whichever_table_of_names_it_has(
    place: Place, style: str, tmp_path: Path
) -> None:
    there = with_driver(place, make_driver(tmp_path / style, hash_style=style))
    names = [hook.name for hook in HOOKS if not hook.name.startswith("cuGetProcAddress")]
    answers = there.answers(f"inside={there.driver / DRIVER}", names)
    assert answers == {name: f"{DRIVER} {name}" for name in names}


@pytest.mark.parametrize("way", WAYS)
def test_other_names_are_answered_as_without_us(place: Place, way: str) -> None:
    names = (*NOT_OURS, "malloc", "open", "cuNotThere", "nvmlNotThere", "dlopen")
    assert place.answers(way, names) == place.answers(way, names, preload=[])


def test_an_older_error_is_forgotten_with_what_is_found(place: Place) -> None:
    names = [hook.name for hook in HOOKS]
    preload = [str(place.build.library), str(place.driver / DRIVER)]
    for way in WAYS:
        answers = place.answers(way, names, preload=preload, PROBE_AFTER="cuNotThere")
        assert answers == {name: f"{OURS} {name}" for name in names}


def test_a_library_keeps_what_it_has_by_such_a_name(place: Place) -> None:
    way = f"library={place.programs / 'forwarder.so'}"
    names = ["cuMemAlloc_v2", "cuMemFree_v2", "nvmlDeviceGetMemoryInfo"]
    driver = str(place.driver / DRIVER)
    free = place.answers(way, names, preload=[driver])
    assert free["cuMemAlloc_v2"] == "forwarder.so cuMemAlloc_v2"
    assert "undefined symbol: cuMemFree_v2" in free["cuMemFree_v2"]
    for preload in ([str(place.build.library), driver], [driver, str(place.build.library)]):
        assert place.answers(way, names, preload=preload) == free


@pytest.mark.parametrize("library", [DRIVER, "libnvidia-other.so.1", "libcudadebugger.so.1"])
def test_the_driver_itself_gets_what_it_asks_for(place: Place, library: str) -> None:
    path = place.driver / library if library == DRIVER else place.programs / library
    ours, driver = str(place.build.library), str(place.driver / DRIVER)
    for preload in ([ours, driver], [driver, ours]):
        answers = place.answers(f"inside={path}", ["cuMemAlloc_v2"], preload=preload)
        assert answers == {"cuMemAlloc_v2": f"{DRIVER} cuMemAlloc_v2"}


@pytest.mark.parametrize("library", ["libcudart.so.13", "libother.so"])
def test_the_runtime_is_a_program_like_others(place: Place, library: str) -> None:
    behind = [str(place.driver / DRIVER), str(place.build.library)]
    way = f"inside={place.programs / library}"
    assert place.answers(way, ["cuMemAlloc_v2"], preload=behind) == {
        "cuMemAlloc_v2": f"{OURS} cuMemAlloc_v2"
    }


def test_a_function_that_the_driver_lacks_is_not_there(place: Place, tmp_path: Path) -> None:
    lacking = ["cuMemCreate", "cuGraphAddNode_v3", "cuLaunchKernelEx"]
    old = with_driver(place, make_driver(tmp_path / "old", without=lacking))
    preload = [str(place.build.library), str(old.driver / DRIVER)]
    for way in ("default", "next", "handle", "self"):
        for name, answer in old.answers(way, lacking, preload=preload).items():
            assert answer.startswith("- ")
            assert f"undefined symbol: {name}" in answer
    assert old.answers("handle", ["cuMemAlloc_v2"]) == {"cuMemAlloc_v2": f"{OURS} cuMemAlloc_v2"}


@pytest.mark.parametrize("way", ["default", "next", "self"])
def test_without_a_driver_nothing_of_it_is_there(place: Place, way: str, tmp_path: Path) -> None:
    none = with_driver(place, tmp_path)
    for name, answer in none.answers(
        way, ["cuInit", "cuMemAlloc_v2", "nvmlDeviceGetMemoryInfo"]
    ).items():
        assert answer.startswith("- ")
        assert f"undefined symbol: {name}" in answer


def test_a_call_without_a_driver_is_answered_until_there_is_one(
    place: Place, tmp_path: Path
) -> None:
    none = with_driver(place, tmp_path)
    driver = str(place.driver / DRIVER)
    assert none.run("weak", preload=[], DRIVER=driver) == "nobody\n"
    assert none.run("weak", DRIVER=driver) == "801 801 13 quiet, then 0\n"


def test_next_is_relative_to_whoever_asks(place: Place) -> None:
    ours, other = str(place.build.library), str(place.programs / "forwarder.so")
    free = place.run("forwarded", preload=[other])
    assert free == "0 0 0 opened 3 forwarded 3 3\n"
    assert place.run("forwarded", preload=[other, ours]) == free
    # Behind us it is not asked for the driver's functions, and is asked for open as ever.
    assert place.run("forwarded", preload=[ours, other]) == "0 0 0 opened 3 forwarded 3 0\n"


def test_a_constructor_that_runs_before_ours_is_served(plain: Place) -> None:
    constructor = str(plain.programs / "constructor.so")
    for preload in (
        [constructor, str(plain.build.library)],
        [str(plain.build.library), constructor],
    ):
        said = plain.run("probe", "default", preload=preload)
        assert said == f"constructor: cuInit 0, cuMemAlloc_v2 of {OURS}\n"


def test_an_allocator_may_ask_before_it_can_allocate(plain: Place) -> None:
    ours, allocator = str(plain.build.library), str(plain.programs / "allocator.so")
    for preload in ([allocator, ours], [ours, allocator]):
        answers = plain.answers("handle", ["cuMemAlloc_v2"], preload=preload)
        assert answers == {"cuMemAlloc_v2": f"{OURS} cuMemAlloc_v2"}


def test_a_program_may_replace_how_libraries_are_listed(plain: Place) -> None:
    assert plain.run("iterates") == plain.run("iterates", preload=[]) == "0 all\n"


def test_many_threads_resolve_at_once(place: Place) -> None:
    for _ in range(10):
        said = place.run("threads", "load", CONSTRUCTOR=str(place.programs / "constructor.so"))
        assert said.splitlines()[-1] == "children 0"


def test_children_forked_meanwhile_resolve_too(plain: Place) -> None:
    """Not under ThreadSanitizer, whose own lock around dlopen a fork leaves locked."""
    for _ in range(20):
        assert plain.run("threads", "fork") == "children 8\n"


# ---- cuGetProcAddress


def _expected(name: str, version: int, flags: int) -> str:
    hook = spelling(name, version, per_thread=flags == PER_THREAD)
    return f"{OURS} {hook.name}" if hook else "-"


@pytest.mark.parametrize("flags", [LEGACY, 1, PER_THREAD])
@pytest.mark.parametrize("way", ["proc", "proc2"])
def test_a_request_by_version_gets_the_hook_of_its_abi(place: Place, way: str, flags: int) -> None:
    for version in VERSIONS:
        answers = place.answers(f"{way}={version}:{flags}", BASES)
        seen = {name: answer.split(" 500 ")[0].split(" 5")[0] for name, answer in answers.items()}
        assert seen == {name: _expected(name, version, flags) for name in BASES}


def test_what_it_does_not_find_is_told_as_the_driver_tells_it(place: Place) -> None:
    names = ["cuMemCreate", "cuNotThere", "cuDriverGetVersion", "cuMemAlloc"]
    free = place.answers("proc2=3020:0", names, preload=[])
    ours = place.answers("proc2=3020:0", names)
    assert ours == free | {"cuMemAlloc": f"{OURS} cuMemAlloc_v2"}
    assert ours["cuMemCreate"] == "- 500 2"
    assert ours["cuNotThere"] == "- 500 1"


@pytest.mark.parametrize("flags", [LEGACY, PER_THREAD])
def test_a_function_that_is_not_exported_is_known_by_version(place: Place, flags: int) -> None:
    for base in (
        "cuMemAlloc",
        "cuMemFreeAsync",
        "cuGraphInstantiate",
        "cuCtxCreate",
        "cuLaunchKernel",
    ):
        for version in (11040, 12000, 13050):
            way = f"proc2={version}:{flags}"
            answers = place.answers(way, [base], FAKE_UNLISTED=base)
            assert answers == {base: _expected(base, version, flags)}


LIMITED = {"CUDA_DEVICE_MEMORY_LIMIT": "1g"}


@pytest.mark.parametrize("base", ["cuMemAlloc", "cuLaunchKernel"])
def test_one_newer_than_us_is_withheld_where_there_is_a_limit(place: Place, base: str) -> None:
    newest, newer = "proc2=13050:0", "proc2=13060:0"
    env = {"FAKE_UNLISTED": base}
    assert place.answers(newer, [base], **env, **LIMITED) == {base: "- 500 1"}
    assert place.answers(newest, [base], **env, **LIMITED) == {base: _expected(base, 13050, 0)}
    # Without a limit the program gets what it would get without us.
    free = place.answers(newer, [base], **env, preload=[])
    assert free[base].startswith(DRIVER)
    assert place.answers(newer, [base], **env) == free


def test_of_other_kinds_one_newer_than_us_is_let_through(place: Place) -> None:
    answers = place.answers(
        "proc2=13060:0", ["cuModuleLoad"], FAKE_UNLISTED="cuModuleLoad", **LIMITED
    )
    assert answers["cuModuleLoad"].startswith(DRIVER)


def test_what_hands_out_functions_is_ours_at_any_version(place: Place) -> None:
    for name in ("cuGetProcAddress", "cuInit"):
        answers = place.answers("proc2=99000:0", [name], FAKE_UNLISTED=name, **LIMITED)
        assert answers == {name: _expected(name, 99000, 0)}


def test_of_one_function_under_two_names_the_one_asked_for(place: Place, tmp_path: Path) -> None:
    aliases = {"cuMemFree_v2": "cuMemAlloc_v2", "cuLaunchKernel_ptsz": "cuLaunchKernel"}
    odd = with_driver(place, make_driver(tmp_path / "odd", aliases=aliases))
    assert odd.answers("proc=12000:0", ["cuMemAlloc", "cuMemFree"]) == {
        "cuMemAlloc": f"{OURS} cuMemAlloc_v2",
        "cuMemFree": f"{OURS} cuMemFree_v2",
    }
    for flags, name in ((LEGACY, "cuLaunchKernel"), (PER_THREAD, "cuLaunchKernel_ptsz")):
        assert odd.answers(f"proc=12000:{flags}", ["cuLaunchKernel"]) == {
            "cuLaunchKernel": f"{OURS} {name}"
        }


# ---- A process that never touches CUDA


def test_a_process_without_cuda_is_untouched(plain: Place, tmp_path: Path) -> None:
    for env in ({}, LIMITED, {"LIBCUDA_LOG_LEVEL": "4"}):
        cache = {"CUDA_DEVICE_MEMORY_SHARED_CACHE": str(tmp_path / "cache")}
        without_us = plain.run("untouched", preload=[], **env)
        assert plain.run("untouched", **env, **cache) == without_us
        assert "no driver" in without_us
    assert not list(tmp_path.iterdir())
