"""What a terminal can show: lines of its width, characters of its encoding."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from rich.console import Console

_NO_LIMIT = 1_000_000


def output_console() -> Console:
    """A console for standard output; wraps lines for a terminal, and never for a program."""
    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    return Console() if on_terminal else Console(width=_NO_LIMIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Glyphs:
    """Characters beyond ASCII that tables use."""

    full: str = "█"
    empty: str = "░"
    more: str = "…"


def glyphs_for(console: Console) -> Glyphs:
    """The glyphs if the console's encoding has them, else ASCII."""
    glyphs = Glyphs()
    try:
        f"{glyphs.full}{glyphs.empty}{glyphs.more}".encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return Glyphs(full="#", empty=".", more="...")
    return glyphs
