"""Ctrl-C while there is nothing to tidy up yet: during imports and command line parsing."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

INTERRUPTED = 130


@contextmanager
def ending_at_interrupt() -> Iterator[None]:
    """While the block runs, an interrupt ends the process at once, with 130 and no message.

    A library might swallow the exception. And an exception in generated code (every dataclass has
    some, typer evaluates annotations) makes Python end by the signal later, although it was
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
    """Let an interrupt raise KeyboardInterrupt again: there is something to tidy up now."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> None:
    os._exit(INTERRUPTED)
