"""docs/node-agent.md quotes what the agent says when a container must not start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs/node-agent.md").read_text()
TABLE = DOCS[DOCS.index("| the text says |") : DOCS.index("### The mode `lock`")]
QUOTED = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", TABLE, re.MULTILINE)[1:]


def said() -> str:
    """Every text of the agent's sources, put together as Python puts literals together."""
    files = [*(ROOT / "hami/node").rglob("*.py"), ROOT / "hami/signing.py"]
    sources = "\n".join(path.read_text() for path in sorted(files))
    joined = re.sub(r'"\s*f?"', "", sources)
    return re.sub(r"\{[^{}]*\}", "...", joined)


@pytest.mark.parametrize("text", QUOTED)
def test_the_text_is_one_that_the_agent_says(text):
    source = said()
    for part in re.split(r"\s*\.\.\.\s*", text):
        assert part in source, f"docs/node-agent.md quotes {part!r}, which the agent does not say"
