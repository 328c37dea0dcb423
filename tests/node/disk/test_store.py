"""A slice on disk: made, kept, found again, removed."""

from __future__ import annotations

import errno
import os
import re
import stat
import threading
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from hami.domain.units import VendorKey
from hami.node.disk import selinux
from hami.node.disk.store import Damaged, SliceStore, StoreFailed
from hami.slices.files import store_failures
from hami.slices.limits_page import read_page
from hami.slices.usage_region import empty_region, read_usage
from tests.slices.pages import sample_limits

from ..slices import ID, OTHER, VENDOR, a_record


@pytest.fixture
def store(tmp_path) -> SliceStore:
    return a_store(tmp_path)


def a_store(root, **settings) -> SliceStore:
    return SliceStore(root / "slices", VENDOR, tmpfs=False, selinux=False, **settings)


def mode(path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


# Making.


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_everything_has_its_mode_whatever_the_umask(store, umask):
    before = os.umask(umask)
    try:
        path = store.create(a_record())
        store.write_limits(ID, sample_limits(1))
    finally:
        os.umask(before)
    assert mode(path.parent) == mode(path) == 0o711
    assert {file.name: mode(file) for file in path.iterdir()} == {
        "meta.json": 0o600, "limits": 0o444, "usage": 0o666,
    }  # fmt: skip


def test_a_slice_that_was_made_is_found_again(store, tmp_path):
    record = a_record()
    assert store.create(record) == store.state_dir(ID) == tmp_path / "slices" / "nvidia" / ID
    assert (store.state_dir(ID) / "usage").read_bytes() == empty_region()
    assert a_store(tmp_path).recover() == ([record], [])


def test_before_the_first_slice_there_is_nothing(store):
    assert store.recover() == ([], [])
    store.remove(ID)


def test_making_it_again_changes_nothing_but_the_record(store):
    path = store.create(a_record())
    store.write_limits(ID, sample_limits(1))
    before = {file.name: file.stat().st_ino for file in path.iterdir()}
    os.pwrite(fd := os.open(path / "usage", os.O_WRONLY), b"\7", 20480)
    os.close(fd)
    store.create(a_record())
    assert {file.name: file.stat().st_ino for file in path.iterdir()} == before
    store.create(a_record(generation=2))
    assert store.recover() == ([a_record(generation=2)], [])
    assert (path / "usage").read_bytes()[20480] == 7


def test_a_slice_never_changes_its_owner(store):
    store.create(a_record(pod="train"))
    with pytest.raises(StoreFailed, match=r"belongs to pod team/train .* not to pod team/other"):
        store.create(a_record(pod="other"))
    with pytest.raises(StoreFailed, match="container side"):
        store.create(a_record(container="side"))
    assert store.recover() == ([a_record(pod="train")], [])


def test_slices_are_made_at_once(store):
    """From several threads, the first of them making the directories."""
    ids = [f"{i:024x}" for i in range(12)]
    threads = [threading.Thread(target=store.create, args=(a_record(i),)) for i in ids]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [record.slice_id for record in store.recover()[0]] == ids


def test_vendors_do_not_see_each_other(tmp_path):
    stores = [SliceStore(tmp_path, VendorKey(v), tmpfs=False) for v in ("NVIDIA", "DCU")]
    for store in stores:
        store.create(a_record(vendor=store._vendor))
    stores[0].remove(ID)
    assert stores[0].recover() == ([], [])
    assert stores[1].recover() == ([a_record(vendor=VendorKey("DCU"))], [])


@pytest.mark.parametrize("slice_id", ["", "..", "../x", "a/b", "A" * 24, "a" * 64, ".new-a", "a\0"])
def test_what_is_no_slice_id_is_refused(store, slice_id):
    for ask in (store.state_dir, store.remove, lambda i: store.write_limits(i, sample_limits(1))):
        with pytest.raises(StoreFailed, match="is no slice id"):
            ask(slice_id)


def test_a_vendor_that_names_no_directory_is_refused(tmp_path):
    with pytest.raises(StoreFailed, match=r"vendor '\.\./x'"):
        SliceStore(tmp_path, VendorKey("../x"), tmpfs=False)


# The record.


def test_the_record_is_for_people_too(store):
    path = store.create(a_record())
    text = (path / "meta.json").read_text()
    assert '"state": "preparing"' in text
    assert '"uid": "uid-train"' in text


def test_a_state_is_saved(store):
    store.create(a_record())
    store.save(a_record(state="enforced"))
    assert store.recover() == ([a_record(state="enforced")], [])


def test_a_slice_that_is_gone_cannot_be_saved(store):
    with pytest.raises(StoreFailed, match=rf"{ID}/meta.json: cannot save: No such file"):
        store.save(a_record())


def test_an_equal_record_is_not_written_again(store):
    path = store.create(a_record()) / "meta.json"
    before = path.stat().st_ino
    store.save(a_record())
    assert path.stat().st_ino == before


def without(key: str) -> bytes:
    record = msgspec.to_builtins(a_record())
    del record[key]
    return msgspec.json.encode(record)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        pytest.param(b"", "cannot be read", id="empty"),
        pytest.param(b"\xff\0", "cannot be read", id="garbage"),
        pytest.param(b"[" * 100_000, "cannot be read", id="deeper than any stack"),
        pytest.param(msgspec.json.encode(a_record())[:-9], "cannot be read", id="cut off"),
        pytest.param(without("pod"), "missing required field `pod`", id="without a pod"),
        pytest.param(msgspec.json.encode(a_record(OTHER)), f"is of slice '{OTHER}'", id="another slice's"),
        pytest.param(msgspec.json.encode(a_record(vendor="DCU")), "of 'DCU'", id="another vendor's"),
        pytest.param(msgspec.json.encode(a_record(container="")), "names no pod and container", id="of nobody"),
        pytest.param(msgspec.json.encode(a_record(format=2)), "newer agent", id="of the future"),
        pytest.param(b" " * (3 << 20), "larger than", id="larger than any pod"),
    ],
)  # fmt: skip
def test_a_record_that_cannot_be_read_is_damage(store, data, problem):
    store.create(a_record(OTHER))
    path = store.create(a_record())
    store.write_limits(ID, sample_limits(1))
    (path / "meta.json").write_bytes(data)
    records, damaged = store.recover()
    assert records == [a_record(OTHER)]
    assert [one.slice_id for one in damaged] == [ID]
    assert problem in damaged[0].problem
    assert (path / "limits").exists(), "what it holds is kept"
    store.create(a_record())
    assert store.recover()[1] == []


