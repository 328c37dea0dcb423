"""What a terminal is shown: texts without control characters, lines as wide as the reader takes."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass

from rich.console import Console

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""C0, DEL, C1, line separators, those that turn the direction of writing, halves of characters."""
_NO_LIMIT = 1_000_000


def visible(text: str) -> str:
    """The text with control characters written out: manifests come from anyone."""
    return _CONTROLS.sub(lambda found: repr(found.group())[1:-1], text)


def output_console() -> Console:
    """For standard output; lines are wrapped for a terminal alone, never for a program."""
    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    return Console() if on_terminal else Console(width=_NO_LIMIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Glyphs:
    """Characters beyond ASCII that tables use."""

    full: str = "█"
    empty: str = "░"
    more: str = "…"


def glyphs_for(console: Console) -> Glyphs:
    """Those that the console's encoding has, or ASCII."""
    glyphs = Glyphs()
    try:
        f"{glyphs.full}{glyphs.empty}{glyphs.more}".encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return Glyphs(full="#", empty=".", more="...")
    return glyphs
