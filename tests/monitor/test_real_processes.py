"""Processes of this machine, in cgroups of the test's own where it may make some."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from hami.monitor.measuring.vendor_measuring import boot_time
from hami.monitor.processes.process import ProcessIdentity
from hami.monitor.processes.process_table import ProcessTable
from hami.slices.cgroups import CgroupPlace

PROC = Path("/proc")
TREES = [Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup/pids")]


@pytest.fixture
def table() -> Iterator[ProcessTable]:
    made = ProcessTable(PROC)
    yield made
    made.close()


@contextmanager
def running(*command: str) -> Iterator[int]:
    with subprocess.Popen(command) as started:
        try:
            yield started.pid
        finally:
            started.kill()


def known(table: ProcessTable, pid: int) -> ProcessIdentity | None:
    found = table.identified([pid], boot_time()).get(pid)
    return None if found is None else found.identity


def child_of(pid: int) -> int:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        if words := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            return int(words[0])
        time.sleep(0.01)
    raise AssertionError("no child")


def test_our_own_process(table):
    found = known(table, os.getpid())
    assert found is not None
    assert found.pid_namespace == Path("/proc/self/ns/pid").stat().st_ino
    assert (found.inner_pid, found.own_clock) == (os.getpid(), False)
    assert found.start_time == int(
        Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
    )


def test_a_process_that_ended_is_known_for_one_more_look(table):
    with running("sleep", "60") as pid:
        alive = known(table, pid)
    assert alive is not None
    assert known(table, pid) == alive
    assert known(table, pid) is None


def test_a_process_with_a_pid_namespace_of_its_own(table):
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("only root may make a pid namespace, with the program unshare")
    with running("unshare", "--pid", "--fork", "sleep", "60") as parent:
        found = known(table, child_of(parent))
        assert found is not None
        assert found.inner_pid == 1
        assert found.pid_namespace != Path("/proc/self/ns/pid").stat().st_ino


def a_tree() -> Path:
    """A cgroup in which the test may make others; skips where there is none."""
    for tree in TREES:
        path = tree / f"hami{os.getpid()}-kubepods.slice"
        with suppress(OSError):
            if (tree / "cgroup.procs").exists():
                path.mkdir()
                return path
    pytest.skip(
        "no cgroups can be made here: the test needs root and a writable cgroup file system"
    )


@pytest.fixture
def container() -> Iterator[Callable[[str, str], Path]]:
    """Makes the cgroup of a container; all are removed in the end, when they are empty."""
    made = [a_tree()]

    def make(uid: str, id: str) -> Path:
        pod = made[0] / f"kubepods-pod{uid.replace('-', '_')}.slice"
        for path in (pod, pod / f"cri-containerd-{id}.scope"):
            path.mkdir(exist_ok=True)
            made.append(path)
        return made[-1]

    yield make
    for path in reversed(dict.fromkeys(made)):
        until = time.monotonic() + 10
        while path.exists() and time.monotonic() < until:
            with suppress(OSError):
                path.rmdir()


def test_processes_in_cgroups_of_pods(table, container):
    one, other = container("aa-11", "c1"), container("aa-11", "c2")
    with running("sleep", "60") as first, running("sleep", "60") as second:
        for path, pid in ((one, first), (other, second)):
            (path / "cgroup.procs").write_text(str(pid))
        found = table.identified([first, second, os.getpid()], boot_time())
        assert found[first].identity.place == CgroupPlace("aa-11", "c1")
        assert found[second].identity.place == CgroupPlace("aa-11", "c2")
        assert found[os.getpid()].identity.place != found[first].identity.place
