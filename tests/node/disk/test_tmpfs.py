"""The tmpfs of a usage region, really mounted, in a mount namespace of its own."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hami.node.disk.tmpfs import mounts_below, why_not_mount

ROOT = Path(__file__).parents[3]


def unshare() -> list[str]:
    """Into a namespace in which we may mount; with a user namespace unless we are root."""
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare (util-linux)")
    users = [] if os.geteuid() == 0 else ["--map-root-user"]
    command = ["unshare", "--mount", "--propagation", "private", *users]
    tried = subprocess.run(
        [*command, "mount", "-t", "tmpfs", "hami", "/mnt"], check=False, capture_output=True
    )
    if tried.returncode != 0:
        pytest.skip(f"this machine lets us mount nothing: {tried.stderr.decode().strip()}")
    return command


@pytest.mark.parametrize(
    "scenario",
    [
        "capped",
        "bound_by_a_runtime",
        "kept_over_a_restart_of_the_agent",
        "made_anew_after_a_reboot",
        "made_anew_when_it_is_spoiled",
        "changed_from_a_plain_file",
        "removed_without_reaching_into_mounts",
        "killed_at_every_step",
    ],
)
def test_a_region_of_its_own(tmp_path, scenario):
    folder = tmp_path / "a folder"
    folder.mkdir()
    command = [
        *unshare(),
        sys.executable,
        "-m",
        "tests.node.disk.tmpfs_scenarios",
        scenario,
        folder,
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


# Whether a mount would be seen, by what the kernel says of this process.

ROOT_SHARED = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw"
ROOT_PRIVATE = "22 1 8:1 / / rw,relatime - overlay overlay rw"
SLICES_SHARED = "40 22 8:1 /var/lib/hami /var/lib/hami rw master:3 shared:9 - ext4 /dev/sda1 rw"
SLICES_SLAVE = "40 22 8:1 /var/lib/hami /var/lib/hami rw master:3 - ext4 /dev/sda1 rw"
SYS_ADMIN, NOTHING = "00000000a82425fb", "00000000a80425fb"


@pytest.mark.parametrize(
    ("capabilities", "mounts", "expected"),
    [
        pytest.param(SYS_ADMIN, [ROOT_SHARED], "", id="on the host"),
        pytest.param(NOTHING, [ROOT_SHARED], "capability SYS_ADMIN", id="without the capability"),
        pytest.param(SYS_ADMIN, [ROOT_PRIVATE], "mount / is not shared", id="in a container without a volume"),
        pytest.param(SYS_ADMIN, [ROOT_PRIVATE, SLICES_SHARED], "", id="in a container, bidirectional"),
        pytest.param(SYS_ADMIN, [ROOT_SHARED, SLICES_SLAVE], "/var/lib/hami is not shared", id="host to container only"),
        pytest.param(SYS_ADMIN, [], "is not shared", id="nothing is known"),
    ],
)  # fmt: skip
def test_a_mount_that_the_runtime_would_not_see_is_not_made(
    tmp_path, capabilities, mounts, expected
):
    (tmp_path / "status").write_text(f"Name:\thami\nCapEff:\t{capabilities}\n")
    (tmp_path / "mountinfo").write_text("\n".join(mounts) + "\n")
    found = why_not_mount(Path("/var/lib/hami/slices"), tmp_path)
    assert expected in found
    assert bool(found) == bool(expected)


def test_a_process_that_cannot_look_at_itself_does_not_mount(tmp_path):
    assert "cannot be read" in why_not_mount(Path("/var/lib/hami/slices"), tmp_path)


def test_mounts_are_found_by_their_unescaped_names(tmp_path):
    lines = functools.partial(str.format, "{} 22 0:5 / {} rw - tmpfs hami rw")
    table = tmp_path / "mountinfo"
    points = [r"/a\040b", r"/a\040b/c", r"/a\040b/c/d", "/a", "/ab", r"/a\134b"]
    table.write_text("\n".join(lines(i, point) for i, point in enumerate(points)))
    found = mounts_below(Path("/a b"), table)
    assert found == [Path("/a b/c/d"), Path("/a b/c"), Path("/a b")]
