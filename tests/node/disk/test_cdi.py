"""The directories of CDI specs: ours appear whole, others' are read with care."""

from __future__ import annotations

import json
import os
import stat

import pytest
from structlog.testing import capture_logs

from hami.domain.units import VendorKey
from hami.node.disk.cdi import CdiFolders
from hami.node.disk.store import StoreFailed

from ..slices import ID, OTHER
from .test_store_crashes import Killed, tripping

GPU = "nvidia.com/gpu"


@pytest.fixture
def etc(tmp_path):
    (tmp_path / "etc").mkdir()
    return tmp_path / "etc"


@pytest.fixture
def run(tmp_path):
    (tmp_path / "run").mkdir()
    return tmp_path / "run"


@pytest.fixture
def folders(etc, run) -> CdiFolders:
    return CdiFolders(run, [etc, run], vendor=VendorKey("NVIDIA"))


def a_spec(name: str = "GPU-1", *, kind: str = GPU, common: str = "", **edits: object) -> str:
    return json.dumps(
        {
            "cdiVersion": "0.5.0",
            "kind": kind,
            "devices": [{"name": name, "containerEdits": edits or {"env": [f"CARD={name}"]}}],
            "containerEdits": {"env": [common]} if common else {},
        }
    )


# Ours.


def test_a_spec_is_new_then_the_same_then_changed(folders, run):
    assert folders.write(ID, b"{}") == "new"
    path = run / f"hami-nvidia-{ID}.json"
    before = path.stat()
    assert stat.S_IMODE(before.st_mode) == 0o644
    assert folders.write(ID, b"{}") == "same"
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert folders.write(ID, b"[]") == "changed"
    assert path.read_bytes() == b"[]"


def test_the_directory_is_made_where_it_is_missing(tmp_path):
    folders = CdiFolders(tmp_path / "var" / "run" / "cdi", [], vendor=VendorKey("NVIDIA"))
    assert folders.written() == folders.recover() == set()
    assert folders.write(ID, b"{}") == "new"
    assert folders.written() == {ID}


def test_the_directory_may_be_reached_by_a_link(tmp_path):
    """/var/run is one."""
    (tmp_path / "run" / "cdi").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "run" / "cdi")
    CdiFolders(tmp_path / "link", [], vendor=VendorKey("NVIDIA")).write(ID, b"{}")
    assert (tmp_path / "run" / "cdi" / f"hami-nvidia-{ID}.json").exists()


def test_only_specs_of_this_vendors_slices_count(folders, run):
    for vendor, slice_id in (("NVIDIA", ID), ("NVIDIA", OTHER), ("DCU", ID), ("NVIDIA-X", ID)):
        CdiFolders(run, [], vendor=VendorKey(vendor)).write(slice_id, b"{}")
    for name in ("nvidia.yaml", "hami-nvidia-.json", "hami-nvidia-A.json", "hami-nvidia-a.yaml"):
        (run / name).touch()
    assert folders.written() == {ID, OTHER}
    folders.remove(ID)
    folders.remove(ID)
    assert folders.written() == {OTHER}
    assert CdiFolders(run, [], vendor=VendorKey("DCU")).written() == {ID}


@pytest.mark.parametrize("slice_id", ["", "../x", "a b", "A"])
def test_what_is_no_slice_id_is_refused(folders, slice_id):
    for ask in (folders.remove, lambda i: folders.write(i, b"{}")):
        with pytest.raises(StoreFailed, match="is no slice id"):
            ask(slice_id)


def test_a_link_in_place_of_a_spec_is_replaced_not_followed(folders, run, tmp_path):
    (tmp_path / "victim").write_bytes(b"x")
    (run / f"hami-nvidia-{ID}.json").symlink_to(tmp_path / "victim")
    assert folders.write(ID, b"{}") == "changed"
    assert (tmp_path / "victim").read_bytes() == b"x"
    assert not (run / f"hami-nvidia-{ID}.json").is_symlink()


def test_a_failure_names_the_spec(folders, run):
    (run / f"hami-nvidia-{ID}.json").mkdir()
    with pytest.raises(
        StoreFailed, match=rf"hami-nvidia-{ID}.json: cannot write the CDI spec: Is a"
    ):
        folders.write(ID, b"{}")
    with pytest.raises(StoreFailed, match="cannot remove the CDI spec"):
        folders.remove(ID)


def test_a_runtime_never_sees_a_part_whenever_we_are_killed(tmp_path):
    for count in range(100):
        folders = CdiFolders(tmp_path / str(count), [], vendor=VendorKey("NVIDIA"))
        folders.write(ID, b"{}")
        with tripping(count) as wire:
            try:
                folders.write(ID, b"[]" * 1000)
                folders.write(OTHER, b"{}" * 1000)
            except Killed:
                pass
        seen = {path.suffix for path in (tmp_path / str(count)).iterdir()} - {".tmp"}
        assert seen == {".json"}
        assert folders.recover() >= {ID}
        assert not list((tmp_path / str(count)).glob(".*"))
        assert {
            path.read_bytes() for path in (tmp_path / str(count)).iterdir()
        } <= {b"{}", b"[]" * 1000, b"{}" * 1000}  # fmt: skip
        if not wire.tripped:
            return
    pytest.fail("it never ends")


# Others'.


