"""What a terminal is shown: lines as wide as the reader takes, characters that it has."""

from __future__ import annotations

import sys
from dataclasses import dataclass

from rich.console import Console

_NO_LIMIT = 1_000_000


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
