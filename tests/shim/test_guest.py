"""The library as a guest: in processes without CUDA it is not to be noticed; in those that have odd
habits with descriptors, users, signals and system calls, the limit holds and nothing breaks."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from hami.slices.usage_region import REGION_SIZE

from .builds import Build
from .simulated import MIB, SimulatedGpus
from .slices import Slice

GRANULE = 2 * MIB
LIMIT = 63 * MIB
FULL = LIMIT // GRANULE
SUCCESS, OUT_OF_MEMORY = 0, 2


@pytest.fixture
def gpus(shim: Build, tmp_path: Path):
    with SimulatedGpus(tmp_path, build=shim) as gpus:
        yield gpus


@pytest.fixture
def slice_(tmp_path: Path) -> Slice:
    return Slice(tmp_path / "slice", LIMIT)


# ---- Without CUDA -----------------------------------------------------------------------------

_LOOKS = """
import os, signal, sys, threading
lines = open("/proc/self/status").read().splitlines()
kept = ("Threads", "SigBlk", "SigIgn", "SigCgt", "Umask", "NoNewPrivs", "Seccomp")
print([line for line in lines if line.startswith(kept)])
print(sorted((fd, os.readlink(f"/proc/self/fd/{fd}").split(":")[0]) for fd in os.listdir("/proc/self/fd")
             if os.path.exists(f"/proc/self/fd/{fd}")))
maps = open("/proc/self/maps").read()
print("libcuda" in maps, "libnvidia" in maps, "usage" in maps, "limits" in maps)
print(sorted(os.environ.keys() - {"LD_PRELOAD"}))
print(os.popen("echo from a shell").read())
pid = os.fork()
if pid == 0:
    os._exit(5)