def test_the_edits_of_a_device_follow_those_of_its_spec(folders, etc):
    (etc / "nvidia.json").write_text(a_spec(common="ALL=1"))
    assert folders.edits_of(f"{GPU}=GPU-1") == {"env": ("ALL=1", "CARD=GPU-1")}


def test_yaml_as_nvidia_ctk_writes_it(folders, etc):
    (etc / "nvidia.yaml").write_text(
        """---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  hooks:
  - args: [nvidia-ctk, hook, update-ldcache, --folder, /usr/lib]
    hookName: createContainer
    path: /usr/bin/nvidia-ctk
  mounts:
  - containerPath: /usr/lib/libcuda.so.1
    hostPath: /usr/lib/libcuda.so.1
    options: [ro, nosuid, nodev, bind]
devices:
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: "0"
- containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
  name: GPU-1
kind: nvidia.com/gpu
"""
    )
    edits = folders.edits_of(f"{GPU}=GPU-1")
    assert [node["path"] for node in edits["deviceNodes"]] == ["/dev/nvidia0", "/dev/nvidiactl"]
    assert edits["hooks"][0]["args"][1:3] == ("hook", "update-ldcache")
    assert folders.edits_of(f"{GPU}=0") == edits


@pytest.mark.parametrize("name", [f"{GPU}=GPU-2", "nvidia.com/mig=GPU-1", "GPU-1", "", f"{GPU}="])
def test_a_device_that_nobody_defines_is_none(folders, etc, name):
    (etc / "nvidia.json").write_text(a_spec())
    assert folders.edits_of(name) is None


def test_the_later_directory_counts(folders, etc, run):
    (etc / "a.json").write_text(a_spec(env=["FROM=etc"]))
    (run / "z.json").write_text(a_spec(env=["FROM=run"]))
    assert folders.edits_of(f"{GPU}=GPU-1") == {"env": ("FROM=run",)}


def test_two_specs_of_one_directory_are_refused_as_a_runtime_does(folders, etc):
    (etc / "a.json").write_text(a_spec())
    (etc / "b.json").write_text(a_spec())
    with capture_logs() as logs:
        assert folders.edits_of(f"{GPU}=GPU-1") is None
    assert str(etc / "a.json") in logs[0]["files"]


def test_a_changed_spec_is_read_again(folders, etc):
    path = etc / "nvidia.json"
    for card in ("GPU-1", "GPU-22", "GPU-333"):
        path.write_text(a_spec(card))
        assert folders.edits_of(f"{GPU}={card}") is not None
    path.unlink()
    assert folders.edits_of(f"{GPU}=GPU-333") is None


@pytest.mark.parametrize(
    ("name", "break_it"),
    [
        pytest.param("a.json", lambda p: p.write_text("{"), id="no JSON"),
        pytest.param("a.yaml", lambda p: p.write_text("a: [b"), id="no YAML"),
        pytest.param("a.yaml", lambda p: p.write_bytes(b"\xff\xfe\0"), id="no text"),
        pytest.param("a.yaml", lambda p: p.write_text("!!python/object:os.system {}"), id="an object of Python"),
        pytest.param("a.json", lambda p: p.write_text("[" * 100_000), id="deeper than any stack"),
        pytest.param("a.json", lambda p: p.write_text('{"kind": 1}'), id="another document"),
        pytest.param("a.json", lambda p: p.write_text(a_spec(env=["x"])), id="an invalid variable"),
        pytest.param("a.json", lambda p: p.write_text(" " * (5 << 20)), id="too large"),
        pytest.param("a.json", os.mkfifo, id="a fifo"),
        pytest.param("a.json", lambda p: p.mkdir(), id="a directory"),
        pytest.param("a.json", lambda p: p.symlink_to(p), id="a link to itself"),
    ],
)  # fmt: skip
def test_a_broken_spec_of_somebody_else_is_skipped(folders, etc, name, break_it):
    (etc / "b.json").write_text(a_spec())
    break_it(etc / name)
    with capture_logs() as logs:
        assert folders.edits_of(f"{GPU}=GPU-1") == {"env": ("CARD=GPU-1",)}
    assert [log["path"] for log in logs] == [str(etc / name)]


def test_a_broken_spec_is_reported_once_until_it_changes(folders, etc):
    (etc / "a.json").write_text("{")
    with capture_logs() as logs:
        folders.edits_of(f"{GPU}=GPU-1")
        folders.edits_of(f"{GPU}=GPU-1")
        assert len(logs) == 1
        (etc / "a.json").write_text("{{")
        folders.edits_of(f"{GPU}=GPU-1")
    assert len(logs) == 2


def test_specs_of_slices_and_other_files_are_not_looked_at(folders, etc, run):
    folders.write(ID, a_spec(ID, kind="nvidia.hami.io/slice").encode())
    (etc / "notes.txt").write_text("{")
    (etc / ".b.json.tmp").write_text("{")
    with capture_logs() as logs:
        assert folders.edits_of(f"nvidia.hami.io/slice={ID}") is None
    assert logs == []


def test_a_spec_may_be_a_link(folders, etc, tmp_path):
    """As on NixOS."""
    (tmp_path / "store.json").write_text(a_spec())
    (etc / "nvidia.json").symlink_to(tmp_path / "store.json")
    assert folders.edits_of(f"{GPU}=GPU-1") is not None
