"""docs/architecture.md and docs/concepts.md are about the code that is there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
CONTRACTS = {
    contract["name"]: contract
    for contract in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"][
        "contracts"
    ]
}
MOST_FILES_OF_A_WALK = 12
WALKS = re.findall(r"^## (Walk: .*)$", PAGE, re.MULTILINE)


def section(heading: str, text: str = PAGE) -> str:
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"no heading {heading}"
    return found[1]


def folders(text: str) -> list[str]:
    """The first cells of a table that name a folder of hami."""
    return re.findall(r"^\| `(hami/[\w/]+)` \|", text, re.MULTILINE)


def layers(contract: str, within: str) -> list[list[str]]:
    """Its folders, those of one layer together; modules are left out."""
    listed = [
        [
            ROOT.joinpath(*(f"{within}.{name}" if within else name).split("."))
            for name in re.split(r" [|:] ", layer)
        ]
        for layer in CONTRACTS[contract]["layers"]
    ]
    found = [[str(path.relative_to(ROOT)) for path in layer if path.is_dir()] for layer in listed]
    return [layer for layer in found if layer]


def test_every_path_on_the_page_exists():
    paths = re.findall(r"`([\w.-]+/[\w./*-]*)`", PAGE)
    assert len(paths) > 60
    assert sorted({path for path in paths if not (ROOT / path).exists()}) == []


PLACES = [row for row in section("Where do I put ...").splitlines() if row.startswith("| a")]


@pytest.mark.parametrize("row", PLACES, ids=lambda row: row.split(" |")[0].removeprefix("| "))
def test_a_name_stands_in_a_file_of_its_row(row):
    files = [ROOT / path for path in re.findall(r"`([\w.-]+/[\w./-]*)`", row)]
    code = "\n".join(path.read_text() for path in files if path.is_file())
    names = [name for name in re.findall(r"`([A-Za-z_]+)`", row) if not name.startswith("hami_")]
    assert [name for name in names if not re.search(rf"\b{name}\b", code)] == []


def test_every_folder_has_its_place():
    inside = {str(path.parent.relative_to(ROOT)) for path in ROOT.glob("hami/*/__init__.py")}
    assert set(folders(section("Where things are"))) == inside


@pytest.mark.parametrize(
    ("heading", "contract", "within"),
    [
        ("Where things are", "Imports only go down", ""),
        ("Inside the scheduler", "Inside the scheduler, imports only go down", "hami.scheduler"),
        ("Inside the node agent", "Inside the node agent, imports only go down", "hami.node"),
        ("Inside the monitor", "Inside the monitor, imports only go down", "hami.monitor"),
        ("Inside the policies", "Inside the policies, imports only go down", "hami.policy"),
    ],
)
def test_a_table_goes_down_as_imports_do(heading, contract, within):
    listed = folders(section(heading))
    for layer in layers(contract, within):
        assert sorted(listed[: len(layer)]) == sorted(layer)
        del listed[: len(layer)]
    assert listed == []


def test_what_does_no_io_is_held_to_it():
    pure = re.findall(r"^\| `(hami/\w+)` \|.*\| no \|$", section("Where things are"), re.MULTILINE)
    held = CONTRACTS["Pure packages do no I/O and read no clock"]["source_modules"]
    assert {*pure} - {"hami/simulate"} == {name.replace(".", "/") for name in held}


def test_the_walks_are_these_three():
    assert WALKS == [
        "Walk: a pod, from filter to bind",
        "Walk: a container's start, from Allocate to PreStart",
        "Walk: an allocation, cuMemAlloc",
    ]


@pytest.mark.parametrize("walk", WALKS)
def test_a_walk_names_a_file_a_line(walk):
    items = re.findall(r"^\d+\. (.*)$", section(walk), re.MULTILINE)
    assert 1 < len(items) <= MOST_FILES_OF_A_WALK
    assert [item for item in items if not re.match(r"`[\w./-]+\.\w+`: \S", item)] == []


GLOSSARY = dict(
    re.findall(
        r"^\| ([\w -]+) \| (.*?) \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE
    )
)
CONCEPTS = re.findall(
    r"^- \*\*([\w -]+)\*\*: (.*?)(?=\n\n|\n- |\n#|\Z)",
    (ROOT / "docs" / "concepts.md").read_text(),
    re.MULTILINE | re.DOTALL,
)


@pytest.mark.parametrize(
    ("word", "text"), [pytest.param(*found, id=found[0]) for found in CONCEPTS]
)
def test_a_concept_is_what_the_glossary_says(word, text):
    assert " ".join(text.split()).startswith(GLOSSARY[word])
