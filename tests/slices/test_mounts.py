"""Whether a container sees its slice: by mount tables and file systems as the kernel shows them."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath

import pytest

from hami.slices.mounts import (
    Missing,
    Mounted,
    MountUnclear,
    mounted_slice,
    mounts_on,
    slice_mount,
)

TARGET = PurePosixPath("/run/hami/nvidia/limits")
SLICE = "nvidia/4f3a/limits"


def a_line(root: str, point: str, *, more: str = "") -> str:
    return f"36 35 98:0 {root} {point} ro,nosuid {more}- ext4 /dev/sda1 rw"


@pytest.mark.parametrize(
    ("lines", "root"),
    [
        pytest.param([], None, id="nothing"),
        pytest.param([a_line("/", "/")], None, id="the root alone"),
        pytest.param([a_line("/a", "/run/hami/nvidia/limits")], "/a", id="one mount"),
        pytest.param([a_line("/a", str(TARGET), more="shared:1 master:2 ")], "/a", id="with optional fields"),
        pytest.param([a_line("/a", str(TARGET)), a_line("/b", str(TARGET))], "/b", id="the last hides the others"),
        pytest.param([a_line("/a", f"{TARGET}2")], None, id="a name that begins alike"),
        pytest.param([a_line("/a\\040b\\134", str(TARGET))], "/a b\\", id="blanks are written in octal"),
        pytest.param(["garbage", "", a_line("/a", str(TARGET))], "/a", id="beside lines that are none"),
    ],
)  # fmt: skip
def test_what_is_mounted(lines, root):
    assert mounts_on("\n".join(lines), TARGET).get(str(TARGET)) == root


class World:
    """A slice of ours, and a process with a root of its own."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.root = self.proc / "17" / "root"
        self.expected = folder / "slices" / SLICE
        self.expected.parent.mkdir(parents=True)
        self.expected.write_text("page")
        self.root.mkdir(parents=True)
        self.mounted(f"/var/lib/hami/slices/{SLICE}")

    def mounted(self, *roots: str) -> None:
        lines = [a_line("/", "/"), *(a_line(root, str(TARGET)) for root in roots)]
        (self.proc / "17" / "mountinfo").write_text("\n".join(lines) + "\n")

    def sees(self, file: Path | None = None) -> None:
        """A bind mount is the same file: so is a hard link."""
        seen = self.root / str(TARGET).lstrip("/")
        seen.parent.mkdir(parents=True)
        os.link(file or self.expected, seen)

    def look(self, pid: int = 17):
        return slice_mount(pid, TARGET, self.expected, proc=self.proc)


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_a_container_with_its_slice(world):
    world.sees()
    assert world.look() == Mounted()


def test_a_slice_on_a_file_system_of_its_own(world):
    world.mounted(f"/{SLICE}")
    world.sees()
    assert world.look() == Mounted()


def test_a_container_without_any(world):
    world.mounted()
    assert world.look() == Missing(f"process 17 has nothing mounted at {TARGET}")


def test_a_container_with_another_slice(world):
    world.mounted("/var/lib/hami/slices/nvidia/9999/limits")
    world.sees()
    found = world.look()
    assert isinstance(found, Missing)
    assert "nvidia/9999/limits" in found.problem
    assert "nvidia/4f3a/limits" in found.problem


def test_a_slice_that_something_else_was_mounted_over(world):
    world.mounted(f"/var/lib/hami/slices/{SLICE}", "/tmp/mine")
    world.sees()
    assert isinstance(world.look(), Missing)


def test_a_file_of_the_right_name_elsewhere(world, tmp_path):
    (tmp_path / "other").write_text("page")
    world.sees(tmp_path / "other")
    found = world.look()
    assert isinstance(found, Missing)
    assert "another file" in found.problem


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_a_tenants_links_into_our_files_are_not_followed(world, depth):
    real = world.root.parent / "real"
    inner = real / str(TARGET).lstrip("/")
    inner.parent.mkdir(parents=True)
    os.link(world.expected, inner)
    parts = str(TARGET).strip("/").split("/")[:depth]
    link = world.root.joinpath(*parts)
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(real.joinpath(*parts))
    found = world.look()
    assert isinstance(found, Missing)


def test_a_slice_that_a_later_mount_above_it_hides(world):
    """Its line is still in the table, and nobody finds it by its name any more."""
    line = a_line("/pods/volumes/v", "/run/hami")
    with (world.proc / "17" / "mountinfo").open("a") as table:
        table.write(f"{line}\n")
    found = world.look()
    assert isinstance(found, Missing)
    assert "finds nothing at" in found.problem


@pytest.mark.parametrize(
    ("points", "beside"),
    [
        ([], ""),
        (["/run"], "/run"),
        (["/run", "/run/hami/nvidia"], "/run/hami/nvidia"),
        (["/run/hami2", "/etc"], ""),
    ],
)
def test_what_is_mounted_above_is_named(world, points, beside):
    table = "\n".join([a_line("/", "/"), *(a_line("/v", point) for point in points)])
    (world.proc / "17" / "mountinfo").write_text(table)
    assert world.look() == Missing(f"process 17 has nothing mounted at {TARGET}", beside)


@pytest.mark.parametrize(
    ("root", "has"),
    [
        (f"/var/lib/hami/slices/{SLICE}", True),
        (f"/{SLICE}", True),
        ("/tmp/nvidia/../limits", False),
        ("/mine", False),
        (None, False),
    ],
)
def test_any_slice_of_the_vendors(world, root, has):
    world.mounted(*([root] if root else []))
    assert mounted_slice(17, TARGET, "nvidia", proc=world.proc) is has
    assert mounted_slice(18, TARGET, "nvidia", proc=world.proc) == MountUnclear(
        "process 18 has ended"
    )


def test_a_process_that_has_ended(world):
    assert world.look(pid=18) == MountUnclear("process 18 has ended")


def test_a_slice_that_is_gone_on_our_side(world):
    world.sees()
    world.expected.unlink()
    assert isinstance(world.look(), MountUnclear)


def test_our_own_process(world):
    found = slice_mount(os.getpid(), TARGET, world.expected)
    assert found == Missing(f"process {os.getpid()} has nothing mounted at {TARGET}")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look at every process")
def test_a_process_that_may_not_be_looked_at_has_a_remedy(world):
    (world.proc / "17" / "mountinfo").chmod(0)
    found = world.look()
    assert isinstance(found, MountUnclear)
    assert "SYS_PTRACE" in found.problem
