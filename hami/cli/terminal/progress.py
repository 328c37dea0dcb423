"""A progress bar for runs of more than a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress

_PATIENCE = 1.0
"""Seconds before the bar appears."""


@contextmanager
def progress_bar(
    console: Console, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[int, int], None]]:
    """A callback ``(done, total)``; draws only on a terminal, and only after a second."""
    if not console.is_terminal:
        yield lambda _done, _total: None
        return
    started = clock()
    bar = Progress(console=console, transient=True)
    task = bar.add_task("placing pods")

    def report(done: int, total: int) -> None:
        if clock() - started > _PATIENCE:
            bar.start()
            bar.update(task, completed=done, total=total)

    try:
        yield report
    finally:
        bar.stop()
