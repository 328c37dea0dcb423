"""Lines for people: a heading, then things, each with a sentence beside it or below."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from hami.cli.terminal.escaping import visible
from hami.migration.conversion import Conversion, KeyFinding
from hami.migration.keys import Verdict

_NO_LIMIT = 1_000_000
_ORDER = (
    (Verdict.LOST, "Not honoured"),
    (Verdict.UNKNOWN, "Unknown"),
    (Verdict.TRANSLATED, "Translated"),
    (Verdict.SAME, "The same"),
    (Verdict.NO_EFFECT, "Without effect"),
    (Verdict.DEFAULT, "HAMi's default, so hami's holds"),
)


def report_console() -> Console:
    """A console for standard error; wraps lines for a terminal, and never for a program."""
    on_terminal = sys.stderr is not None and sys.stderr.isatty()
    return Console(stderr=True) if on_terminal else Console(stderr=True, width=_NO_LIMIT)


def pairs(console: Console, heading: str, found: Iterable[Sequence[str]]) -> None:
    """Each pair on a line, or one half below the other where that is wider than the console."""
    rows = [(visible(first), visible(second)) for first, second in found]
    if not rows:
        return
    console.print(Text(heading, style="bold"))
    width = max(len(first) for first, _ in rows)
    apart = any(2 + width + 2 + len(second) > console.width for _, second in rows)
    for first, second in rows:
        if apart:
            console.print(Padding(Text(first), (0, 0, 0, 2), expand=False), overflow="fold")
            console.print(Padding(Text(second, style="dim"), (0, 0, 0, 4), expand=False))
        else:
            console.print(Text(f"  {first:{width}}  {second}".rstrip()), soft_wrap=True)


def show(console: Console, conversion: Conversion, *, defaults: bool) -> None:
    """Every key of the file by what became of it; those with HAMi's default only if asked for."""
    for verdict, heading in _ORDER:
        held = [one for one in conversion.findings if one.verdict is verdict]
        if verdict is Verdict.DEFAULT and not defaults:
            continue
        pairs(console, heading, [(one.key, _said(one)) for one in held])
    pairs(
        console,
        "Defaults that differ, and what keeps HAMi's",
        [(one.text, f"{one.keep or 'nothing'} ({one.key})") for one in conversion.differences],
    )
    console.print(Text(summary(conversion), style="bold"))


def _said(one: KeyFinding) -> str:
    return "" if one.verdict is Verdict.DEFAULT else one.text


def summary(conversion: Conversion) -> str:
    """``12 keys: 5 the same, ...``."""
    counts = {
        verdict: sum(1 for one in conversion.findings if one.verdict is verdict)
        for verdict, _ in _ORDER
    }
    parts = [f"{count} {verdict}" for verdict, count in counts.items() if count]
    total = len(conversion.findings)
    return f"{total} {'key' if total == 1 else 'keys'}: {', '.join(parts) or 'nothing to do'}"
