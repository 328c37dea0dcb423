"""The library's way onto the node: whole files, nothing in use touched, agents side by side."""

from __future__ import annotations

import errno
import os
import platform
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hami_nvidia.handover import library
from hami_nvidia.handover.library import LibraryMissing, install, remove_unused
from hami_nvidia.settings.node_settings import NodeSettings

from ..node_builders import a_library


def settings(tmp_path: Path, source: Path | None = None) -> NodeSettings:
    return NodeSettings(hook_path=tmp_path / "usr-local", library=source)


def test_the_library_lies_under_a_name_of_its_content(tmp_path):
    found = settings(tmp_path, a_library(tmp_path))
    installed = install(found)
    assert installed.path.parent == tmp_path / "usr-local/vgpu"
    assert installed.path.name.startswith("libvgpu.so.")
    assert installed.path.read_bytes() == found.library.read_bytes()
    assert installed.path.stat().st_mode & 0o777 == 0o755
    assert installed.preload.read_text() == f"{tmp_path}/usr-local/vgpu/libvgpu.so\n"
    assert installed.preload.stat().st_mode & 0o777 == 0o644


def test_installing_again_writes_nothing(tmp_path):
    found = settings(tmp_path, a_library(tmp_path))
    first = install(found)
    before = [path.stat().st_ino for path in (first.path, first.preload)]
    assert install(found) == first
    assert [path.stat().st_ino for path in (first.path, first.preload)] == before


def test_a_newer_version_leaves_the_former_in_place(tmp_path):
    former = install(settings(tmp_path, a_library(tmp_path, b"one")))
    newer = install(settings(tmp_path, a_library(tmp_path, b"two")))
    assert former.path != newer.path
    assert former.path.read_bytes().endswith(b"one")


def test_a_damaged_file_of_ours_is_replaced(tmp_path):
    found = settings(tmp_path, a_library(tmp_path))
    installed = install(found)
    content = installed.path.read_bytes()
    installed.path.write_bytes(content[:10])
    assert install(found).path.read_bytes() == content


@pytest.mark.parametrize(
    ("names", "chosen"),
    [
        pytest.param(["libvgpu.so"], "libvgpu.so", id="the plain name"),
        pytest.param(["libvgpu.so.v2.9.0", "libvgpu.so"], "libvgpu.so", id="the plain name before versions"),
        pytest.param(["libvgpu.so.v2.9.0", "libvgpu.so.v2.10.0"], "libvgpu.so.v2.10.0", id="the newest version"),
    ],
)  # fmt: skip
def test_without_a_library_of_ours_the_nodes_own_is_taken(tmp_path, names, chosen):
    directory = tmp_path / "usr-local/vgpu"
    directory.mkdir(parents=True)
    for age, name in enumerate(names):
        (directory / name).write_bytes(b"HAMi's")
        os.utime(directory / name, (age, age))
    installed = install(settings(tmp_path))
    assert installed.path == directory / chosen
    assert installed.path.read_bytes() == b"HAMi's"


def test_no_library_anywhere_says_where_one_was_looked_for(tmp_path):
    with pytest.raises(LibraryMissing) as error:
        install(settings(tmp_path))
    assert f"{tmp_path}/usr-local/vgpu has none" in str(error.value)
    assert "--library" in str(error.value)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"#!/bin/sh\n" * 10, id="a script"),
        pytest.param(b"\x7fELF" + bytes(60), id="no shared object"),
    ],
)
def test_what_is_no_library_is_not_installed(tmp_path, content):
    source = tmp_path / "wrong.so"
    source.write_bytes(content)
    with pytest.raises(LibraryMissing) as error:
        install(settings(tmp_path, source))
    assert f"{source} is no shared library for {platform.machine()}" in str(error.value)
    assert not (tmp_path / "usr-local").exists()


def test_a_library_that_is_not_there_is_named(tmp_path):
    with pytest.raises(LibraryMissing) as error:
        install(settings(tmp_path, tmp_path / "gone.so"))
    assert f"{tmp_path}/gone.so" in str(error.value)


@pytest.mark.parametrize("call", ["write", "fsync", "rename", "open", "fchmod"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES])
def test_a_disk_that_refuses_leaves_the_former_state(tmp_path, monkeypatch, call, number):
    former = install(settings(tmp_path, a_library(tmp_path, b"one")))
    before = {path.name: path.read_bytes() for path in former.path.parent.iterdir()}
    newer = settings(tmp_path, a_library(tmp_path, b"two"))
    broken(monkeypatch, call, number, former.path.parent)
    with pytest.raises(LibraryMissing) as error:
        install(newer)
    monkeypatch.undo()
    assert os.strerror(number) in str(error.value)
    assert {path.name: path.read_bytes() for path in former.path.parent.iterdir()} == before
    assert install(newer).path.read_bytes().endswith(b"two")