print(os.waitpid(pid, 0)[1])
sys.exit(9)
"""
"""What a process can say of itself that a library could have changed."""


def preloaded(shim: Build) -> dict[str, str]:
    return {"LD_PRELOAD": str(shim.released)}


def outcome(command: list[str], env: Mapping[str, str], **how: object) -> tuple[int, bytes, bytes]:
    done = subprocess.run(
        command, check=False, capture_output=True, env=dict(env), timeout=60, **how
    )  # type: ignore[call-overload]
    return done.returncode, done.stdout, done.stderr


PLAIN = {
    "python": ([sys.executable, "-c", _LOOKS], {}),
    "true": (["/bin/true"], {}),
    "false": (["/bin/false"], {}),
    "a shell": (["/bin/sh", "-c", "ulimit -n 20; umask; cat /proc/self/limits; exit 7"], {}),
    "killed": (["/bin/sh", "-c", "kill -TERM $$"], {}),
    "a pipe that breaks": (["/bin/sh", "-c", "yes | head -1; echo done"], {}),
    "no room for descriptors": (["/bin/sh", "-c", "ulimit -n 0; exit 3"], {}),
    "little memory": (["/bin/sh", "-c", "ulimit -v 100000; exec /bin/true"], {}),
    "no environment": (["/usr/bin/env", "-i", "/bin/sh", "-c", "echo x"], {}),
    "a program that is not there": (["/bin/sh", "-c", "/no/such/program"], {}),
    "noisy": ([sys.executable, "-c", _LOOKS], {"LIBCUDA_LOG_LEVEL": "4"}),
    "limited": (
        [sys.executable, "-c", _LOOKS],
        {"CUDA_DEVICE_MEMORY_LIMIT": "rubbish", "HAMI_SLICE_ID": "x"},
    ),
}


@pytest.mark.parametrize("what", PLAIN)
def test_a_process_without_cuda_is_as_it_would_be(what: str, shim: Build):
    command, env = PLAIN[what]
    env = {"PATH": os.environ["PATH"], **env}
    without = outcome(command, env)
    assert outcome(command, {**env, **preloaded(shim)}) == without


def test_it_leaves_no_file_behind(shim: Build, tmp_path: Path):
    env = {
        "PATH": os.environ["PATH"],
        "TMPDIR": str(tmp_path),
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(tmp_path / "cache"),
        "CUDA_DEVICE_MEMORY_LIMIT": "1g",
        **preloaded(shim),
    }
    assert outcome(["/bin/ls"], env, cwd=tmp_path)[0] == 0
    assert not list(tmp_path.iterdir())


_SURROUNDED = """\
import json, os, signal, sys
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGSEGV})
os.umask(0o137)
os.execve(sys.argv[2], sys.argv[2:], json.loads(sys.argv[1]))
"""


def test_signals_that_were_ignored_or_blocked_stay_so(shim: Build):
    # Not SigQ, which counts what all processes of the user have waiting.
    command = ["/bin/grep", "-E", "Sig(Pnd|Blk|Ign|Cgt)|Umask", "/proc/self/status"]

    def surrounded(env: Mapping[str, str]) -> tuple[int, bytes, bytes]:
        return outcome([sys.executable, "-c", _SURROUNDED, json.dumps(env), *command], {})

    without = surrounded({})
    assert surrounded(preloaded(shim)) == without
    assert b"0137" in without[1]


def test_what_it_costs_to_start_a_process(shim: Build, capsys: pytest.CaptureFixture[str]):
    """Told, and held to a bound that only a mistake exceeds: machines that test are busy."""

    def seconds(env: Mapping[str, str]) -> float:
        before = time.perf_counter()
        os.waitpid(os.posix_spawn("/bin/true", ["true"], env), 0)
        return time.perf_counter() - before

    bare, loaded = [], []
    for _ in range(150):
        bare.append(seconds({}))
        loaded.append(seconds(preloaded(shim)))
    without, with_us = statistics.median(bare), statistics.median(loaded)
    with capsys.disabled():
        print(  # noqa: T201 - a figure for whoever looks
            f"\nexec of /bin/true: {without * 1e6:.0f} us, with the library {with_us * 1e6:.0f} us"
            f" ({with_us / without:.2f} times)"
        )
    assert with_us - without < 0.005


# ---- With CUDA, and odd habits ----------------------------------------------------------------


def guest(
    shim: Build, gpus: SimulatedGpus, slice_: Slice, *words: object, **how: object
) -> tuple[int, ...]:
    """cuInit, the context, how many blocks, and why no more."""
    env = {**gpus.env("a", CONTEXT_MIB=2), **slice_.env(), "LD_PRELOAD": str(shim.library)}
    command = [str(shim.program("guest")), *map(str, words)]
    status, said, errors = outcome(command, env, **how)
    if status == 77:
        pytest.skip("system calls cannot be filtered here")
    assert (status, errors) == (0, b""), (status, errors)
    return tuple(int(word) for word in said.split())


HELD = (SUCCESS, SUCCESS, FULL, OUT_OF_MEMORY)


def test_a_program_without_habits(shim: Build, gpus: SimulatedGpus, slice_: Slice):
    assert guest(shim, gpus, slice_, "none") == HELD
    assert gpus.held("a").peak == FULL * GRANULE


@pytest.mark.parametrize("habit", ["no-standard-streams", "interrupted"])
def test_habits_that_change_nothing(habit: str, shim: Build, gpus: SimulatedGpus, slice_: Slice):
    for _ in range(3):
        assert guest(shim, gpus, slice_, habit, 300) == HELD
    assert gpus.held("a").peak == FULL * GRANULE


def test_a_program_that_closes_our_descriptor_is_held_to_its_limit(
    shim: Build, gpus: SimulatedGpus, slice_: Slice
):
    """What it cannot do any more is recover what others left; the next one can."""
    assert guest(shim, gpus, slice_, "closes-ours") == HELD
    assert guest(shim, gpus, slice_, "closes-ours")[:2] == (SUCCESS, SUCCESS)
    assert guest(shim, gpus, slice_, "none") == HELD
    assert gpus.held("a").peak == FULL * GRANULE


def test_the_programs_file_under_our_number_is_left_alone(
    shim: Build, gpus: SimulatedGpus, slice_: Slice, tmp_path: Path
):
    own = tmp_path / "own"
    own.write_bytes(b"the program's own" * 5000)
    before = own.read_bytes(), own.stat().st_mtime_ns
    assert guest(shim, gpus, slice_, "replaces-ours", own) == HELD
    assert (own.read_bytes(), own.stat().st_mtime_ns) == before
    assert gpus.held("a").peak == FULL * GRANULE
    assert guest(shim, gpus, slice_, "none") == HELD


def test_with_few_descriptors_it_is_the_limit_or_nothing(
    shim: Build, gpus: SimulatedGpus, slice_: Slice
):
    """Down to where the driver itself cannot start."""
    seen = set()
    for number in range(3, 24):
        initialised, started, count, last = guest(shim, gpus, slice_, "few-descriptors", number)
        seen.add((initialised == SUCCESS, started, count))
        if initialised == SUCCESS:
            assert (started, count, last) in (
                (SUCCESS, FULL, OUT_OF_MEMORY),
                (OUT_OF_MEMORY, 0, 999),
            ), number
        else:
            assert count == 0
    assert (True, SUCCESS, FULL) in seen
    assert gpus.held("a").peak == FULL * GRANULE


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
@pytest.mark.parametrize("habit", ["another-user", "another-root"])
def test_programs_that_drop_what_they_may_do(
    habit: str, shim: Build, gpus: SimulatedGpus, slice_: Slice, tmp_path: Path
):
    (tmp_path / "root").mkdir()
    # One that was killed has left memory charged: it is recovered, or not, but never granted twice.
    assert guest(shim, gpus, slice_, "none") == HELD
    found = guest(shim, gpus, slice_, habit, tmp_path / "root")
    assert found[:2] == (SUCCESS, SUCCESS)
    assert found[2:] in ((FULL, OUT_OF_MEMORY), (0, OUT_OF_MEMORY))
    assert gpus.held("a").peak == FULL * GRANULE
    assert guest(shim, gpus, slice_, "none") == HELD


CALLS = {
    "x86_64": {
        "openat": 257, "mmap": 9, "fcntl": 72, "fstat": 5, "newfstatat": 262, "madvise": 28,
        "kill": 62, "sched_yield": 24, "clock_nanosleep": 230, "getpid": 39, "readlink": 89,
        "pread64": 17,
    },
    "aarch64": {
        "openat": 56, "mmap": 222, "fcntl": 25, "fstat": 80, "newfstatat": 79, "madvise": 233,
        "kill": 129, "sched_yield": 124, "clock_nanosleep": 115, "getpid": 172, "readlinkat": 78,
        "pread64": 67,
    },
}.get(platform.machine(), {})  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_where_a_system_call_is_forbidden_it_is_the_limit_or_nothing(
    when: str, call: str, shim: Build, gpus: SimulatedGpus, slice_: Slice
):
    """As sandboxes do. Whether the driver can work so is another question; it is simulated."""
    for _ in range(2):
        initialised, started, count, last = guest(
            shim, gpus, slice_, f"without-call-{when}", CALLS[call]
        )
        if (initialised, started) == (SUCCESS, SUCCESS):
            assert (count, last) in ((FULL, OUT_OF_MEMORY), (0, OUT_OF_MEMORY)) or count < FULL
        else:
            assert count == 0
    assert gpus.held("a").peak <= FULL * GRANULE
    assert guest(shim, gpus, slice_, "none") == HELD


# ---- HAMi's environment ---------------------------------------------------------------------


def limited(
    shim: Build,
    gpus: SimulatedGpus,
    path: Path,
    count: int = 8,
    killed: tuple[int, ...] = (),
    before: Sequence[str] = (),
    **env: str,
) -> list[tuple[int, tuple[int, ...]]]:
    """So many programs at once in a container without a slice of ours: how each ended, what it said."""
    around = {
        **gpus.env("a", CONTEXT_MIB=2),
        "HAMI_SLICE_DIR": str(path / "not-mounted"),
        "CUDA_DEVICE_MEMORY_SHARED_CACHE": str(path / "cache"),
        "CUDA_DEVICE_MEMORY_LIMIT": f"{LIMIT // MIB}m",
        "LD_PRELOAD": str(shim.library),
        **env,
    }
    command = [*before, str(shim.program("guest")), "none"]
    programs = [subprocess.Popen(command, env=around, stdout=subprocess.PIPE) for _ in range(count)]
    for number in killed:
        time.sleep(0.001 * number)
        programs[number].kill()
    said = [program.communicate(timeout=60)[0] for program in programs]
    return [
        (program.returncode, tuple(int(word) for word in words.split()))
        for program, words in zip(programs, said, strict=True)
    ]


def test_processes_that_start_at_once_share_one_region(
    shim: Build, gpus: SimulatedGpus, tmp_path: Path
):
    """Whoever makes it, and whoever is killed while it does."""
    for round_ in range(8):
        folder = tmp_path / f"{round_}"
        folder.mkdir()
        found = limited(shim, gpus, folder, killed=(0, round_ % 8))
        lived = [outcome for number, outcome in enumerate(found) if number not in (0, round_ % 8)]
        assert {(status, words[:2]) for status, words in lived} == {(0, (SUCCESS, SUCCESS))}
        # Killed in the middle of making one, somebody may have left a name that nobody uses.
        assert (folder / "cache.usage").stat().st_size == REGION_SIZE
        gpus.eventually(lambda: gpus.held("a").bytes == 0)
        assert limited(shim, gpus, folder, 1) == [(0, HELD)]
        gpus.eventually(lambda: gpus.held("a").bytes == 0)  # the next ones have another region
    assert gpus.held("a").peak == FULL * GRANULE


ODD = {
    "no such folder": {"CUDA_DEVICE_MEMORY_SHARED_CACHE": "/no/such/folder/cache"},
    "a device": {"CUDA_DEVICE_MEMORY_SHARED_CACHE": "/dev/null/x"},
    "too long a name": {"CUDA_DEVICE_MEMORY_SHARED_CACHE": "/tmp/" + "x" * 5000},
    "a limit in words": {"CUDA_DEVICE_MEMORY_LIMIT": "much"},
    "a share of 101": {"CUDA_DEVICE_SM_LIMIT": "101"},
}


@pytest.mark.parametrize("what", ODD)
def test_an_environment_that_cannot_be_followed_gives_nothing(
    what: str, shim: Build, gpus: SimulatedGpus, tmp_path: Path
):
    for status, words in limited(shim, gpus, tmp_path, 2, **ODD[what]):
        assert (status, words[:3]) == (0, (SUCCESS, OUT_OF_MEMORY, 0))
    assert gpus.held("a").peak == 0


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, Path.touch, lambda at: at.symlink_to("x")])
def test_something_else_in_the_regions_place_gives_nothing(
    make: Callable[[Path], object], shim: Build, gpus: SimulatedGpus, tmp_path: Path
):
    make(tmp_path / "cache.usage")
    for status, words in limited(shim, gpus, tmp_path, 2):
        assert (status, words[:3]) == (0, (SUCCESS, OUT_OF_MEMORY, 0))
    assert gpus.held("a").peak == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts a disk that is full")
def test_a_full_disk_gives_nothing_and_kills_nobody(
    shim: Build, gpus: SimulatedGpus, tmp_path: Path
):
    full = tmp_path / "full"
    full.mkdir()
    mounts = 'mount -t tmpfs -o size=8k tmpfs "$0" && exec "$@"'
    alone = ["unshare", "-m", "sh", "-c", mounts, str(full)]
    [(status, words)] = limited(
        shim, gpus, tmp_path, 1, before=alone, CUDA_DEVICE_MEMORY_SHARED_CACHE=str(full / "cache")
    )
    assert (status, words[:3]) == (0, (SUCCESS, OUT_OF_MEMORY, 0))


def test_a_program_that_may_not_have_such_a_file_is_given_nothing_and_not_killed(
    shim: Build, gpus: SimulatedGpus, tmp_path: Path
):
    small = ["sh", "-c", 'ulimit -f 10 && exec "$@"', "sh"]
    [(status, words)] = limited(shim, gpus, tmp_path, 1, before=small)
    assert (status, words[:3]) == (0, (SUCCESS, OUT_OF_MEMORY, 0))
    assert not list(tmp_path.glob("cache*"))


HARMLESS = {
    "a priority in words": {"CUDA_TASK_PRIORITY": "high"},
    "a policy that nobody knows": {"GPU_CORE_UTILIZATION_POLICY": "perhaps"},
    "a level in words": {"LIBCUDA_LOG_LEVEL": "loud"},
    "a share": {"CUDA_DEVICE_SM_LIMIT": "30", "GPU_CORE_UTILIZATION_POLICY": "force"},
    "oversubscribed": {"CUDA_OVERSUBSCRIBE": "true"},
}


@pytest.mark.parametrize("what", HARMLESS)
def test_words_that_are_no_limits_change_no_limit(
    what: str, shim: Build, gpus: SimulatedGpus, tmp_path: Path
):
    assert limited(shim, gpus, tmp_path, 1, **HARMLESS[what]) == [(0, HELD)]
    assert gpus.held("a").peak == FULL * GRANULE
