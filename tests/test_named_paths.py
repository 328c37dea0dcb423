"""Every path of this repository that a document, docstring or comment names exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
NAMED = re.compile(
    r"`+((?:hami|lab|plugins|docs|tests|shim|examples|charts|benchmarks)/[\w./-]*[\w/])`+"
)
MADE = ("shim/build",)
"""What building makes."""


def documents() -> list[str]:
    found = [*ROOT.glob("*.md")]
    for folder in (
        "hami",
        "lab",
        "plugins",
        "docs",
        "tests",
        "shim",
        "examples",
        "charts",
        "benchmarks",
    ):
        found += [
            path
            for path in (ROOT / folder).rglob("*")
            if path.suffix in {".md", ".py", ".c", ".h", ".yaml"} and "build" not in path.parts
        ]
    return sorted(str(path.relative_to(ROOT)) for path in found if path.name != "CHANGELOG.md")


def test_every_path_that_is_named_exists():
    named = [
        (document, path)
        for document in documents()
        for path in NAMED.findall((ROOT / document).read_text(errors="replace"))
    ]
    assert len(named) > 30
    gone = [(d, p) for d, p in named if not p.startswith(MADE) and not (ROOT / p).exists()]
    assert gone == []