def broken(monkeypatch, call, number, directory):
    def fail(*args, **kwargs):
        raise OSError(number, os.strerror(number), str(directory))

    if call == "rename":
        monkeypatch.setattr(Path, "rename", fail)
    elif call == "open":
        real = os.open
        monkeypatch.setattr(
            os, "open", lambda p, flags, *a, **k: fail() if flags & os.O_CREAT else real(p, flags, *a, **k)
        )  # fmt: skip
    elif call == "write":
        real_fdopen = os.fdopen

        class Full:
            def __init__(self, *args, **kwargs):
                self.file = real_fdopen(*args, **kwargs)

            def __enter__(self):
                return self

            def __exit__(self, *_):
                self.file.close()

            write = staticmethod(fail)

        monkeypatch.setattr(os, "fdopen", Full)
    else:
        monkeypatch.setattr(os, call, fail)


def test_an_agent_killed_at_any_moment_leaves_whole_files(tmp_path):
    """The child dies before each of its system calls on the disk in turn."""
    source = a_library(tmp_path, b"two" * 1000)
    former = install(settings(tmp_path, a_library(tmp_path, b"one")))
    program = (
        "import os, signal, sys\n"
        "from pathlib import Path\n"
        "from hami_nvidia.handover.library import install\n"
        "from hami_nvidia.settings.node_settings import NodeSettings\n"
        "left = [int(sys.argv[1])]\n"
        "def dying(real):\n"
        "    def call(*a, **k):\n"
        "        left[0] -= 1\n"
        "        if left[0] < 0: os.kill(os.getpid(), signal.SIGKILL)\n"
        "        return real(*a, **k)\n"
        "    return call\n"
        "for name in ('open', 'fchmod', 'fsync', 'close'):\n"
        "    setattr(os, name, dying(getattr(os, name)))\n"
        "Path.rename = dying(Path.rename)\n"
        "install(NodeSettings(hook_path=Path(sys.argv[2]), library=Path(sys.argv[3])))\n"
    )
    for step in range(100):
        arguments = [
            sys.executable,
            "-c",
            program,
            str(step),
            str(tmp_path / "usr-local"),
            str(source),
        ]
        done = subprocess.run(arguments, check=False, capture_output=True)
        for path in former.path.parent.glob("libvgpu.so.*"):
            assert path.read_bytes() in (source.read_bytes(), former.path.read_bytes())
        if done.returncode != -signal.SIGKILL:
            assert done.returncode == 0, done.stderr
            break
    else:
        raise AssertionError("the child never came to its end")
    assert step > 3
    installed = install(settings(tmp_path, source))
    age_everything(installed.path.parent)
    remove_unused(settings(tmp_path, source), {former.path})
    assert {path.name for path in installed.path.parent.iterdir()} == {
        installed.path.name, former.path.name, "ld.so.preload",
    }  # fmt: skip


def test_agents_at_once_give_one_whole_library(tmp_path):
    found = settings(tmp_path, a_library(tmp_path, b"x" * 100_000))
    problems, seen = [], set()
    begin = threading.Barrier(8)

    def one():
        try:
            begin.wait()
            for _ in range(20):
                seen.add(install(found))
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    (installed,) = seen
    assert installed.path.read_bytes() == found.library.read_bytes()
    assert len(list(installed.path.parent.iterdir())) == 2


def age_everything(directory):
    for path in directory.iterdir():
        os.utime(path, (1, 1))


def test_versions_that_nobody_names_go_after_a_day(tmp_path):
    old, held, fresh, current = (
        install(settings(tmp_path, a_library(tmp_path, word))).path
        for word in (b"old", b"held", b"fresh", b"current")
    )
    foreign = old.parent / "libvgpu.so.v2.10.0"
    foreign.write_bytes(b"HAMi's")
    age_everything(old.parent)
    os.utime(fresh)
    remove_unused(settings(tmp_path, tmp_path / "libvgpu-current.so"), {held})
    assert {path for path in (old, held, fresh, current, foreign) if path.exists()} == {
        held, fresh, current, foreign,
    }  # fmt: skip


def test_nothing_installed_has_nothing_to_remove(tmp_path):
    remove_unused(settings(tmp_path), ())


def test_the_packaged_library_is_this_machines(monkeypatch, tmp_path):
    packaged = tmp_path / "lib" / platform.machine() / "libvgpu.so"
    packaged.parent.mkdir(parents=True)
    packaged.write_bytes(a_library(tmp_path).read_bytes())
    monkeypatch.setattr(library, "files", lambda _: tmp_path)
    assert install(settings(tmp_path)).path.name.startswith("libvgpu.so.")