def test_a_slice_without_a_record_is_damage_and_can_be_removed(store):
    (store.create(a_record()) / "meta.json").unlink()
    records, damaged = store.recover()
    assert records == []
    assert damaged == [Damaged(ID, f"{store.state_dir(ID)}: meta.json: No such file or directory")]
    store.remove(ID)
    assert store.recover() == ([], [])


# The limits page.


def test_limits_are_changed_in_place(store):
    path = store.create(a_record()) / "limits"
    assert store.write_limits(ID, sample_limits(1)) == "new"
    inode = path.stat().st_ino
    assert store.write_limits(ID, sample_limits(1)) == "same"
    assert store.write_limits(ID, sample_limits(2)) == "updated"
    assert read_page(path.read_bytes()) == sample_limits(2)
    assert (path.stat().st_ino, mode(path)) == (inode, 0o444)


def test_a_file_that_is_no_page_is_replaced(store):
    path = store.create(a_record()) / "limits"
    path.write_bytes(b"x")
    with capture_logs() as logs:
        assert store.write_limits(ID, sample_limits(1)) == "replaced"
    assert "has 1 bytes instead of" in logs[0]["problem"]
    assert read_page(path.read_bytes()) == sample_limits(1)
    assert mode(path) == 0o444


def test_limits_that_fit_on_no_page_are_a_failure_with_a_remedy(store):
    store.create(a_record())
    with pytest.raises(StoreFailed, match=r"limits: 17 devices in one container.*ask for fewer"):
        store.write_limits(ID, sample_limits(1, 17))
    assert not (store.state_dir(ID) / "limits").exists()


def test_a_link_in_place_of_a_page_is_not_followed(store, tmp_path):
    (tmp_path / "victim").write_bytes(b"x")
    (store.create(a_record()) / "limits").symlink_to(tmp_path / "victim")
    with pytest.raises(StoreFailed, match="a symbolic link is where a file"):
        store.write_limits(ID, sample_limits(1))
    assert (tmp_path / "victim").read_bytes() == b"x"


# The usage region, which the container may have spoiled.


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda f: f.unlink(), id="removed"),
        pytest.param(lambda f: os.truncate(f, 0), id="cut off"),
        pytest.param(lambda f: os.truncate(f, 1 << 30), id="grown"),
        pytest.param(lambda f: f.chmod(0), id="locked"),
        pytest.param(lambda f: f.write_bytes(b"\0" * 57344), id="wiped"),
        pytest.param(lambda f: (f.unlink(), os.mkfifo(f)), id="a fifo"),
        pytest.param(lambda f: (f.unlink(), f.symlink_to("/dev/zero")), id="a link to a device"),
    ],
)
def test_the_next_start_gets_a_region_that_makes_sense(store, spoil):
    path = store.create(a_record()) / "usage"
    spoil(path)
    store.create(a_record())
    assert path.read_bytes() == empty_region()
    assert mode(path) == 0o666
    assert read_usage(path).slots == ()


# Recovery beside things that are not ours.


def test_strange_entries_are_reported_and_left_alone(store, tmp_path):
    store.create(a_record())
    folder = store.state_dir(ID).parent
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "meta.json").write_bytes(msgspec.json.encode(a_record(OTHER)))
    (folder / OTHER).symlink_to(elsewhere)
    (folder / ("c" * 24)).write_text("a file")
    (folder / "lost+found").mkdir()
    (folder / "UPPER").mkdir()
    with capture_logs() as logs:
        assert store.recover() == ([a_record()], [])
    assert len(logs) == 4
    assert {path.name for path in folder.iterdir()} == {
        ID, OTHER, "c" * 24, "lost+found", "UPPER",
    }  # fmt: skip
    store.remove(OTHER)
    assert (elsewhere / "meta.json").exists(), "the link went, not what it names"


