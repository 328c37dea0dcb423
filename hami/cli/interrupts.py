"""Ctrl-C while there is nothing to tidy up yet: modules are imported, the command line is read."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 130


@contextmanager
def ending_at_interrupt() -> Iterator[None]:
    """An interrupt within ends the process at once, with 130 and without a word.

    A library might swallow the exception, and one that is raised in code made of text (every
    dataclass has some, typer reads annotations) has Python end by the signal later, although it was
    handled.
    """
    former = signal.getsignal(signal.SIGINT)
    if former is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, former)


def raise_at_interrupt() -> None:
    """From here on there is something to tidy up: what ended the process raises an exception."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> None:
    os._exit(INTERRUPTED)
