"""A process that is killed, and a disk that fails, at every single step of what the store does."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hami.node.disk.store import SliceStore, StoreFailed
from hami.slices.limits_page import PageLimits, read_page
from hami.slices.usage_region import empty_region
from tests.slices.pages import sample_limits as some_limits

from ..slices import ID, OTHER, VENDOR, a_record

CALLS = (
    "open", "write", "pwrite", "fsync", "rename", "mkdir", "rmdir", "unlink", "symlink", "fchmod",
    "chmod", "scandir", "listdir",
)  # fmt: skip


class Killed(BaseException):
    """SIGKILL: neither this call nor any later one happens."""


class Tripwire:
    """Lets ``count`` system calls through. Then the process is dead, or one call fails."""

    def __init__(self, count: int, failure: int | None) -> None:
        self.left = count
        self.tripped = False
        self._failure = failure

    def wrap(self, name: str, call: Callable) -> Callable:
        def wrapped(*arguments, **named):
            if self.tripped and self._failure is not None:
                return call(*arguments, **named)
            if self.left > 0:
                self.left -= 1
                return call(*arguments, **named)
            self.tripped = True
            if self._failure is not None:
                raise OSError(self._failure, os.strerror(self._failure))
            if name in ("write", "pwrite"):
                # Half of it reached the file.
                data = arguments[1]
                call(arguments[0], data[: len(data) // 2], *arguments[2:], **named)
            raise Killed

        return wrapped


@contextmanager
def tripping(count: int, failure: int | None = None) -> Iterator[Tripwire]:
    wire = Tripwire(count, failure)
    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, wire.wrap(name, getattr(os, name)))
        yield wire


def sample_limits(number: int) -> PageLimits:
    """Of so many devices that no half of a copy says it all."""
    return some_limits(number, 16)


def a_store(root: Path) -> SliceStore:
    return SliceStore(root, VENDOR, tmpfs=False, selinux=False)


def nothing(store: SliceStore) -> None:
    """Before the first slice."""


def another(store: SliceStore) -> None:
    store.create(a_record(OTHER))


def made(store: SliceStore) -> None:
    another(store)
    store.create(a_record())
    store.write_limits(ID, sample_limits(1))


def spoiled(store: SliceStore) -> None:
    made(store)
    (store.state_dir(ID) / "usage").unlink()
    (store.state_dir(ID) / "limits").chmod(0o644)
    (store.state_dir(ID) / "limits").write_bytes(b"no page")


OPERATIONS = [
    pytest.param(nothing, lambda s: s.create(a_record()), id="the first slice is made"),
    pytest.param(another, lambda s: s.create(a_record()), id="a slice is made"),
    pytest.param(made, lambda s: s.create(a_record(generation=2)), id="a slice is made again"),
    pytest.param(spoiled, lambda s: s.create(a_record(generation=2)), id="a region is made anew"),
    pytest.param(made, lambda s: s.save(a_record(state="enforced")), id="a state is saved"),
    pytest.param(
        lambda s: (another(s), s.create(a_record())),
        lambda s: s.write_limits(ID, sample_limits(2)),
        id="a page is made",
    ),
    pytest.param(made, lambda s: s.write_limits(ID, sample_limits(2)), id="a page is changed"),
    pytest.param(spoiled, lambda s: s.write_limits(ID, sample_limits(2)), id="a page is replaced"),
    pytest.param(made, lambda s: s.remove(ID), id="a slice is removed"),
    pytest.param(
        lambda s: (made(s), s.state_dir(ID).rename(s.state_dir(ID).parent / ".gone-x")),
        lambda s: s.recover(),
        id="a leftover is removed",
    ),
]


def check(store: SliceStore, *, other: bool) -> None:
    """Whatever happened: every slice once, whole, and nothing else."""
    records, damaged = store.recover()
    assert damaged == []
    assert [r.slice_id for r in records if r.slice_id == OTHER] == [OTHER] * other
    mine = [record for record in records if record.slice_id == ID]
    assert len(mine) <= 1
    folder = store.state_dir(ID).parent
    if folder.exists():
        assert {path.name for path in folder.iterdir()} == {r.slice_id for r in records}
    for record in mine:
        assert record in (a_record(), a_record(generation=2), a_record(state="enforced"))
        found = {path.name: path.read_bytes() for path in store.state_dir(ID).iterdir()}
        assert found.keys() <= {"meta.json", "limits", "usage"}
        assert found.get("usage", empty_region()) == empty_region()
        if "limits" in found and found["limits"] != b"no page":
            page = read_page(found["limits"])
            assert page in (sample_limits(1), sample_limits(2))


def is_usable(store: SliceStore) -> None:
    """What kubelet's next attempt does."""
    path = store.create(a_record())
    store.write_limits(ID, sample_limits(3))
    assert isinstance(read_page((path / "limits").read_bytes()), PageLimits)
    assert (path / "usage").read_bytes() == empty_region()
    store.remove(ID)
    assert [record.slice_id for record in store.recover()[0] if record.slice_id == ID] == []


@pytest.mark.parametrize(("before", "operation"), OPERATIONS)
def test_killed_at_every_step(tmp_path, before, operation):
    for count in range(200):
        root = tmp_path / str(count)
        store = a_store(root)
        before(store)
        finished = False
        with tripping(count) as wire:
            try:
                operation(store)
                finished = True
            except Killed:
                pass
        check(a_store(root), other=before is not nothing)
        is_usable(a_store(root))
        if finished and not wire.tripped:
            return
    pytest.fail("it never ends")


@pytest.mark.parametrize("failure", [errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES])
@pytest.mark.parametrize(("before", "operation"), OPERATIONS)
def test_one_call_fails_at_every_step(tmp_path, before, operation, failure):
    for count in range(200):
        root = tmp_path / str(count)
        store = a_store(root)
        before(store)
        with tripping(count, failure) as wire:
            said = ""
            try:
                operation(store)
            except StoreFailed as error:
                said = str(error)
        if said:
            assert os.strerror(failure) in said
            assert str(root) in said
        names = [path.name for path in root.rglob(".*") if not path.name.startswith(".gone-")]
        assert names == [], "nothing half-written stays behind"
        check(a_store(root), other=before is not nothing)
        is_usable(a_store(root))
        if not wire.tripped:
            return
    pytest.fail("it never ends")


CHILD = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[3])!r})
from pathlib import Path
from tests.node.disk.test_store_crashes import a_store, a_record, sample_limits, ID

store = a_store(Path(sys.argv[1]))
print("ready", flush=True)
while True:
    store.create(a_record())
    for number in (1, 2, 1, 2):
        store.write_limits(ID, sample_limits(number))
    store.save(a_record(generation=2))
    store.remove(ID)
"""


def test_killed_for_real_at_any_moment(tmp_path):
    chance = random.Random(20)
    another(a_store(tmp_path))
    for _ in range(12):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, tmp_path], stdout=subprocess.PIPE, text=True
        )
        with child:
            assert child.stdout.readline() == "ready\n"
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(chance.uniform(0.001, 0.05))
            child.send_signal(signal.SIGKILL)
        check(a_store(tmp_path), other=True)
        is_usable(a_store(tmp_path))