def test_what_a_killed_agent_left_is_cleared(store):
    path = store.create(a_record())
    folder = path.parent
    (path / ".meta.json.0123456789ab.tmp").write_text("half")
    (folder / f".new-{OTHER}-0123456789ab").mkdir()
    (folder / f".new-{OTHER}-0123456789ab" / "meta.json").write_text("half")
    (folder / f".gone-{OTHER}-0123456789ab").mkdir()
    assert store.recover() == ([a_record()], [])
    assert [entry.name for entry in folder.iterdir()] == [ID]
    assert {entry.name for entry in path.iterdir()} == {"meta.json", "usage"}


def test_a_slices_directory_that_is_a_link_is_not_filled(store, tmp_path):
    folder = store.state_dir(ID).parent
    folder.mkdir(parents=True)
    (tmp_path / "elsewhere").mkdir()
    (folder / ID).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreFailed, match="cannot make this slice"):
        store.create(a_record())
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert [entry.name for entry in folder.iterdir()] == [ID]


# Removal.


def test_what_is_removed_is_gone_with_all_it_holds(store):
    path = store.create(a_record())
    (path / "vgpulock" / "deep").mkdir(parents=True)
    (path / "vgpulock" / "deep" / "file").write_text("x")
    (path / "out").symlink_to("/etc")
    store.create(a_record(OTHER))
    store.remove(ID)
    store.remove(ID)
    assert store.recover() == ([a_record(OTHER)], [])
    assert [entry.name for entry in path.parent.iterdir()] == [OTHER]


def test_a_removal_that_was_cut_short_is_finished_by_the_next(store):
    path = store.create(a_record())
    path.rename(path.parent / f".gone-{ID}-0123456789ab")
    store.remove(ID)
    assert list(path.parent.iterdir()) == []


# Messages.


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        pytest.param(errno.ENOSPC, "No space left on device; free space", id="a full disk"),
        pytest.param(errno.EROFS, "Read-only file system; the file system is mounted read-only", id="read-only"),
        pytest.param(errno.EACCES, "Permission denied; the agent must run as root", id="not allowed"),
        pytest.param(errno.EIO, "Input/output error; the disk is failing", id="a broken disk"),
        pytest.param(errno.EMFILE, "Too many open files; look at the node", id="anything else"),
    ],
)  # fmt: skip
def test_a_failure_names_path_cause_and_remedy(tmp_path, code, remedy):
    with (
        pytest.raises(StoreFailed, match=re.escape(f"{tmp_path}: cannot save: {remedy}")),
        store_failures("save", tmp_path),
    ):
        raise OSError(code, os.strerror(code))


@pytest.mark.parametrize(
    ("path", "code", "remedy"),
    [
        ("/sys/hami/mock.lock", errno.EPERM, "no files can be made below /sys; name another"),
        ("/proc/hami/mock.lock", errno.ENOENT, "no files can be made below /proc; name another"),
        ("/system/mock.lock", errno.EPERM, "the agent needs to run as root"),
    ],
)
def test_below_the_kernels_own_files_no_right_helps(path, code, remedy):
    with pytest.raises(StoreFailed, match=remedy), store_failures("lock", Path(path)):
        raise OSError(code, os.strerror(code))


# SELinux.


def test_files_are_labelled_where_selinux_is_on(tmp_path, monkeypatch):
    labelled = []

    def setxattr(fd, name, value):
        assert name == "security.selinux"
        labelled.append((Path(f"/proc/self/fd/{fd}").readlink().name, value))

    monkeypatch.setattr(selinux.os, "setxattr", setxattr)
    store = SliceStore(tmp_path, VENDOR, tmpfs=False, selinux=True)
    store.create(a_record())
    store.write_limits(ID, sample_limits(1))
    # Under the names that they have before anybody can see them.
    assert [re.split(r"[.-]", name)[1] for name, _ in labelled] == ["new", "usage", "limits"]
    assert {value for _, value in labelled} == {b"system_u:object_r:container_file_t:s0\0"}


def test_a_label_that_cannot_be_set_is_reported_and_no_failure(tmp_path, monkeypatch):
    def setxattr(fd, name, value):
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(selinux.os, "setxattr", setxattr)
    store = SliceStore(tmp_path, VENDOR, tmpfs=False, selinux=True)
    with capture_logs() as logs:
        store.create(a_record())
    assert store.recover() == ([a_record()], [])
    assert "Operation not supported" in logs[0]["error"]


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, False, id="nothing says so"),
        pytest.param({"proc/filesystems": "nodev\tsysfs\n\text4\n"}, False, id="a kernel without it"),
        pytest.param({"proc/filesystems": "nodev\tsysfs\nnodev\tselinuxfs\n"}, True, id="seen from a container"),
        pytest.param({"sys/fs/selinux/enforce": "0"}, True, id="permissive can change"),
    ],
)  # fmt: skip
def test_selinux_is_seen(tmp_path, files, expected):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    assert selinux.selinux_is_on(tmp_path) is expected
