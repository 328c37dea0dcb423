"""The rooms of ``shim/lib``: what each may call, read from what the compiler made of it."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from .builds import SHIM, Build
from .hook_list import HOOKS, NVML_HOOKS

LIB = SHIM / "lib"

FLOORS = (
    {"base"},
    {"driver"},
    {"slice"},
    {"program", "code"},
    {"memory", "compute"},
    {"hooks/allocations", "hooks/contexts", "hooks/execution", "nvml"},
    {"resolve"},
)
"""From the ground up. A room calls what is below it, never a neighbour on its own floor."""

BY_ADDRESS = {
    ("resolve/hook_list", "resolve/proc_address"),
    ("resolve/resolve", "resolve/resolve_entry"),
}
"""Not calls: the list of hooks holds the address of each, and dlsym may be asked for dlsym."""

RESETS = re.findall(r"^HAMI_RESET\((\w+)\)", (LIB / "resets.def").read_text(), re.MULTILINE)
"""Declared by the list itself; base/reset.c holds their addresses, weakly."""

EXPORTED = {hook.name for hook in HOOKS} | set(NVML_HOOKS) | {"dlsym", "dlvsym"}


def room_of(file: str) -> str:
    return file.rpartition("/")[0]


def floor_of(file: str) -> int:
    return next(floor for floor, rooms in enumerate(FLOORS) if room_of(file) in rooms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    """What each file of the library defines for the others, and the files it needs."""

    defined: Mapping[str, set[str]]
    needs: Mapping[str, set[str]]


@pytest.fixture(scope="module")
def objects(shim: Build) -> Objects:
    folder = shim.folder / "test" / "o" / "lib"
    defined: dict[str, set[str]] = {}
    undefined: dict[str, set[str]] = {}
    for path in sources():
        file = path.relative_to(LIB).with_suffix("").as_posix()
        lines = subprocess.run(
            ["nm", str(folder / f"{file}.o")], check=True, capture_output=True, text=True
        ).stdout.splitlines()
        symbols = [(line.split()[-2], line.split()[-1]) for line in lines]
        defined[file] = {name for kind, name in symbols if kind in set("TDBRVWC")}
        undefined[file] = {name for kind, name in symbols if kind == "U"}
    owner = {name: file for file, names in defined.items() for name in names}
    needs = {
        file: {owner[name] for name in names if name in owner} for file, names in undefined.items()
    }
    return Objects(defined=defined, needs=needs)


def sources() -> list[Path]:
    return sorted([*LIB.rglob("*.c"), *LIB.rglob("*.S")])


def arrows(objects: Objects) -> Iterable[tuple[str, str]]:
    return ((file, needed) for file, all_ in objects.needs.items() for needed in all_)


def test_every_file_stands_in_a_room_under_a_name_of_its_own() -> None:
    names = [path.name for path in sources()]
    assert sorted(names) == sorted(set(names))
    rooms = {room_of(path.relative_to(LIB).as_posix()) for path in sources()}
    assert rooms == set().union(*FLOORS)


def test_rooms_call_downwards_only(objects: Objects) -> None:
    wrong = [
        f"{file}.c calls {needed}.c"
        for file, needed in arrows(objects)
        if room_of(file) != room_of(needed) and floor_of(file) <= floor_of(needed)
    ]
    assert wrong == []


def test_rooms_include_downwards_only() -> None:
    wrong = [
        f"{path.relative_to(LIB)} includes {included}"
        for path in sorted([*LIB.rglob("*.c"), *LIB.rglob("*.h")])
        for included in re.findall(r'^#include "(\w[\w/]*/\w+)\.h"', path.read_text(), re.MULTILINE)
        if room_of(file := path.relative_to(LIB).as_posix()) != room_of(included)
        and floor_of(file) <= floor_of(included)
    ]
    assert wrong == []


def test_no_circle_of_files(objects: Objects) -> None:
    graph = {
        file: {needed for needed in needs if (file, needed) not in BY_ADDRESS and needed != file}
        for file, needs in objects.needs.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        pytest.fail(" -> ".join(circle.args[1]))


def test_what_a_file_offers_is_declared_in_its_own_header_alone(objects: Objects) -> None:
    headers = {
        path.relative_to(LIB).with_suffix("").as_posix(): path.read_text()
        for path in LIB.rglob("*.h")
    }
    declared = {
        name: {file for file, text in headers.items() if declares(text, name)}
        for names in objects.defined.values()
        for name in names - EXPORTED - {*RESETS}
    }
    wrong = {
        name: declared[name]
        for file, names in objects.defined.items()
        for name in names - EXPORTED - {*RESETS}
        if declared[name] != {file}
    }
    assert wrong == {}


def test_what_starts_anew_is_on_the_list(objects: Objects) -> None:
    offered = [name for names in objects.defined.values() for name in names]
    assert sorted(RESETS) == sorted(name for name in offered if re.match(r"hami_\w+_reset$", name))


def declares(text: str, name: str) -> bool:
    """A prototype, or ``extern`` data; not a call from an inline function."""
    prototype = rf"^(?!static|return|\s)[\w ]+[ *]{name}\([^;{{]*\);"
    data = rf"^extern [^;(]*?(?:\{{[^}}]*\}} *)?{name}(?:\[\w+\])?;"
    return re.search(f"{prototype}|{data}", text, re.MULTILINE) is not None


def test_hooks_are_exported_by_the_rooms_that_are_for_them(objects: Objects) -> None:
    rooms = {room_of(file) for file, names in objects.defined.items() for name in names & EXPORTED}
    assert rooms == {"hooks/allocations", "hooks/contexts", "hooks/execution", "nvml", "resolve"}
