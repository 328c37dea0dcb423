"""Scenarios that test_tmpfs.py runs as root of a mount namespace of its own.

Run as ``python -m tests.node.disk.tmpfs_scenarios NAME FOLDER``; an assertion that fails is the result.
"""

from __future__ import annotations

import errno
import mmap
import os
import subprocess
import sys
from pathlib import Path

from hami.node.disk import store as store_module
from hami.node.disk.store import SliceStore
from hami.node.disk.tmpfs import mounts_below
from hami.slices.limits_page import read_page
from hami.slices.usage_region import REGION_SIZE, empty_region
from tests.slices.pages import sample_limits

from ..slices import ID, VENDOR, a_record
from .test_store_crashes import Killed, tripping


def a_store(root: Path) -> SliceStore:
    return SliceStore(root, VENDOR, tmpfs=True, selinux=False)


def fails_with(call, *arguments) -> int:
    try:
        call(*arguments)
    except OSError as error:
        return error.errno or 0
    return 0


def options_of(point: Path) -> set[str]:
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split(" ")
        if fields[4] == str(point).replace(" ", r"\040"):
            return {*fields[5].split(","), *fields[-1].split(",")}
    return set()


def capped(root: Path) -> None:
    path = a_store(root).create(a_record())
    usage = path / "usage"
    assert usage.readlink() == Path("region/usage")
    assert usage.read_bytes() == empty_region()
    assert usage.stat().st_mode & 0o7777 == 0o666
    assert (path / "region").stat().st_mode & 0o7777 == 0o711
    assert mounts_below(root) == [path / "region"]
    assert {"nosuid", "nodev", "noexec", "size=64k", "nr_inodes=2"} <= options_of(path / "region")
    with usage.open("r+b") as file:
        assert fails_with(os.pwrite, file.fileno(), b"\0" * (1 << 20), REGION_SIZE) == 0
        assert fails_with(os.pwrite, file.fileno(), b"\0" * (1 << 20), 1 << 20) == errno.ENOSPC
    assert fails_with((path / "region" / "more").touch) == errno.ENOSPC


def bound_by_a_runtime(root: Path) -> None:
    """A bind mount of the path that the CDI spec names, and the container's writes through it."""
    usage = a_store(root).create(a_record()) / "usage"
    target = root / "container"
    target.touch()
    subprocess.run(["mount", "--bind", usage, target], check=True)
    with target.open("r+b") as file:
        os.pwrite(file.fileno(), b"\7", 20480)
    assert usage.read_bytes()[20480] == 7
    a_store(root).remove(ID)
    assert not usage.parent.exists()
    assert target.read_bytes()[20480] == 7, "a container that runs on keeps its region"


def kept_over_a_restart_of_the_agent(root: Path) -> None:
    path = a_store(root).create(a_record())
    with (path / "usage").open("r+b") as file:
        os.pwrite(file.fileno(), b"\7", 20480)
    again = a_store(root)
    assert again.recover() == ([a_record()], [])
    again.create(a_record())
    assert (path / "usage").read_bytes()[20480] == 7
    assert len(mounts_below(root)) == 1


def made_anew_after_a_reboot(root: Path) -> None:
    path = a_store(root).create(a_record())
    subprocess.run(["umount", path / "region"], check=True)
    assert not (path / "usage").exists(), "the link dangles: no container starts with it"
    store = a_store(root)
    assert store.recover() == ([a_record()], [])
    store.create(a_record())
    assert (path / "usage").read_bytes() == empty_region()
    assert len(mounts_below(root)) == 1


def made_anew_when_it_is_spoiled(root: Path) -> None:
    store = a_store(root)
    path = store.create(a_record())
    with (path / "usage").open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), REGION_SIZE)
        mapped[100] = 9
        os.pwrite(file.fileno(), b"\0" * 64, 0)
        store.create(a_record())
        assert mapped[100] == 9, "whoever mapped the old one keeps it"
        mapped.close()
    assert (path / "usage").read_bytes() == empty_region()
    assert len(mounts_below(root)) == 1


def changed_from_a_plain_file(root: Path) -> None:
    """An agent that is told to mount from now on leaves living regions as they are."""
    plain = SliceStore(root, VENDOR, tmpfs=False, selinux=False).create(a_record()) / "usage"
    a_store(root).create(a_record())
    assert not plain.is_symlink()
    plain.unlink()
    a_store(root).create(a_record())
    assert plain.is_symlink()


def removed_without_reaching_into_mounts(root: Path) -> None:
    store = a_store(root)
    path = store.create(a_record())
    elsewhere, inside = root / "elsewhere", path / "lock dir"
    elsewhere.mkdir()
    inside.mkdir()
    (elsewhere / "kept").touch()
    for _ in range(2):
        subprocess.run(["mount", "--bind", elsewhere, inside], check=True)
    store.remove(ID)
    assert not path.exists()
    assert (elsewhere / "kept").exists()
    assert mounts_below(root) == []


def killed_at_every_step(root: Path) -> None:
    for operation in ("create", "create again", "remove"):
        for count in range(200):
            folder = root / operation / str(count)
            store = a_store(folder)
            if operation != "create":
                path = store.create(a_record())
            if operation == "create again":
                os.truncate(path / "usage", 0)
            with tripping(count) as wire:
                mount, unmount = store_module.mount_tmpfs, store_module.unmount
                store_module.mount_tmpfs = wire.wrap("mount", mount)
                store_module.unmount = wire.wrap("unmount", unmount)
                try:
                    store.remove(ID) if operation == "remove" else store.create(a_record())
                except Killed:
                    pass
                finally:
                    store_module.mount_tmpfs, store_module.unmount = mount, unmount
            next_one = a_store(folder)
            records, damaged = next_one.recover()
            assert records in ([], [a_record()]), records
            assert damaged == []
            path = next_one.create(a_record())
            next_one.write_limits(ID, sample_limits(1))
            assert (path / "usage").read_bytes() == empty_region()
            assert read_page((path / "limits").read_bytes()) == sample_limits(1)
            assert mounts_below(folder) == [path / "region"]
            next_one.remove(ID)
            assert mounts_below(folder) == []
            assert list(path.parent.iterdir()) == []
            if not wire.tripped:
                break
        else:
            raise AssertionError(f"{operation} never ends")


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
