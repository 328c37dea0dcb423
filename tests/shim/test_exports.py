"""What libvgpu.so shows to a process, and what it asks of one: read from the file itself."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from .builds import SHIM, Build
from .hook_list import CALLS, HOOKS, NVML_CALLS, NVML_HOOKS

OWN_TOO = {"dlsym", "dlvsym"}


def _tool(name: str, *arguments: str) -> str:
    if shutil.which(name) is None:
        pytest.skip(f"there is no {name} to read a library with")
    return subprocess.run([name, *arguments], check=True, capture_output=True, text=True).stdout


@pytest.fixture(params=["released", "library"])
def library(request: pytest.FixtureRequest, shim: Build) -> Path:
    path: Path = getattr(shim, request.param)
    return path


def test_it_exports_what_hooks_def_lists_and_nothing_else(library: Path) -> None:
    lines = _tool("nm", "-D", "--defined-only", str(library)).splitlines()
    exported = {line.split()[-1]: line.split()[-2] for line in lines}
    assert set(exported) == {hook.name for hook in HOOKS} | set(NVML_HOOKS) | OWN_TOO
    assert set(exported.values()) == {"T"}


def test_every_function_that_is_looked_up_is_called() -> None:
    code = "".join(path.read_text() for path in (SHIM / "lib").rglob("*.[ch]"))
    assert [name for name in (*CALLS, *NVML_CALLS) if not re.search(rf"\b{name}\b", code)] == []


def test_dlsym_is_exported_without_a_version(library: Path) -> None:
    """So that references of programs linked before and after glibc 2.34 both find it."""
    lines = _tool("readelf", "-W", "--dyn-syms", str(library)).splitlines()
    for name in OWN_TOO:
        assert [line.split()[-1] for line in lines if re.search(rf"\b{name}(@|$)", line)] == [name]


def test_it_needs_no_library_of_the_driver(library: Path) -> None:
    dynamic = _tool("readelf", "-W", "-d", str(library))
    assert set(re.findall(r"NEEDED.*\[(.*)\]", dynamic)) <= {
        "libc.so.6",
        "libdl.so.2",
        "libpthread.so.0",
        "ld-linux-x86-64.so.2",
        "ld-linux-aarch64.so.1",
    }
    assert "TEXTREL" not in dynamic


def test_it_asks_for_nothing_of_the_driver_nor_for_dlsym(library: Path) -> None:
    undefined = _tool("nm", "-D", "--undefined-only", str(library)).split()
    names = {word.split("@")[0] for word in undefined}
    assert not {name for name in names if re.match(r"cu[A-Z]|nvml[A-Z]|dlv?sym$", name)}


def test_loading_it_looks_up_none_of_its_own_names(library: Path) -> None:
    """Each would be looked up in every library of every process that starts (-Wl,-Bsymbolic)."""
    relocations = _tool("readelf", "-W", "-r", str(library))
    assert not re.findall(r" (?:cu[A-Z]|nvml[A-Z]|dlv?sym)\w* \+ ", relocations)


def test_no_stack_of_a_program_becomes_executable(library: Path) -> None:
    stack = re.search(
        r"GNU_STACK.* (\S+)\s+0x\w+$", _tool("readelf", "-W", "-l", str(library)), re.MULTILINE
    )
    assert stack is not None
    assert "E" not in stack[1]


def test_as_released_no_variable_moves_the_slice(shim: Build) -> None:
    assert b"HAMI_SLICE_DIR" not in shim.released.read_bytes()
    assert b"/run/hami/nvidia" in shim.released.read_bytes()
    assert b"HAMI_SLICE_DIR" in shim.library.read_bytes()
