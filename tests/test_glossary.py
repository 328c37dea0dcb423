"""The glossary and the code use the same words."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (ROOT / "docs" / "glossary.md").read_text().splitlines()
    if line.startswith("| ") and not line.startswith("| Word")
]


@pytest.mark.parametrize("row", [pytest.param(row, id=row[0]) for row in ROWS])
def test_a_words_class_is_where_the_glossary_says(row):
    named = re.fullmatch(r"`([a-z_.]+)\.([A-Z]\w+)`", row[2])
    assert named, f"{row[2]} names no class"
    source = ROOT.joinpath(*named[1].split(".")).with_suffix(".py").read_text()
    classes = {node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
    assert named[2] in classes


def test_the_words_stand_in_the_order_of_the_alphabet():
    words = [row[0] for row in ROWS]
    assert words == sorted(set(words))
